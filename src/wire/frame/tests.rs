use super::*;

fn split(chunks: &[&[u8]], limit: usize) -> Result<Vec<String>, SplitError> {
    let mut frames = Vec::new();
    let mut splitter = FrameSplitter::new(limit);
    let mut take = |splitter: &mut FrameSplitter, input: &[u8], piece| {
        let frame = splitter.piece(input, piece);
        if !crate::wire::has_several(frame) {
            frames.push(String::from_utf8_lossy(frame).into_owned());
        } else {
            splitter.split_line();
        }
    };
    for chunk in chunks {
        let mut chunk = *chunk;
        loop {
            let (consumed, piece) = splitter.next(chunk)?;
            let Some(piece) = piece else {
                assert_eq!(consumed, chunk.len());
                break;
            };
            take(&mut splitter, chunk, piece);
            chunk = &chunk[consumed..];
        }
    }
    while let Some(piece) = splitter.next_at_end()? {
        take(&mut splitter, &[], piece);
    }
    Ok(frames)
}

fn split_anywhere(stream: &str, frames: &[&str]) {
    let stream = stream.as_bytes();
    for cut in 0..stream.len() {
        assert_eq!(
            split(&[&stream[..cut], &stream[cut..]], 99).unwrap(),
            frames,
            "cut at {cut}"
        );
    }
}

#[test]
fn frames_are_lines_at_any_chunk_boundary() {
    split_anywhere(
        "{\"a\":1}\n\n{\"b\":\"}\\\"\"}\r\n{\"c\":3}\n",
        &["{\"a\":1}", "{\"b\":\"}\\\"\"}", "{\"c\":3}"],
    );
}

#[test]
fn frames_may_span_lines_share_one_or_lack_a_newline() {
    split_anywhere(
        " {\"a\":{}}{\"b\":{}} {\"c\":3}\n{\n\"d\": [\n1]\n}{ \r\n \"e\":5}\n{\"f\":6}",
        &[
            "{\"a\":{}}",
            "{\"b\":{}}",
            "{\"c\":3}",
            "{\n\"d\": [\n1]\n}",
            "{ \r\n \"e\":5}",
            "{\"f\":6}",
        ],
    );
}

#[test]
fn frames_on_one_line_are_split_despite_invalid_utf8() {
    let line = b"{\"a\":\"\xff}\"} {\"b\":1}\n";
    for cut in 0..line.len() {
        let frames = split(&[&line[..cut], &line[cut..]], 99).unwrap();
        assert_eq!(
            frames,
            ["{\"a\":\"\u{fffd}}\"}", "{\"b\":1}"],
            "cut at {cut}"
        );
    }
}

#[test]
fn malformed_frame_ends_with_its_line() {
    split_anywhere(
        "garbage\n{\"a\":1}\n{\"b\":{\n{\"c\":3}\nmore",
        &["garbage", "{\"a\":1}", "{\"b\":{", "{\"c\":3}", "more"],
    );
    split_anywhere("7 {\"a\":1}\nnull, 7", &["7 {\"a\":1}", "null, 7"]);
}

#[test]
fn truncated_frame_is_dropped() {
    split_anywhere("{\"a\":1}\n{\"b\":{\"c\":\"", &["{\"a\":1}"]);
}

#[test]
fn oversized_frame_is_skipped_except_for_its_beginning() {
    let stream =
        "{12}\n{\"a\":\"}\"}\n{1}{\"b\":[1,2,3]}\n{\n\"c\":\n{}\n}\n{4}{\"d\":\n{5}\n{\"e\":1";
    let frames = [
        "{12}", "{\"a\"", "{1}", "{\"b\"", "{\n\"c", "{4}", "{\"d\"", "{5}",
    ];
    for first in 0..stream.len() {
        for second in first..stream.len() {
            let chunks = [&stream[..first], &stream[first..second], &stream[second..]];
            let chunks = chunks.map(str::as_bytes);
            assert_eq!(
                split(&chunks, 4).unwrap(),
                frames,
                "cut at {first} and {second}"
            );
        }
    }
}

#[test]
fn oversized_garbage_and_endless_frame_fail_before_their_end_arrives() {
    let too_large = |limit| {
        let what = "a watch event";
        Err(SplitError::TooLarge { what, limit })
    };
    let endless = [b"{".as_slice(), &[b'x'; 64 * 4]].concat();
    assert_eq!(split(&[b"{12}\n", &endless], 4), too_large(256));
    let chunks: Vec<_> = endless.chunks(1).collect();
    assert_eq!(split(&chunks, 4), too_large(256));
    for several in ["{12}{34}\n", "{12} \r\n{34}\n"] {
        for cut in 0..several.len() {
            let (begin, end) = several.as_bytes().split_at(cut);
            assert_eq!(
                split(&[begin, end], 4).unwrap(),
                ["{12}", "{34}"],
                "{several} cut at {cut}"
            );
        }
    }
    assert_eq!(split(&[b"12345\n"], 4), too_large(4));
}
