//! Converts a response that is not 2xx to [`Error`].

use std::io::Read;
use std::time::Duration;

use ureq::http::HeaderMap;

use crate::base::text::EscapedText;
use crate::error::Error;
use crate::json::Peek;
use crate::status::Status;

/// The number of bytes that are read from the body of an error response. A `Status` with many
/// causes is much smaller.
const BODY_LIMIT: u64 = 256 * 1024;

/// The body of a 404 from Go servers for an unknown path. For a missing object, the body is a
/// `Status`.
const NO_SUCH_PATH: &str = "404 page not found";

/// The body of a 400 from Go servers for a request without TLS.
const PLAIN_TO_TLS: &str = "Client sent an HTTP request to an HTTPS server.";

/// How much of the body of an error response was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyRead {
    /// All of it, or as much as is needed.
    Whole,
    /// It could not be read to its end.
    Part,
}

/// Converts an error response. Reads the body, which may block.
pub(super) fn from_response(code: u16, headers: &HeaderMap, body: impl Read) -> (Error, BodyRead) {
    let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let after_header = header("retry-after")
        .and_then(|seconds| seconds.trim().parse().ok())
        .map(Duration::from_secs);

    let mut bytes = Vec::new();
    // If reading fails, the part of the body that has arrived is still useful.
    let read = match body.take(BODY_LIMIT).read_to_end(&mut bytes) {
        Ok(_) => BodyRead::Whole,
        Err(_) => BodyRead::Part,
    };
    let status = match status_in(&bytes) {
        Some(mut status) => {
            if status.code == 0 {
                status.code = code;
            }
            status
        }
        None => Status {
            status: "Failure".to_owned(),
            message: message(code, &bytes, header("location")),
            code,
            ..Status::default()
        },
    };
    let seconds = status
        .details
        .as_ref()
        .map_or(0, |details| details.retry_after_seconds);
    let after_details = (seconds > 0).then(|| Duration::from_secs(seconds.into()));
    let error = Error::api(status, after_header.or(after_details));
    (error, read)
}

fn status_in(bytes: &[u8]) -> Option<Status> {
    let peek = Peek::whole(bytes).ok()?;
    (peek.kind == "Status").then(|| serde_json::from_slice(bytes).ok())?
}

fn message(code: u16, body: &[u8], location: Option<&str>) -> String {
    if (300..400).contains(&code) {
        let to = location.map_or("an unknown location".to_owned(), without_secrets);
        return format!(
            "the server redirects to {}; redirects are not followed",
            clean(&to)
        );
    }
    match clean(&String::from_utf8_lossy(body)) {
        text if text.is_empty() => format!("the server responded with {code} and no message"),
        text if code == 404 && text == NO_SUCH_PATH => format!(
            "{text}: the server does not serve this path; for a custom resource, check that its \
             CustomResourceDefinition is installed and serves this version"
        ),
        text if code == 400 && text.ends_with(PLAIN_TO_TLS) => {
            format!("{text} The server's URL must start with https://")
        }
        text => text,
    }
}

/// Removes the parts of a URL that can contain secrets: user, query and fragment.
fn without_secrets(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let Some((scheme, rest)) = url.split_once("//") else {
        return url.to_owned();
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}//{host}{path}")
}

/// Puts the text on one line. An HTML page has many lines.
fn clean(text: &str) -> String {
    EscapedText(&text.split_whitespace().collect::<Vec<_>>().join(" ")).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(code: u16, headers: &[(&'static str, &str)], body: &str) -> Error {
        let headers = headers
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect();
        from_response(code, &headers, body.as_bytes()).0
    }

    #[test]
    fn status_body_sets_reason_and_message_of_the_error() {
        let error = error_of(
            403,
            &[],
            r#"{"kind": "Status", "status": "Failure", "message": "no", "reason": "Forbidden", "code": 403}"#,
        );
        assert!(error.is_forbidden());
        assert_eq!(error.to_string(), "no (403 Forbidden)");
    }

    #[test]
    fn status_without_code_has_code_of_response() {
        assert_eq!(
            error_of(418, &[], r#"{"kind": "Status"}"#)
                .status()
                .unwrap()
                .code,
            418
        );
    }

    #[test]
    fn non_status_error_body_becomes_a_one_line_message() {
        let error = error_of(404, &[], "404 page\r\n\x1b[31m not found\n");
        assert!(error.is_not_found());
        assert_eq!(error.to_string(), r"404 page \u{1b}[31m not found (404)");
        let long = error_of(500, &[], &"é".repeat(5000)).to_string();
        assert!(
            long.chars().count() < EscapedText::LENGTH + 20 && long.contains('…'),
            "{} bytes",
            long.len()
        );
        let words = error_of(500, &[], &"many words ".repeat(500)).to_string();
        assert!(
            words.len() < EscapedText::LENGTH + 20 && words.contains('…'),
            "{} bytes",
            words.len()
        );
        assert_eq!(
            error_of(502, &[], "").to_string(),
            "the server responded with 502 and no message (502)"
        );
        // JSON that is not a `Status`, and an invalid `Status`.
        assert_eq!(
            error_of(500, &[], r#"{"kind":"Pod"}"#).to_string(),
            r#"{"kind":"Pod"} (500)"#
        );
        assert_eq!(
            error_of(500, &[], r#"{"kind":"Status","code":"x"}"#)
                .status()
                .unwrap()
                .code,
            500
        );
    }

    #[test]
    fn plain_request_to_a_tls_port_names_the_scheme() {
        let error = error_of(
            400,
            &[],
            "Client sent an HTTP request to an HTTPS server.\n",
        );
        let text = "an HTTPS server. The server's URL must start with https:// (400)";
        assert!(error.to_string().ends_with(text), "{error}");
    }

    #[test]
    fn redirect_error_omits_secrets_of_location() {
        for to in [
            "https://login/?token=s3cret",
            "https://login/#id_token=s3cret",
            "https://me:s3cret@login/",
            "https://s3cret:s3@cret@login/?s3cret",
        ] {
            let error = error_of(302, &[("location", to)], "");
            let expected =
                "the server redirects to https://login/; redirects are not followed (302)";
            assert_eq!(error.to_string(), expected);
        }
        let error = error_of(302, &[("location", "/path/@home")], "");
        assert!(
            error.to_string().contains("redirects to /path/@home;"),
            "{error}"
        );
    }

    #[test]
    fn retry_after_is_read_from_header_or_details() {
        let seconds = |error: Error| error.retry_after().map(|after| after.as_secs());
        assert_eq!(
            seconds(error_of(429, &[("retry-after", " 7 ")], "")),
            Some(7)
        );
        assert_eq!(
            seconds(error_of(
                429,
                &[("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT")],
                ""
            )),
            None
        );
        let details = r#"{"kind": "Status", "details": {"retryAfterSeconds": 3}}"#;
        assert_eq!(seconds(error_of(429, &[], details)), Some(3));
        assert_eq!(
            seconds(error_of(429, &[("retry-after", "7")], details)),
            Some(7)
        );
    }
}
