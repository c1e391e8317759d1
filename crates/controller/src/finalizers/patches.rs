//! Names of finalizers, and the JSON patches that add, rename and remove them.
//!
//! A patch tests everything that it depends on, because the list in a cache can be old. The server
//! rejects a failed test with 422: read the object again and make a new patch. Without the test of
//! the UID, a patch could hold an object that was created again under the same name.

use serde_json::{Value, json};

use k8s_informer::object::FullObjectMeta;
use k8s_informer::selector::is_qualified_name;

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
        // An absent field passes a test for `null`. A test without a value makes servers before
        // 1.35 close the connection.
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

/// Returns the patch that changes the former names of a finalizer to `name`, or `None` if the
/// object has none of them.
///
/// If the object has several of these names, the first one becomes `name`, and the others are
/// removed. The patch tests the UID and the whole list. An API server rejects it with 422 if it
/// adds `name` to an object that is being deleted.
pub(crate) fn rename_patch(
    metadata: &FullObjectMeta,
    former: &[String],
    name: &str,
) -> Option<Value> {
    let finalizers = &metadata.finalizers;
    if !finalizers
        .iter()
        .any(|finalizer| former.contains(finalizer))
    {
        return None;
    }
    let mut renamed: Vec<&str> = Vec::with_capacity(finalizers.len());
    for finalizer in finalizers {
        let is_former = former.contains(finalizer);
        let finalizer = if is_former { name } else { finalizer };
        if finalizer != name || !renamed.contains(&name) {
            renamed.push(finalizer);
        }
    }
    Some(json!([
        {"op": "test", "path": "/metadata/uid", "value": metadata.uid},
        {"op": "test", "path": "/metadata/finalizers", "value": finalizers},
        {"op": "replace", "path": "/metadata/finalizers", "value": renamed},
    ]))
}

/// Returns the patch that removes the selected finalizers, or `None` if the object has none.
///
/// The patch tests the UID and the positions, but not the rest of the list: other controllers may
/// append their finalizers meanwhile.
pub(crate) fn remove_patch(
    metadata: &FullObjectMeta,
    is_removed: impl Fn(&str) -> bool,
) -> Option<Value> {
    let mut operations =
        vec![json!({"op": "test", "path": "/metadata/uid", "value": metadata.uid})];
    // The last position comes first, so that the other positions remain valid.
    for (index, finalizer) in metadata.finalizers.iter().enumerate().rev() {
        if is_removed(finalizer) {
            let path = format!("/metadata/finalizers/{index}");
            operations.push(json!({"op": "test", "path": path, "value": finalizer}));
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
        let remove = |name: &str| remove_patch(&metadata, |finalizer| finalizer == name);
        assert_eq!(remove("b.example/x"), Some(expected));
        assert_eq!(remove("c.example/x"), None);
    }

    /// Before 1.35, a kube-apiserver closes the connection on a `test` without a value of an absent
    /// field, and on a path below a field that is `null`. Metadata is never `null`.
    #[test]
    fn wr6_each_test_has_a_value_and_an_existing_parent() {
        let former = ["x".to_owned()];
        for finalizers in [&[][..], &["x"], &["a.example/x"], &["a.example/x", "x"]] {
            let metadata = metadata(finalizers);
            let patches = [
                add_patch(&metadata, "a.example/x"),
                rename_patch(&metadata, &former, "a.example/x"),
                remove_patch(&metadata, |_| true),
            ];
            let operations = patches.iter().flatten().filter_map(Value::as_array);
            for test in operations.flatten().filter(|one| one["op"] == "test") {
                let path = test["path"].as_str().unwrap();
                assert!(test.get("value").is_some(), "{test}");
                assert!(!test["value"].is_null() || path == "/metadata/finalizers");
                assert!(path.starts_with("/metadata/"), "{test}");
            }
        }
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
        let removed = remove_patch(&metadata, |finalizer| finalizer == "a.example/x");
        assert_eq!(removed, Some(expected));
    }

    #[test]
    fn wr5_first_former_name_becomes_the_current_name() {
        let former = ["x".to_owned(), "old.example/x".to_owned()];
        for (before, after) in [
            (&["x"][..], &["new.example/x"][..]),
            (
                &["a.b/c", "x", "d.e/f"],
                &["a.b/c", "new.example/x", "d.e/f"],
            ),
            (
                &["old.example/x", "a.b/c", "x", "x"],
                &["new.example/x", "a.b/c"],
            ),
            (
                &["x", "a.b/c", "new.example/x"],
                &["new.example/x", "a.b/c"],
            ),
            (
                &["new.example/x", "a.b/c", "x"],
                &["new.example/x", "a.b/c"],
            ),
            (
                &["a.b/c", "a.b/c", "x"],
                &["a.b/c", "a.b/c", "new.example/x"],
            ),
        ] {
            let expected = json!([
                {"op": "test", "path": "/metadata/uid", "value": "u1"},
                {"op": "test", "path": "/metadata/finalizers", "value": before},
                {"op": "replace", "path": "/metadata/finalizers", "value": after},
            ]);
            let patch = rename_patch(&metadata(before), &former, "new.example/x");
            assert_eq!(patch, Some(expected));
        }
        for without in [&[][..], &["new.example/x", "a.b/c"]] {
            let patch = rename_patch(&metadata(without), &former, "new.example/x");
            assert_eq!(patch, None);
        }
    }
}
