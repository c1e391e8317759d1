//! How an informer is configured, and how it ends: alone, with its factory, and with a thread stuck
//! in a callback.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use k8s_informer::error::{ShutdownError, WaitCause};
use k8s_informer::handler::{HandlerFuncs, HandlerRegistration};
use k8s_informer::informer::{FactoryOptions, InformerError, InformerScope, Source};
use k8s_informer::object::GroupVersionResource;
use k8s_informer::reflector::{ListOptions, ListWatch, ListerWatcher, ListerWatcherSource};
use k8s_informer::selector::Selector;
use k8s_informer::store::Transform;
use k8s_informer::{
    DynamicObject, Error, Object, SharedIndexInformer, SharedInformerFactory, Stop, Stopper,
};
use k8s_informer_testing::FakeClock;
use parking_lot::Mutex;
use serde_json::json;

use super::{informer, informer_options, one_thread, queue_kind};
use crate::informer::support::{
    Door, Feed, Informer, SOON, logged, logging, options, record, run, run_synced, soon, status,
    until,
};

const INSTANT: Duration = Duration::from_millis(10);

/// Returns the same feed for every resource and namespace.
#[derive(Clone)]
struct FeedSource(Feed);

impl ListerWatcherSource for FeedSource {
    fn lister_watcher(&self, _: &GroupVersionResource, _: Option<&str>) -> Arc<dyn ListerWatcher> {
        Arc::new(self.0.clone())
    }
}

fn factory(feed: &Feed) -> SharedInformerFactory {
    SharedInformerFactory::with_options(
        FeedSource(feed.clone()),
        FactoryOptions::new()
            .queue(queue_kind())
            .one_thread(one_thread())
            .reflector(options(&FakeClock::new())),
    )
}

fn pods() -> GroupVersionResource {
    GroupVersionResource::new("", "v1", "pods")
}

fn rename(to: &'static str) -> Transform<DynamicObject> {
    Transform::new(move |object: Arc<DynamicObject>| {
        let mut object = Arc::unwrap_or_clone(object);
        object.edit(|fields| fields.insert("transform".to_owned(), json!(to)))?;
        Ok::<_, serde_json::Error>(Arc::new(object))
    })
}

#[test]
fn i6_setters_before_start_override_and_later_calls_fail() {
    let feed = Feed::new("i6");
    let informer = informer(&feed);
    let (sender, errors) = mpsc::channel();
    let handler = |name: &'static str| {
        let sender = sender.clone();
        move |error: &Error| sender.send(format!("{name}: {error}")).unwrap()
    };
    informer.set_transform(rename("first")).unwrap();
    informer.set_transform(rename("second")).unwrap();
    informer.set_watch_error_handler(handler("first")).unwrap();
    informer.set_watch_error_handler(handler("second")).unwrap();
    feed.fail_list(status(403, "Forbidden", "not yet"));
    feed.list("10", &[("a", "1")]);
    let running = run_synced(&informer);
    let error = errors.recv_timeout(SOON).unwrap();
    assert!(
        error.starts_with("second: ") && error.contains("not yet"),
        "{error}"
    );
    assert_eq!(
        informer
            .lister()
            .get("", "a")
            .unwrap()
            .read("/transform")
            .unwrap(),
        Some("second".to_owned())
    );
    for error in [
        informer.set_transform(rename("late")),
        informer.set_watch_error_handler(handler("late")),
    ] {
        assert!(matches!(
            error.unwrap_err(),
            InformerError::AlreadyStarted { .. }
        ));
    }
    running.end().unwrap();
    assert!(informer.set_transform(rename("too late")).is_err());
}

