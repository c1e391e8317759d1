//! Checks the head of a response before its body is used.

use ureq::http::{HeaderMap, HeaderName, header};

use crate::client::request::Purpose;
use crate::error::Error;
use crate::status::Status;

/// The maximum number of bytes of a header value in a message.
const NAME_LIMIT: usize = 100;

/// Checks that the end of the body is unambiguous. If a proxy and this client find different ends,
/// one response can be smuggled into another.
pub(super) fn check_framing(headers: &HeaderMap) -> Result<(), Error> {
    let mut encodings = headers.get_all(header::TRANSFER_ENCODING).iter().peekable();
    if encodings.peek().is_none() {
        return Ok(());
    }
    if headers.contains_key(header::CONTENT_LENGTH) {
        return Err(Error::invalid(
            "the response has both a Content-Length and a Transfer-Encoding",
        ));
    }
    if encodings.all(|encoding| encoding.as_bytes().eq_ignore_ascii_case(b"chunked")) {
        return Ok(());
    }
    Err(Error::invalid("the Transfer-Encoding is not chunked"))
}

/// Whether the response states where its body ends. ureq reports a body that ends earlier as an error.
pub(super) fn is_framed(status: u16, headers: &HeaderMap) -> bool {
    let has_no_body = matches!(status, 204 | 304);
    has_no_body
        || headers.contains_key(header::CONTENT_LENGTH)
        || headers.contains_key(header::TRANSFER_ENCODING)
}

/// Whether the body is compressed with gzip. Returns an error if the content encoding was not
/// requested.
pub(super) fn is_gzip(headers: &HeaderMap, gzip: bool) -> Result<bool, Error> {
    match first(headers, header::CONTENT_ENCODING) {
        None => Ok(false),
        Some(encoding) if encoding.eq_ignore_ascii_case("identity") => Ok(false),
        Some(encoding) if gzip && encoding.eq_ignore_ascii_case("gzip") => Ok(true),
        Some(encoding) => Err(Error::invalid(format!(
            "the body is encoded as {}, which was not requested; is there a proxy in between?",
            name(encoding)
        ))),
    }
}

/// Checks that the response suits the request: only a WATCH with status 200 has a stream, and the
/// body is JSON.
pub(super) fn check_purpose(purpose: Purpose, code: u16, headers: &HeaderMap) -> Result<(), Error> {
    match purpose {
        Purpose::Any => return Ok(()),
        Purpose::Watch => check_watch(code)?,
        Purpose::Json | Purpose::List => {}
    }
    check_json(headers)
}

/// Checks that the body is JSON. A response without a content type counts as JSON.
fn check_json(headers: &HeaderMap) -> Result<(), Error> {
    match first(headers, header::CONTENT_TYPE) {
        Some(given) if !given.eq_ignore_ascii_case("application/json") => {
            Err(Error::invalid(format!(
                "the content type is {}, not application/json; is there a proxy in between?",
                name(given)
            )))
        }
        _ => Ok(()),
    }
}

fn check_watch(code: u16) -> Result<(), Error> {
    if code == 200 {
        return Ok(());
    }
    let message = format!("the server responded to a watch with {code} instead of 200");
    Err(Error::api(
        Status {
            status: "Failure".to_owned(),
            message,
            code,
            ..Status::default()
        },
        None,
    ))
}

/// The header's value without its parameters. `None` if it is missing or empty.
fn first(headers: &HeaderMap, header: HeaderName) -> Option<&str> {
    let value = headers.get(header)?.to_str().unwrap_or("binary data");
    let value = value.split(';').next().unwrap_or_default().trim();
    (!value.is_empty()).then_some(value)
}

/// Truncates a value for a message. The value is visible ASCII, so any byte is a character
/// boundary.
fn name(value: &str) -> &str {
    value.get(..NAME_LIMIT).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        lines
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn json_or_missing_content_type_is_accepted() {
        for good in [
            "application/json",
            "Application/JSON ; charset=utf-8",
            "application/json;stream=watch",
            "",
        ] {
            check_json(&headers(&[("content-type", good)])).unwrap();
        }
        check_json(&headers(&[])).unwrap();
        for (bad, expected) in [
            (
                "text/html; charset=utf-8",
                "the content type is text/html, not application/json; is there a proxy in between?",
            ),
            (
                "application/vnd.kubernetes.protobuf",
                "the content type is application/vnd.kubernetes.protobuf, not",
            ),
            (
                "application/jsonp",
                "the content type is application/jsonp, not",
            ),
        ] {
            let error = check_json(&headers(&[("content-type", bad)])).unwrap_err();
            assert!(
                error.is_decode() && error.to_string().contains(expected),
                "{error}"
            );
        }
        let error = check_json(&headers(&[("content-type", &"x".repeat(30_000))])).unwrap_err();
        assert!(error.to_string().len() < 2 * NAME_LIMIT + 100, "{error}");
        let error = check_json(
            &[(
                header::CONTENT_TYPE,
                b"text/\xff".as_slice().try_into().unwrap(),
            )]
            .into_iter()
            .collect(),
        );
        assert!(
            error
                .unwrap_err()
                .to_string()
                .contains("the content type is binary data, not application/json")
        );
    }

    #[test]
    fn unrequested_content_encoding_is_rejected() {
        let of = |given: &str, gzip| is_gzip(&headers(&[("content-encoding", given)]), gzip);
        for gzip in [false, true] {
            assert!(!is_gzip(&headers(&[]), gzip).unwrap());
            assert!(!of("Identity", gzip).unwrap());
            for bad in ["br", "gzip, gzip", "x-gzip", "deflate"] {
                let error = of(bad, gzip).unwrap_err();
                let expected = format!("encoded as {bad}, which was not requested");
                assert!(
                    error.is_decode() && error.to_string().contains(&expected),
                    "{error}"
                );
            }
        }
        assert!(of("GZip", true).unwrap());
        assert!(
            of("gzip", false)
                .unwrap_err()
                .to_string()
                .contains("encoded as gzip, which was not requested")
        );
    }

    #[test]
    fn ambiguous_body_framing_is_rejected() {
        check_framing(&headers(&[])).unwrap();
        check_framing(&headers(&[("content-length", "3")])).unwrap();
        check_framing(&headers(&[("transfer-encoding", "Chunked")])).unwrap();
        for bad in [
            &[("content-length", "3"), ("transfer-encoding", "chunked")][..],
            &[("transfer-encoding", "gzip, chunked")],
            &[
                ("transfer-encoding", "chunked"),
                ("transfer-encoding", "gzip"),
            ],
        ] {
            assert!(check_framing(&headers(bad)).unwrap_err().is_decode());
        }
    }

    #[test]
    fn watch_response_other_than_200_is_an_error() {
        check_watch(200).unwrap();
        for code in [201, 204, 206] {
            assert_eq!(check_watch(code).unwrap_err().status().unwrap().code, code);
        }
    }
}
