//! The warnings of a server, from its `Warning` headers. The counterparts are client-go's
//! `rest/warnings.go` and `ParseWarningHeaders` of apimachinery.

use std::collections::VecDeque;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use ureq::http::HeaderMap;
use ureq::http::header::WARNING;

use crate::base::derive::debug_fields;
use crate::base::panic::catch;
use crate::base::sync::Mutex;
use crate::base::text::EscapedText;
use crate::log;

/// The number of logged texts that a client remembers. The API server has a few dozen warnings,
/// some of which contain the name of a field.
const MAX_REMEMBERED: usize = 256;

/// The code of the API server's warnings: miscellaneous persistent warning.
const MISCELLANEOUS: u16 = 299;

/// A warning that a server sends with a response.
///
/// Examples are a deprecated API, an unknown or duplicated field, and an object that is probably
/// not what its author intended. To receive warnings, set
/// [`Config::on_warning`](crate::Config::on_warning). The agent and the text contain no control
/// characters.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Warning {
    /// The three-digit warning code. The API server uses 299.
    pub code: u16,
    /// The agent that sends the warning; `-` if it is not named.
    pub agent: String,
    /// The text of the warning.
    pub text: String,
}

/// Shows the text.
impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A warning handler set by the user.
#[derive(Clone)]
pub(in crate::client) struct WarningHandler(
    pub(in crate::client) Arc<dyn Fn(&Warning) + Send + Sync>,
);

debug_fields!(WarningHandler:);

/// Passes warnings to the handler, or logs them.
pub(super) struct Warnings {
    handler: Option<WarningHandler>,
    logged: Logged,
}

impl Warnings {
    pub(super) fn new(handler: Option<WarningHandler>) -> Self {
        Self {
            handler,
            logged: Logged::default(),
        }
    }

    /// Reports the warnings in the headers of a response. Unreadable warnings are ignored, because
    /// they do not affect the response.
    pub(super) fn report(&self, headers: &HeaderMap, context: &str) {
        for value in headers.get_all(WARNING) {
            for warning in parse(value.as_bytes()) {
                match &self.handler {
                    Some(WarningHandler(handler)) => {
                        if let Err(panic) = catch(|| handler(&warning)) {
                            log::error!("{context}: the warning handler {panic}");
                        }
                    }
                    None => self.log(&warning, context),
                }
            }
        }
    }

    fn log(&self, warning: &Warning, context: &str) {
        let text = &warning.text;
        if warning.code != MISCELLANEOUS || text.is_empty() || !self.logged.is_new(text) {
            return;
        }
        log::warn!("{context}: warning from the server: {}", EscapedText(text));
    }
}

/// Remembers the logged texts. It stores only hashes, because texts can be long.
#[derive(Default)]
struct Logged {
    hasher: RandomState,
    /// The newest hash is at the end. This is an innermost lock.
    texts: Mutex<VecDeque<u64>>,
}

impl Logged {
    /// Returns whether the text is new, and remembers it. A full memory forgets its oldest text.
    fn is_new(&self, text: &str) -> bool {
        let hash = self.hasher.hash_one(text);
        let mut texts = self.texts.lock();
        if texts.contains(&hash) {
            return false;
        }
        if texts.len() == MAX_REMEMBERED {
            texts.pop_front();
        }
        texts.push_back(hash);
        true
    }
}

/// Parses one header. Stops at the first warning that is unreadable. The counterpart is
/// apimachinery's `ParseWarningHeaders`.
fn parse(header: &[u8]) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut rest = header;
    while let Some((warning, remainder)) = if rest.is_empty() { None } else { first(rest) } {
        warnings.push(warning);
        rest = remainder;
    }
    warnings
}

/// Parses the first warning: `code agent "text"`, then an optional quoted date. Returns the warning
/// and the text after its comma. The counterpart is apimachinery's `ParseWarningHeader`.
fn first(header: &[u8]) -> Option<(Warning, &[u8])> {
    let mut parts = header.trim_ascii().splitn(3, |byte| *byte == b' ');
    let (code, agent, rest) = (parts.next()?, parts.next()?, parts.next()?);
    if code.len() != 3 || !code.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let code = std::str::from_utf8(code).ok()?.parse().ok()?;
    let agent = printable(agent.to_vec()).filter(|agent| !agent.is_empty())?;
    let (text, mut rest) = quoted(rest)?;
    let text = printable(text)?;
    if let Some(date) = rest.strip_prefix(b"\"") {
        let end = date.iter().position(|byte| *byte == b'"')?;
        rest = date.get(end + 1..)?.trim_ascii();
    }
    if !rest.is_empty() {
        rest = rest.strip_prefix(b",")?.trim_ascii();
    }
    Some((Warning { code, agent, text }, rest))
}

/// Parses a quoted string, in which `\` escapes the next byte. Returns the string and the text
/// after it.
fn quoted(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let text = text.strip_prefix(b"\"")?;
    let mut result = Vec::new();
    let mut escaped = false;
    for (index, &byte) in text.iter().enumerate() {
        match byte {
            b'"' if !escaped => return Some((result, text.get(index + 1..)?.trim_ascii())),
            b'\\' if !escaped => escaped = true,
            byte => {
                result.push(byte);
                escaped = false;
            }
        }
    }
    None
}