#[test]
fn failing_transform_is_reported_by_key_without_stall() {
    logging();
    let feed = Feed::new("transforms");
    feed.list(
        "10",
        &[("a", "1"), ("bad", "1"), ("worse", "1"), ("b", "1")],
    );
    let informer = informer(&feed);
    let picky = AtomicBool::new(true);
    informer
        .set_transform(Transform::new(move |object: Arc<DynamicObject>| {
            let cured = object.resource_version() == "30" || !picky.load(Ordering::Relaxed);
            match object.name() {
                "bad" if !cured => Err("can't be changed".to_owned()),
                "worse" if !cured => panic!("can't be looked at"),
                _ => Ok(object),
            }
        }))
        .unwrap();
    let (handler, events) = record(&informer);
    let running = run_synced(&informer);
    assert!(handler.synced().wait_timeout(SOON));
    assert_eq!(events.take(2), ["add a@1 initial", "add b@1 initial"]);
    feed.event("MODIFIED", "bad", "11");
    feed.event("MODIFIED", "worse", "12");
    feed.event("MODIFIED", "a", "13");
    assert_eq!(events.next(), "update a@1-13");
    logged(&["bad", "can't be changed"]);
    logged(&["worse", "panicked: can't be looked at"]);
    assert!(informer.status().unreadable >= 2, "{:?}", informer.status());
    // `worse` appears once its transform succeeds. A deletion is always delivered.
    feed.event("MODIFIED", "worse", "30");
    assert_eq!(events.next(), "add worse@30");
    feed.event("DELETED", "worse", "31");
    let deleted = events.next();
    assert!(
        deleted == "delete worse@31" || deleted == "gone worse@30",
        "{deleted}"
    );
    running.end().unwrap();
}

#[test]
fn recreation_can_be_delivered_as_delete_and_add() {
    let with = |uid: &str, version: &str| json!({ "metadata": { "name": "a", "uid": uid, "resourceVersion": version } });
    let feed = Feed::new("recreation");
    feed.list_of("10", &[with("x", "1")]);
    let mut options = informer_options(options(&FakeClock::new()));
    options.recreation_as_delete_and_add = true;
    let informer: Informer = SharedIndexInformer::new(Arc::new(feed.clone()), options);
    let (_handler, events) = record(&informer);
    let _running = run_synced(&informer);
    feed.event_of("MODIFIED", with("x", "11"));
    assert_eq!(events.take(2), ["add a@1 initial", "update a@1-11"]);
    feed.expire();
    feed.list_of("20", &[with("y", "15")]);
    assert_eq!(events.take(2), ["gone a@11", "add a@15"]);
    // A state without a UID counts as the same object as the state before or after it.
    feed.event("MODIFIED", "a", "21");
    feed.event_of("MODIFIED", with("z", "22"));
    feed.event_of("ADDED", with("w", "23"));
    assert_eq!(
        events.take(4),
        ["update a@15-21", "update a@21-22", "gone a@22", "add a@23"]
    );
}

#[test]
fn i3_reflector_and_process_loop_end_before_the_handlers() {
    if one_thread() {
        return;
    }
    let feed = Feed::new("i3 order");
    feed.list("10", &[("a", "1")]);
    let informer = informer(&feed);
    let door = Door::new();
    let at = door.clone();
    let handler = informer
        .add_event_handler(|handler| handler.on_add(move |_, _| at.pass()))
        .unwrap();
    let running = run_synced(&informer);
    door.wait_for_arrivals(1);
    running.stop.stop();
    until("stopped", || informer.is_stopped());
    // The handler is still in its callback. Everything else has ended.
    assert_eq!(
        informer.status().state,
        k8s_informer::reflector::ReflectorState::Stopped
    );
    assert!(!informer.ended().is_done() && !handler.ended().is_done());
    assert!(informer.add_event_handler(|handler| handler).is_err());
    door.open();
    running.ended().unwrap();
    assert!(informer.ended().is_done() && handler.ended().is_done());
}

