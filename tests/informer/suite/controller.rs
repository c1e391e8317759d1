//! The controller, and informers with one handler (C, P).

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Instant;

use k8s_informer::informer::{Controller, ControllerConfig, InformerError, InformerQueue};
use k8s_informer::object::{Accessor, ObjectMeta, ResourceVersion};
use k8s_informer::queue::{DeltaFifo, Origin, Queue, RealFifo, Requeue};
use k8s_informer::store::Transform;
use k8s_informer::time::Backoff;
use k8s_informer::{DynamicObject, Object, SharedIndexInformer, Stop, Stopper, impl_object};
use k8s_informer_testing::{Answer, FakeClock, ScriptedListerWatcher};
use serde::{Deserialize, Deserializer};
use serde_json::json;

use super::{informer, informer_options, informer_with, one_item_per_change, queue_kind};
use crate::informer::support::{
    Door, Feed, Running, SECOND, SOON, logged, logging, options, record, run, run_synced, soon,
    status, until, version,
};

fn queue() -> Arc<dyn Queue<DynamicObject>> {
    match queue_kind() {
        InformerQueue::DeltaFifo => Arc::new(DeltaFifo::new(Accessor::object())),
        _ => Arc::new(RealFifo::new(Accessor::object())),
    }
}

fn run_controller(
    controller: Controller<DynamicObject>,
) -> (
    Arc<Controller<DynamicObject>>,
    Running<Result<(), InformerError>>,
) {
    let controller = Arc::new(controller);
    let running = Arc::clone(&controller);
    (controller, Running::new(move |stop| running.run(stop)))
}

/// Waits until the reflector has queued everything up to `version`.
fn until_version(controller: &Controller<DynamicObject>, version: &str) {
    let deadline = Instant::now() + SOON;
    while controller.last_sync_resource_version() != ResourceVersion::new(version) {
        assert!(Instant::now() < deadline, "{:?}", controller.status());
        thread::yield_now();
    }
}

#[test]
fn c1_run_returns_after_the_stop() {
    let feed = Feed::new("c1");
    feed.list("10", &[("a", "1")]);
    let config = ControllerConfig::new(queue(), Arc::new(feed), |_, _| Ok(()));
    let (controller, running) = run_controller(Controller::new(config));
    assert!(controller.synced().wait_timeout(SOON));
    running.end().unwrap();
}

#[test]
fn d11_controller_processes_a_requeued_item_again() {
    logging();
    let feed = Feed::new("requeues");
    feed.list("10", &[("a", "1")]);
    let (sender, calls) = mpsc::channel();
    let mut attempts = 0;
    let config = ControllerConfig::new(queue(), Arc::new(feed), move |deltas, _| {
        attempts += 1;
        sender.send(deltas.len()).unwrap();
        match attempts {
            1 => Err(Requeue::new().into()),
            2 => Err(Requeue::because("the disk is full").into()),
            _ => Ok(()),
        }
    });
    let (controller, running) = run_controller(Controller::new(config));
    for _ in 0..3 {
        assert_eq!(calls.recv_timeout(SOON), Ok(1));
    }
    assert!(controller.synced().wait_timeout(SOON));
    let line = logged(&["requeues", "is processed again: the disk is full"]);
    assert!(!line.contains("lost"), "{line}");
    let status = controller.status();
    assert!(status.last_error.is_none(), "{status:?}");
    running.end().unwrap();
    assert!(calls.try_recv().is_err());
}

#[test]
fn c1_stop_before_run_returns_without_requests() {
    let script = ScriptedListerWatcher::new([]);
    let controller = Controller::<DynamicObject>::new(ControllerConfig::new(
        queue(),
        Arc::new(script.clone()),
        |_, _| Ok(()),
    ));
    soon("run", move || {
        let stop = Stopper::new();
        stop.stop();
        controller.run(&stop)
    })
    .unwrap();
    assert!(script.requests().is_empty());
}

