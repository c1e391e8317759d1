//! Informers whose loop is owned by the program.

use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use k8s_informer::error::{WaitCause, WaitError};
use k8s_informer::informer::{
    Driver, InformerError, Progress, SharedIndexInformerOptions, step_all,
};
use k8s_informer::reflector::{ListerWatcher, ReflectorOptions, ReflectorState};
use k8s_informer::{DynamicObject, Object, SharedIndexInformer, Stop, Stopper};
use k8s_informer_testing::{Answer, FakeClock, ScriptedListerWatcher};
use serde_json::{Value, json};

use super::support::{Informer, SECOND, SOON, record, status, version};

const SHORT: Duration = Duration::from_millis(1);

fn list(version: &str, names: &[&str]) -> Answer {
    let item =
        |name: &&str| json!({"metadata": {"name": name, "namespace": "n", "resourceVersion": "1"}});
    let items: Vec<Value> = names.iter().map(item).collect();
    let list = json!({"kind": "List", "metadata": {"resourceVersion": version}, "items": items});
    Answer::body(list.to_string())
}

fn added(name: &str, version: &str) -> String {
    let object = json!({"metadata": {"name": name, "namespace": "n", "resourceVersion": version}});
    json!({"type": "ADDED", "object": object}).to_string() + "\n"
}

fn informer_with(
    source: impl ListerWatcher + 'static,
    set: impl FnOnce(&mut ReflectorOptions),
) -> Informer {
    let mut options = SharedIndexInformerOptions::default();
    options.reflector.watch_list = false;
    set(&mut options.reflector);
    SharedIndexInformer::new(Arc::new(source), options)
}

/// Returns the only driver of an informer.
fn driver(informer: &Informer, stop: &Stop) -> Driver {
    let mut drivers = informer.drivers(stop).unwrap();
    assert_eq!(drivers.len(), 1);
    drivers.remove(0)
}

/// Steps a driver until the condition holds.
#[track_caller]
fn step_until(driver: &mut Driver, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + SOON;
    while !condition() {
        assert!(
            Instant::now() < deadline,
            "the condition was not met in time"
        );
        driver.step(SHORT);
    }
}

#[test]
fn step_before_each_request_returns_requesting() {
    let script = ScriptedListerWatcher::new([list("10", &["a"]), Answer::open("")]);
    let informer = informer_with(script.clone(), |_| {});
    let (_handler, events) = record(&informer);
    let mut driver = driver(&informer, &Stop::never());
    assert_eq!(script.requests().len(), 0, "nothing runs without a step");

    assert_eq!(driver.step(SHORT), Progress::Requesting);
    assert_eq!(script.requests().len(), 0);
    assert_eq!(driver.step(SHORT), Progress::Active);
    assert_eq!(script.requests().len(), 1);
    // Reads of the list, until the watch is the next request.
    while driver.step(SHORT) == Progress::Active {}
    assert_eq!(script.requests().len(), 1);
    assert_eq!(events.next(), "add a@1 initial");
    assert!(informer.has_synced());
    assert_eq!(driver.step(SHORT), Progress::Active);
    assert_eq!(script.requests().len(), 2);
    // An empty line, and then the watch is silent.
    assert_eq!(driver.step(SHORT), Progress::Active);
    assert_eq!(driver.step(SHORT), Progress::Idle);
    assert_eq!(informer.status().state, ReflectorState::Watching);
}

#[test]
fn step_delivers_on_the_stepping_thread_and_returns_after_each_batch() {
    let script = ScriptedListerWatcher::new([list("10", &["a"]), Answer::open(added("b", "11"))]);
    let informer = informer_with(script, |_| {});
    let called = Arc::new(Mutex::new(Vec::new()));
    let calls = Arc::clone(&called);
    let handler = informer.add_event_handler(|handler| {
        handler.on_add(move |object, _| {
            let mut calls = calls.lock().unwrap_or_else(PoisonError::into_inner);
            calls.push((object.name().to_owned(), thread::current().id()));
        })
    });
    let handler = handler.unwrap();
    let mut driver = driver(&informer, &Stop::never());
    step_until(&mut driver, || informer.lister().get("n", "b").is_some());
    let this = thread::current().id();
    let calls = called
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    assert_eq!(calls, [("a".to_owned(), this), ("b".to_owned(), this)]);
    assert!(handler.has_synced());
    assert_eq!(driver.name(), "scripted objects");
}

#[test]
fn second_start_of_either_kind_fails() {
    let scripted = || ScriptedListerWatcher::new([]);
    let (driven, stop) = (informer_with(scripted(), |_| {}), Stopper::new());
    let _drivers = driven.drivers(&stop).unwrap();
    let is_started = |error| matches!(error, InformerError::AlreadyStarted { .. });
    assert!(is_started(driven.drivers(&stop).unwrap_err()));
    assert!(is_started(driven.run(&stop).unwrap_err()));

    let run = informer_with(scripted(), |_| {});
    thread::scope(|scope| {
        scope.spawn(|| run.run(&stop).unwrap());
        while run.status().state == ReflectorState::Created {
            thread::yield_now();
        }
        assert!(is_started(run.drivers(&stop).unwrap_err()));
        stop.stop();
    });
}

