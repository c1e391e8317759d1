//! The classes of errors, by the code and the reason of their `Status`.

use k8s_informer::Error;
use serde_json::json;

/// The reasons of apimachinery, in `knownReasons` of `pkg/api/errors`.
const KNOWN: [&str; 19] = [
    "Unauthorized",
    "Forbidden",
    "NotFound",
    "AlreadyExists",
    "Conflict",
    "Gone",
    "Invalid",
    "ServerTimeout",
    "StorageReadError",
    "Timeout",
    "TooManyRequests",
    "BadRequest",
    "MethodNotAllowed",
    "NotAcceptable",
    "RequestEntityTooLarge",
    "UnsupportedMediaType",
    "InternalError",
    "Expired",
    "ServiceUnavailable",
];

const CODES: [u16; 19] = [
    0, 200, 400, 401, 403, 404, 405, 406, 409, 410, 413, 415, 418, 422, 429, 500, 502, 503, 504,
];

type Class = (&'static str, u16, &'static str, fn(&Error) -> bool);

/// Each class with its code and its reason.
const CLASSES: [Class; 10] = [
    ("not found", 404, "NotFound", Error::is_not_found),
    ("conflict", 409, "Conflict", Error::is_conflict),
    (
        "method",
        405,
        "MethodNotAllowed",
        Error::is_method_not_allowed,
    ),
    ("invalid", 422, "Invalid", Error::is_invalid),
    ("bad request", 400, "BadRequest", Error::is_bad_request),
    ("forbidden", 403, "Forbidden", Error::is_forbidden),
    ("unauthorized", 401, "Unauthorized", Error::is_unauthorized),
    ("internal", 500, "InternalError", Error::is_internal_error),
    ("timeout", 504, "Timeout", Error::is_timeout),
    (
        "too many",
        429,
        "TooManyRequests",
        Error::is_too_many_requests,
    ),
];

fn error(code: u16, reason: &str) -> Error {
    let status = json!({"status": "Failure", "message": "m", "reason": reason, "code": code});
    Error::from_status(serde_json::from_value(status).unwrap())
}

#[test]
fn code_counts_unless_the_reason_is_known() {
    let unknown = [
        "",
        "denied by policy",
        "notfound",
        "NamespaceTerminating",
        "Unknown",
    ];
    for code in CODES {
        for reason in KNOWN.iter().chain(&unknown).copied() {
            let error = error(code, reason);
            let is_known = KNOWN.contains(&reason);
            for (class, class_code, class_reason, is) in CLASSES {
                let mut expected = reason == class_reason || !is_known && code == class_code;
                // As in apimachinery, this code is always too many requests.
                expected |= class_code == 429 && code == 429;
                assert_eq!(is(&error), expected, "{class}: {code} {reason}");
            }
            assert_eq!(error.is_already_exists(), reason == "AlreadyExists");
            let gone = ["Gone", "Expired"].contains(&reason) || !is_known && code == 410;
            assert_eq!(error.is_gone(), gone, "{code} {reason}");
        }
    }
}