#[test]
fn fa6_single_informer_can_be_stopped_and_recreated() {
    let feed = Feed::new("fa6");
    let factory = factory(&feed);
    let (one, other) = (
        factory.informer_for(Source::dynamic(pods())),
        factory.informer_for(Source::dynamic(GroupVersionResource::new(
            "", "v1", "nodes",
        ))),
    );
    factory.start(&Stop::never()).unwrap();
    let stopped = one.clone();
    let (factory, response) = soon("stop", move || {
        let response = factory.shut_down_informer(&stopped, None);
        (factory, response)
    });
    response.unwrap();
    assert!(one.is_stopped() && one.ended().is_done() && !other.is_stopped());
    assert_eq!(
        factory.shut_down_informer(&one, None),
        Ok(()),
        "a second shutdown"
    );
    let again = factory.informer_for(Source::dynamic(pods()));
    assert!(!again.is_same(&one) && !again.is_stopped());
    assert_eq!(
        factory.shut_down_informer(&again, None),
        Ok(()),
        "an unstarted informer"
    );
    assert_eq!(
        factory.shut_down_informer(&informer(&feed), None),
        Ok(()),
        "an informer of no factory"
    );
    soon("shutdown", move || factory.shut_down(None)).unwrap();
}

#[test]
fn fa6_callback_can_stop_informer_and_factory_without_waiting() {
    let feed = Feed::new("fa6 within");
    feed.list("10", &[("a", "1")]);
    let factory = factory(&feed);
    let pods = factory.informer_for(Source::dynamic(pods()));
    let (sender, answers) = mpsc::channel();
    let door = Door::new();
    let (inner, own, at) = (factory.clone(), pods.clone(), door.clone());
    pods.add_event_handler(|handler| {
        handler.on_add(move |_, _| {
            let shutdowns = [
                inner.shut_down_informer(&own, None),
                inner.shut_down(None),
                inner.shut_down(INSTANT),
            ];
            sender.send(shutdowns).unwrap();
            at.pass();
        })
    })
    .unwrap();
    factory.start(&Stop::never()).unwrap();
    let response = answers.recv_timeout(SOON).expect("the callback deadlocked");
    assert_eq!(response, [(); 3].map(|()| Err(ShutdownError::FromWithin)));
    // `shut_down_informer` has removed the informer from the factory, but the informer has not ended. A
    // shutdown from outside still waits for it until the timeout.
    let thread = match one_thread() {
        true => "fa6 within",
        false => "handler-1 run",
    };
    wait_until_stuck_threads_are(&factory, &[thread]);
    door.open();
    soon("shutdown", move || factory.shut_down(SOON)).unwrap();
    assert!(pods.ended().is_done());
}

/// Waits until a factory that is shut down reports exactly these threads as stuck.
fn wait_until_stuck_threads_are(factory: &SharedInformerFactory, threads: &[&str]) {
    until("the other threads ended", || {
        let inner = factory.clone();
        let error = soon("shutdown", move || inner.shut_down(INSTANT)).unwrap_err();
        let ShutdownError::TimedOut {
            after: INSTANT,
            stuck,
        } = &error
        else {
            panic!("{error}")
        };
        let names = threads.join(", ");
        stuck == threads
            && error.to_string() == format!("timed out after 10ms; unfinished: {names}")
    });
}

/// Blocks a thread of a factory at a door, and checks that the shutdown error names the thread.
fn assert_shutdown_names_stuck_thread(
    name: &'static str,
    thread: &str,
    block_thread: impl FnOnce(&SharedIndexInformer<DynamicObject>, Door),
) {
    let feed = Feed::new(name);
    feed.list("10", &[("a", "1")]);
    let factory = factory(&feed);
    let pods = factory.informer_for(Source::dynamic(pods()));
    let (_other, _events) = record(&pods);
    let door = Door::new();
    block_thread(&pods, door.clone());
    factory.start(&Stop::never()).unwrap();
    door.wait_for_arrivals(1);
    let thread = if one_thread() { name } else { thread };
    wait_until_stuck_threads_are(&factory, &[thread]);
    door.open();
    let inner = factory.clone();
    soon("shutdown", move || inner.shut_down(SOON)).unwrap();
    assert!(factory.is_shut_down());
}

