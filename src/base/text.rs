//! Formats text from other systems for messages: on one line, without control characters, and with
//! a limited length. Also contains a function for percent-encoding.

use std::error::Error;
use std::fmt::{self, Write};

/// The reason why an input is not accepted, as a part of a sentence. It is only
/// for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reason(String);

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Reason {}

impl From<String> for Reason {
    fn from(reason: String) -> Self {
        Self(reason)
    }
}

impl From<Reason> for String {
    fn from(reason: Reason) -> Self {
        reason.0
    }
}

impl From<&str> for Reason {
    fn from(reason: &str) -> Self {
        Self(reason.to_owned())
    }
}

/// A name. Quotes are escaped, so you can put the name in quotes.
pub struct EscapedName<'a>(pub &'a str);

impl fmt::Display for EscapedName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// The maximum length of an object's name.
        const LENGTH: usize = 253;
        let end = self
            .0
            .char_indices()
            .nth(LENGTH)
            .map_or(self.0.len(), |(end, _)| end);
        let ellipsis = if end < self.0.len() { "…" } else { "" };
        write!(f, "{}{ellipsis}", self.0[..end].escape_debug())
    }
}

/// Text from a server, such as the message of a `Status`. Quotes and backslashes are kept, line
/// breaks and tabs become spaces. Characters that move the cursor or change the text direction are
/// escaped.
pub struct EscapedText<'a>(pub &'a str);

impl EscapedText<'_> {
    /// The maximum number of characters shown.
    pub const LENGTH: usize = 1024;
}

impl fmt::Display for EscapedText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut left = Self::LENGTH;
        for character in self.0.chars() {
            let character = if matches!(character, '\n' | '\r' | '\t') {
                ' '
            } else {
                character
            };
            let escaped = character.escape_debug();
            // `escape_debug` also escapes accents, because they could combine with a quote.
            let plain = matches!(character, '"' | '\'' | '\\') || character.is_alphanumeric();
            let Some(rest) = left.checked_sub(if plain { 1 } else { escaped.len() }) else {
                return f.write_char('…');
            };
            left = rest;
            if plain {
                f.write_char(character)?;
            } else {
                write!(f, "{escaped}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for EscapedText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// The characters, besides letters and digits, that never need encoding in a URL (RFC 3986).
pub(crate) const UNRESERVED: &[u8] = b"-._~";

/// Percent-encodes all characters except letters, digits and `allowed`.
pub(crate) fn percent_encoded(text: &str, allowed: &[u8]) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || allowed.contains(&byte) {
            encoded.push(byte.into());
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// Joins the first `most` texts, and adds the number of the others.
#[cfg(feature = "client")]
pub(crate) fn listed(texts: impl ExactSizeIterator<Item: fmt::Display>, most: usize) -> String {
    let more = texts.len().saturating_sub(most);
    let shown: Vec<String> = texts.take(most).map(|text| text.to_string()).collect();
    match more {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Decodes the percent escapes. Returns `None` if one is invalid. A plus sign is not an escape.
#[cfg(feature = "client")]
pub(crate) fn percent_decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut percent_decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        percent_decoded.push(match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                (digit()? * 16 + digit()?) as u8
            }
            byte => byte,
        });
    }
    Some(percent_decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_text_is_one_line_without_controls() {
        let harmless = "pods \"a\" isn't found: C:\\ – é 日本 ✓ 😀";
        assert_eq!(EscapedText(harmless).to_string(), harmless);
        for (hostile, shown) in [
            ("a\nb\r\tc\0", r"a b  c\0"),
            (
                "\x1b[31m\x7f\u{85}\u{9b}31m",
                r"\u{1b}[31m\u{7f}\u{85}\u{9b}31m",
            ),
            (
                "\u{2028}\u{2029}\u{202e}\u{2066}\u{200f}\u{feff}",
                r"\u{2028}\u{2029}\u{202e}\u{2066}\u{200f}\u{feff}",
            ),
        ] {
            assert_eq!(EscapedText(hostile).to_string(), shown);
            assert_eq!(
                format!("{:?}", EscapedText(hostile)),
                format!("\"{shown}\"")
            );
        }
    }

    #[test]
    fn escaped_text_length_limit_counts_escapes() {
        let fits = "é".repeat(EscapedText::LENGTH);
        assert_eq!(EscapedText(&fits).to_string(), fits);
        assert_eq!(
            EscapedText(&format!("{fits}!")).to_string(),
            format!("{fits}…")
        );
        let shown = EscapedText(&"\x1b".repeat(100_000)).to_string();
        assert!(
            shown.chars().count() <= EscapedText::LENGTH + 1 && shown.ends_with("}…"),
            "{shown}"
        );
    }
}
