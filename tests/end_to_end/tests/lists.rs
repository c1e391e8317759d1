//! Lists and watches without a cache. The results are the same from the embedded server and a real
//! one.

use std::collections::BTreeSet;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use k8s_informer::client::api::{Api, WatchEvent, WatchEvents};
use k8s_informer::object::{GroupVersionResource, ResourceVersion};
use k8s_informer::reflector::{ListOptions, ResourceVersionMatch};
use k8s_informer::{Error, Object, Stop, Stopper};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace as CoreNamespace, Node};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::cluster::{WATCH_LIST, on_every_cluster, on_the_embedded_server};
use crate::support::PATIENCE;
use crate::verbs::{ONCE, Slim, all, configmaps, labelled, maps, names};

/// Options for a watch from `resource_version`. The server ends the watch after 20 seconds.
fn from(resource_version: Option<ResourceVersion>) -> ListOptions {
    ListOptions::new()
        .resource_version(resource_version)
        .timeout_seconds(20)
}

/// Whether this is a positive number.
fn is_number(version: Option<&ResourceVersion>) -> bool {
    version.is_some_and(|version| version.to_string().parse::<u64>().unwrap() > 0)
}

fn described<T: Object>(event: &WatchEvent<T>) -> String {
    match event {
        WatchEvent::Added(object) => format!("+{}", object.name()),
        WatchEvent::Modified(object) => format!("~{}", object.name()),
        WatchEvent::Deleted(object) => format!("-{}", object.name()),
        WatchEvent::Bookmark {
            initial_events_end, ..
        } => format!("bookmark {initial_events_end}"),
        other => panic!("{other:?}", other = std::mem::discriminant(other)),
    }
}

/// Returns the next `count` events. Bookmarks without the mark do not count, because a busy
/// kube-apiserver can send one immediately after the marked one.
fn next<T: Object>(events: &mut WatchEvents<T>, count: usize) -> Vec<String> {
    let events = events.map(|event| described(&event.unwrap()));
    let counted = events.filter(|event| event != "bookmark false");
    counted.take(count).collect()
}

