//! Informers on one thread, which other threads need while the watch is silent or busy.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use k8s_informer::informer::{Progress, step_all};
use k8s_informer::{Stop, Stopper};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::json;

use crate::cluster::{BOTH, on_every_cluster};
use crate::support::{Follower, PATIENCE, cached, shut_down, synced};

const OBJECTS: usize = 5;
const WRITES: usize = 200;

#[test]
fn late_handlers_and_reads_interrupt_watch_without_losing_events() {
    on_every_cluster(BOTH, |cluster| {
        let namespace = cluster.namespace("one-thread");
        for n in 0..OBJECTS {
            namespace.create(&format!("m{n}"), json!({}));
        }
        let factory =
            cluster.factory_with(|options| options.namespace(&namespace.name).one_thread(true));
        let maps = factory.informer::<ConfigMap>();
        let first = synced(&factory, &maps);
        let stop = Stopper::new();

        // While the watch is silent.
        let late = Follower::default();
        let registration = maps.add_handler(late.clone()).unwrap();
        assert!(registration.synced().wait_timeout(PATIENCE));
        assert_eq!(late.known().versions, cached(&maps));
        maps.wait_for_current_state(Instant::now(), None, &stop)
            .unwrap();

        // While events arrive.
        let written = AtomicUsize::new(0);
        let mut followers = vec![first, late];
        thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0..WRITES {
                    let data = json!({ "data": { "n": n.to_string() } });
                    namespace.patch(&format!("m{}", n % OBJECTS), &data);
                    written.store(n + 1, Ordering::Relaxed);
                }
            });
            while written.load(Ordering::Relaxed) < WRITES {
                let follower = Follower::default();
                let handler = maps.add_handler(follower.clone()).unwrap();
                assert!(handler.synced().wait_timeout(PATIENCE));
                maps.wait_for_current_state(Instant::now(), None, &stop)
                    .unwrap();
                if followers.len() < 8 {
                    followers.push(follower);
                } else {
                    maps.remove_event_handler(&handler);
                }
            }
        });
        maps.wait_for_current_state(Instant::now(), None, &stop)
            .unwrap();
        let truth = cluster.versions(&namespace);
        assert_eq!(cached(&maps), truth);
        for (n, follower) in followers.iter().enumerate() {
            follower.wait("each follower has the last state", |known| {
                known.versions == truth
            });
            assert_eq!(follower.known().problems, [""; 0], "follower {n}");
        }
        let updates = |name: &str| {
            let updates = followers[0].known().events;
            updates.iter().filter(|event| *event == name).count()
        };
        for n in 0..OBJECTS {
            assert_eq!(updates(&format!("~m{n}")), WRITES / OBJECTS, "m{n}");
        }
        let status = maps.status();
        assert!(
            status.last_error.is_none() && status.failures == 0,
            "{status:?}"
        );
        shut_down(&factory, "on one thread");
    });
}

/// A program with a loop of its own, while another thread writes.
#[test]
fn drivers_follow_writes_of_several_kinds_on_the_thread_of_the_program() {
    on_every_cluster(BOTH, |cluster| {
        let namespace = cluster.namespace("drivers");
        namespace.create("m0", json!({}));
        let factory = cluster.factory_with(|options| options.namespace(&namespace.name));
        let (maps, secrets) = (
            factory.informer::<ConfigMap>(),
            factory.informer::<Secret>(),
        );
        let (early, late) = (Follower::default(), Follower::default());
        maps.add_handler(early.clone()).unwrap();
        let mut drivers = factory.drivers(&Stop::never()).unwrap();
        let mut step_until = |condition: &dyn Fn() -> bool| {
            let deadline = Instant::now() + PATIENCE;
            while !condition() {
                assert!(Instant::now() < deadline, "{:?}", maps.status());
                step_all(&mut drivers, Duration::from_millis(20));
            }
        };
        step_until(&|| maps.has_synced() && secrets.has_synced());
        let has = |name: &str| maps.lister().get(&namespace.name, name).is_some();
        assert!(has("m0"));

        thread::scope(|scope| {
            let writes = scope.spawn(|| {
                for n in 0..WRITES {
                    let data = json!({ "data": { "n": n.to_string() } });
                    namespace.patch("m0", &data);
                }
                namespace.create("last", json!({}));
            });
            step_until(&|| has("last"));
            writes.join().unwrap();
        });
        maps.add_handler(late.clone()).unwrap();
        let truth = cluster.versions(&namespace);
        step_until(&|| late.known().versions == truth && early.known().versions == truth);
        assert_eq!(cached(&maps), truth);
        let (early, late) = (early.known(), late.known());
        assert_eq!((early.problems, late.problems), (vec![], vec![]));
        let updates = early.events.iter().filter(|event| *event == "~m0");
        assert_eq!(updates.count(), WRITES);
        let status = maps.status();
        assert!(
            status.last_error.is_none() && status.failures == 0,
            "{status:?}"
        );

        factory.shut_down(None).unwrap();
        assert_eq!(step_all(&mut drivers, Duration::ZERO), Progress::Ended);
        assert!(maps.ended().is_done() && secrets.ended().is_done());
    });
}
