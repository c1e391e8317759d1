use super::Scanner;
use crate::json::block::{BLOCK, Block, escaped, in_order, lanes, toggled};
use crate::time::Random;

fn any<const N: usize>(random: &mut Random, of: &[u8]) -> [u8; N] {
    [(); N].map(|()| of[random.below(of.len())])
}

#[test]
fn byte_marks_and_toggled_ranges_match_a_bytewise_scan() {
    let mut random = Random::seeded(1);
    for round in 0..1_000 {
        let block: Block = any(&mut random, b"x....");
        let before = round % 2 == 0;
        let marks = lanes(&block, |byte| byte == b'x');
        let of = |is_so: &dyn Fn(usize) -> bool| {
            (0..BLOCK).map(|at| u64::from(is_so(at)) << at).sum::<u64>()
        };
        let is_mark = |at: usize| block[at] == b'x';
        let odd =
            |at: usize| (0..=at).filter(|at| is_mark(*at)).count() % 2 == usize::from(!before);

        assert_eq!(in_order(marks), of(&is_mark));
        assert_eq!(in_order(in_order(marks)), marks);
        let (between, goes_on) = toggled(marks, before);
        assert_eq!((in_order(between), goes_on), (of(&odd), odd(BLOCK - 1)));
    }
}

#[test]
fn every_other_backslash_of_a_run_escapes() {
    let mut random = Random::seeded(3);
    for round in 0..4_000 {
        let block: Block = any(
            &mut random,
            [&br"\x"[..], br"\\\\x", br"\xxxxxx", br"\"][round / 2 % 4],
        );
        let mut next_is = round % 2 == 0;
        let mut expected = 0;
        for (at, byte) in block.iter().enumerate() {
            expected |= u64::from(next_is) << at;
            next_is = *byte == b'\\' && !next_is;
        }
        let (bits, ends) = escaped(lanes(&block, |byte| byte == b'\\'), round % 2 == 0);
        assert_eq!(
            (in_order(bits), ends),
            (expected, next_is),
            "{}",
            block.escape_ascii()
        );
    }
}

/// Compares the scan by blocks with the scan by bytes, for whole inputs and for chunks of random
/// sizes.
#[test]
fn block_scan_matches_byte_scan() {
    let mut random = Random::seeded(2);
    // Some alphabets produce mostly strings, others mostly brackets or backslashes. Few of the
    // generated inputs are valid JSON.
    let mixed = [
        &br#"{["\"]}x"#[..],
        br#"{{[xxxxxxx"\\x,:]}"#,
        br#"{{{{[xxxx""xxx]}"#,
        br#"{"\\\\}"#,
        br#"x"\"#,
    ];
    for alphabet in mixed {
        let mut ended = 0;
        for _ in 0..2_000 {
            let mut bytes: [u8; 500] = any(&mut random, alphabet);
            bytes[0] = b'{';
            let mut slow = Scanner::default();
            let end = slow.end_by_byte(&bytes);
            ended += usize::from(end.is_some());
            assert_eq!(
                Scanner::default().end(&bytes),
                end,
                "{}",
                bytes.escape_ascii()
            );

            let (mut scanner, mut consumed) = (Scanner::default(), 0);
            let in_parts = loop {
                if consumed == bytes.len() {
                    break None;
                }
                let part =
                    &bytes[consumed..][..1 + random.below((bytes.len() - consumed).min(200))];
                match scanner.end(part) {
                    Some(end) => break Some(consumed + end),
                    None => consumed += part.len(),
                }
            };
            assert_eq!(in_parts, end, "{}", bytes.escape_ascii());
            assert!(scanner.deepest() >= slow.deepest());
            scanner.deepest = slow.deepest;
            assert_eq!(format!("{scanner:?}"), format!("{slow:?}"));
        }
        assert!(
            ended > 500 || !alphabet.contains(&b'}'),
            "{ended} of {}",
            alphabet.escape_ascii()
        );
    }
}
