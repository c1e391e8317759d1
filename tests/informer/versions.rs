//! Waits until the cache has reached a resource version.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use k8s_informer::error::WaitCause;
use k8s_informer::informer::{InformerQueue, SharedIndexInformerOptions};
use k8s_informer::object::ResourceVersion;
use k8s_informer::reflector::ListerWatcher;
use k8s_informer::store::Transform;
use k8s_informer::{DynamicObject, Object, SharedIndexInformer, Stop, Stopper};
use k8s_informer_testing::{Answer, ScriptedListerWatcher};
use k8s_openapi::api::core::v1::ConfigMap;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::informer::support::{SOON, until, version};

/// The timeout of a wait that cannot succeed.
const MOMENT: Duration = Duration::from_millis(1);

pub(crate) const QUEUES: [InformerQueue; 2] = [InformerQueue::DeltaFifo, InformerQueue::RealFifo];

pub(crate) fn list(version: &str, namespace: &str) -> Answer {
    let item = json!({"metadata": {"namespace": namespace, "name": "a", "resourceVersion": "1"}});
    let list = json!({"kind": "List", "metadata": {"resourceVersion": version}, "items": [item]});
    Answer::body(list.to_string())
}

fn object(namespace: &str, name: &str, version: &str) -> DynamicObject {
    let metadata = json!({"namespace": namespace, "name": name, "resourceVersion": version});
    serde_json::from_value(json!({ "metadata": metadata })).unwrap()
}

pub(crate) fn event(kind: &str, namespace: &str, name: &str, version: &str) -> String {
    let object = serde_json::to_value(object(namespace, name, version)).unwrap();
    json!({"type": kind, "object": object}).to_string() + "\n"
}

pub(crate) fn options(queue: InformerQueue) -> SharedIndexInformerOptions<DynamicObject> {
    SharedIndexInformerOptions::new().queue(queue)
}

pub(crate) fn run<T: Object + DeserializeOwned>(
    informer: &SharedIndexInformer<T>,
    test: impl FnOnce(&Stopper),
) {
    /// Stops the informer even if the test panics.
    struct StopOnDrop(Stopper);
    impl Drop for StopOnDrop {
        fn drop(&mut self) {
            self.0.stop();
        }
    }
    let stop = Stopper::new();
    thread::scope(|scope| {
        scope.spawn(|| informer.run(&stop).unwrap());
        let _stop_on_drop = StopOnDrop(stop.clone());
        test(&stop);
    });
}

#[test]
fn cache_has_all_changes_up_to_awaited_version() {
    for queue in QUEUES {
        let events = event("ADDED", "n", "b", "12") + &event("DELETED", "n", "a", "13");
        let bookmark = event("BOOKMARK", "", "", "20");
        let script =
            ScriptedListerWatcher::new([list("10", "n"), Answer::open(events + &bookmark)]);
        let informer = SharedIndexInformer::new(Arc::new(script), options(queue));
        assert_eq!(informer.store_resource_version(), None);
        run(&informer, |stop| {
            // The wait starts before the informer has a version, and perhaps before it runs.
            informer
                .wait_for_resource_version(&version("12"), SOON, stop)
                .unwrap();
            assert!(informer.lister().get_by_key("n/b").is_some());
            informer
                .wait_for_object(&object("n", "a", "13"), SOON, stop)
                .unwrap();
            assert!(informer.lister().get_by_key("n/a").is_none());
            informer
                .wait_for_resource_version(&version("20"), SOON, stop)
                .unwrap();
            assert_eq!(informer.store_resource_version(), Some(version("20")));
            informer
                .wait_for_resource_version(&version("3"), Duration::ZERO, stop)
                .unwrap();
            let late = informer
                .wait_for_resource_version(&version("21"), MOMENT, stop)
                .unwrap_err();
            assert_eq!(late.cause(), &WaitCause::TimedOut(MOMENT));
            assert_eq!(late.last_seen(), Some("20"));
        });
    }
}

