//! The kind of list items. Items of built-in kinds get their kind from the list, as in client-go's
//! `UnstructuredList`.

use std::sync::Arc;

use k8s_informer::reflector::{FieldPaths, ReflectorOptions, ReflectorStatus};
use k8s_informer::store::Transform;
use k8s_informer::{DynamicObject, Indexer, Object};
use k8s_informer_testing::{Answer, ScriptedListerWatcher};

use crate::reflector::support::{error_event, run_until_read_with};

type Objects = Arc<Indexer<DynamicObject>>;

fn indexer() -> Objects {
    Arc::new(Indexer::for_objects())
}

fn item(kind: &str, name: &str, version: &str) -> String {
    format!(
        r#"{{{kind}"metadata":{{"name":"{name}","uid":"u{name}","resourceVersion":"{version}"}}}}"#
    )
}

/// A list with the text `before` before its metadata, and `after` after its items.
fn list(before: &str, items: &[String], continue_token: &str, after: &str) -> Answer {
    let metadata =
        format!(r#""metadata":{{"resourceVersion":"10","continue":"{continue_token}"}}"#);
    Answer::body(format!(
        r#"{{{before}{metadata},"items":[{}]{after}}}"#,
        items.join(",")
    ))
}

/// Runs a reflector until these lists have reached the store.
fn run<const N: usize>(store: &Objects, lists: [Answer; N]) -> ReflectorStatus {
    run_with(store, lists, |_| {})
}

fn run_with<const N: usize>(
    store: &Objects,
    lists: [Answer; N],
    set: impl FnOnce(&mut ReflectorOptions),
) -> ReflectorStatus {
    let script = ScriptedListerWatcher::new(lists.into_iter().chain([Answer::open("")]));
    run_until_read_with(store, &script, N + 1, set)
}

const PODS: &str = r#""kind":"PodList","apiVersion":"v1","#;

fn kinds(store: &Objects) -> Vec<String> {
    let mut objects = store.list();
    objects.sort_by(|one, other| one.name().cmp(other.name()));
    objects
        .iter()
        .map(|it| format!("{}: {} {}", it.name(), it.api_version(), it.kind()))
        .collect()
}

#[test]
fn list_items_get_the_kind_of_their_page_and_events_keep_own() {
    let store = indexer();
    let event = item(r#""kind":"Pod","apiVersion":"v1","#, "c", "11");
    let script = ScriptedListerWatcher::new([
        list(PODS, &[item("", "a", "1")], "more", ""),
        list(PODS, &[item("", "b", "2")], "", ""),
        Answer::open(format!("{{\"type\":\"ADDED\",\"object\":{event}}}\n")),
    ]);
    run_until_read_with(&store, &script, 3, |_| {});
    assert_eq!(kinds(&store), ["a: v1 Pod", "b: v1 Pod", "c: v1 Pod"]);
}

#[test]
fn list_item_with_a_kind_keeps_that_kind() {
    let own = item(r#""apiVersion":"x/v1","kind":"Own","#, "a", "1");
    let half = item(r#""kind":"Half","#, "b", "1");
    for (before, after) in [(PODS, ""), ("", r#","kind":"PodList","apiVersion":"v1""#)] {
        let store = indexer();
        let items = [own.clone(), half.clone(), item("", "c", "1")];
        run(&store, [list(before, &items, "", after)]);
        assert_eq!(
            kinds(&store),
            ["a: x/v1 Own", "b:  Half", "c: v1 Pod"],
            "{before}{after}"
        );
    }
    // The kind `List` does not contain the kind of its items.
    let store = indexer();
    let script = [list(
        r#""kind":"List","apiVersion":"v1","#,
        &[item("", "a", "1")],
        "",
        "",
    )];
    run(&store, script);
    assert_eq!(kinds(&store), ["a:  "]);
}

#[test]
fn s4_last_of_equal_keys_wins_while_kind_is_pending() {
    let own = |name, version| item(r#""kind":"Pod","apiVersion":"v1","#, name, version);
    for (before, after) in [(PODS, ""), ("", r#","kind":"PodList","apiVersion":"v1""#)] {
        let store = indexer();
        let first = [
            item("", "a", "1"),
            own("a", "2"),
            own("b", "3"),
            item("", "b", "4"),
            own("c", "5"),
        ];
        let second = [
            own("d", "6"),
            item("", "c", "7"),
            own("c", "8"),
            item("", "d", "9"),
            own("a", "10"),
        ];
        run(
            &store,
            [
                list(before, &first, "more", after),
                list(before, &second, "", after),
            ],
        );
        assert_eq!(
            kinds(&store),
            ["a: v1 Pod", "b: v1 Pod", "c: v1 Pod", "d: v1 Pod"],
            "{before}{after}"
        );
        let version = |name| {
            store
                .get_by_key(name)
                .unwrap()
                .resource_version()
                .to_owned()
        };
        assert_eq!(
            ["a", "b", "c", "d"].map(version),
            ["10", "4", "8", "9"],
            "{before}{after}"
        );
    }
}

#[test]
fn transform_sees_the_kind_and_can_remove_it() {
    for (before, after) in [(PODS, ""), ("", r#","apiVersion":"v1","kind":"PodList""#)] {
        let transform = Transform::try_in_place(|object: &mut DynamicObject| {
            object.edit(|fields| {
                let seen = fields.remove("kind").unwrap_or_default();
                fields.insert("seen".to_owned(), seen);
            })
        });
        let store = Arc::new(Indexer::for_objects().with_transform(transform));
        let named = item(r#""kind":"Pod","apiVersion":"v1","#, "b", "1");
        let items = [item("", "a", "1"), named];
        run(&store, [list(before, &items, "", after)]);
        assert_eq!(kinds(&store), ["a: v1 ", "b: v1 "], "{before}{after}");
        assert!(
            store
                .list()
                .iter()
                .all(|object| object.read("/seen").unwrap() == Some("Pod".to_owned()))
        );
    }
}

#[test]
fn kinds_of_changed_and_unchanged_items_are_set_after_relist() {
    for (before, after) in [(PODS, ""), ("", r#","apiVersion":"v1","kind":"PodList""#)] {
        let store = indexer();
        let items = [item("", "a", "1"), item("", "b", "1")];
        let script = ScriptedListerWatcher::new([
            list(before, &items, "", after),
            Answer::body(error_event(410, "Expired")),
            list(before, &[item("", "a", "1"), item("", "b", "2")], "", after),
            Answer::open(""),
        ]);
        run_until_read_with(&store, &script, 3, |_| {});
        assert_eq!(kinds(&store), ["a: v1 Pod", "b: v1 Pod"]);
        assert_eq!(store.get_by_key("b").unwrap().resource_version(), "2");
    }
}

#[test]
fn skipped_kind_fields_are_not_filled_from_the_list() {
    let skipping = |pointers: &'static [&'static str]| {
        move |options: &mut ReflectorOptions| options.skip = FieldPaths::new(pointers).unwrap()
    };
    for (pointers, expected) in [
        (&["/kind", "/metadata/labels"][..], "a: v1 "),
        (&["/apiVersion"], "a:  Pod"),
        (&["/apiVersion", "/kind"], "a:  "),
        (&["/metadata/uid"], "a: v1 Pod"),
    ] {
        let store = indexer();
        run_with(
            &store,
            [list(PODS, &[item("", "a", "1")], "", "")],
            skipping(pointers),
        );
        assert_eq!(kinds(&store), [expected]);
    }
}

#[test]
fn nameless_item_before_the_list_kind_is_reported() {
    let store = indexer();
    let items = [item("", "a", "1"), item("", "", "1")];
    let script = [list(
        "",
        &items,
        "",
        r#","apiVersion":"v1","kind":"PodList""#,
    )];
    let status = run(&store, script);
    assert_eq!(kinds(&store), ["a: v1 Pod"]);
    assert_eq!(
        (status.complete, status.unreadable, status.received),
        (false, 1, 1)
    );
    let error = status.last_error.unwrap().to_string();
    assert!(error.contains("item 1 of the list"), "{error}");
}