#[test]
fn c3_stop_leaves_queued_items_unprocessed() {
    let feed = Feed::new("c3");
    feed.list("10", &[("a", "1")]);
    feed.event("ADDED", "b", "11");
    feed.event("ADDED", "c", "12");
    let door = Door::new();
    let (seen, items) = mpsc::channel();
    let at = door.clone();
    let config = ControllerConfig::new(queue(), Arc::new(feed), move |deltas, origin| {
        seen.send((deltas.len(), origin)).unwrap();
        at.pass();
        Ok(())
    });
    let (controller, running) = run_controller(Controller::new(config));
    door.wait_for_arrivals(1);
    until_version(&controller, "12");
    running.stop.stop();
    door.open();
    running.ended().unwrap();
    drop(running);
    drop(controller);
    assert_eq!(items.iter().collect::<Vec<_>>(), [(1, Origin::InitialList)]);
}

#[test]
fn c5_controller_continues_after_queue_is_closed() {
    let feed = Feed::new("c5");
    feed.list("10", &[]);
    let queue = queue();
    let config = ControllerConfig::new(queue.clone(), Arc::new(feed.clone()), |_, _| Ok(()));
    let (controller, running) = run_controller(Controller::new(config));
    assert!(controller.synced().wait_timeout(SOON));
    queue.close();
    feed.expire();
    feed.list("20", &[]);
    feed.event("BOOKMARK", "", "30");
    until_version(&controller, "30");
    running.end().unwrap();
}

#[test]
fn c6_second_run_fails() {
    let feed = Feed::new("c6");
    feed.list("10", &[]);
    let config = ControllerConfig::new(queue(), Arc::new(feed), |_, _| Ok(()));
    let (controller, running) = run_controller(Controller::new(config));
    assert!(controller.synced().wait_timeout(SOON));
    let again = controller.run(&Stop::never()).unwrap_err();
    assert!(
        matches!(again, InformerError::AlreadyStarted { .. }),
        "{again}"
    );
    assert_eq!(again.to_string(), "c6: already started");
    running.end().unwrap();
    assert!(controller.run(&Stop::never()).is_err());
}

#[test]
fn c7_unprocessable_event_is_logged_and_next_follows() {
    logging();
    let feed = Feed::new("c7 objects");
    feed.list("10", &[]);
    for (name, version) in [("bad", "11"), ("panics", "12"), ("good", "13")] {
        feed.event("ADDED", name, version);
    }
    let (seen, names) = mpsc::channel();
    let config = ControllerConfig::new(queue(), Arc::new(feed), move |deltas, _| {
        match deltas
            .newest()
            .unwrap()
            .object()
            .map_or("the list", |object| object.name())
        {
            "the list" => Ok(()),
            "bad" => Err("no good".into()),
            "panics" => panic!("not at all"),
            name => {
                seen.send(name.to_owned()).unwrap();
                Ok(())
            }
        }
    });
    let (_controller, running) = run_controller(Controller::new(config));
    assert_eq!(names.recv_timeout(SOON), Ok("good".to_owned()));
    logged(&["ERROR", "c7 objects", "an event was lost", "no good"]);
    logged(&[
        "ERROR",
        "c7 objects",
        "an event was lost",
        "panicked: not at all",
    ]);
    running.end().unwrap();
}

#[test]
fn c8_c9_reflector_uses_the_configured_options() {
    let clock = FakeClock::new();
    let feed = Feed::on_clock("c9 objects", &clock);
    feed.fail_list(status(500, "InternalError", "not now"));
    feed.list("10", &[]);
    let (sender, errors) = mpsc::channel();
    let mut config = ControllerConfig::new(queue(), Arc::new(feed.clone()), |_, _| Ok(()));
    config.reflector.name = Some("c9".to_owned());
    config.reflector.clock = Arc::new(clock.clone());
    config.reflector.page_size = Some(3);
    config.reflector.resync_period = 50 * SECOND;
    config.reflector.backoff = Backoff::new(7 * SECOND);
    config.reflector.watch_error_handler = Some(Arc::new(move |error| {
        sender.send(error.to_string()).unwrap();
    }));
    let (controller, running) = run_controller(Controller::new(config));
    assert!(errors.recv_timeout(SOON).unwrap().contains("not now"));
    clock.wait_for_waits(1, SOON).unwrap();
    assert_eq!(clock.waits(), [7 * SECOND]);
    clock.advance(7 * SECOND);
    assert!(controller.synced().wait_timeout(SOON));
    clock.wait_for_waits(2, SOON).unwrap();
    assert_eq!(clock.waits()[1], 50 * SECOND);
    until("watched", || feed.requests().len() == 3);
    let requests = feed.requests();
    assert!(
        requests[..2]
            .iter()
            .all(|(verb, options)| *verb == "list" && options.limit == Some(3))
    );
    assert!(format!("{controller:?}").contains("c9"));
    running.end().unwrap();
}