#[test]
fn waits_within_a_step_return_an_error() {
    let script = ScriptedListerWatcher::new([list("10", &["a"]), Answer::open("")]);
    let informer = informer_with(script, |_| {});
    let (sender, results) = mpsc::channel();
    let waiting = informer.clone();
    let handler = informer.add_event_handler(|handler| {
        handler.on_add(move |_, _| {
            let stop = Stopper::new();
            let is_own_thread = |waited: Result<(), WaitError>| {
                waited.is_err_and(|error| *error.cause() == WaitCause::OwnThread)
            };
            let reached = waiting.wait_for_resource_version(&version("11"), None, &stop);
            sender.send(is_own_thread(reached)).unwrap();
            let current = waiting.wait_for_current_state(Instant::now(), None, &stop);
            sender.send(is_own_thread(current)).unwrap();
            // Returns at once, with a warning.
            waiting.ended().wait();
            let synced = waiting.wait_for_sync(None, &stop);
            sender.send(is_own_thread(synced)).unwrap();
        })
    });
    handler.unwrap();
    let mut driver = driver(&informer, &Stop::never());
    step_until(&mut driver, || informer.has_synced());
    assert_eq!(results.try_iter().collect::<Vec<_>>(), [true; 3]);
}

#[test]
fn drop_of_one_driver_ends_the_informer() {
    let source = |namespace: &str| -> Arc<dyn ListerWatcher> {
        let item =
            json!({"metadata": {"name": "a", "namespace": namespace, "resourceVersion": "1"}});
        let list = json!({"kind": "List", "metadata": {"resourceVersion": "1"}, "items": [item]});
        let answers = [Answer::body(list.to_string()), Answer::open("")];
        Arc::new(ScriptedListerWatcher::new(answers))
    };
    let sources = ["blue", "green"].map(|name| (name.to_owned(), source(name)));
    let informer =
        SharedIndexInformer::<DynamicObject>::for_namespaces(sources, Default::default());
    let (handler, _events) = record(&informer);
    let stop = Stopper::new();
    let mut drivers = informer.drivers(&stop).unwrap();
    assert_eq!(drivers.len(), 2);
    let deadline = Instant::now() + SOON;
    while !handler.has_synced() {
        assert!(Instant::now() < deadline);
        assert_ne!(step_all(&mut drivers, SHORT), Progress::Ended);
    }
    assert_eq!(informer.lister().list().len(), 2);

    drop(drivers.pop());
    assert!(!stop.is_stopped() && !informer.ended().is_done());
    assert_eq!(step_all(&mut drivers, SHORT), Progress::Ended);
    assert!(informer.ended().is_done() && handler.ended().is_done());
    assert_eq!(informer.status().state, ReflectorState::Stopped);
    assert_eq!(step_all(&mut drivers, SHORT), Progress::Ended);
}

#[test]
fn stop_ends_the_informer_with_the_next_step_or_drop() {
    for steps in [false, true] {
        let script = ScriptedListerWatcher::new([list("10", &[]), Answer::open("")]);
        let informer = informer_with(script, |_| {});
        let stop = Stopper::new();
        let mut driver = driver(&informer, &stop);
        step_until(&mut driver, || informer.has_synced());
        stop.stop();
        assert!(!informer.ended().is_done());
        if steps {
            assert_eq!(driver.step(SHORT), Progress::Ended);
        } else {
            drop(driver);
        }
        assert!(informer.ended().is_done(), "{steps}");
    }
}

#[test]
fn late_handler_is_called_by_the_next_step() {
    let script = ScriptedListerWatcher::new([list("10", &["a"]), Answer::open("")]);
    let informer = informer_with(script, |_| {});
    let mut driver = driver(&informer, &Stop::never());
    step_until(&mut driver, || {
        informer.status().state == ReflectorState::Watching
    });
    let (handler, events) = record(&informer);
    assert!(!handler.synced().is_done(), "only a step calls handlers");
    // Without a wait, because the handler was there before the step.
    assert_eq!(driver.step(SOON), Progress::Active);
    assert_eq!(events.next(), "add a@1 initial");
    assert!(handler.synced().is_done());
}

