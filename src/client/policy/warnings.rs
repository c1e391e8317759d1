//! What a server warns of, in its `Warning` headers: client-go's `rest/warnings.go`, and
//! `ParseWarningHeaders` of apimachinery.

use std::collections::VecDeque;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use ureq::http::HeaderMap;
use ureq::http::header::WARNING;

use super::encoded_words;
use crate::panic::catch;
use crate::sync::Mutex;
use crate::text::Prose;

/// How many texts a client remembers to have logged. The API server has some dozens in all.
const REMEMBERED: usize = 256;

/// The code of what the API server warns of: a miscellaneous warning that stays.
const MISCELLANEOUS: u16 = 299;

/// What a server warns of beside its answer: that an API is deprecated, that a field is unknown or given
/// twice, that an object is not what its author wanted. See
/// [`Config::on_warning`](crate::Config::on_warning).
///
/// Neither agent nor text hold control characters.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Warning {
    /// What kind of warning it is, three digits: 299 is the API server's.
    pub code: u16,
    /// Who warns; `-` for somebody who doesn't say.
    pub agent: String,
    /// Of what.
    pub text: String,
}

/// The text.
impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A user's own way with warnings.
#[derive(Clone)]
pub(in crate::client) struct WarningHandler(
    pub(in crate::client) Arc<dyn Fn(&Warning) + Send + Sync>,
);

impl fmt::Debug for WarningHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WarningHandler")
    }
}

/// Passes on what a client's answers warn of.
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

    /// Those in the head of an answer to `asked`. What can't be read is left out, as it says nothing of the
    /// answer.
    pub(super) fn report(&self, headers: &HeaderMap, asked: &str) {
        for value in headers.get_all(WARNING) {
            for warning in parse(value.as_bytes()) {
                match &self.handler {
                    Some(WarningHandler(handler)) => {
                        if let Err(panic) = catch(|| handler(&warning)) {
                            log::error!("{asked}: the handler of warnings {panic}");
                        }
                    }
                    None => self.log(&warning, asked),
                }
            }
        }
    }

    fn log(&self, warning: &Warning, asked: &str) {
        let text = &warning.text;
        if warning.code != MISCELLANEOUS || text.is_empty() || !self.logged.is_new(text) {
            return;
        }
        log::warn!("{asked}: the server warns: {}", Prose(text));
    }
}

/// Which texts were logged, by their hashes: of the longest texts, too, there is not much to remember.
#[derive(Default)]
struct Logged {
    hasher: RandomState,
    /// The latest last. Innermost.
    texts: Mutex<VecDeque<u64>>,
}

impl Logged {
    /// Whether it was not logged yet, or so long ago that it is forgotten; now it is.
    fn is_new(&self, text: &str) -> bool {
        let hash = self.hasher.hash_one(text);
        let mut texts = self.texts.lock();
        if texts.contains(&hash) {
            return false;
        }
        if texts.len() == REMEMBERED {
            texts.pop_front();
        }
        texts.push_back(hash);
        true
    }
}

/// The warnings in one header: those before the first that can't be read. apimachinery's
/// `ParseWarningHeaders`.
fn parse(header: &[u8]) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut rest = header;
    while let Some((warning, remainder)) = if rest.is_empty() { None } else { first(rest) } {
        warnings.push(warning);
        rest = remainder;
    }
    warnings
}

/// The first warning, `code agent "text"` with perhaps a quoted date behind, and what comes after its comma.
/// apimachinery's `ParseWarningHeader`.
fn first(header: &[u8]) -> Option<(Warning, &[u8])> {
    let mut parts = header.trim_ascii().splitn(3, |byte| *byte == b' ');
    let (code, agent, rest) = (parts.next()?, parts.next()?, parts.next()?);
    if code.len() != 3 || !code.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let code = std::str::from_utf8(code).ok()?.parse().ok()?;
    let agent = shown(agent.to_vec()).filter(|agent| !agent.is_empty())?;
    let (text, mut rest) = quoted(rest)?;
    // RFC 2616 wanted these, RFC 7234 doesn't.
    let text = shown(encoded_words::decode(&text).unwrap_or(text))?;
    if let Some(date) = rest.strip_prefix(b"\"") {
        let end = date.iter().position(|byte| *byte == b'"')?;
        rest = date.get(end + 1..)?.trim_ascii();
    }
    if !rest.is_empty() {
        rest = rest.strip_prefix(b",")?.trim_ascii();
    }
    Some((Warning { code, agent, text }, rest))
}

/// What stands between quotes, with `\` before whatever is to be taken as it is; and what comes behind.
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

/// Text that may be shown.
fn shown(text: Vec<u8>) -> Option<String> {
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

    /// apimachinery's `TestParseWarningHeader`.
    #[test]
    fn what_can_not_be_read_is_none() {
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
            // And what that table leaves out.
            b"299  \"text\"",
            b"299 - text",
            b"299 - \"text",
            b"299 - \"text\\\"",
            b"299 - \"=?utf-8?q?=1b[31m?=\"",
            b"299 - \"=?utf-8?b?/w==?=\"",
        ] {
            assert_eq!(first(header), None, "{:?}", String::from_utf8_lossy(header));
        }
    }

    /// apimachinery's `TestParseWarningHeader`.
    #[test]
    fn a_warning_has_a_code_an_agent_and_a_text() {
        let escaped = "text\"\\abc";
        for (header, text, remainder) in [
            (r#"299 - "text""#, "text", ""),
            (r#"299 - "text\"\\\a\b\c""#, escaped, ""),
            (
                r#"299 - "=?iso-8859-1?q?this=20is=20some=20text?=""#,
                "this is some text",
                "",
            ),
            (
                r#"299 - "=?UTF-8?B?VGhpcyBpcyBhIGhvcnNleTog8J+Qjg==?= And =?UTF-8?B?VGhpcyBpcyBhIGhvcnNleTog8J+Qjg==?=""#,
                "This is a horsey: 🐎 And This is a horsey: 🐎",
                "",
            ),
            (
                r#"299 - "=?UTF-8?Q?This is a \"horsey\": =F0=9F=90=8E?=""#,
                r#"This is a "horsey": 🐎"#,
                "",
            ),
            (
                r#"299 - "=?UTF-9?Q?This is a horsey: =F0=9F=90=8E?=""#,
                "=?UTF-9?Q?This is a horsey: =F0=9F=90=8E?=",
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

    /// apimachinery's `TestParseWarningHeaders`.
    #[test]
    fn a_header_has_several_up_to_one_that_can_not_be_read() {
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
    fn a_text_is_new_once_until_too_many_others_have_come() {
        let logged = Logged::default();
        assert!(logged.is_new("a") && !logged.is_new("a"));
        for n in 1..REMEMBERED {
            assert!(logged.is_new(&n.to_string()));
        }
        assert!(!logged.is_new("a"), "as many as that are remembered");
        assert!(logged.is_new("one more") && logged.is_new("a"));
        assert_eq!(logged.texts.lock().len(), REMEMBERED);
    }
}