#[test]
fn c10_controller_reports_queue_sync_and_reflector_version() {
    let feed = Feed::new("c10");
    let config = ControllerConfig::new(queue(), Arc::new(feed.clone()), |_, _| Ok(()));
    let controller = Controller::<DynamicObject>::new(config);
    assert_eq!(
        (
            controller.has_synced(),
            controller.last_sync_resource_version()
        ),
        (false, None)
    );
    let (controller, running) = run_controller(controller);
    feed.list("10", &[("a", "1")]);
    assert!(controller.synced().wait_timeout(SOON));
    assert!(controller.has_synced());
    running.end().unwrap();
    assert_eq!(controller.last_sync_resource_version(), Some(version("10")));
    assert!(controller.has_synced(), "still synced after the stop");
}

/// An object whose destructor panics if its name is `fragile`.
#[derive(Deserialize)]
struct Fragile {
    metadata: ObjectMeta,
}

impl_object!(Fragile, "v1", "Fragile", "fragiles", Namespaced);

impl Drop for Fragile {
    fn drop(&mut self) {
        assert!(self.name() != "fragile" || thread::panicking(), "not now");
    }
}

/// The process thread drops what it has popped, after the pop and outside of the callback.
#[test]
fn c2_process_loop_restarts_after_panic() {
    logging();
    let feed = Feed::new("c2 objects");
    feed.list("10", &[("fragile", "1")]);
    feed.event("ADDED", "b", "11");
    let queue: Arc<dyn Queue<Fragile>> = match queue_kind() {
        InformerQueue::DeltaFifo => Arc::new(DeltaFifo::new(Accessor::object())),
        _ => Arc::new(RealFifo::new(Accessor::object())),
    };
    let (seen, calls) = mpsc::channel();
    let config = ControllerConfig::new(queue, Arc::new(feed), move |_, origin| {
        seen.send(origin)?;
        Ok(())
    });
    let controller = Controller::new(config);
    let running = Running::new(move |stop| controller.run(stop));
    assert_eq!(calls.recv_timeout(SOON), Ok(Origin::InitialList));
    logged(&["ERROR", "c2 objects", "panicked: not now"]);
    assert_eq!(
        calls.recv_timeout(SOON),
        Ok(Origin::Later),
        "the process loop continues"
    );
    running.end().unwrap();
}

#[test]
fn x9_cache_has_the_version_before_the_transform() {
    let feed = Feed::new("x9");
    feed.list("10", &[("a", "1")]);
    let mut options = informer_options(options(&FakeClock::new()));
    options.transform = Some(Transform::try_in_place(|object: &mut DynamicObject| {
        let name = object.name().to_owned();
        object.edit(|fields| fields["metadata"] = json!({ "name": name }))
    }));
    let informer = SharedIndexInformer::new(Arc::new(feed.clone()), options);
    let (_handler, events) = record(&informer);
    let running = run(&informer);
    let lister = informer.lister();
    assert_eq!(events.next(), "add a@ initial");
    feed.event("ADDED", "b", "11");
    assert_eq!(events.next(), "add b@");
    assert_eq!(lister.resource_version(), Some(version("11")));
    feed.event("DELETED", "a", "12");
    assert_eq!(events.next(), "delete a@");
    assert_eq!(lister.resource_version(), Some(version("12")));
    running.end().unwrap();
}

#[test]
fn x9_object_without_version_keeps_that_of_the_cache() {
    let feed = Feed::new("x9");
    feed.list("10", &[("a", "1")]);
    let informer = informer(&feed);
    let (_handler, events) = record(&informer);
    let running = run(&informer);
    assert_eq!(events.next(), "add a@1 initial");
    feed.event("ADDED", "b", "11");
    feed.event("ADDED", "c", "");
    assert_eq!(events.take(2), ["add b@11", "add c@"]);
    assert_eq!(informer.lister().resource_version(), Some(version("11")));
    running.end().unwrap();
}

