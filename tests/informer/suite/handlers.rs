//! Delivery to handlers: order, initial lists, removal, and slow or panicking handlers (SP, T).

use std::sync::{Arc, mpsc};

use k8s_informer::handler::{HandlerOptions, ResourceEventHandler};
use k8s_informer::{DynamicObject, Object, impl_object};
use parking_lot::Mutex;

use super::{informer, one_thread};
use crate::informer::support::{
    Door, Feed, Informer, SOON, logged, logging, record, recorder, run, run_synced, soon,
};

fn add_named(
    informer: &Informer,
    name: &str,
    handler: impl ResourceEventHandler<DynamicObject> + 'static,
) -> k8s_informer::handler::HandlerRegistration {
    let mut options = HandlerOptions::default();
    options.name = Some(name.to_owned());
    informer.add_handler_with_options(handler, options).unwrap()
}

#[test]
fn sp3_sp4_handlers_added_before_run_miss_no_events() {
    let feed = Feed::new("sp4");
    feed.list("10", &[("a", "1"), ("b", "1")]);
    feed.event("DELETED", "a", "11");
    let informer = informer(&feed);
    let handlers: Vec<_> = (0..20).map(|_| record(&informer)).collect();
    let _running = run(&informer);
    for (_, events) in handlers {
        let mut events = events.take(3);
        events.sort();
        assert_eq!(
            events,
            ["add a@1 initial", "add b@1 initial", "delete a@11"]
        );
    }
}

#[test]
fn sp6_handler_removed_before_run_is_never_called() {
    let feed = Feed::new("sp6");
    feed.list("10", &[("a", "1")]);
    let informer = informer(&feed);
    let (removed, events) = record(&informer);
    let (_kept, kept_events) = record(&informer);
    informer.remove_event_handler(&removed);
    assert!(events.is_disconnected());
    let _running = run_synced(&informer);
    assert_eq!(kept_events.next(), "add a@1 initial");
    assert!(!removed.has_synced());
}

#[test]
fn sp7_sp8_slow_handler_gets_everything_in_order() {
    if one_thread() {
        return;
    }
    let feed = Feed::new("sp8");
    feed.list("10", &[("a", "10")]);
    let informer = informer(&feed);
    let door = Door::new();
    let (slow, versions) = mpsc::channel();
    let blocked = door.clone();
    let handler = informer
        .add_event_handler(|handler| {
            handler
                .on_add(move |_, _| blocked.pass())
                .on_update(move |_, new| {
                    slow.send(new.resource_version().parse::<u32>().unwrap())
                        .unwrap();
                })
        })
        .unwrap();
    let (_quick, quick) = record(&informer);
    let _running = run_synced(&informer);
    door.wait_for_arrivals(1);
    // Send more than twice as many events as the initial capacity of the ring.
    for version in 11..=3010 {
        feed.event("MODIFIED", "a", &version.to_string());
    }
    quick.until("update a@3009-3010");
    assert!(versions.try_recv().is_err() && !handler.has_synced());
    door.open();
    for version in 11..=3010 {
        assert_eq!(versions.recv_timeout(SOON), Ok(version));
    }
    assert!(handler.synced().wait_timeout(SOON));
}

#[test]
fn sp9_blocked_handler_blocks_no_other_handler_or_queue() {
    if one_thread() {
        return;
    }
    let feed = Feed::new("sp9");
    feed.list("10", &[("a", "1")]);
    let informer = informer(&feed);
    let door = Door::new();
    let at = door.clone();
    informer
        .add_event_handler(|handler| handler.on_add(move |_, _| at.pass()))
        .unwrap();
    let (_other, events) = record(&informer);
    let running = run_synced(&informer);
    door.wait_for_arrivals(1);
    for n in 0..2000 {
        feed.event("ADDED", &format!("o{n}"), &format!("{}", 100 + n));
    }
    assert_eq!(events.until("add o1999@2099").len(), 2000);
    assert_eq!(informer.lister().len(), 2001);
    // Handlers can still be added and removed.
    let (late, late_events) = record(&informer);
    assert!(late.synced().wait_timeout(SOON));
    assert_eq!(late_events.rest().len(), 2001);
    informer.remove_event_handler(&late);
    door.open();
    running.end().unwrap();
}

