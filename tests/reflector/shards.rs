//! Shards (SH1–SH5): their requests, and objects of other shards that the server delivers anyway.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;

use k8s_informer::informer::SharedIndexInformerOptions;
use k8s_informer::object::ResourceVersion;
use k8s_informer::reflector::{ReflectorOptions, ReflectorStatus, Shard};
use k8s_informer::{DynamicObject, Indexer, Object, SharedIndexInformer, Stopper};
use k8s_informer_testing::{Answer, ScriptedListerWatcher};

use crate::reflector::support::{
    Recorder, Running, SECOND, Server, bookmark, error_event, initial_events_end, refused,
    refused_with, run_until_read_with, status_json,
};

/// The hash of this UID begins with 08, so it belongs to the first of two shards.
const OWN_UID: &str = "ab";
/// The hash of this UID begins with e7.
const OTHER_UID: &str = "abc";

fn own_shard() -> Shard {
    Shard::new(0, 2).unwrap()
}

fn set(options: &mut ReflectorOptions) {
    options.shard = Some(own_shard());
}

fn object(name: &str, uid: &str, version: &str) -> String {
    format!(r#"{{"metadata":{{"name":"{name}","uid":"{uid}","resourceVersion":"{version}"}}}}"#)
}

fn event(kind: &str, object: &str) -> String {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}

/// A page of a list, with `rest` added to its metadata.
fn page(version: &str, rest: &str, items: &[String]) -> Answer {
    let items = items.join(",");
    Answer::body(format!(
        r#"{{"kind":"List","metadata":{{"resourceVersion":"{version}"{rest}}},"items":[{items}]}}"#
    ))
}

fn echo(selector: &str) -> String {
    format!(r#","shardInfo":{{"selector":"{selector}"}}"#)
}

fn running(answers: impl IntoIterator<Item = Answer>) -> Running {
    Running::with(answers, set)
}

fn watch_list(answers: impl IntoIterator<Item = Answer>) -> Running {
    Running::start(
        Server::new(answers).with_watch_list(),
        Recorder::default(),
        set,
    )
}

#[test]
fn sh1_every_request_has_the_shard_selector() {
    let answers = || {
        [
            refused(422, "Invalid"),
            page("4", r#","continue":"more""#, &[]),
            page("4", "", &[]),
            Answer::body(bookmark("5", "{}") + &error_event(410, "Expired")),
            page("6", "", &[]),
            Answer::open(""),
        ]
    };
    let requests = |version: &str| {
        [
            "watch-list most recent".to_owned(),
            format!("list {version} limit 500"),
            "list most recent limit 500 continue more".to_owned(),
            "watch 4".to_owned(),
        ]
    };
    for shard in [Some(own_shard()), Some(own_shard().by_namespace()), None] {
        let server = Server::new(answers()).with_watch_list();
        let selector = shard.as_ref().and_then(Shard::selector);
        // The first list of a shard is consistent.
        let version = if shard.is_some() { "most recent" } else { "0" };
        let it = Running::start(server, Recorder::default(), |options| options.shard = shard);
        assert_eq!(it.requests(4), requests(version));
        it.advance_wait(SECOND);
        for request in it.options(6) {
            assert_eq!(request.options().shard_selector, selector);
            let query = request.options().to_query();
            assert_eq!(
                query.contains("shardSelector="),
                selector.is_some(),
                "{query}"
            );
        }
    }
    let it = running([]);
    let query = it.options(1)[0].options().to_query();
    assert!(
        query.starts_with("shardSelector=shardRange%28object.metadata.uid%2C%20%270x0000"),
        "{query}"
    );
}

#[test]
fn sh2_objects_of_other_shards_are_not_stored_or_delivered() {
    let items = [object("a", OWN_UID, "1"), object("b", OTHER_UID, "2")];
    let events = event("ADDED", &object("c", OTHER_UID, "5"))
        + &event("ADDED", &object("d", OWN_UID, "6"))
        + &event("MODIFIED", &object("b", OTHER_UID, "7"))
        + &event("DELETED", &object("b", OTHER_UID, "8"))
        + &event("DELETED", &object("a", OWN_UID, "9"));
    let expected = [
        "replace [a@1] at 4",
        "bookmark 5",
        "add d@6",
        "bookmark 7",
        "bookmark 8",
        "delete a@9",
    ];
    let it = running([page("4", "", &items), Answer::open(&*events)]);
    assert_eq!(it.calls(2), expected);
    let initial = items.map(|item| event("ADDED", &item)).concat() + &initial_events_end("4");
    let it = watch_list([Answer::open(initial + &events)]);
    assert_eq!(it.calls(1), expected);
}

#[test]
fn sh2_name_moving_between_shards_is_deleted_and_added() {
    // An object that is deleted and created again has another UID.
    let items = [
        object("leaves", OWN_UID, "1"),
        object("joins", OTHER_UID, "2"),
        object("stays", OWN_UID, "3"),
    ];
    let later = [
        object("leaves", OTHER_UID, "5"),
        object("joins", OWN_UID, "6"),
        object("stays", OWN_UID, "3"),
    ];
    let store = Arc::new(Indexer::<DynamicObject>::for_objects());
    let answers = [
        page("4", "", &items),
        Answer::body(error_event(410, "Expired")),
        page("7", "", &later),
        Answer::open(""),
    ];
    let script = ScriptedListerWatcher::new(answers);
    let status = run_until_read_with(&store, &script, 3, set);
    let mut keys = store.list_keys();
    keys.sort();
    assert_eq!(
        keys.iter().map(|key| &**key).collect::<Vec<_>>(),
        ["joins", "stays"]
    );
    assert!(status.complete);

    let events = event("DELETED", &object("leaves", OWN_UID, "5"))
        + &event("ADDED", &object("leaves", OTHER_UID, "6"))
        + &event("DELETED", &object("joins", OTHER_UID, "7"))
        + &event("ADDED", &object("joins", OWN_UID, "8"));
    let it = running([page("4", "", &items), Answer::open(events)]);
    assert_eq!(
        it.calls(2)[1..],
        ["delete leaves@5", "bookmark 6", "bookmark 7", "add joins@8"]
    );
}

#[test]
fn sh2_missing_uid_or_namespace_is_sharded_as_empty() {
    // The hash of the empty string begins with cb.
    for (index, by_namespace) in [(0, false), (1, false), (0, true), (1, true)] {
        let shard = Shard::new(index, 2).unwrap();
        let shard = if by_namespace {
            shard.by_namespace()
        } else {
            shard
        };
        let bare = r#"{"metadata":{"name":"a","resourceVersion":"1"}}"#;
        let null = r#"{"metadata":{"name":"b","uid":null,"namespace":null,"resourceVersion":"2"}}"#;
        let late = r#"{"metadata":{"name":"c","uid":"","resourceVersion":"3","namespace":""}}"#;
        let items = [bare, null, late].map(str::to_owned);
        let added = items.clone().map(|item| event("MODIFIED", &item)).concat();
        let answers = [page("4", "", &items), Answer::open(added)];
        let it = Running::with(answers, |options| options.shard = Some(shard));
        let expected: &[&str] = match index {
            0 => &["replace [] at 4", "bookmark 1", "bookmark 2", "bookmark 3"],
            _ => &[
                "replace [a@1 b@2 c@3] at 4",
                "update a@1",
                "update b@2",
                "update c@3",
            ],
        };
        assert_eq!(it.calls(2), expected, "{index} {by_namespace}");
        assert_eq!(it.status().unreadable, 0);
    }
}

#[test]
fn sh2_nameless_object_is_not_attributed_to_other_shard() {
    // These objects have neither a name nor a UID. By its missing UID, each would belong to the
    // other shard.
    for nameless in [
        "{}",
        r#"{"metadata":null}"#,
        r#"{"metadata":{"resourceVersion":"5"}}"#,
        "7",
    ] {
        let store = Arc::new(Indexer::<DynamicObject>::for_objects());
        let answers = [
            page("4", "", &[object("a", OWN_UID, "1")]),
            Answer::body(error_event(410, "Expired")),
            page("6", "", &[nameless.to_owned()]),
            Answer::open(""),
        ];
        let status = run_until_read_with(&store, &ScriptedListerWatcher::new(answers), 3, set);
        assert_eq!(
            (status.complete, status.unreadable),
            (false, 1),
            "{nameless}"
        );
        assert_eq!(
            (store.len(), status.resource_version),
            (1, ResourceVersion::new("6")),
            "{nameless}"
        );
    }
}

#[test]
fn sh2_namespace_is_found_anywhere_in_metadata() {
    let items = [
        r#"{"metadata":{"name":"a","namespace":"ab","uid":"abc","resourceVersion":"1"}}"#,
        r#"{"metadata":{"uid":"abc","resourceVersion":"2","name":"b","namespace":"ab"}}"#,
        r#"{"metadata":{"name":"c","namespace":"abc","uid":"ab","resourceVersion":"3"}}"#,
        r#"{"metadata":{"uid":"ab","resourceVersion":"4","name":"d","namespace":"abc"}}"#,
    ];
    let it = Running::with(
        [page("4", "", &items.map(str::to_owned)), Answer::open("")],
        |options| {
            options.shard = Some(own_shard().by_namespace());
        },
    );
    assert_eq!(it.calls(2), ["replace [a@1 b@2] at 4"]);
}

/// An object with two owners. The second one is its controller.
fn child(name: &str, controller: &str, version: &str) -> String {
    let owners = format!(r#"[{{"uid":"ab"}},{{"uid":"{controller}","controller":true}}]"#);
    format!(
        r#"{{"metadata":{{"name":"{name}","uid":"u","resourceVersion":"{version}","ownerReferences":{owners}}}}}"#
    )
}

/// Returns what an informer of the children delivers up to the object "last", sorted by name.
fn changes_of_children(script: ScriptedListerWatcher) -> Vec<String> {
    let mut options = SharedIndexInformerOptions::default();
    options.reflector.shard = Some(own_shard().by_controller());
    let informer = SharedIndexInformer::<DynamicObject>::new(Arc::new(script.clone()), options);
    let (sender, changes) = channel();
    let text = |sign: &str, object: &DynamicObject| {
        format!("{sign}{}@{}", object.name(), object.resource_version())
    };
    let (added, updated, deleted) = (sender.clone(), sender.clone(), sender);
    informer
        .add_event_handler(|handler| {
            handler
                .on_add(move |object, _| added.send(text("+", object)).unwrap())
                .on_update(move |_, object| updated.send(text("=", object)).unwrap())
                .on_delete(move |gone| deleted.send(text("-", gone.object().unwrap())).unwrap())
        })
        .unwrap();
    let stop = Stopper::new();
    thread::scope(|scope| {
        scope.spawn(|| informer.run(&stop));
        let changes = changes.iter();
        let mut changes: Vec<_> = changes
            .take_while(|change| !change.starts_with("+last"))
            .collect();
        stop.stop();
        changes.sort_by_key(|change| change.as_bytes()[1]);
        changes
    })
}

#[test]
fn children_are_in_the_shard_of_their_controller() {
    let items = [
        child("a", OWN_UID, "1"),
        child("b", OTHER_UID, "2"),
        object("c", OWN_UID, "3"),
    ];
    let events = event("ADDED", &child("d", OTHER_UID, "5"))
        + &event("ADDED", &child("e", OWN_UID, "6"))
        // The controller of the first child changes twice, and that of the second one once.
        + &event("MODIFIED", &child("a", OTHER_UID, "7"))
        + &event("MODIFIED", &child("b", OWN_UID, "8"))
        + &event("MODIFIED", &child("a", OWN_UID, "9"))
        // A child loses its controller.
        + &event("MODIFIED", &object("e", OWN_UID, "10"))
        // A child is deleted, with a last state in another shard.
        + &event("DELETED", &child("b", OTHER_UID, "11"))
        + &event("ADDED", &child("last", OWN_UID, "12"));
    let expected = ["+a@1", "-a@1", "+a@9", "+b@8", "-b@8", "+e@6", "-e@6"];
    let list = ScriptedListerWatcher::new([page("4", "", &items), Answer::open(&*events)]);
    assert_eq!(changes_of_children(list.clone()), expected);
    for request in list.requests() {
        assert_eq!(request.options().shard_selector, None);
    }
    // In a watch-list, a child can leave before the list is complete.
    let initial = items.map(|item| event("ADDED", &item)).concat()
        + &event("ADDED", &child("f", OWN_UID, "3"))
        + &event("MODIFIED", &child("f", OTHER_UID, "4"))
        + &initial_events_end("4");
    let list = ScriptedListerWatcher::new([Answer::open(initial + &events)]).with_watch_list();
    assert_eq!(changes_of_children(list), expected);
}

#[test]
fn child_of_unknown_controller_is_reported_and_kept() {
    let own = child("a", OWN_UID, "1");
    for owners in [r#"7"#, r#"[7]"#, r#"[{"uid":7,"controller":true}]"#] {
        let odd = format!(
            r#"{{"metadata":{{"name":"a","uid":"u","resourceVersion":"5","ownerReferences":{owners}}}}}"#
        );
        let answers = [
            page("4", "", std::slice::from_ref(&own)),
            Answer::open(event("MODIFIED", &odd)),
        ];
        let it = Running::with(answers, |options| {
            options.shard = Some(own_shard().by_controller());
        });
        assert_eq!(it.calls(2), ["replace [a@1] at 4"], "{owners}");
        let status = it.status();
        assert_eq!(status.unreadable, 1, "{owners}");
        let error = status.last_error.unwrap().to_string();
        let expected = "a: unexpected response: the shard can't be determined from the metadata";
        assert!(error.ends_with(expected), "{error}");
    }
}

#[test]
fn sh2_w10_skipped_object_counts_as_event_with_version() {
    let of_other_shard = |kind: &str, version: &str| event(kind, &object("b", OTHER_UID, version));
    let it = running([
        page("4", "", &[]),
        // A watch that had an event is opened again at once (W5).
        Answer::body(of_other_shard("ADDED", "5")),
        Answer::body(of_other_shard("DELETED", "6")),
        Answer::body(of_other_shard("DELETED", "3")),
        // An event without a version leaves the version unchanged.
        Answer::body(event(
            "MODIFIED",
            r#"{"metadata":{"name":"b","uid":"abc"}}"#,
        )),
        Answer::open(""),
    ]);
    assert_eq!(
        it.requests(6),
        [
            "list most recent limit 500",
            "watch 4",
            "watch 5",
            "watch 6",
            "watch 6",
            "watch 6"
        ]
    );
    assert_eq!(
        it.reflector.last_sync_resource_version(),
        ResourceVersion::new("6")
    );
    assert_eq!(
        it.calls(6),
        ["replace [] at 4", "bookmark 5", "bookmark 6", "bookmark 3"]
    );
    assert!(it.waited().is_empty() && it.status().last_error.is_none());

    // In a watch-list, the reflector also continues from the versions of skipped events, except
    // those of the unordered ADDED events (WL5).
    let it = watch_list([
        Answer::body(
            of_other_shard("ADDED", "9")
                + &of_other_shard("MODIFIED", "12")
                + &initial_events_end(""),
        ),
        Answer::open(""),
    ]);
    assert_eq!(it.calls(1), ["replace [] at 12"]);
}

#[test]
fn sh3_shard_is_applied_if_every_page_confirms_it() {
    let own_echo = echo(&own_shard().selector().unwrap());
    let none = String::new();
    let other = echo(&Shard::new(1, 2).unwrap().selector().unwrap());
    let items = || vec![object("a", OWN_UID, "1")];
    let unfiltered_items = || vec![object("a", OWN_UID, "1"), object("b", OTHER_UID, "1")];
    let first = |rest: &str| format!(r#","continue":"more"{rest}"#);
    let cases = [
        ("confirmed", vec![(own_echo.clone(), items())], Some(true)),
        (
            "confirmed for an empty list",
            vec![(own_echo.clone(), vec![])],
            Some(true),
        ),
        (
            "confirmed on both pages",
            vec![(first(&own_echo), items()), (own_echo.clone(), vec![])],
            Some(true),
        ),
        // kube-apiserver confirms nothing for custom resources and metadata.
        ("not confirmed", vec![(none.clone(), items())], None),
        (
            "not confirmed for an empty list",
            vec![(none.clone(), vec![])],
            None,
        ),
        (
            "not confirmed, and not filtered",
            vec![(none.clone(), unfiltered_items())],
            Some(false),
        ),
        (
            "not filtered on the second page",
            vec![(first(&none), items()), (none.clone(), unfiltered_items())],
            Some(false),
        ),
        (
            "confirmed on the first page only",
            vec![(first(&own_echo), items()), (none.clone(), vec![])],
            None,
        ),
        (
            "confirmed on the last page only",
            vec![(first(&none), items()), (own_echo.clone(), vec![])],
            None,
        ),
        ("another shard", vec![(other, items())], None),
        (
            "confirmed, but not filtered",
            vec![(own_echo.clone(), unfiltered_items())],
            Some(false),
        ),
        (
            "confirmed with another spelling",
            vec![(
                echo(&own_shard().selector().unwrap().replace(' ', "")),
                items(),
            )],
            None,
        ),
        (
            "shardInfo is null",
            vec![(r#","shardInfo":null"#.to_owned(), items())],
            None,
        ),
        (
            "selector is not a string",
            vec![(r#","shardInfo":{"selector":7}"#.to_owned(), items())],
            None,
        ),
        (
            "shardInfo is not an object",
            vec![(r#","shardInfo":"x""#.to_owned(), items())],
            None,
        ),
    ];
    for (case, pages, applied) in cases {
        let count = pages.len();
        let answers = pages
            .into_iter()
            .map(|(rest, items)| page("4", &rest, &items));
        let script = ScriptedListerWatcher::new(answers.chain([Answer::open("")]));
        let store = Arc::new(Indexer::<DynamicObject>::for_objects());
        let status = run_until_read_with(&store, &script, count + 1, set);
        assert_eq!(status.shard_applied, applied, "{case}");
        assert!(
            status.listed && status.last_error.is_none(),
            "{case}: {status:?}"
        );
    }
    // Whether the server applies the shard is unknown before the first list. It stays unknown
    // without a shard.
    assert_eq!(ReflectorStatus::default().shard_applied, None);
    let store = Arc::new(Indexer::<DynamicObject>::for_objects());
    let script =
        ScriptedListerWatcher::new([page("4", &own_echo, &unfiltered_items()), Answer::open("")]);
    assert_eq!(
        run_until_read_with(&store, &script, 2, |_| {}).shard_applied,
        None
    );
    assert_eq!(store.len(), 2);
}

#[test]
fn sh3_list_after_expired_continue_token_confirms_the_shard() {
    // The continue token has expired. The new list confirms the shard again (L13).
    let first = format!(
        r#","continue":"more"{}"#,
        echo(&own_shard().selector().unwrap())
    );
    let answers = [
        page(
            "4",
            &first,
            &[object("a", OWN_UID, "1"), object("b", OTHER_UID, "2")],
        ),
        refused(410, "Expired"),
        page(
            "4",
            &echo(&own_shard().selector().unwrap()),
            &[object("a", OWN_UID, "1")],
        ),
        Answer::open(""),
    ];
    let store = Arc::new(Indexer::<DynamicObject>::for_objects());
    let status = run_until_read_with(&store, &ScriptedListerWatcher::new(answers), 3, set);
    assert_eq!((status.shard_applied, status.received), (Some(true), 1));
}

#[test]
fn sh3_watch_list_is_unfiltered_if_another_shard_appears() {
    let applied = |first: Vec<Answer>, bodies: usize| {
        let store = Arc::new(Indexer::<DynamicObject>::for_objects());
        let script = ScriptedListerWatcher::new(first).with_watch_list();
        run_until_read_with(&store, &script, bodies, set).shard_applied
    };
    let (own_added, other) = (
        event("ADDED", &object("a", OWN_UID, "1")),
        event("ADDED", &object("b", OTHER_UID, "2")),
    );
    let end = initial_events_end("4");
    assert_eq!(
        applied(vec![Answer::open(own_added.clone() + &end)], 1),
        None
    );
    assert_eq!(
        applied(vec![Answer::open(own_added.clone() + &other + &end)], 1),
        Some(false)
    );
    assert_eq!(
        applied(vec![Answer::open(own_added.clone() + &end + &other)], 1),
        Some(false)
    );
    // After a list has confirmed the shard, it stays confirmed until an event contradicts it.
    let list = || {
        vec![
            refused(500, ""),
            page("4", &echo(&own_shard().selector().unwrap()), &[]),
        ]
    };
    let expired = error_event(410, "Expired");
    let then = |events: String| {
        list()
            .into_iter()
            .chain([Answer::body(expired.clone()), Answer::open(events)])
    };
    assert_eq!(
        applied(then(own_added.clone() + &end).collect(), 2),
        Some(true)
    );
    assert_eq!(
        applied(then(own_added + &end + &other).collect(), 2),
        Some(false)
    );
}

#[test]
fn sh4_objects_of_other_shards_count_as_received() {
    let one = |remaining: &str, items: &[String]| {
        page("4", &format!(r#","continue":"more"{remaining}"#), items)
    };
    let items = [
        object("a", OWN_UID, "1"),
        object("b", OTHER_UID, "2"),
        object("c", OTHER_UID, "3"),
    ];
    let progress_of = |remaining: &str, items: &[String]| {
        let it = running([one(remaining, items), Answer::open("")]);
        it.requests(2);
        let status = it.status();
        (status.received, status.expected)
    };
    let progress = |remaining: &str| progress_of(remaining, &items);
    assert_eq!(progress(r#","remainingItemCount":5"#), (3, Some(8)));
    // Without an object of another shard, the server may filter and count those of all shards.
    let unconfirmed = progress_of(r#","remainingItemCount":5"#, &items[..1]);
    assert_eq!(unconfirmed, (1, None));
    assert_eq!(progress(""), (3, None));
    // A server that filters still counts the remaining objects of all shards. The count is negative
    // if the server scans more objects than fit in the page.
    let server_filtered = echo(&own_shard().selector().unwrap());
    for remaining in ["5", "-2"] {
        assert_eq!(
            progress(&format!(
                r#","remainingItemCount":{remaining}{server_filtered}"#
            )),
            (3, None)
        );
    }

    let store = Arc::new(Indexer::<DynamicObject>::for_objects());
    let script = ScriptedListerWatcher::new([page("4", "", &items), Answer::open("")]);
    let status = run_until_read_with(&store, &script, 2, set);
    assert_eq!((status.received, store.len()), (3, 1));
    let initial = items.map(|item| event("ADDED", &item)).concat() + &initial_events_end("4");
    let script = ScriptedListerWatcher::new([Answer::open(initial)]).with_watch_list();
    let status = run_until_read_with(&store, &script, 1, set);
    assert_eq!((status.received, store.len()), (3, 1));
}

#[test]
fn sh5_rejected_selector_is_reported_with_its_message() {
    let message = "invalid shard selector: shard range start 0x8 must be less than end 0x4";
    let refusal = || {
        let mut status = status_json(500, "");
        status["message"] = message.into();
        refused_with(status)
    };
    for it in [running([refusal()]), watch_list([refusal(), refusal()])] {
        it.wait_for_waits(1);
        let error = it.last_error();
        assert!(error.to_string().contains(message), "{error}");
        assert_eq!(error.status().map(|status| status.code), Some(500));
        assert_eq!(
            it.handled_errors(),
            1,
            "only the error of the list reaches the handler"
        );
    }
}