#[test]
fn incomparable_versions_fail_as_not_comparable() {
    let script = ScriptedListerWatcher::new([list("v10", "n"), Answer::open("")]);
    let informer = SharedIndexInformer::<DynamicObject>::new(Arc::new(script), Default::default());
    run(&informer, |stop| {
        let invalid = informer
            .wait_for_resource_version(&version("invalid"), SOON, stop)
            .unwrap_err();
        let not_comparable = |text| WaitCause::NotComparable(Some(version(text)));
        assert_eq!(invalid.cause(), &not_comparable("invalid"));
        let reached = informer
            .wait_for_resource_version(&version("10"), SOON, stop)
            .unwrap_err();
        assert_eq!(reached.cause(), &not_comparable("v10"));
        let unversioned = informer
            .wait_for_object(&object("n", "a", ""), SOON, stop)
            .unwrap_err();
        assert_eq!(unversioned.cause(), &WaitCause::NotComparable(None));
    });
}

#[test]
fn version_wait_ends_at_the_stop_and_with_the_informer() {
    let script = || {
        Arc::new(ScriptedListerWatcher::new([
            list("10", "n"),
            Answer::open(""),
        ]))
    };
    let informer = SharedIndexInformer::<DynamicObject>::new(script(), Default::default());
    let given = Stopper::new();
    given.stop();
    let before = informer
        .wait_for_resource_version(&version("10"), SOON, &given)
        .unwrap_err();
    assert!(before.is_stopped(), "{before}");
    run(&informer, |stop| {
        thread::scope(|scope| {
            let waits = scope.spawn(|| {
                informer.wait_for_resource_version(&version("11"), SOON * 10, &Stop::never())
            });
            informer.synced().wait();
            stop.stop();
            let ended = waits.join().unwrap().unwrap_err();
            assert_eq!(ended.cause(), &WaitCause::Ended, "{ended}");
            assert_eq!(ended.last_seen(), Some("10"));
        });
    });
    informer
        .wait_for_resource_version(&version("10"), Duration::ZERO, &Stop::never())
        .unwrap();
}

#[test]
fn version_wait_needs_all_namespaces_but_object_wait_only_one() {
    for queue in QUEUES {
        let script = |version, namespace, events: String| {
            let answers = [list(version, namespace), Answer::open(events)];
            (
                namespace.to_owned(),
                Arc::new(ScriptedListerWatcher::new(answers)) as Arc<dyn ListerWatcher>,
            )
        };
        let busy = script("10", "busy", event("MODIFIED", "busy", "a", "30"));
        let quiet = script("9", "quiet", String::new());
        let informer = SharedIndexInformer::for_namespaces([busy, quiet], options(queue));
        run(&informer, |stop| {
            informer
                .wait_for_object(&object("busy", "a", "30"), SOON, stop)
                .unwrap();
            informer
                .wait_for_resource_version(&version("9"), SOON, stop)
                .unwrap();
            assert_eq!(informer.store_resource_version(), Some(version("9")));
            // The reflector's version changes just after the queue's.
            until("both namespaces listed", || {
                informer.last_sync_resource_version() == Some(version("9"))
            });
            let least = informer
                .wait_for_resource_version(&version("30"), MOMENT, stop)
                .unwrap_err();
            assert_eq!(least.cause(), &WaitCause::TimedOut(MOMENT));
            assert_eq!(least.last_seen(), Some("9"));
        });
    }
}

#[test]
fn stop_reports_no_version_beyond_the_cache() {
    let events = event("ADDED", "n", "b", "12") + &event("MODIFIED", "n", "b", "13");
    let script = ScriptedListerWatcher::new([list("10", "n"), Answer::open(events)]);
    let informer = SharedIndexInformer::new(Arc::new(script), options(InformerQueue::DeltaFifo));
    let (stop, reflector) = (Stopper::new(), informer.clone());
    let stops = stop.clone();
    let index = informer.add_index("stops", move |object: &DynamicObject| {
        match object.resource_version() {
            // While this object is processed, both changes of `b` (12 and 13) are queued.
            "1" => until("version 13 queued", || {
                reflector.last_sync_resource_version() == Some(version("13"))
            }),
            // The informer stops between the two changes of `b`.
            "12" => stops.stop(),
            _ => {}
        }
        Vec::new()
    });
    index.unwrap();
    informer.run(&stop).unwrap();
    let cached = informer.lister().get_by_key("n/b").unwrap();
    assert_eq!(
        informer.store_resource_version(),
        ResourceVersion::new(cached.resource_version())
    );
}

