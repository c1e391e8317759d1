//! Informers that cache only metadata.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_informer::informer::{InformerScope, Source};
use k8s_informer::object::GroupVersionResource;
use k8s_informer::reflector::{Body, ListOptions, ListerWatcher, ListerWatcherSource, TimedRead};
use k8s_informer::{Client, Error, Object, SharedInformerFactory, Stop};
use serde_json::json;

use crate::cluster::{BOTH, Cluster, on_every_cluster};
use crate::support::{cached, names, shut_down, synced};

const SECRET: &str = "n0t-f0r-us";

fn configmaps() -> GroupVersionResource {
    GroupVersionResource::new("", "v1", "configmaps")
}

/// A client that records every received byte.
#[derive(Clone)]
struct Tap {
    client: Client,
    seen: Arc<Mutex<Vec<u8>>>,
}

impl Tap {
    fn of(cluster: &Cluster) -> Self {
        Self {
            client: cluster.client(),
            seen: Arc::default(),
        }
    }

    fn seen(&self) -> String {
        String::from_utf8(
            self.seen
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone(),
        )
        .unwrap()
    }

    fn around(&self, inner: Arc<dyn ListerWatcher>) -> Arc<dyn ListerWatcher> {
        Arc::new(Tapped {
            tap: self.clone(),
            inner,
        })
    }
}

impl ListerWatcherSource for Tap {
    fn lister_watcher(
        &self,
        resource: &GroupVersionResource,
        namespace: Option<&str>,
    ) -> Arc<dyn ListerWatcher> {
        self.around(ListerWatcherSource::lister_watcher(
            &self.client,
            resource,
            namespace,
        ))
    }

    fn metadata_lister_watcher(
        &self,
        resource: &GroupVersionResource,
        namespace: Option<&str>,
    ) -> Arc<dyn ListerWatcher> {
        self.around(ListerWatcherSource::metadata_lister_watcher(
            &self.client,
            resource,
            namespace,
        ))
    }
}

struct Tapped {
    tap: Tap,
    inner: Arc<dyn ListerWatcher>,
}

impl Tapped {
    fn recorded(&self, body: Body) -> Body {
        let seen = Arc::clone(&self.tap.seen);
        Body::timed(RecordingBody { inner: body, seen })
    }
}

impl ListerWatcher for Tapped {
    fn list(&self, options: &ListOptions, stop: &Stop) -> Result<Body, Error> {
        self.inner
            .list(options, stop)
            .map(|body| self.recorded(body))
    }

    fn watch(&self, options: &ListOptions, stop: &Stop) -> Result<Body, Error> {
        self.inner
            .watch(options, stop)
            .map(|body| self.recorded(body))
    }

    fn supports_watch_list(&self) -> bool {
        self.inner.supports_watch_list()
    }

    fn description(&self) -> String {
        self.inner.description()
    }
}

struct RecordingBody {
    inner: Body,
    seen: Arc<Mutex<Vec<u8>>>,
}

impl TimedRead for RecordingBody {
    fn read_within(&mut self, buffer: &mut [u8], timeout: Option<Duration>) -> io::Result<usize> {
        let length = self.inner.read_within(buffer, timeout)?;
        self.seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(&buffer[..length]);
        Ok(length)
    }
}

#[test]
fn fa7_metadata_informer_receives_only_metadata() {
    on_every_cluster(BOTH, |cluster| {
        let namespace = cluster.namespace("metadata");
        for name in ["a", "b", "c"] {
            namespace.create(name, json!({ "name": name }));
            namespace.patch(name, &json!({ "data": { "word": SECRET } }));
            namespace.wait_until_listed(name);
        }
        let factory = |tap: &Tap| {
            SharedInformerFactory::with_options(
                tap.clone(),
                cluster.factory_options().namespace(&namespace.name),
            )
        };
        let (tap, tap_of_all) = (Tap::of(cluster), Tap::of(cluster));
        let (slim, whole) = (factory(&tap), factory(&tap_of_all));
        let (metadata, maps) = (
            slim.informer_for(Source::metadata(configmaps())),
            whole.informer_for(Source::dynamic(configmaps())),
        );
        let (follower, of_whole) = (synced(&slim, &metadata), synced(&whole, &maps));
        assert_eq!(
            (follower.known().initial, names(&metadata)),
            (3, names(&maps))
        );
        let b = metadata.lister().get(&namespace.name, "b").unwrap();
        assert_eq!(
            (b.name(), b.label("name"), b.metadata.labels.len()),
            ("b", Some("b"), 1)
        );
        assert!(!b.uid().is_empty() && b.metadata.creation_timestamp.is_some());

        namespace.patch(
            "a",
            &json!({ "metadata": { "annotations": { "seen": "yes" } } }),
        );
        namespace.patch(
            "a",
            &json!({ "data": { "word": format!("{SECRET} again") } }),
        );
        namespace.delete("b");
        namespace.create("d", json!({}));
        let events = ["~a", "~a", "-b", "+d"].map(str::to_owned);
        for follower in [&follower, &of_whole] {
            follower.wait("the changes", |known| known.events.ends_with(&events));
            assert_eq!(follower.known().problems, [""; 0]);
        }
        assert_eq!(cached(&metadata), cached(&maps));
        let a = metadata.lister().get(&namespace.name, "a").unwrap();
        assert_eq!(&a.metadata.annotations["seen"], "yes");
        let (seen, all) = (tap.seen(), tap_of_all.seen());
        assert!(seen.contains("PartialObjectMetadata") && !seen.contains(SECRET));
        assert!(
            all.contains(SECRET) && !all.contains("PartialObjectMetadata"),
            "the whole objects have the secret"
        );
        assert!(seen.contains("DELETED"), "the deletion was received");
        assert_eq!(metadata.status().unreadable, 0);
        shut_down(&slim, "with metadata alone");
        shut_down(&whole, "with whole objects");
    });
}

#[test]
fn metadata_informers_follow_label_and_field_selectors() {
    on_every_cluster(BOTH, |cluster| {
        let namespace = cluster.namespace("metadata");
        namespace.create("a", json!({ "tier": "web" }));
        namespace.create("b", json!({ "tier": "db" }));
        let factory = cluster.factory();
        let here = InformerScope::all().namespace(&namespace.name);
        let web = here.clone().label_selector("tier=web".parse().unwrap());
        let web = factory.informer_for(Source::metadata(configmaps()).scope(web.clone()));
        let one = factory.informer_for(
            Source::metadata(configmaps()).scope(here.field_selector("metadata.name=b")),
        );
        // The third informer is of a kind without a namespace.
        let only_namespace =
            InformerScope::all().field_selector(format!("metadata.name={}", namespace.name));
        let namespaces = factory.informer_for(
            Source::metadata(GroupVersionResource::new("", "v1", "namespaces"))
                .scope(only_namespace.clone()),
        );
        let [of_web, of_one, of_namespaces] =
            [&web, &one, &namespaces].map(|informer| synced(&factory, informer));
        namespace.patch("b", &json!({ "metadata": { "labels": { "tier": "web" } } }));
        namespace.patch("a", &json!({ "metadata": { "labels": { "tier": "db" } } }));
        namespace.delete("b");
        of_web.wait_for_events(&["+a", "+b", "-a", "-b"]);
        of_one.wait_for_events(&["+b", "~b", "-b"]);
        assert_eq!(
            of_namespaces.known().events,
            [format!("+{}", namespace.name)]
        );
        for follower in [of_web, of_one, of_namespaces] {
            assert_eq!(follower.known().problems, [""; 0]);
        }
        shut_down(&factory, "with selected metadata");
    });
}
