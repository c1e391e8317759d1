use std::collections::BTreeMap;
use std::fmt::Debug;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use super::from_str;

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Strict {
    name: String,
    names: Vec<String>,
    maybe: Option<Vec<Self>>,
    more: BTreeMap<String, Vec<Self>>,
    numbered: BTreeMap<i8, Vec<Vec<u8>>>,
    newtype: Newtype,
    pair: (Vec<String>, bool),
    kind: Kind,
}

#[derive(Debug, Default, Deserialize)]
struct Newtype(Vec<Option<Vec<String>>>);

#[derive(Debug, Default, Deserialize)]
enum Kind {
    #[default]
    Plain,
    Holds(Vec<String>),
}

/// Skips unknown fields and reads some fields twice.
#[derive(Debug, Deserialize)]
struct Loose {
    #[serde(default)]
    names: Vec<String>,
    either: Option<Either>,
    raw: Option<Box<RawValue>>,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Tree {
    all: Vec<Self>,
    names: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Either {
    Names(Vec<String>),
    Named { names: Vec<String> },
}

const DOCUMENTS: &[&str] = &[
    r#"{"names":["a","b,]","c\"[","d\\"],"maybe":[{"names":["x"],"maybe":[]},{"maybe":[{"name":"}"}]}],"name":"n"}"#,
    " { \"names\" : [ \"a\" , \"b\" ] , \"more\" : {\"k\": [{}, {\"names\":[\"z\"]}], \"e\\n\":[{},{},{}], \"\" :[]}}\n",
    r#"{"numbered":{"1":[[1,2],[3]],"-2":[]},"newtype":[null,["a"],["b","c"]],"pair":[["a","b","c"],true]}"#,
    r#"{"kind":{"Holds":["a","b"]},"maybe":null,"names":[]}"#,
    r#"{"either":{"names":["a","b"]},"raw":[{"names":["x", "y"]}],"other":[[["a"],[]],{"b":[1]}],"names":["c"]}"#,
    r#"{"either":["a"],"raw":"[","unknown":{"names":[1,"a",[2]]},"na\u006des":["d","e","f","g","h"]}"#,
];

fn same<T: DeserializeOwned + Debug + Send>(json: &[u8]) {
    let shown = |result: Result<T, serde_json::Error>| {
        result
            .map(|value| format!("{value:?}"))
            .map_err(|error| error.to_string())
    };
    let expected = shown(serde_json::from_slice(json));
    let text = String::from_utf8_lossy(json);
    if let Ok(json) = std::str::from_utf8(json) {
        assert_eq!(shown(from_str(json)), expected, "{text:?}");
    }
}

#[test]
fn values_and_errors_match_serde_json() {
    let each = |json: &[u8]| {
        same::<Strict>(json);
        same::<Loose>(json);
        same::<Value>(json);
    };
    for document in DOCUMENTS {
        let document = document.as_bytes();
        for at in 0..=document.len() {
            each(&document[..at]);
        }
        for at in 0..document.len() {
            let mut changed = document.to_vec();
            for byte in b"\"\\[]{},:0a \x7f\xff" {
                changed[at] = *byte;
                each(&changed);
            }
            changed.remove(at);
            each(&changed);
        }
    }
}

fn is_exact(strict: &Strict) -> bool {
    let full = |names: &Vec<String>| names.capacity() == names.len();
    let all = |list: &Vec<Strict>| list.capacity() == list.len() && list.iter().all(is_exact);
    full(&strict.names) && strict.maybe.iter().all(all) && strict.more.values().all(all)
}

#[test]
fn vectors_have_no_spare_capacity() {
    for elements in 0..200 {
        let list = |element: &str| vec![element; elements].join(",");
        let named = format!(r#"{{"names":[{}],"name":"x"}}"#, list(r#""a [\\\"{\\""#));
        let inner = format!(
            r#"{{"maybe":[{}],"more":{{"k": [{named},{{}}]}}}}"#,
            list(&named[..])
        );
        let strict: Strict = from_str(&format!(r#"{{"more":{{"a":[{inner}],"b":[]}}}}"#)).unwrap();
        let inner = &strict.more["a"][0];
        assert_eq!(inner.maybe.as_ref().map(Vec::len), Some(elements));
        assert!(
            is_exact(&strict) && inner.more["k"][0].names.len() == elements,
            "{elements}"
        );
    }
}

#[test]
fn vectors_after_escaped_keys_grow_as_usual() {
    let strict: Strict = from_str(r#"{"n\u0061mes":["a","b","c"]}"#).unwrap();
    assert_eq!(strict.names, ["a", "b", "c"]);
    assert!(strict.names.capacity() > 3);
}

#[test]
fn brackets_in_strings_are_not_counted() {
    // The array has a single element. If the brackets in its string counted, it would have many.
    let json = format!(r#"{{"names":["{}"],"maybe":[]}}"#, "[{".repeat(1000));
    let strict: Strict = from_str(&json).unwrap();
    assert_eq!(strict.names.capacity(), 1);
}

#[test]
fn deep_or_many_arrays_decode_like_serde_json() {
    for (open, close) in [("[", "]"), ("{\"a\":[", "]}"), ("[{\"a\":", "}]")] {
        for times in [60, 127, 128, 500, 100_000] {
            let deep = open.repeat(times);
            same::<Loose>(format!(r#"{{"names":{deep}"#).as_bytes());
            // Some types skip `x`, others reject it.
            let closed = format!(r#"{{"x":{deep}{},"names":["a","b"]}}"#, close.repeat(times));
            same::<Strict>(closed.as_bytes());
            same::<Loose>(closed.as_bytes());
        }
    }
    // The inputs have many arrays in skipped fields, many decoded arrays, or both.
    let read = r#"{"names":["a"]},"#.repeat(100_000);
    for skipped in ["[],".repeat(100_000), "[".repeat(200)] {
        let json = format!(r#"{{"x":[{{"y":[{skipped}"#);
        same::<Loose>(json.as_bytes());
        let json = format!(r#"{{"maybe":[{read}{{"x":[{skipped}"#);
        same::<Strict>(json.as_bytes());
    }
    let json = format!(
        r#"{{"all":[{{"x":[{}[]]}},{read}{{}}]}}"#,
        "[],".repeat(100_000)
    );
    same::<Tree>(json.as_bytes());
    // Beyond the limit of counted arrays, vectors grow as usual.
    let many = format!(
        r#"{{"maybe":[{}{{"names":["a","b","c"]}}]}}"#,
        r#"{"names":[]},"#.repeat(70_000)
    );
    let strict: Strict = from_str(&many).unwrap();
    let maybe = strict.maybe.unwrap();
    assert_eq!(maybe.len(), 70_001);
    assert_eq!(maybe[70_000].names, ["a", "b", "c"]);
}