#[test]
fn p2_store_contents_decide_between_add_and_update() {
    let feed = Feed::new("p2");
    feed.list("10", &[("a", "1")]);
    let informer = informer(&feed);
    let (_handler, events) = record(&informer);
    let _running = run(&informer);
    feed.event("ADDED", "a", "11");
    feed.event("MODIFIED", "b", "12");
    assert_eq!(
        events.take(3),
        ["add a@1 initial", "update a@1-11", "add b@12"]
    );
    assert_eq!(informer.lister().len(), 2);
}

#[test]
fn p3_delete_is_delivered_after_store_removal() {
    let feed = Feed::new("p3");
    feed.list("10", &[("a", "1")]);
    let informer = informer(&feed);
    let lister = informer.lister();
    let (sender, deletions) = mpsc::channel();
    informer
        .add_event_handler(|handler| {
            handler.on_delete(move |gone| {
                sender
                    .send((gone.name().to_owned(), lister.list().len()))
                    .unwrap();
            })
        })
        .unwrap();
    let _running = run_synced(&informer);
    feed.event("DELETED", "unknown", "11");
    feed.event("DELETED", "a", "12");
    if one_item_per_change() {
        // A `RealFifo` does not look the object up in the store, so it also delivers the deletion
        // of an unknown object.
        assert_eq!(deletions.recv_timeout(SOON).unwrap().0, "unknown");
    }
    assert_eq!(deletions.recv_timeout(SOON), Ok(("a".to_owned(), 0)));
}

#[test]
fn p8_object_added_by_relist_is_not_flagged_as_initial() {
    let feed = Feed::new("p8");
    feed.list("10", &[("a", "1")]);
    let informer = informer(&feed);
    let (_handler, events) = record(&informer);
    let _running = run_synced(&informer);
    feed.expire();
    feed.list("20", &[("a", "15"), ("b", "16")]);
    assert_eq!(
        events.take(3),
        ["add a@1 initial", "update a@1-15", "add b@16"]
    );
}

/// An object whose decoding panics if its name is `bomb`, and whose resource version panics if its
/// name is `mine`.
struct Explosive(DynamicObject);

impl<'de> Deserialize<'de> for Explosive {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let object = DynamicObject::deserialize(deserializer)?;
        assert_ne!(object.name(), "bomb", "boom");
        Ok(Self(object))
    }
}

impl Object for Explosive {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn namespace(&self) -> &str {
        self.0.namespace()
    }
    fn uid(&self) -> &str {
        self.0.uid()
    }
    fn resource_version(&self) -> &str {
        assert_ne!(self.name(), "mine", "boom");
        self.0.resource_version()
    }
    fn label(&self, key: &str) -> Option<&str> {
        self.0.label(key)
    }
}

type Explosives = SharedIndexInformer<Explosive>;

/// Runs an informer that sends the names of added objects to the channel.
fn explosives(
    feed: &Feed,
) -> (
    Explosives,
    Running<Result<(), InformerError>>,
    mpsc::Receiver<String>,
) {
    let mut options = informer_options(options(&FakeClock::new()));
    // A resync period starts the resync thread, which must end as well.
    options.reflector.resync_period = SOON;
    let informer = Explosives::new(Arc::new(feed.clone()), options);
    let (seen, names) = mpsc::channel();
    informer
        .add_event_handler(|handler| {
            handler.on_add(move |object, _| seen.send(object.name().to_owned()).unwrap())
        })
        .unwrap();
    let running = Running::new({
        let informer = informer.clone();
        move |stop| informer.run(stop)
    });
    assert_eq!(names.recv_timeout(SOON), Ok("a".to_owned()));
    (informer, running, names)
}