#[test]
fn each_object_type_can_be_listed_whole_and_in_pages() {
    fn assert_lists<T: Object + DeserializeOwned>(api: &Api<T>, expected: &[&str]) {
        let stop = Stopper::new();
        let list = api.list(&all(), &stop).unwrap();
        assert_eq!(names(&list.items), expected);
        assert_eq!(
            (&list.continue_token, list.remaining_item_count),
            (&None, None)
        );
        assert!(is_number(list.resource_version.as_ref()));

        let mut options = all();
        options.limit = Some(2);
        let page = api.list(&options, &stop).unwrap();
        assert_eq!(
            (names(&page.items), page.remaining_item_count),
            (expected[..2].to_vec(), Some(3))
        );
        options.continue_token.clone_from(&page.continue_token);
        assert_eq!(
            names(&api.list(&options, &stop).unwrap().items),
            expected[2..4]
        );

        let mut options = labelled("half=first");
        assert_eq!(
            names(&api.list(&options, &stop).unwrap().items),
            expected[..2]
        );
        options.field_selector = Some(format!("metadata.name={}", expected[1]));
        assert_eq!(
            names(&api.list(&options, &stop).unwrap().items),
            expected[1..2]
        );
    }
    on_every_cluster(ONCE, |cluster| {
        let (client, stop) = (cluster.client(), Stopper::new());
        let (namespace, other) = (cluster.namespace("lists"), cluster.namespace("lists"));
        let expected = ["a", "b", "c", "d", "e"];
        for (at, name) in expected.iter().enumerate() {
            namespace.create(
                name,
                json!({"half": if at < 2 { "first" } else { "second" }}),
            );
        }
        other.create("z", json!({"half": "third"}));
        // A real cluster creates this ConfigMap in each namespace.
        let is_created = |name: &str| name != "kube-root-ca.crt";
        assert!(expected.into_iter().all(is_created));

        assert_lists(&maps(&client, &namespace), &expected);
        assert_lists(&client.api::<Slim>(Some(&namespace.name)), &expected);
        assert_lists(
            &client.dynamic_api(&configmaps(), Some(&namespace.name)),
            &expected,
        );
        assert_lists(
            &client.metadata_api(&configmaps(), Some(&namespace.name)),
            &expected,
        );

        let list = maps(&client, &namespace).list(&all(), &stop).unwrap();
        assert_eq!(
            (list.api_version.as_str(), list.kind.as_str()),
            ("v1", "ConfigMapList")
        );
        assert!(
            list.items
                .iter()
                .all(|map| map.data.as_ref().unwrap()["round"] == "0")
        );
        let list = client
            .metadata_api(&configmaps(), Some(&namespace.name))
            .list(&all(), &stop)
            .unwrap();
        assert_eq!(list.kind, "PartialObjectMetadataList");
        let list = client
            .dynamic_api(&configmaps(), Some(&namespace.name))
            .list(&all(), &stop)
            .unwrap();
        let first = list.into_iter().next().unwrap();
        assert_eq!(first.read("/data/round").unwrap(), Some("0".to_owned()));
        assert_eq!((first.api_version(), first.kind()), ("v1", "ConfigMap"));

        // Lists in all namespaces, and lists of kinds without a namespace.
        let everywhere = client.api::<ConfigMap>(None);
        assert_eq!(
            names(
                &everywhere
                    .list(&labelled("half=third"), &stop)
                    .unwrap()
                    .items
            ),
            ["z"]
        );
        let found = everywhere.list(&labelled("half"), &stop).unwrap();
        let spaces: BTreeSet<_> = found.items.iter().map(Object::namespace).collect();
        assert!(
            spaces.contains(&*namespace.name) && spaces.contains(&*other.name),
            "{spaces:?}"
        );
        let one = ListOptions::new().field_selector(format!("metadata.name={}", namespace.name));
        assert_eq!(
            names(
                &client
                    .api::<CoreNamespace>(None)
                    .list(&one, &stop)
                    .unwrap()
                    .items
            ),
            [&namespace.name]
        );
        client.api::<Node>(None).list(&all(), &stop).unwrap();

        let error = maps(&client, &namespace)
            .list(&labelled("a b c"), &stop)
            .unwrap_err();
        assert!(error.is_bad_request(), "{error:?}");
        let begin = format!(
            "list configmaps in namespace {:?}: label selector \"a b c\": GET {}",
            namespace.name,
            cluster.url()
        );
        assert!(error.to_string().starts_with(&begin), "{error}");
        let nothing = client.dynamic_api(&GroupVersionResource::new("", "v1", "nothings"), None);
        assert!(nothing.list(&all(), &stop).unwrap_err().is_not_found());
        assert!(nothing.watch(&all(), &stop).unwrap_err().is_not_found());
    });
}

#[test]
fn pages_show_the_state_of_the_first_page() {
    on_every_cluster(ONCE, |cluster| {
        let (client, stop) = (cluster.client(), Stopper::new());
        let namespace = cluster.namespace("pages");
        let expected: Vec<String> = (0..7).map(|number| format!("m{number}")).collect();
        for name in &expected {
            namespace.create(name, json!({"page": "yes"}));
        }
        let api = client.dynamic_api(&configmaps(), Some(&namespace.name));
        let mut options = labelled("page");
        options.limit = Some(3);
        let mut pages = api.pages(&options, &stop);
        let first = pages.next().unwrap().unwrap();
        // Changes between pages do not affect the list.
        namespace.create("m00", json!({"page": "yes"}));
        namespace.patch("m3", &json!({"data": {"round": "1"}}));
        namespace.delete("m6");
        let mut rest: Vec<_> = pages.map(Result::unwrap).collect();
        rest.insert(0, first);
        assert_eq!(
            rest.iter().map(|page| page.items.len()).collect::<Vec<_>>(),
            [3, 3, 1]
        );
        let version = rest[0].resource_version.clone();
        assert!(rest.iter().all(|page| page.resource_version == version));
        let items: Vec<_> = rest.into_iter().flatten().collect();
        assert_eq!(names(&items), expected);
        assert!(
            items
                .iter()
                .all(|map| map.read("/data/round").unwrap() == Some("0".to_owned()))
        );

        // Pages at the version of the first page, which is now a past version, contain the same
        // objects.
        options.resource_version = version;
        options.resource_version_match = Some(ResourceVersionMatch::Exact);
        let past: Vec<_> = api
            .pages(&options, &stop)
            .flat_map(Result::unwrap)
            .collect();
        assert_eq!(names(&past), expected);

        // A small list fits on one page.
        let mut sizes = api
            .pages(&labelled("page=yes"), &stop)
            .map(|page| page.unwrap().items.len());
        assert_eq!(
            (sizes.next(), sizes.next(), sizes.next()),
            (Some(7), None, None)
        );
        let mut sizes = api
            .pages(&labelled("page=no"), &stop)
            .map(|page| page.unwrap().items.len());
        assert_eq!((sizes.next(), sizes.next()), (Some(0), None));
    });
}