/// Returns the text if it is valid UTF-8 without control characters.
fn printable(text: Vec<u8>) -> Option<String> {
    String::from_utf8(text)
        .ok()
        .filter(|text| !text.contains(char::is_control))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warning(code: u16, agent: &str, text: &str) -> Warning {
        Warning {
            code,
            agent: agent.to_owned(),
            text: text.to_owned(),
        }
    }

    /// The cases of apimachinery's `TestParseWarningHeader`.
    #[test]
    fn malformed_warning_header_is_not_parsed() {
        for header in [
            &b""[..],
            b"A B",
            b"1 - \"text\"",
            b"A - \"text\"",
            br#"  299 - "text\"\\\a\b\c"  "Tue, 15 Nov 1994 08:12:31 GMT "#,
            br#"  299 - "text\"\\\a\b\c"  "Tue, 15 Nov 1994 08:12:31 GMT" other"#,
            b"  299 agent\0name \"text\"",
            b"  299 agent\xc5name \"text\"",
            b"  299 - \"text\0\"content",
            b"  299 - \"text\xc5\"content",
            // Cases that the Go test lacks.
            b"299  \"text\"",
            b"299 - text",
            b"299 - \"text",
            b"299 - \"text\\\"",
        ] {
            assert_eq!(first(header), None, "{:?}", String::from_utf8_lossy(header));
        }
    }

    /// The cases of apimachinery's `TestParseWarningHeader`, except for encoded words.
    #[test]
    fn warning_is_parsed_into_code_agent_and_text() {
        let escaped = "text\"\\abc";
        for (header, text, remainder) in [
            (r#"299 - "text""#, "text", ""),
            (r#"299 - "text\"\\\a\b\c""#, escaped, ""),
            // RFC 7234 does not allow encoded words.
            (
                r#"299 - "=?UTF-8?Q?This is a \"horsey\": =F0=9F=90=8E?=""#,
                r#"=?UTF-8?Q?This is a "horsey": =F0=9F=90=8E?="#,
                "",
            ),
            (r#"  299 - "text\"\\\a\b\c"  "#, escaped, ""),
            (
                r#"  299 - "text\"\\\a\b\c"  "Tue, 15 Nov 1994 08:12:31 GMT" "#,
                escaped,
                "",
            ),
            (
                r#"  299 - "text\"\\\a\b\c"  "Tue, 15 Nov 1994 08:12:31 GMT" , "#,
                escaped,
                "",
            ),
            (r#"  299 - "text\"\\\a\b\c"  , "#, escaped, ""),
            (
                r#"  299 - "text\"\\\a\b\c"  "Tue, 15 Nov 1994 08:12:31 GMT" , remainder "#,
                escaped,
                "remainder",
            ),
            (
                r#"  299 - "text\"\\\a\b\c"  ,remainder text,second remainder"#,
                escaped,
                "remainder text,second remainder",
            ),
            (
                r#" 299 - "Test of Iñtërnâtiônàlizætiøn,💝🐹🌇⛔" "#,
                "Test of Iñtërnâtiônàlizætiøn,💝🐹🌇⛔",
                "",
            ),
        ] {
            let expected = Some((warning(299, "-", text), remainder.as_bytes()));
            assert_eq!(first(header.as_bytes()), expected, "{header}");
        }
        assert_eq!(
            first(br#"321 me "text""#),
            Some((warning(321, "me", "text"), &b""[..]))
        );
    }

    /// The cases of apimachinery's `TestParseWarningHeaders`.
    #[test]
    fn warning_header_is_parsed_up_to_first_malformed_warning() {
        let texts = |header: &str| -> Vec<String> {
            parse(header.as_bytes())
                .into_iter()
                .map(|warning| warning.text)
                .collect()
        };
        assert_eq!(
            texts(r#"299 - "warning 1.1",299 - "warning 1.2""#),
            ["warning 1.1", "warning 1.2"]
        );
        assert_eq!(
            texts(r#"299 - "warning 2", 299 - "warning unquoted"#),
            ["warning 2"]
        );
        assert_eq!(
            texts(r#" 299 - "warning 3.1" ,  299 - "warning 3.2" "#),
            ["warning 3.1", "warning 3.2"]
        );
        assert!(texts("").is_empty() && texts(" ").is_empty() && texts(",,,").is_empty());
    }

    #[test]
    fn warning_text_counts_as_new_after_256_other_texts() {
        let logged = Logged::default();
        assert!(logged.is_new("a") && !logged.is_new("a"));
        for n in 1..MAX_REMEMBERED {
            assert!(logged.is_new(&n.to_string()));
        }
        assert!(!logged.is_new("a"), "the oldest of 256 texts was forgotten");
        assert!(logged.is_new("one more") && logged.is_new("a"));
        assert_eq!(logged.texts.lock().len(), MAX_REMEMBERED);
    }
}