#[test]
fn late_handler_of_another_thread_ends_the_step_that_waits() {
    // The watch is opened again after it was interrupted.
    let watches = [Answer::open(""), Answer::open("")];
    let script = ScriptedListerWatcher::new([list("10", &["a"])].into_iter().chain(watches));
    let informer = informer_with(script, |_| {});
    let mut driver = driver(&informer, &Stop::never());
    step_until(&mut driver, || {
        informer.status().state == ReflectorState::Watching
    });
    thread::scope(|scope| {
        let adds = scope.spawn(|| {
            let (handler, events) = record(&informer);
            assert!(handler.synced().wait_timeout(SOON));
            events.next()
        });
        // Without the handler, each step would wait for minutes.
        while !adds.is_finished() {
            driver.step(5 * SECOND);
        }
        assert_eq!(adds.join().unwrap(), "add a@1 initial");
    });
}

#[test]
fn back_off_passes_between_steps() {
    let answers = [
        Answer::error(status(500, "InternalError", "not now")),
        list("10", &[]),
        Answer::open(""),
    ];
    let (script, clock) = (ScriptedListerWatcher::new(answers), FakeClock::new());
    let reflector_clock = clock.clone();
    let informer = informer_with(script.clone(), |reflector| {
        reflector.clock = Arc::new(reflector_clock);
    });
    let mut driver = driver(&informer, &Stop::never());
    assert_eq!(driver.step(SHORT), Progress::Requesting);
    assert_eq!(driver.step(SHORT), Progress::Active);
    assert!(informer.status().last_error.is_some());
    // The program does something else meanwhile.
    clock.advance(60 * SECOND);
    assert_eq!(driver.step(SHORT), Progress::Active, "the back-off is over");
    assert!(clock.waits().is_empty(), "no step has waited");
    assert_eq!(driver.step(SHORT), Progress::Requesting);
    assert_eq!(driver.step(SHORT), Progress::Active);
    assert_eq!(script.requests().len(), 2);
}

#[test]
fn silence_counts_the_time_between_steps() {
    let answers = [list("10", &["a"]), Answer::open(""), Answer::open("")];
    let (script, clock) = (ScriptedListerWatcher::new(answers), FakeClock::new());
    let reflector_clock = clock.clone();
    let informer = informer_with(script.clone(), |reflector| {
        reflector.clock = Arc::new(reflector_clock);
        reflector.watch_idle_timeout = Some(100 * SECOND);
    });
    let mut driver = driver(&informer, &Stop::never());
    step_until(&mut driver, || script.requests().len() == 2);
    assert_eq!(driver.step(SHORT), Progress::Active, "an empty line");
    for _ in 0..3 {
        assert_eq!(driver.step(SHORT), Progress::Idle);
        clock.advance(30 * SECOND);
    }
    // 90 seconds have passed.
    assert_eq!(driver.step(SHORT), Progress::Idle);
    assert_eq!(script.requests().len(), 2);
    clock.advance(11 * SECOND);
    assert_eq!(driver.step(SHORT), Progress::Idle);
    assert_eq!(driver.step(SHORT), Progress::Requesting);
    step_until(&mut driver, || script.requests().len() == 3);
    let error = informer.status().last_error.unwrap().to_string();
    assert!(error.contains("no data arrived for 101 s"), "{error}");
}

/// A watch that has ended while the program did something else may have been very short (W5).
#[test]
fn w5_watch_ends_unnoticed_between_steps() {
    let answers = [
        list("10", &["a"]),
        Answer::body(""),
        list("20", &["b"]),
        Answer::open(""),
    ];
    let (script, clock) = (ScriptedListerWatcher::new(answers), FakeClock::new());
    let reflector_clock = clock.clone();
    let informer = informer_with(script.clone(), |reflector| {
        reflector.clock = Arc::new(reflector_clock);
    });
    let mut driver = driver(&informer, &Stop::never());
    step_until(&mut driver, || script.requests().len() == 2);
    clock.advance(60 * SECOND);
    step_until(&mut driver, || informer.status().last_error.is_some());
    let error = informer.status().last_error.unwrap().to_string();
    assert!(error.contains("very short watch"), "{error}");
    clock.advance(60 * SECOND);
    step_until(&mut driver, || script.requests().len() == 4);
    assert!(informer.lister().get("n", "b").is_some(), "a list followed");
}

#[test]
fn resync_is_due_between_steps() {
    let script = ScriptedListerWatcher::new([list("10", &["a"]), Answer::open("")]);
    let clock = FakeClock::new();
    let reflector_clock = clock.clone();
    let informer = informer_with(script.clone(), |reflector| {
        reflector.clock = Arc::new(reflector_clock);
        reflector.resync_period = 60 * SECOND;
    });
    let (_handler, events) = record(&informer);
    let mut driver = driver(&informer, &Stop::never());
    step_until(&mut driver, || script.requests().len() == 2);
    assert_eq!(events.next(), "add a@1 initial");
    driver.step(SHORT);
    clock.advance(60 * SECOND);
    assert_eq!(driver.step(SHORT), Progress::Active);
    assert_eq!(events.next(), "update a@1-1");
}