#[test]
fn pages_of_an_expired_state_end_with_an_error() {
    on_the_embedded_server(ONCE, |cluster, server| {
        let (client, stop) = (cluster.client(), Stopper::new());
        let namespace = cluster.namespace("expired");
        for name in ["a", "b", "c"] {
            namespace.create(name, json!({}));
        }
        let mut options = all();
        options.limit = Some(1);
        let api = maps(&client, &namespace);
        let mut pages = api.pages(&options, &stop);
        assert_eq!(names(&pages.next().unwrap().unwrap().items), ["a"]);
        assert_eq!(names(&pages.next().unwrap().unwrap().items), ["b"]);
        namespace.create("d", json!({}));
        server.compact();
        server.clear_requests();
        let error = pages.next().unwrap().unwrap_err();
        assert!(
            error.is_gone() && error.to_string().contains("the list expired at page 3: "),
            "{error}"
        );
        assert!(pages.next().is_none() && pages.next().is_none());
        assert_eq!(
            server.requests().len(),
            1,
            "the iterator must send no more requests"
        );
    });
}

#[test]
fn watch_delivers_events_after_the_list_version() {
    fn assert_watch<T: Object + DeserializeOwned>(
        api: &Api<T>,
        version: Option<&ResourceVersion>,
        expected: &[&str],
    ) -> WatchEvents<T> {
        let mut events = api.watch(&from(version.cloned()), &Stop::never()).unwrap();
        assert_eq!(events.resource_version(), version);
        assert_eq!(next(&mut events, expected.len()), expected);
        events
    }
    on_every_cluster(ONCE, |cluster| {
        let (client, stop) = (cluster.client(), Stopper::new());
        let namespace = cluster.namespace("watch");
        let api = maps(&client, &namespace);
        namespace.create("before", json!({}));
        let version = api.list(&all(), &stop).unwrap().resource_version;
        namespace.create("a", json!({"app": "web"}));
        namespace.patch("a", &json!({"data": {"round": "1"}}));
        let changed = api.get("a", &stop).unwrap();
        namespace.patch("a", &json!({"metadata": {"labels": {"app": "db"}}}));
        namespace.delete("a");

        let expected = ["+a", "~a", "~a", "-a"];
        drop(assert_watch(&api, version.as_ref(), &expected));
        drop(assert_watch(
            &client.api::<Slim>(Some(&namespace.name)),
            version.as_ref(),
            &expected,
        ));
        drop(assert_watch(
            &client.metadata_api(&configmaps(), Some(&namespace.name)),
            version.as_ref(),
            &expected,
        ));
        let dynamic = client.dynamic_api(&configmaps(), Some(&namespace.name));
        let mut events = assert_watch(&dynamic, version.as_ref(), &expected);

        // A watch continues with new events, and a watch from a later version starts there.
        namespace.create("b", json!({}));
        let Some(Ok(WatchEvent::Added(b))) = events.next() else {
            panic!()
        };
        assert_eq!((b.name(), b.kind()), ("b", "ConfigMap"));
        let version_of_b = ResourceVersion::new(b.resource_version());
        assert_eq!(events.resource_version(), version_of_b.as_ref());
        drop(events);
        let later = ResourceVersion::new(changed.resource_version());
        drop(assert_watch(&api, later.as_ref(), &["~a", "-a", "+b"]));

        // An object that leaves the selection is reported as deleted.
        let mut options = from(version).label_selector("app=web");
        assert_eq!(
            next(&mut api.watch(&options, &stop).unwrap(), 3),
            ["+a", "~a", "-a"]
        );
        // The label selector also applies to a watch of all namespaces.
        options.label_selector = Some(format!("app,app!={}", namespace.name));
        let mut everywhere = client
            .api::<ConfigMap>(None)
            .watch(&options, &stop)
            .unwrap();
        assert_eq!(next(&mut everywhere, 4), ["+a", "~a", "~a", "-a"]);
    });
}