#[test]
fn fa5_shutdown_names_the_stuck_handler() {
    assert_shutdown_names_stuck_thread("stuck handler", "handler-2 run", |pods, door| {
        pods.add_event_handler(|handler| handler.on_add(move |_, _| door.pass()))
            .unwrap();
    });
}

#[test]
fn fa5_shutdown_names_reflector_stuck_in_transform() {
    assert_shutdown_names_stuck_thread(
        "stuck transform",
        "stuck transform reflector",
        |pods, door| {
            pods.set_transform(Transform::new(move |object| {
                door.pass();
                Ok::<_, String>(object)
            }))
            .unwrap();
        },
    );
}

#[test]
fn fa5_shutdown_names_process_loop_stuck_in_index_function() {
    assert_shutdown_names_stuck_thread("stuck index", "stuck index process", |pods, door| {
        pods.add_index("stuck", move |_| {
            door.pass();
            Vec::new()
        })
        .unwrap();
    });
}

#[test]
fn wait_for_sync_ends_with_the_informer() {
    let feed = Feed::new("never listed");
    let factory = factory(&feed);
    let pods = factory.informer_for(Source::dynamic(pods()));
    factory.start(&Stop::never()).unwrap();
    feed.fail_list(status(403, "Forbidden", "not yours"));
    until("failed", || pods.status().last_error.is_some());
    let (own, (waits, waited)) = (pods.clone(), mpsc::channel());
    let waiting = std::thread::spawn(move || {
        waits.send(()).unwrap();
        own.wait_for_sync(None, &Stop::never())
    });
    waited.recv().unwrap();
    soon("stop", move || factory.shut_down_informer(&pods, None)).unwrap();
    let error = soon("the wait", move || waiting.join().unwrap()).unwrap_err();
    assert_eq!(error.cause(), &WaitCause::Ended);
    assert!(
        error
            .to_string()
            .starts_with("ended before syncing: never listed ("),
        "{error}"
    );
    assert!(error.to_string().contains("not yours"), "{error}");
}

#[test]
fn fa4_fa10_wait_has_a_timeout_and_ignores_handlers() {
    let feed = Feed::new("fa4 deadline");
    let factory = factory(&feed);
    let pods = factory.informer_for(Source::dynamic(pods()));
    let door = Door::new();
    let at = door.clone();
    let handler = pods
        .add_event_handler(|handler| handler.on_add(move |_, _| at.pass()))
        .unwrap();
    factory.start(&Stop::never()).unwrap();
    feed.fail_list(status(403, "Forbidden", "not yours"));
    until("failed", || pods.status().last_error.is_some());
    let error = factory
        .wait_for_cache_sync(INSTANT, &Stop::never())
        .unwrap_err();
    assert!(
        error.is_timed_out()
            && error
                .to_string()
                .starts_with("timed out after 10ms; not synced: fa4 deadline (")
    );
    assert!(
        error.unsynced()[0]
            .last_error
            .as_ref()
            .unwrap()
            .to_string()
            .contains("not yours")
    );
    let stop = Stopper::new();
    stop.stop();
    assert!(
        factory
            .wait_for_cache_sync(SOON, &stop)
            .unwrap_err()
            .is_stopped()
    );
    feed.list("10", &[("a", "1")]);
    if one_thread() {
        // The handler blocks the informer.
        door.open();
    }
    factory.wait_for_cache_sync(SOON, &Stop::never()).unwrap();
    door.wait_for_arrivals(1);
    // On one thread, the door is open.
    assert!(one_thread() || !handler.has_synced());
    door.open();
    assert!(handler.synced().wait_timeout(SOON));
    let inner = factory.clone();
    soon("shutdown", move || inner.shut_down(None)).unwrap();
    factory
        .wait_for_cache_sync(INSTANT, &Stop::never())
        .expect("the informer stays synced after the shutdown");
    assert!(matches!(
        factory.start(&Stop::never()),
        Err(InformerError::Stopped { .. })
    ));
}