#[test]
fn sp10_sp11_t1_handler_syncs_after_initial_list() {
    if one_thread() {
        return;
    }
    let feed = Feed::new("sp11");
    feed.list("10", &[("a", "1"), ("b", "1")]);
    let informer = informer(&feed);
    let (first, second) = (Door::new(), Door::new());
    let (one, two) = (first.clone(), second.clone());
    let slow = informer
        .add_event_handler(|handler| {
            handler.on_add(move |object, _| {
                if object.name() == "a" {
                    one.pass();
                } else {
                    two.pass();
                }
            })
        })
        .unwrap();
    let (quick, _events) = record(&informer);
    let running = run_synced(&informer);
    assert!(quick.synced().wait_timeout(SOON));
    first.wait_for_arrivals(1);
    assert!(!slow.has_synced());
    first.open();
    second.wait_for_arrivals(1);
    assert!(!slow.has_synced());
    second.open();
    assert!(slow.synced().wait_timeout(SOON));
    // The handler stays synced: later changes are not part of the initial list.
    feed.event("ADDED", "c", "11");
    running.end().unwrap();
    assert!(slow.has_synced());
}

#[test]
fn sp11_late_handler_syncs_after_its_own_initial_list() {
    let feed = Feed::new("sp11 late");
    feed.list("10", &[("a", "1")]);
    let informer = informer(&feed);
    let _running = run_synced(&informer);
    let door = Door::new();
    let at = door.clone();
    let late = informer
        .add_event_handler(|handler| handler.on_add(move |_, _| at.pass()))
        .unwrap();
    door.wait_for_arrivals(1);
    assert!(informer.has_synced() && !late.has_synced());
    door.open();
    assert!(late.synced().wait_timeout(SOON));
}

#[test]
fn sp12_removed_handler_loses_queued_events() {
    if one_thread() {
        return;
    }
    let feed = Feed::new("sp12");
    feed.list("10", &[("a", "1")]);
    let informer = informer(&feed);
    let (door, (recorder, events)) = (Door::new(), recorder());
    let (at, mut inner) = (door.clone(), recorder);
    let slow = informer
        .add_event_handler(|handler| {
            handler.on_add(move |object, initial| {
                at.pass();
                inner.on_add(object, initial);
            })
        })
        .unwrap();
    let (_other, other_events) = record(&informer);
    let _running = run_synced(&informer);
    door.wait_for_arrivals(1);
    for n in 0..100 {
        feed.event("ADDED", &format!("o{n}"), &format!("{}", 100 + n));
    }
    other_events.until("add o99@199");
    informer.remove_event_handler(&slow);
    door.open();
    let mut called = 0;
    while let Some(event) = events.next_or_disconnected() {
        assert!(event.starts_with("add "));
        called += 1;
    }
    // At most two calls: the one in progress, and one for a notification that was already handed
    // over.
    assert!(called <= 2, "{called} calls");
}

#[test]
fn sp13_panic_loses_one_call_and_handler_still_syncs() {
    logging();
    let feed = Feed::new("sp13");
    let names: Vec<String> = (0..200).map(|n| format!("o{n}")).collect();
    let objects: Vec<_> = names.iter().map(|name| (name.as_str(), "1")).collect();
    feed.list("10", &objects);
    let informer = informer(&feed);
    let (seen, count) = mpsc::channel();
    struct Panics(mpsc::Sender<String>);
    impl ResourceEventHandler<DynamicObject> for Panics {
        fn on_add(&mut self, object: &Arc<DynamicObject>, _: bool) {
            self.0.send(object.name().to_owned()).unwrap();
            panic!("don't like {}", object.name());
        }
        fn on_delete(&mut self, _: &k8s_informer::Deleted<DynamicObject>) {
            self.0.send("deleted".to_owned()).unwrap();
        }
    }
    let handler = add_named(&informer, "sp13 handler", Panics(seen));
    let _running = run_synced(&informer);
    let began = std::time::Instant::now();
    assert!(
        handler.synced().wait_timeout(SOON),
        "panics must not prevent the sync"
    );
    assert!(began.elapsed() < SOON / 2, "client-go would take 200 s");
    assert_eq!(count.try_iter().count(), 200);
    feed.event("DELETED", "o7", "11");
    assert_eq!(count.recv_timeout(SOON), Ok("deleted".to_owned()));
    logged(&[
        "ERROR",
        "sp13 handler",
        "panicked: don't like o199",
        "continuing with the next event",
    ]);
}