#[test]
fn watch_without_a_version_starts_with_existing_objects() {
    on_every_cluster(ONCE, |cluster| {
        let (client, stop) = (cluster.client(), Stopper::new());
        let namespace = cluster.namespace("initial");
        let api = maps(&client, &namespace);
        for name in ["a", "b"] {
            namespace.create(name, json!({"mine": "yes"}));
        }
        let mut options = labelled("mine");
        options.timeout_seconds = Some(20);
        let mut events = api.watch(&options, &stop).unwrap();
        let mut events_seen = next(&mut events, 2);
        events_seen.sort();
        assert_eq!(events_seen, ["+a", "+b"]);
        assert_eq!(
            events.resource_version(),
            None,
            "initial objects do not set the version"
        );
        namespace.patch("a", &json!({"data": {"round": "1"}}));
        assert_eq!(next(&mut events, 1), ["~a"]);
        let changed = api.get("a", &stop).unwrap();
        let version = ResourceVersion::new(changed.resource_version());
        assert_eq!(events.resource_version(), version.as_ref());
    });
}

/// The watch receives a bookmark after the initial events.
#[test]
fn watch_list_marks_the_end_of_the_initial_events() {
    on_every_cluster(WATCH_LIST, |cluster| {
        let (client, stop) = (cluster.client(), Stopper::new());
        let namespace = cluster.namespace("marked");
        let api = maps(&client, &namespace);
        for name in ["a", "b"] {
            namespace.create(name, json!({"mine": "yes"}));
        }
        let mut options = labelled("mine");
        options.timeout_seconds = Some(20);
        options.send_initial_events = true;
        options.allow_watch_bookmarks = true;
        options.resource_version_match = Some(ResourceVersionMatch::NotOlderThan);
        let mut events = api.watch(&options, &stop).unwrap();
        let mut events_seen = next(&mut events, 2);
        events_seen.sort();
        assert_eq!(events_seen, ["+a", "+b"]);
        assert_eq!(events.resource_version(), None);
        assert_eq!(next(&mut events, 1), ["bookmark true"]);
        assert!(is_number(events.resource_version()));
        namespace.delete("b");
        assert_eq!(next(&mut events, 1), ["-b"]);
    });
}

#[test]
fn watch_ends_on_timeout_error_or_stop() {
    on_every_cluster(ONCE, |cluster| {
        let (client, stop) = (cluster.client(), Stopper::new());
        let namespace = cluster.namespace("ends");
        let api = maps(&client, &namespace);
        let version = api.list(&all(), &stop).unwrap().resource_version;
        let options = from(version.clone()).timeout_seconds(1);
        let mut events = api.watch(&options, &stop).unwrap();
        assert!(events.next().is_none() && events.next().is_none());
        assert_eq!(events.resource_version(), version.as_ref());

        // A stop ends the wait for the next event.
        let stop = Stopper::new();
        let mut events = api.watch(&from(version.clone()), &stop).unwrap();
        let (waiting, waits) = channel();
        let (done, ended) = channel();
        let watching = thread::spawn(move || {
            waiting.send(()).unwrap();
            let error = events.next().unwrap().unwrap_err();
            done.send((error, events.next().is_none())).unwrap();
        });
        waits.recv_timeout(PATIENCE).unwrap();
        stop.stop();
        let (error, over) = ended.recv_timeout(PATIENCE).unwrap();
        assert!(error.is_stopped() && over, "{error:?}");
        watching.join().unwrap();

        // Silence for longer than the idle timeout is an error.
        let events = api.watch(&from(version), &Stop::never()).unwrap();
        let mut events = events.idle_timeout(Duration::from_millis(50));
        let error = events.next().unwrap().unwrap_err();
        assert!(error.is_timeout() && events.next().is_none(), "{error:?}");

        // A watch from version 1 fails if the server has compacted that version. The response or
        // the first event reports it.
        let old = from(ResourceVersion::new("1")).timeout_seconds(1);
        let gone: Result<Vec<_>, Error> = api
            .watch(&old, &Stop::never())
            .and_then(|events| events.collect());
        if let Err(error) = gone {
            assert!(error.is_gone(), "{error:?}");
            assert!(
                error
                    .to_string()
                    .starts_with("watch configmaps in namespace "),
                "{error}"
            );
        }
    });
}
