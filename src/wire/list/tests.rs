use super::*;

type Split = (
    Vec<serde_json::Value>,
    Result<(String, Option<String>), SplitError>,
);

fn split(body: &str, cuts: &[usize]) -> Split {
    let mut splitter = ListSplitter::new(1 << 20);
    let mut items = Vec::new();
    let mut start = 0;
    for &cut in cuts.iter().chain([&body.len()]) {
        let chunk = &body.as_bytes()[start..cut];
        start = cut;
        let fed = splitter.feed(chunk, |item| {
            let value: Result<serde_json::Value, _> = serde_json::from_slice(item);
            items.push(value.map_err(|_| SplitError::Malformed {
                what: "an item",
                offset: 0,
            })?);
            Ok::<(), SplitError>(())
        });
        if let Err(error) = fed {
            return (items, Err(error));
        }
    }
    let end = splitter.finish().map(|meta| {
        (
            meta.resource_version().to_owned(),
            meta.continue_token().map(str::to_owned),
        )
    });
    (items, end)
}

/// Bodies whose items are compared with those that serde_json finds.
const BODIES: &[&str] = &[
    r#"{"kind":"PodList","metadata":{"resourceVersion":"7","continue":"x"},"items":[{"a":1},{"b":[{}]}]}"#,
    r#"{"items":[{"s":"}]\"{"},{"e":"\\"}] , "metadata" : { "resourceVersion" : "7" },"kind":"List" }"#,
    r#"{"kind":"List","metadata":{"items":[1,2],"resourceVersion":"7"},"items":[],"x":{"items":[{}]}}"#,
    r#"{"kind":"List","metadata":{"resourceVersion":"7"},"items":null}"#,
    r#"{"kind":"PodList","apiVersion":null,"metadata":{"resourceVersion":"7"}}"#,
    r#"{"kind":"List","metadata":{"resourceVersion":"7"},"x":"items","items" : [ {"z":{"items":[3]}} ]}"#,
    r#"{"kind":"List","metadata":null,"items":[null,3,"a,]",[1,[2]],{"a":{}}]}"#,
];

#[test]
fn items_match_serde_json_at_any_chunk_boundary() {
    for body in BODIES {
        let value: serde_json::Value = serde_json::from_str(body).unwrap();
        let expected: Vec<serde_json::Value> = value
            .get("items")
            .and_then(|items| items.as_array().cloned())
            .unwrap_or_default();
        let version = value
            .pointer("/metadata/resourceVersion")
            .and_then(|v| v.as_str())
            .unwrap_or_default();
        for first in 0..body.len() {
            for second in [first, (first + 3).min(body.len())] {
                let (items, end) = split(body, &[first, second]);
                assert_eq!(items, expected, "{body} cut at {first}, {second}");
                assert_eq!(end.unwrap().0, version, "{body} cut at {first}, {second}");
            }
        }
    }
}

#[test]
fn body_truncated_anywhere_is_an_error() {
    for body in BODIES {
        for cut in 0..body.len() {
            assert!(split(&body[..cut], &[]).1.is_err(), "{body} cut at {cut}");
        }
    }
}

#[test]
fn html_page_is_reported_as_markup() {
    assert_eq!(
        split(" <!DOCTYPE html><html><body>Sign in</body></html>", &[]).1,
        Err(SplitError::Markup)
    );
}

#[test]
fn malformed_list_bodies_are_errors() {
    for body in [
        "",
        "[]",
        "x",
        "}}}}",
        "{\"items\":[}]}",
        "{\"kind\":\"List\",\"items\":{}}",
        "{\"kind\":\"List\",\"items\":7}",
        "{\"kind\":\"List\",\"items\":nul}",
        "{\"kind\":\"List\",\"items\":[],\"items\":[]}",
        "{\"kind\":\"List\",\"items\":[,]}",
        "{\"kind\":\"List\",\"items\":[{},]}",
        "{\"kind\":\"List\",\"items\":[{}{}]}",
        "{\"kind\":\"List\",\"items\":[{},,{}]}",
        "{\"kind\":\"List\",\"items\":[{} x]}",
        "{\"kind\":\"List\",\"metadata\":[\"7\"],\"items\":[]}",
        "{\"items\":[]]}",
        "{\"items\":[{}}",
        "\"items\":[",
        "<html>",
    ] {
        assert!(split(body, &[]).1.is_err(), "{body}");
    }
}

#[test]
fn oversized_item_fails_before_its_end_arrives() {
    let mut splitter = ListSplitter::new(8);
    let fed = splitter.feed(br#"{"items":[{"a":"#, |_| Ok::<(), SplitError>(()));
    assert_eq!(
        fed,
        Err(SplitError::TooLarge {
            what: "a list without its items",
            limit: 8
        })
    );
    let mut splitter = ListSplitter::new(10);
    let endless = [br#"{"items":[{"a":""#.as_slice(), &[b'1'; 640]].concat();
    let fed = splitter.feed(&endless, |_| Ok::<(), SplitError>(()));
    assert_eq!(
        fed,
        Err(SplitError::TooLarge {
            what: "a list item",
            limit: 640
        })
    );
    assert_eq!(splitter.rest(), br#"{"items":["#);
}

#[test]
fn oversized_item_is_skipped_except_for_its_beginning() {
    let list =
        br#"{"items":[{"a":1},{"b":"]}\"2345678"} , "a long string",{"c":3},[[1,2,3,4,5]]]}"#;
    let expected = [
        (false, r#"{"a":1}"#),
        (true, r#"{"b":"]}\""#),
        (true, r#""a long st"#),
        (false, r#"{"c":3}"#),
        (true, "[[1,2,3,4,"),
    ];
    for size in 1..=list.len() {
        let (mut splitter, mut items) = (ListSplitter::new(10), Vec::new());
        for mut chunk in list.chunks(size) {
            while let (consumed, Some(piece)) = splitter.next(chunk).unwrap() {
                let item = String::from_utf8_lossy(splitter.piece(chunk, piece)).into_owned();
                items.push((matches!(piece, Piece::Head), item));
                chunk = &chunk[consumed..];
            }
        }
        let expected = expected.map(|(is_head, item)| (is_head, item.to_owned()));
        assert_eq!(items, expected, "in pieces of {size}");
    }
    let mut fed = Vec::new();
    let result = ListSplitter::new(10).feed(list, |item| {
        fed.push(item.len());
        Ok::<(), SplitError>(())
    });
    assert!(matches!(
        result,
        Err(SplitError::TooLarge { limit: 10, .. })
    ));
    assert_eq!(fed, [7]);
}
