//! Many handlers are added and removed while objects change: client-go's
//! `TestSharedInformer_HandlerAbuse`, and I12 as a property.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use k8s_informer::handler::{HandlerBuffer, HandlerOptions, ResourceEventHandler};
use k8s_informer::informer::{FactoryOptions, Source};
use k8s_informer::{Client, Config, Deleted, DynamicObject, Object, SharedInformerFactory, Stop};
use k8s_informer_testing::ApiServer;
use parking_lot::Mutex;
use serde_json::json;

use super::informer;
use crate::informer::support::{Feed, SOON, record, run_synced, until};

const OBJECTS: usize = 40;

/// The cache contents that follow from a handler's notifications, and the first inconsistent
/// notification.
#[derive(Default)]
struct ReplicaState {
    versions: HashMap<String, String>,
    calls: usize,
    inconsistency: Option<String>,
}

#[derive(Clone, Default)]
struct Replica(Arc<Mutex<ReplicaState>>);

impl Replica {
    fn note(&self, name: &str, before: Option<&str>, after: Option<&str>) {
        let mut state = self.0.lock();
        state.calls += 1;
        let known = match after {
            Some(after) => state.versions.insert(name.to_owned(), after.to_owned()),
            None => state.versions.remove(name),
        };
        if known.as_deref() != before && state.inconsistency.is_none() {
            state.inconsistency = Some(format!(
                "{name} changed from {before:?} to {after:?}, but the last delivered version was {known:?}"
            ));
        }
    }

    fn check(&self) -> (HashMap<String, String>, usize) {
        let state = self.0.lock();
        assert_eq!(state.inconsistency, None, "after {} calls", state.calls);
        (state.versions.clone(), state.calls)
    }
}

impl ResourceEventHandler<DynamicObject> for Replica {
    fn on_add(&mut self, object: &Arc<DynamicObject>, _: bool) {
        self.note(object.name(), None, Some(object.resource_version()));
    }

    fn on_update(&mut self, old: &Arc<DynamicObject>, new: &Arc<DynamicObject>) {
        self.note(
            new.name(),
            Some(old.resource_version()),
            Some(new.resource_version()),
        );
    }

    fn on_delete(&mut self, object: &Deleted<DynamicObject>) {
        // The version is not compared, because the deletion may carry a different version from the
        // last notification.
        let mut state = self.0.lock();
        state.calls += 1;
        if state.versions.remove(object.name()).is_none() && state.inconsistency.is_none() {
            state.inconsistency = Some(format!(
                "{} was deleted, but it was never added",
                object.name()
            ));
        }
    }
}