#[test]
fn fa1_each_scope_of_a_resource_has_its_own_informer() {
    let feed = Feed::new("fa1 scopes");
    let factory = factory(&feed);
    let scopes = [
        InformerScope::all().label_selector("app=web".parse().unwrap()),
        InformerScope::all().field_selector("spec.nodeName=worker-1"),
        InformerScope::all(),
    ];
    let informers = scopes
        .clone()
        .map(|scope| factory.informer_for(Source::dynamic(pods()).scope(scope.clone())));
    for (informer, scope) in informers.iter().zip(&scopes) {
        let same = factory.informer_for(Source::dynamic(pods()).scope(scope.clone()));
        assert!(informer.is_same(&same));
    }
    let without_selectors = InformerScope::all()
        .label_selector(Selector::everything())
        .field_selector("");
    assert_eq!(without_selectors, scopes[2], "empty selectors are none");
    assert!(!informers[0].is_same(&informers[1]));
    assert!(informers[2].is_same(&factory.informer_for(Source::dynamic(pods()))));
    factory.start(&Stop::never()).unwrap();
    until("all informers sent a request", || {
        feed.requests().len() == 3
    });
    let mut requests: Vec<_> = feed
        .requests()
        .into_iter()
        .map(|(verb, options)| (verb, options.label_selector, options.field_selector))
        .collect();
    requests.sort();
    let selector = |text: &str| Some(text.to_owned());
    assert_eq!(
        requests,
        [
            ("list", None, None),
            ("list", None, selector("spec.nodeName=worker-1")),
            ("list", selector("app=web"), None),
        ]
    );
    soon("shutdown", move || factory.shut_down(None)).unwrap();
}

#[test]
fn factory_callback_may_stop_its_own_informer() {
    let feed = Feed::new("stops itself");
    let factory = factory(&feed);
    let (one, other) = (
        factory.informer_for(Source::dynamic(pods())),
        factory.informer_for(Source::dynamic(GroupVersionResource::new(
            "", "v1", "nodes",
        ))),
    );
    let (sender, answers) = mpsc::channel();
    let (inner, own) = (factory.clone(), one.clone());
    one.add_event_handler(|handler| {
        handler.on_add(move |_, _| sender.send(inner.shut_down_informer(&own, None)).unwrap())
    })
    .unwrap();
    let (handler, events) = record(&other);
    feed.list("10", &[("a", "1")]);
    feed.list("10", &[("a", "1")]);
    factory.start(&Stop::never()).unwrap();
    assert_eq!(
        answers.recv_timeout(SOON),
        Ok(Err(ShutdownError::FromWithin))
    );
    assert!(one.ended().wait_timeout(SOON));
    assert_eq!(events.next(), "add a@1 initial");
    assert!(handler.synced().wait_timeout(SOON) && !other.is_stopped());
    soon("shutdown", move || factory.shut_down(None)).unwrap();
    assert!(other.is_stopped());
}

#[test]
fn wt1_i5_wait_for_synced_informer_succeeds_after_stop() {
    let feed = Feed::new("wt1");
    feed.list("10", &[]);
    let informer = informer(&feed);
    let running = run(&informer);
    k8s_informer::informer::wait_for_cache_sync([informer.synced()], None, &Stop::never()).unwrap();
    running.end().unwrap();
    let stopped = Stopper::new();
    stopped.stop();
    k8s_informer::informer::wait_for_cache_sync([informer.synced()], None, &stopped).unwrap();
}