#[test]
fn object_with_panicking_decode_is_skipped() {
    let feed = Feed::new("bombs");
    feed.list("10", &[("a", "1")]);
    let (informer, running, names) = explosives(&feed);
    feed.event("ADDED", "bomb", "11");
    feed.event("ADDED", "b", "12");
    assert_eq!(
        names.recv_timeout(SOON),
        Ok("b".to_owned()),
        "{:?}",
        informer.status()
    );
    // The status is updated after the cache.
    until("status updated", || {
        informer.status().resource_version == Some(version("12"))
    });
    let status = informer.status();
    assert_eq!(
        (status.unreadable, status.complete),
        (1, false),
        "{status:?}"
    );
    assert_eq!(
        (status.lists, status.watches),
        (1, 1),
        "the watch continues"
    );
    let error = status.last_error.unwrap().to_string();
    assert!(
        error.contains("bombs: bomb: ") && error.contains("panicked") && error.contains("boom"),
        "{error}"
    );

    // In a list, the reflector also skips the object `bomb`, as in the watch above.
    feed.expire();
    feed.list(
        "20",
        &[("a", "1"), ("bomb", "11"), ("b", "12"), ("c", "13")],
    );
    assert_eq!(
        names.recv_timeout(SOON),
        Ok("c".to_owned()),
        "{:?}",
        informer.status()
    );
    until("status updated", || {
        informer.status().resource_version == Some(version("20"))
    });
    let status = informer.status();
    assert_eq!(
        (status.unreadable, status.complete, status.lists),
        (2, false, 2),
        "{status:?}"
    );
    feed.expire();
    feed.list("30", &[("a", "1"), ("b", "12"), ("c", "13")]);
    until("status updated", || {
        informer.status().resource_version == Some(version("30"))
    });
    assert!(
        informer.status().complete,
        "all objects of the last list were decoded"
    );
    running.end().unwrap();
}

#[test]
fn object_with_panicking_accessor_is_skipped() {
    let feed = Feed::new("mines");
    feed.list("10", &[("a", "1")]);
    let (informer, running, names) = explosives(&feed);
    feed.event("ADDED", "mine", "11");
    feed.event("ADDED", "b", "12");
    let status = || informer.status();
    assert_eq!(
        names.recv_timeout(SOON),
        Ok("b".to_owned()),
        "{:?}",
        status()
    );
    until("status updated", || {
        status().resource_version == Some(version("12"))
    });
    assert_eq!((status().unreadable, status().complete), (1, false));
    let requests = (status().lists, status().watches);
    assert_eq!(requests, (1, 1), "the watch continues");
    let error = status().last_error.unwrap().to_string();
    assert!(
        error.contains("mines: mine: ") && error.contains("panicked") && error.contains("boom"),
        "{error}"
    );

    // The rest of a list reaches the handler as well.
    feed.expire();
    feed.list(
        "20",
        &[("a", "1"), ("b", "12"), ("mine", "11"), ("c", "13")],
    );
    assert_eq!(
        names.recv_timeout(SOON),
        Ok("c".to_owned()),
        "{:?}",
        status()
    );
    running.end().unwrap();
}

#[test]
fn watch_error_handler_panics_are_caught() {
    logging();
    let feed = Feed::new("watch error handler");
    let mut options = options(&FakeClock::new());
    options.watch_error_handler = Some(Arc::new(|error| panic!("what is {error}?")));
    let informer = informer_with(&feed, options);
    let running = run(&informer);
    feed.fail_list(status(403, "Forbidden", "not you"));
    feed.list("10", &[]);
    assert!(informer.synced().wait_timeout(SOON));
    logged(&["watch error handler", "panicked: what is", "not you"]);
    running.end().unwrap();
}

#[test]
fn scripted_list_and_delete_reach_informer_handlers() {
    let script = ScriptedListerWatcher::new([
        Answer::body(
            r#"{"kind": "List", "metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": "a"}}]}"#,
        ),
        Answer::open(
            r#"{"type": "DELETED", "object": {"metadata": {"name": "a", "resourceVersion": "8"}}}"#,
        ),
    ]);
    let informer = SharedIndexInformer::<DynamicObject>::new(Arc::new(script), Default::default());
    let (_handler, events) = record(&informer);
    let running = run(&informer);
    assert_eq!(events.take(2), ["add a@ initial", "delete a@8"]);
    running.end().unwrap();
}