#[test]
fn versions_of_unreadable_and_refused_events_are_reached() {
    let nameless =
        r#"{"type": "MODIFIED", "object": {"metadata": {"name": 7, "resourceVersion": "12"}}}"#;
    for queue in QUEUES {
        for (last, last_version) in [
            (format!("{nameless}\n"), "12"),
            (event("MODIFIED", "n", "a", "13"), "13"),
            (event("DELETED", "n", "a", "13"), "13"),
        ] {
            let events = event("ADDED", "n", "b", "11") + &last;
            let script = ScriptedListerWatcher::new([list("10", "n"), Answer::open(events)]);
            let mut options = options(queue);
            let transform = |object: &mut DynamicObject| match object.resource_version() {
                "13" => Err("not this one"),
                _ => Ok(()),
            };
            options.transform = Some(Transform::try_in_place(transform));
            let informer = SharedIndexInformer::new(Arc::new(script), options);
            run(&informer, |stop| {
                let reached =
                    informer.wait_for_resource_version(&version(last_version), SOON, stop);
                assert!(reached.is_ok(), "{queue:?} {last} {reached:?}");
                assert!(informer.lister().get_by_key("n/b").is_some());
                let is_deleted = informer.lister().get_by_key("n/a").is_none();
                assert_eq!(is_deleted, last.contains("DELETED"));
            });
        }
    }
}

#[test]
fn wait_for_object_outside_the_namespaces_is_an_error() {
    let source = |namespace: &str| {
        let script = ScriptedListerWatcher::new([list("10", namespace), Answer::open("")]);
        (
            namespace.to_owned(),
            Arc::new(script) as Arc<dyn ListerWatcher>,
        )
    };
    let informer = SharedIndexInformer::for_namespaces(
        ["green", "blue"].map(source),
        options(InformerQueue::DeltaFifo),
    );
    let outside = |namespace, stop: &Stop| {
        let error = informer
            .wait_for_object(&object(namespace, "a", "1"), SOON * 10, stop)
            .unwrap_err();
        let watched = ["green", "blue"].map(str::to_owned).into();
        let cause = WaitCause::OtherNamespace {
            namespace: namespace.to_owned(),
            watched,
        };
        assert_eq!(error.cause(), &cause);
        error.to_string()
    };
    let text = r#"failed waiting for red/a: the informer does not watch the namespace "red"; it watches: green, blue"#;
    run(&informer, |stop| {
        informer.synced().wait();
        assert_eq!(outside("red", stop), text);
        assert!(outside("", stop).contains(r#"the namespace """#));
        informer
            .wait_for_object(&object("blue", "a", "1"), SOON, stop)
            .unwrap();
    });
    // The error comes at once, even after the informer has ended.
    assert_eq!(outside("red", &Stop::never()), text);
}

#[test]
fn wait_for_object_that_could_not_be_decoded_is_an_error() {
    let broken =
        json!({"metadata": {"namespace": "n", "name": "a", "resourceVersion": "12"}, "data": 7});
    let event = |kind: &str, object| json!({"type": kind, "object": object}).to_string() + "\n";
    let bookmark = json!({"metadata": {"resourceVersion": "13"}});
    let events = event("MODIFIED", broken) + &event("BOOKMARK", bookmark);
    let script = ScriptedListerWatcher::new([list("10", "n"), Answer::open(events)]);
    let informer = SharedIndexInformer::<ConfigMap>::new(Arc::new(script), Default::default());
    let mut map = ConfigMap::default();
    map.metadata.namespace = Some("n".to_owned());
    map.metadata.name = Some("a".to_owned());
    map.metadata.resource_version = Some("12".to_owned());
    run(&informer, |stop| {
        let error = informer.wait_for_object(&map, SOON, stop).unwrap_err();
        let cause = WaitCause::NotStored {
            version: version("12"),
            cached: Some(version("1")),
        };
        assert_eq!(error.cause(), &cause, "{error}");
        assert!(error.to_string().contains("still has \"1\""), "{error}");
    });
}