#[test]
fn sp16_each_registration_is_removed_separately() {
    #[derive(Clone)]
    struct Counts(Arc<Mutex<Vec<String>>>, mpsc::Sender<()>);
    impl ResourceEventHandler<DynamicObject> for Counts {
        fn on_add(&mut self, object: &Arc<DynamicObject>, _: bool) {
            self.0.lock().push(object.name().to_owned());
            let _ = self.1.send(());
        }
    }
    let feed = Feed::new("sp16");
    feed.list("10", &[("a", "1")]);
    let informer = informer(&feed);
    let (sender, calls) = mpsc::channel();
    let counts = Counts(Arc::default(), sender);
    let handlers: Vec<_> = (0..3)
        .map(|_| informer.add_handler(counts.clone()).unwrap())
        .collect();
    let _running = run_synced(&informer);
    for _ in 0..3 {
        calls.recv_timeout(SOON).unwrap();
    }
    informer.remove_event_handler(&handlers[0]);
    informer.remove_event_handler(&handlers[2]);
    let (_last, last) = record(&informer);
    feed.event("ADDED", "b", "11");
    last.until("add b@11");
    calls.recv_timeout(SOON).unwrap();
    assert_eq!(*counts.0.lock(), ["a", "a", "a", "b"]);
}

#[test]
fn h4_handler_has_its_configured_name_or_a_number() {
    let informer = informer(&Feed::new("names"));
    assert_eq!(add_named(&informer, "audit", recorder().0).name(), "audit");
    assert_eq!(record(&informer).0.name(), "handler-2");
}

/// A handler whose destructor runs a closure.
struct OnDrop<F: FnMut() + Send>(F);

impl<F: FnMut() + Send> ResourceEventHandler<DynamicObject> for OnDrop<F> {}

impl<F: FnMut() + Send> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[test]
fn handler_destructor_may_call_informer() {
    for started in [false, true] {
        let feed = Feed::new("destructors");
        feed.list("10", &[("a", "1")]);
        let informer = informer(&feed);
        let (other, _events) = record(&informer);
        let (sender, drops) = mpsc::channel();
        let inner = informer.clone();
        let handler = informer
            .add_handler(OnDrop(move || {
                inner.remove_event_handler(&other);
                inner.add_handler(recorder().0).unwrap();
                sender
                    .send((inner.is_stopped(), inner.status().state))
                    .unwrap();
            }))
            .unwrap();
        let running = started.then(|| run_synced(&informer));
        soon("remove", move || informer.remove_event_handler(&handler));
        assert!(!drops.recv_timeout(SOON).unwrap().0);
        drop(running);
    }
}

#[test]
fn panicking_handler_destructor_is_logged() {
    logging();
    let feed = Feed::new("bad destructors");
    feed.list("10", &[("a", "1")]);
    let informer = informer(&feed);
    let early = informer.add_handler(OnDrop(|| panic!("early"))).unwrap();
    informer.remove_event_handler(&early);
    logged(&["ERROR", "the destructor panicked: early"]);
    let late = informer.add_handler(OnDrop(|| panic!("late"))).unwrap();
    informer
        .add_handler(OnDrop(|| panic!("at the end")))
        .unwrap();
    let running = run_synced(&informer);
    informer.remove_event_handler(&late);
    logged(&["ERROR", "the destructor panicked: late"]);
    running.end().unwrap();
    logged(&["ERROR", "the destructor panicked: at the end"]);
}

/// An object whose destructor panics if its version is `bomb`.
struct Fragile {
    metadata: DynamicObject,
}

impl<'de> serde::Deserialize<'de> for Fragile {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self {
            metadata: DynamicObject::deserialize(deserializer)?,
        })
    }
}

impl Drop for Fragile {
    fn drop(&mut self) {
        if self.metadata.resource_version() == "bomb" && !std::thread::panicking() {
            panic!("shattered");
        }
    }
}

impl_object!(Fragile, "v1", "Fragile", "fragiles", Namespaced);

#[test]
fn panicking_object_destructor_ends_no_thread() {
    let feed = Feed::new("fragile");
    feed.list("10", &[("a", "bomb")]);
    let options = super::informer_options(crate::informer::support::options(
        &k8s_informer_testing::FakeClock::new(),
    ));
    let informer =
        k8s_informer::SharedIndexInformer::<Fragile>::new(Arc::new(feed.clone()), options);
    let (seen, versions) = mpsc::channel();
    informer
        .add_event_handler(|handler| {
            handler.on_update(move |_, new| seen.send(new.resource_version().to_owned()).unwrap())
        })
        .unwrap();
    let running = crate::informer::support::Running::new({
        let informer = informer.clone();
        move |stop| informer.run(stop)
    });
    // The destructor of an object with the version `bomb` panics on the thread that drops its last
    // reference.
    for round in 0..50 {
        let version = format!("{round}");
        feed.event("MODIFIED", "a", &version);
        assert_eq!(versions.recv_timeout(SOON), Ok(version));
        feed.event("MODIFIED", "a", "bomb");
        assert_eq!(versions.recv_timeout(SOON), Ok("bomb".to_owned()));
    }
    running.end().unwrap();
    // The cache holds the last object with the version `bomb`, so this drop may panic.
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(informer)));
}