#[test]
fn fa6_factory_frees_a_stopped_informer() {
    for from_within in [false, true] {
        let feed = Feed::new("fa6 memory");
        feed.list("10", &[("a", "1")]);
        let factory = factory(&feed);
        let pods = factory.informer_for(Source::dynamic(pods()));
        let (inner, own) = (factory.clone(), Mutex::new(Some(pods.clone())));
        pods.add_event_handler(|handler| {
            handler.on_delete(move |_| {
                if let Some(own) = { own.lock().take() } {
                    let _ = inner.shut_down_informer(&own, None);
                }
            })
        })
        .unwrap();
        factory.start(&Stop::never()).unwrap();
        assert!(pods.synced().wait_timeout(SOON));
        let object = Arc::downgrade(&pods.lister().list()[0]);
        if from_within {
            feed.event("DELETED", "a", "11");
            drop(pods);
            until("object freed", || object.strong_count() == 0);
        } else {
            let factory = factory.clone();
            soon("stop", move || factory.shut_down_informer(&pods, None)).unwrap();
            assert_eq!(object.strong_count(), 0);
        }
        soon("shutdown", move || factory.shut_down(None)).unwrap();
    }
}

fn nth(at: usize) -> GroupVersionResource {
    GroupVersionResource::new("", "v1", format!("things{at}"))
}

/// Adds a handler to each informer that runs `work` once all callbacks have started. The returned
/// function collects the results by informer.
fn in_callbacks<R: Debug + Send + 'static>(
    informers: &[Informer],
    work: impl Fn(usize) -> R + Clone + Send + 'static,
) -> impl FnOnce() -> Vec<R> {
    let (sender, results) = mpsc::channel();
    let door = Door::new();
    for (at, informer) in informers.iter().enumerate() {
        let (door, sender, work) = (door.clone(), sender.clone(), work.clone());
        let on_add = move |_: &Arc<DynamicObject>, _| {
            door.pass();
            let _ = sender.send((at, work(at)));
        };
        informer
            .add_handler(HandlerFuncs::new().on_add(on_add))
            .unwrap();
    }
    let count = informers.len();
    move || {
        door.wait_for_arrivals(count);
        door.open();
        let next = |_| {
            results
                .recv_timeout(SOON)
                .expect("the callbacks deadlocked")
        };
        let mut results: Vec<_> = (0..count).map(next).collect();
        results.sort_by_key(|(at, _)| *at);
        results.into_iter().map(|(_, result)| result).collect()
    }
}

/// Checks that one shutdown failed, because it was called from within, and that the others waited.
fn assert_one_is_from_within(shutdowns: &[Result<(), ShutdownError>]) {
    let (waited, failed): (Vec<_>, Vec<_>) = shutdowns.iter().partition(|result| result.is_ok());
    assert_eq!(failed, [&Err(ShutdownError::FromWithin)]);
    assert_eq!(waited.len() + 1, shutdowns.len());
}

#[test]
fn fa6_callbacks_can_stop_each_others_informer_without_hang() {
    for count in [2, 3] {
        let feed = Feed::new("stop each other");
        let factory = factory(&feed);
        let informers: Vec<_> = (0..count)
            .map(|at| factory.informer_for(Source::dynamic(nth(at))))
            .collect();
        let (inner, all) = (factory.clone(), informers.clone());
        let stopped = in_callbacks(&informers, move |at| {
            inner.shut_down_informer(&all[(at + 1) % count], None)
        });
        (0..count).for_each(|_| feed.list("10", &[("a", "1")]));
        factory.start(&Stop::never()).unwrap();
        assert_one_is_from_within(&stopped());
        soon("shutdown", move || factory.shut_down(None)).unwrap();
        assert!(informers.iter().all(|informer| informer.ended().is_done()));
    }
}

