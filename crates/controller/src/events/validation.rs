//! Some of what a server would refuse: Kubernetes' `ValidateEventCreate`.

use std::time::Duration;

use super::EventError;
use super::core::event::{Event, plain_name};
use k8s_informer::selector::is_qualified_name;

/// The maximum length of a reason, an action and an instance in bytes.
const LONG: usize = 128;

/// Checks what callers can see in advance. The server checks the namespace and the annotations.
pub(super) fn check(event: &Event) -> Result<(), EventError> {
    let object = &event.regarding;
    for (field, text) in [
        ("the kind of the object", &object.kind),
        ("the name of the object", &object.name),
    ] {
        if text.is_empty() {
            return Err(invalid(field, "is empty"));
        }
    }
    required("reason", &event.reason)?;
    required("action", &event.action)
}

/// Checks the names of a recorder.
pub(super) fn check_recorder(controller: &str, instance: &str) -> Result<(), EventError> {
    if !is_qualified_name(controller) {
        let problem = "is not a qualified name, such as \"example.com/my-controller\"";
        return Err(invalid("reportingController", problem));
    }
    required("reportingInstance", instance)
}

fn required(field: &'static str, text: &str) -> Result<(), EventError> {
    match text.len() {
        0 => Err(invalid(field, "is empty")),
        length if length > LONG => {
            let problem = format!("has {length} bytes; the limit is {LONG}");
            Err(invalid(field, problem))
        }
        _ => Ok(()),
    }
}

fn invalid(field: &'static str, problem: impl Into<String>) -> EventError {
    let problem = problem.into();
    EventError::Invalid { field, problem }
}

/// Returns the text, or its beginning of at most `limit` bytes, cut at a character.
pub(super) fn cut(mut text: String, limit: usize) -> String {
    if text.len() > limit {
        text.truncate(
            (0..=limit)
                .rev()
                .find(|at| text.is_char_boundary(*at))
                .unwrap_or(0),
        );
    }
    text
}

/// Returns the name of a new event about an object: a random one if the usual one is no valid name
/// (ER5).
pub(super) fn event_name(object: &str, now: Duration) -> String {
    let name = plain_name(object, now);
    let is_valid = name.len() <= 253 && name.split('.').all(is_label);
    if is_valid { name } else { uuid() }
}

/// Returns a random UUID (version 4).
fn uuid() -> String {
    use std::hash::{BuildHasher, RandomState};
    let random = |number: u8| RandomState::new().hash_one(number);
    let (high, low) = (random(0), random(1));
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xfff,
        low >> 48 & 0x3fff | 0x8000,
        low & 0xffff_ffff_ffff
    )
}

/// Whether the text is a DNS label (RFC 1123) of any length.
fn is_label(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && !text.starts_with('-') && !text.ends_with('-') && text.bytes().all(is_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_at_characters() {
        assert_eq!(cut("aü".to_owned(), 2), "a");
        assert_eq!(cut("aü".to_owned(), 3), "aü");
        assert_eq!(cut("ü".to_owned(), 1), "");
    }

    #[test]
    fn qualified_names_are_those_of_kubernetes() {
        for name in ["a", "example.com/A_b.c", &"a".repeat(63)] {
            assert!(is_qualified_name(name), "{name}");
        }
        for name in [
            "",
            "/a",
            "a/",
            "a/b/c",
            "-a",
            "a-",
            "A.com/b",
            "ü",
            &"a".repeat(64),
        ] {
            assert!(!is_qualified_name(name), "{name}");
        }
    }

    #[test]
    fn er5_impossible_name_is_replaced_by_a_uuid() {
        assert_eq!(event_name("p", Duration::from_nanos(255)), "p.ff");
        for object in ["Upper", "a:b", "", &"a".repeat(250)] {
            let name = event_name(object, Duration::from_secs(1_000_000_000));
            let parts: Vec<usize> = name.split('-').map(str::len).collect();
            assert_eq!(parts, [8, 4, 4, 4, 12], "{name}");
            assert_eq!(&name[14..15], "4");
            assert!("89ab".contains(&name[19..20]), "{name}");
        }
    }
}
