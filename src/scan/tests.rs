use super::Scanner;
use super::block::{BLOCK, Block, behind, in_order, lanes, last, toggled};
use crate::time::Random;

fn any<const N: usize>(random: &mut Random, of: &[u8]) -> [u8; N] {
    [(); N].map(|()| of[random.below(of.len())])
}

#[test]
fn bits_of_a_block_stand_for_its_bytes() {
    let mut random = Random::seeded(1);
    for round in 0..1_000 {
        let block: Block = any(&mut random, b"x....");
        let before = round % 2 == 0;
        let marks = lanes(&block, |byte| byte == b'x');
        let of = |is_so: &dyn Fn(usize) -> bool| (0..BLOCK).map(|at| u64::from(is_so(at)) << at).sum::<u64>();
        let is_mark = |at: usize| block[at] == b'x';
        let odd = |at: usize| (0..=at).filter(|at| is_mark(*at)).count() % 2 == usize::from(!before);

        assert_eq!(in_order(marks), of(&is_mark));
        assert_eq!(last(marks), is_mark(BLOCK - 1));
        let follows = |at: usize| at.checked_sub(1).map_or(before, is_mark);
        assert_eq!(in_order(behind(marks, before)), of(&follows));
        let (between, goes_on) = toggled(marks, before);
        assert_eq!((in_order(between), goes_on), (of(&odd), odd(BLOCK - 1)));
    }
}

/// What is looked at in blocks ends where it does byte by byte, however the bytes come.
#[test]
fn a_value_ends_where_its_bracket_is_closed() {
    let mut random = Random::seeded(2);
    // Some are nearly all strings, some nearly all brackets; none of them need be JSON.
    for alphabet in [&br#"{["\"]}x"#[..], br#"{{[xxxxxxx"\\x,:]}"#, br#"{{{{[xxxx""xxx]}"#, br#"x"\"#] {
        let mut ended = 0;
        for _ in 0..2_000 {
            let mut bytes: [u8; 500] = any(&mut random, alphabet);
            bytes[0] = b'{';
            let end = Scanner::default().slowly(&bytes);
            ended += usize::from(end.is_some());
            assert_eq!(Scanner::default().end(&bytes), end, "{}", bytes.escape_ascii());

            let (mut scanner, mut came) = (Scanner::default(), 0);
            let in_parts = loop {
                if came == bytes.len() {
                    break None;
                }
                let part = &bytes[came..][..1 + random.below((bytes.len() - came).min(200))];
                match scanner.end(part) {
                    Some(end) => break Some(came + end),
                    None => came += part.len(),
                }
            };
            assert_eq!(in_parts, end, "{}", bytes.escape_ascii());
            assert_eq!(scanner.is_inside(), end.is_none());
        }
        assert!(ended > 500 || !alphabet.contains(&b'}'), "{ended} of {}", alphabet.escape_ascii());
    }
}