#[test]
fn fa5_callbacks_can_shut_down_each_others_factory() {
    let feed = Feed::new("shut down each other");
    let factories = [factory(&feed), factory(&feed)];
    let informers = factories
        .each_ref()
        .map(|factory| factory.informer_for(Source::dynamic(pods())));
    let inner = factories.clone();
    let shut_down = in_callbacks(&informers, move |at| match at {
        0 => inner[1].shut_down(None),
        _ => inner[0].shut_down(10 * SOON),
    });
    for factory in &factories {
        feed.list("10", &[("a", "1")]);
        factory.start(&Stop::never()).unwrap();
    }
    assert_one_is_from_within(&shut_down());
    for factory in factories {
        soon("shutdown", move || factory.shut_down(None)).unwrap();
    }
}

#[test]
fn sp15_handlers_can_shut_each_other_down_without_deadlock() {
    if one_thread() {
        return;
    }
    let feed = Feed::new("handlers shut down each other");
    feed.list("10", &[("a", "1")]);
    let informer = informer(&feed);
    let handlers: Arc<Mutex<Vec<HandlerRegistration>>> = Arc::default();
    let (own, all) = (informer.clone(), Arc::clone(&handlers));
    let (sender, answers) = mpsc::channel();
    let door = Door::new();
    for other in [1, 0] {
        let (door, sender, own, all) =
            (door.clone(), sender.clone(), own.clone(), Arc::clone(&all));
        let on_add = move |_: &Arc<DynamicObject>, _| {
            door.pass();
            let other = all.lock()[other].clone();
            sender
                .send(own.shut_down_event_handler(&other, None))
                .unwrap();
        };
        handlers.lock().push(
            informer
                .add_handler(HandlerFuncs::new().on_add(on_add))
                .unwrap(),
        );
    }
    let running = run(&informer);
    door.wait_for_arrivals(2);
    door.open();
    let waited = [(); 2].map(|()| {
        answers
            .recv_timeout(SOON)
            .expect("the callbacks deadlocked")
    });
    assert_one_is_from_within(&waited);
    assert!(
        handlers
            .lock()
            .iter()
            .all(|handler| handler.ended().wait_timeout(SOON))
    );
    running.end().unwrap();
}

/// A source that requests the same informer while the factory creates it, so the factory drops the
/// informer that it is creating.
struct Reentrant(
    Mutex<Option<SharedInformerFactory>>,
    Mutex<Option<mpsc::Sender<bool>>>,
);

struct ReentrantSource(Arc<Reentrant>);

impl ListerWatcherSource for ReentrantSource {
    fn lister_watcher(
        &self,
        resource: &GroupVersionResource,
        _: Option<&str>,
    ) -> Arc<dyn ListerWatcher> {
        let Some(sender) = self.0.1.lock().take() else {
            return Arc::new(Feed::new("duplicate"));
        };
        let factory = self.0.0.lock().clone().unwrap();
        factory.informer_for(Source::dynamic(resource.clone()));
        let on_drop = CallsFactoryOnDrop(factory, sender);
        Arc::new(ListWatch::new(
            move |_: &ListOptions, _: &Stop| {
                let _ = &on_drop;
                Err(Error::stopped())
            },
            |_: &ListOptions, _: &Stop| Err(Error::stopped()),
        ))
    }
}

/// Calls the factory when dropped.
struct CallsFactoryOnDrop(SharedInformerFactory, mpsc::Sender<bool>);

impl Drop for CallsFactoryOnDrop {
    fn drop(&mut self) {
        let _ = self.1.send(self.0.is_shut_down());
    }
}

#[test]
fn fa1_duplicate_informer_is_dropped_outside_the_lock() {
    let (sender, results) = mpsc::channel();
    let source = Arc::new(Reentrant(Mutex::default(), Mutex::new(Some(sender))));
    let factory = SharedInformerFactory::new(ReentrantSource(source.clone()));
    *source.0.lock() = Some(factory.clone());
    let informer = soon("an informer", move || {
        factory.informer_for(Source::dynamic(pods()))
    });
    assert_eq!(results.recv_timeout(SOON), Ok(false));
    let factory = source.0.lock().take().unwrap();
    assert!(informer.is_same(&factory.informer_for(Source::dynamic(pods()))));
}
