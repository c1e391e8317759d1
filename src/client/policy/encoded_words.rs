//! Decodes the encoded words of RFC 2047, with the same rules as Go's `mime.WordDecoder`.

use base64::Engine;

/// Decodes all words of the form `=?charset?encoding?text?=` in a text, and returns the text.
/// Malformed words stay unchanged. Returns `None` if a word has an unknown charset.
pub(super) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let mut result = Vec::new();
    let mut rest = text;
    let mut between_words = false;
    while let Some(start) = find(rest, b"=?") {
        let (before, word) = rest.split_at_checked(start)?;
        let Some(Word {
            charset,
            encoding,
            content,
            behind,
        }) = word.get(2..).and_then(split)
        else {
            break;
        };
        let Some(content) = unpack(encoding, content) else {
            between_words = false;
            let (kept, behind) = rest.split_at_checked(start + 2)?;
            result.extend_from_slice(kept);
            rest = behind;
            continue;
        };
        // White space between two encoded words is ignored.
        if !(between_words && before.iter().all(|byte| b" \t\r\n".contains(byte))) {
            result.extend_from_slice(before);
        }
        convert(charset, content, &mut result)?;
        rest = behind;
        between_words = true;
    }
    result.extend_from_slice(rest);
    Some(result)
}

struct Word<'a> {
    charset: &'a [u8],
    encoding: u8,
    content: &'a [u8],
    /// The text after the word.
    behind: &'a [u8],
}

/// Splits a word whose leading `=?` has been removed.
fn split(word: &[u8]) -> Option<Word<'_>> {
    let (charset, rest) = word.split_at_checked(word.iter().position(|byte| *byte == b'?')?)?;
    let &[b'?', encoding, b'?', ref rest @ ..] = rest else {
        return None;
    };
    let (content, behind) = rest.split_at_checked(find(rest, b"?=")?)?;
    Some(Word {
        charset,
        encoding,
        content,
        behind: behind.get(2..)?,
    })
}

fn find(text: &[u8], pattern: &[u8; 2]) -> Option<usize> {
    text.windows(2).position(|window| window == pattern)
}

fn unpack(encoding: u8, content: &[u8]) -> Option<Vec<u8>> {
    match encoding {
        b'B' | b'b' => base64::engine::general_purpose::STANDARD
            .decode(content)
            .ok(),
        b'Q' | b'q' => unquote(content),
        _ => None,
    }
}

/// Decodes the `Q` encoding: `=20` is a byte, `_` is a space.
fn unquote(content: &[u8]) -> Option<Vec<u8>> {
    let mut result = Vec::with_capacity(content.len());
    let mut bytes = content.iter();
    while let Some(&byte) = bytes.next() {
        result.push(match byte {
            b'_' => b' ',
            b'=' => {
                let mut digit = || char::from(*bytes.next()?).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            b' '..=b'~' | b'\t' | b'\r' | b'\n' => byte,
            _ => return None,
        });
    }
    Some(result)
}

/// Converts to UTF-8. Content in UTF-8 is not validated.
fn convert(charset: &[u8], content: Vec<u8>, result: &mut Vec<u8>) -> Option<()> {
    let mut push =
        |character: char| result.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    if charset.eq_ignore_ascii_case(b"utf-8") {
        result.extend(content);
    } else if charset.eq_ignore_ascii_case(b"iso-8859-1") {
        content.into_iter().map(char::from).for_each(push);
    } else if charset.eq_ignore_ascii_case(b"us-ascii") {
        let character = |byte: u8| {
            if byte.is_ascii() {
                byte.into()
            } else {
                char::REPLACEMENT_CHARACTER
            }
        };
        content.into_iter().map(character).for_each(&mut push);
    } else {
        return None;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cases of Go's `TestDecodeHeader`, and malformed words.
    #[test]
    fn valid_encoded_words_are_decoded_and_invalid_ones_kept() {
        for (text, expected) in [
            ("", ""),
            ("=?UTF-8?Q?=C2=A1Hola,_se=C3=B1or!?=", "¡Hola, señor!"),
            (
                "=?UTF-8?Q?Fran=C3=A7ois-J=C3=A9r=C3=B4me?=",
                "François-Jérôme",
            ),
            ("=?UTF-8?q?ascii?=", "ascii"),
            ("=?utf-8?B?QW5kcsOp?=", "André"),
            ("=?ISO-8859-1?Q?Rapha=EBl_Dupont?=", "Raphaël Dupont"),
            ("=?UTF-8?A?Test?=", "=?UTF-8?A?Test?="),
            ("=?UTF-8?Q?A=B?=", "=?UTF-8?Q?A=B?="),
            ("=?UTF-8?Q?=A?=", "=?UTF-8?Q?=A?="),
            ("=?UTF-8?A?A?=", "=?UTF-8?A?A?="),
            ("=?=", "=?="),
            ("=?utf-8?", "=?utf-8?"),
            ("=?utf-8?q?unended", "=?utf-8?q?unended"),
            ("=?us-ascii?q?=41=ff?=", "A\u{fffd}"),
            ("(=?ISO-8859-1?Q?a?=)", "(a)"),
            ("(=?ISO-8859-1?Q?a?= b)", "(a b)"),
            ("(=?ISO-8859-1?Q?a?= =?ISO-8859-1?Q?b?=)", "(ab)"),
            ("(=?ISO-8859-1?Q?a?=  \r\n\t =?ISO-8859-1?Q?b?=)", "(ab)"),
            (
                "(=?ISO-8859-1?Q?a_?= =?ISO-8859-2?x?b?=)",
                "(a  =?ISO-8859-2?x?b?=)",
            ),
        ] {
            assert_eq!(
                decode(text.as_bytes()).as_deref(),
                Some(expected.as_bytes()),
                "{text}"
            );
        }
        assert_eq!(decode(b"=?ISO-8859-15?Q?caf=E9?="), None);
    }
}