#[test]
fn handlers_added_and_removed_at_random_get_all_in_order() {
    let feed = Feed::new("abuse");
    feed.list("10", &[("o0", "1"), ("o1", "1")]);
    let informer = informer(&feed);
    let early = Replica::default();
    informer.add_handler(early.clone()).unwrap();
    let running = run_synced(&informer);
    let over = Arc::new(AtomicBool::new(false));
    let added = Arc::new(AtomicUsize::new(0));
    let abusers: Vec<_> = (0..6)
        .map(|_| {
            let (informer, over, added) = (informer.clone(), Arc::clone(&over), Arc::clone(&added));
            thread::spawn(move || {
                let mut handlers = 0;
                let mut kept = Vec::new();
                while !over.load(Ordering::Relaxed) {
                    let replica = Replica::default();
                    let mut options = HandlerOptions::default();
                    if handlers % 3 == 0 {
                        options.buffer = HandlerBuffer::Coalescing;
                    }
                    let handler = informer
                        .add_handler_with_options(replica.clone(), options)
                        .unwrap();
                    handlers += 1;
                    added.fetch_add(1, Ordering::Relaxed);
                    if handlers % 10 == 1 && kept.len() < 5 {
                        kept.push((handler, replica));
                        continue;
                    }
                    if handlers % 2 == 0 {
                        assert!(handler.synced().wait_timeout(SOON));
                    }
                    informer.remove_event_handler(&handler);
                    replica.check();
                }
                kept
            })
        })
        .collect();
    let mut alive = HashMap::from([(0, "1".to_owned()), (1, "1".to_owned())]);
    let mut random = 7_u64;
    for version in 11..=6000 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let (at, is_delete) = ((random >> 33) as usize % OBJECTS, (random >> 60) == 0);
        let (name, version) = (format!("o{at}"), version.to_string());
        if is_delete && alive.remove(&at).is_some() {
            feed.event("DELETED", &name, &version);
        } else if alive.insert(at, version.clone()).is_some() {
            feed.event("MODIFIED", &name, &version);
        } else {
            feed.event("ADDED", &name, &version);
        }
        // Wait for new handlers, so that handlers are added between the changes.
        if let Some(hundreds) = version.strip_suffix("00") {
            let enough = hundreds.parse().unwrap();
            until("enough handlers added", || {
                added.load(Ordering::Relaxed) >= enough
            });
        }
    }
    let (_last, last) = record(&informer);
    feed.event("ADDED", "end", "6001");
    // If `end` is in the initial list of this handler, the notification has the suffix "initial".
    while !last.next().starts_with("add end@6001") {}
    over.store(true, Ordering::Relaxed);
    let mut expected: HashMap<_, _> = alive
        .into_iter()
        .map(|(at, version)| (format!("o{at}"), version))
        .collect();
    expected.insert("end".to_owned(), "6001".to_owned());
    let kept = abusers
        .into_iter()
        .flat_map(|abuser| abuser.join().unwrap());
    let mut kept: Vec<_> = kept.map(|(_, replica)| replica).collect();
    kept.push(early);
    // This event marks the end. Each handler gets all earlier changes before it.
    feed.event("MODIFIED", "end", "6002");
    expected.insert("end".to_owned(), "6002".to_owned());
    last.until("update end@6001-6002");
    for replica in kept {
        let deadline = std::time::Instant::now() + SOON;
        while replica.check().0 != expected {
            assert!(
                std::time::Instant::now() < deadline,
                "{:?}",
                replica.check()
            );
            thread::yield_now();
        }
    }
    running.end().unwrap();
}

#[test]
fn handlers_follow_server_through_broken_watches_and_lists() {
    let server = ApiServer::start().unwrap();
    let maps = "/api/v1/namespaces/default/configmaps";
    for n in 0..10 {
        server
            .create(maps, json!({ "metadata": { "name": format!("m{n}") } }))
            .unwrap();
    }
    let client = Client::new(Config::new(server.url())).unwrap();
    let mut options = crate::informer::support::options(&k8s_informer_testing::FakeClock::new());
    // Use the real clock, because the reflector waits between watches that end at once.
    options.clock = k8s_informer::reflector::ReflectorOptions::default().clock;
    options.page_size = Some(3);
    let factory = SharedInformerFactory::with_options(
        client,
        FactoryOptions::new()
            .queue(super::queue_kind())
            .one_thread(super::one_thread())
            .reflector(options),
    );
    let informer = factory.informer_for(Source::dynamic(
        k8s_informer::object::GroupVersionResource::new("", "v1", "configmaps"),
    ));
    let early = Replica::default();
    informer.add_handler(early.clone()).unwrap();
    factory.start(&Stop::never()).unwrap();
    factory.wait_for_cache_sync(None, &Stop::never()).unwrap();
    let mut all = vec![early];
    for round in 0..30 {
        for n in 0..10 {
            let path = format!("{maps}/m{n}");
            match (round + n) % 4 {
                0 => drop(server.delete(&path)),
                1 => drop(server.create(maps, json!({ "metadata": { "name": format!("m{n}") } }))),
                _ => drop(server.patch(&path, json!({ "data": { "round": round.to_string() } }))),
            }
        }
        let late = Replica::default();
        informer.add_handler(late.clone()).unwrap();
        all.push(late);
        match round % 5 {
            0 => drop(server.close_watches()),
            1 => drop(server.cut_watches()),
            2 => {
                server.compact();
                server.close_watches();
            }
            3 => drop(server.write_to_watches("{garbage\n")),
            _ => {}
        }
    }
    let list = server.list(maps).unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let expected: HashMap<_, _> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| {
            (
                text(&item["metadata"]["name"]),
                text(&item["metadata"]["resourceVersion"]),
            )
        })
        .collect();
    let deadline = std::time::Instant::now() + SOON;
    for replica in all {
        while replica.check().0 != expected {
            let status = informer.status();
            assert!(
                std::time::Instant::now() < deadline,
                "{:?}\n{expected:?}\n{status:?}",
                replica.check()
            );
            thread::yield_now();
        }
    }
    factory.shut_down(None).unwrap();
}
