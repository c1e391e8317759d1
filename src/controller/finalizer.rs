//! Names of finalizers, and the JSON patches that add and remove one.
//!
//! A patch tests everything that it depends on, because the list in a cache can be old. The server
//! rejects a failed test with 422: read the object again and make a new patch. Without the test of
//! the UID, a patch could hold an object that was created again under the same name.

use serde_json::{Value, json};

use crate::object::FullObjectMeta;
use crate::selector::is_qualified_name;

/// Whether the name is a domain, a slash and a name, such as `example.com/team`.
///
/// An API server rejects other names for most built-in kinds. For custom resources, it accepts a
/// name without a domain with a warning.
pub(crate) fn valid_name(name: &str) -> bool {
    name.contains('/') && is_qualified_name(name)
}

/// Returns the patch that appends the finalizer, or `None` if the object has it.
///
/// The patch tests the UID and the whole list. An API server rejects it with 422 if the object is
/// being deleted.
pub(crate) fn add_patch(metadata: &FullObjectMeta, name: &str) -> Option<Value> {
    let finalizers = &metadata.finalizers;
    if finalizers.iter().any(|finalizer| finalizer == name) {
        return None;
    }
    let (list, add) = if finalizers.is_empty() {
        // An absent field passes a test for `null`.
        let add = json!({"op": "add", "path": "/metadata/finalizers", "value": [name]});
        (Value::Null, add)
    } else {
        let add = json!({"op": "add", "path": "/metadata/finalizers/-", "value": name});
        (json!(finalizers), add)
    };
    Some(json!([
        {"op": "test", "path": "/metadata/uid", "value": metadata.uid},
        {"op": "test", "path": "/metadata/finalizers", "value": list},
        add,
    ]))
}

/// Returns the patch that removes the finalizer, or `None` if the object does not have it.
///
/// The patch tests the UID and the position, but not the rest of the list: other controllers may
/// append their finalizers meanwhile.
pub(crate) fn remove_patch(metadata: &FullObjectMeta, name: &str) -> Option<Value> {
    let mut operations =
        vec![json!({"op": "test", "path": "/metadata/uid", "value": metadata.uid})];
    // The list may contain the name twice. The last position comes first, so that the other
    // positions remain valid.
    for (index, finalizer) in metadata.finalizers.iter().enumerate().rev() {
        if finalizer == name {
            let path = format!("/metadata/finalizers/{index}");
            operations.push(json!({"op": "test", "path": path, "value": name}));
            operations.push(json!({"op": "remove", "path": path}));
        }
    }
    (operations.len() > 1).then_some(Value::Array(operations))
}

/// `tests/end_to_end/finalizers.rs` sends patches of these forms to API servers.
#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(finalizers: &[&str]) -> FullObjectMeta {
        serde_json::from_value(json!({"uid": "u1", "finalizers": finalizers})).unwrap()
    }

    #[test]
    fn valid_names_have_a_domain_and_a_name() {
        let longest = format!("{}/{}", "d".repeat(253), "n".repeat(63));
        for name in [
            "example.com/x",
            "a/x",
            "1.example/1",
            "a-b.example/A_b.c-d",
            &longest,
        ] {
            assert!(valid_name(name), "{name}");
        }
        let name_too_long = format!("a/{}", "n".repeat(64));
        let domain_too_long = format!("{}/x", "d".repeat(254));
        for name in [
            "x",
            "example.com",
            "",
            "example.com/",
            "/x",
            "/",
            "example.com/a/b",
            "Example.com/x",
            "a_b.com/x",
            "a..b/x",
            "-a.b/x",
            "example.com/-x",
            "example.com/x.",
            "example.com/ü",
            "example.com/x ",
            &name_too_long,
            &domain_too_long,
        ] {
            assert!(!valid_name(name), "{name}");
        }
    }

    #[test]
    fn wr6_first_finalizer_is_added_to_an_absent_list() {
        let expected = json!([
            {"op": "test", "path": "/metadata/uid", "value": "u1"},
            {"op": "test", "path": "/metadata/finalizers", "value": null},
            {"op": "add", "path": "/metadata/finalizers", "value": ["a.example/x"]},
        ]);
        assert_eq!(add_patch(&metadata(&[]), "a.example/x"), Some(expected));
    }

    #[test]
    fn wr6_finalizer_is_appended_to_the_tested_list() {
        let expected = json!([
            {"op": "test", "path": "/metadata/uid", "value": "u1"},
            {"op": "test", "path": "/metadata/finalizers", "value": ["a.example/x"]},
            {"op": "add", "path": "/metadata/finalizers/-", "value": "b.example/x"},
        ]);
        let metadata = metadata(&["a.example/x"]);
        assert_eq!(add_patch(&metadata, "b.example/x"), Some(expected));
        assert_eq!(add_patch(&metadata, "a.example/x"), None);
    }

    #[test]
    fn wr6_finalizer_is_removed_at_its_tested_position() {
        let expected = json!([
            {"op": "test", "path": "/metadata/uid", "value": "u1"},
            {"op": "test", "path": "/metadata/finalizers/1", "value": "b.example/x"},
            {"op": "remove", "path": "/metadata/finalizers/1"},
        ]);
        let metadata = metadata(&["a.example/x", "b.example/x"]);
        assert_eq!(remove_patch(&metadata, "b.example/x"), Some(expected));
        assert_eq!(remove_patch(&metadata, "c.example/x"), None);
    }

    #[test]
    fn wr4_repeated_finalizer_is_removed_from_the_end() {
        let expected = json!([
            {"op": "test", "path": "/metadata/uid", "value": "u1"},
            {"op": "test", "path": "/metadata/finalizers/2", "value": "a.example/x"},
            {"op": "remove", "path": "/metadata/finalizers/2"},
            {"op": "test", "path": "/metadata/finalizers/0", "value": "a.example/x"},
            {"op": "remove", "path": "/metadata/finalizers/0"},
        ]);
        let metadata = metadata(&["a.example/x", "b.example/x", "a.example/x"]);
        assert_eq!(remove_patch(&metadata, "a.example/x"), Some(expected));
    }
}
