//! `observe`, which runs the informer for its caller.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use k8s_informer::error::ShutdownError;
use k8s_informer::informer::{
    FactoryOptions, InformerError, InformerScope, Observation, Observe, Source,
};
use k8s_informer::object::GroupVersionResource;
use k8s_informer::reflector::{ListerWatcher, ListerWatcherSource, ReflectorOptions};
use k8s_informer::store::Lister;
use k8s_informer::time::Clock;
use k8s_informer::{
    Client, Config, Notification, Object, Selector, SharedInformerFactory, Stop, observe,
};
use k8s_informer_testing::{Answer, ApiServer, Fault, ScriptedListerWatcher};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use crate::informer::support::{Door, SOON};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn server_with(names: &[&str]) -> (ApiServer, Client) {
    let server = ApiServer::start().unwrap();
    for name in names {
        create(&server, name);
    }
    let client = Client::new(Config::new(server.url())).unwrap();
    (server, client)
}

fn create(server: &ApiServer, name: &str) {
    server
        .create(
            MAPS,
            json!({"metadata": {"name": name, "labels": {"app": name}}}),
        )
        .unwrap();
}

/// A notification as `+a`, `~a` or `-a`, and the name of the thread that delivers it.
type Received = (String, String);

fn send(sender: &Sender<Received>, what: char, name: &str) {
    let thread = thread::current().name().unwrap_or_default().to_owned();
    let _ = sender.send((format!("{what}{name}"), thread));
}

fn recording(observe: Observe<ConfigMap>) -> (Observe<ConfigMap>, Receiver<Received>) {
    let (sender, receiver) = mpsc::channel();
    let [added, modified, deleted] = [sender.clone(), sender.clone(), sender];
    let observe = observe
        .on_added(move |map| send(&added, '+', map.name()))
        .on_modified(move |old, new| {
            assert_ne!(old.resource_version(), new.resource_version());
            send(&modified, '~', new.name());
        })
        .on_deleted(move |gone| send(&deleted, '-', gone.name()));
    (observe, receiver)
}

fn next(received: &Receiver<Received>) -> String {
    received.recv_timeout(SOON).unwrap().0
}

#[test]
fn events_arrive_on_handler_thread_or_the_only_one() {
    for one_thread in [false, true] {
        let (server, client) = server_with(&["a"]);
        let (observe, received) = recording(observe::<ConfigMap>(client).name("watcher"));
        let maps = observe.one_thread(one_thread).start().unwrap();
        let (first, on) = received.recv_timeout(SOON).unwrap();
        assert_eq!(first, "+a");
        assert_eq!(
            on,
            if one_thread {
                "configmaps"
            } else {
                "watcher run"
            }
        );
        maps.wait_for_sync(SOON, &Stop::never()).unwrap();
        assert!(maps.synced().is_done());
        assert_eq!(maps.stats().delivered, 1);
        assert_eq!(maps.informer().name(), "configmaps");

        create(&server, "b");
        server
            .patch(&format!("{MAPS}/b"), json!({"data": {"k": "v"}}))
            .unwrap();
        server.delete(&format!("{MAPS}/b")).unwrap();
        assert_eq!(
            [next(&received), next(&received), next(&received)],
            ["+b", "~b", "-b"]
        );
        assert_eq!(maps.lister().list().len(), 1);
        maps.shut_down(None).unwrap();
        assert!(received.recv().is_err(), "the closures were dropped");
        server.wait_for_watches(0, SOON).unwrap();
    }
}

#[test]
fn on_event_receives_adds_updates_and_deletes() {
    let (server, client) = server_with(&["a"]);
    let (sender, events) = mpsc::channel();
    let resource = GroupVersionResource::new("", "v1", "configmaps");
    let _maps = SharedInformerFactory::new(client)
        .observe(Source::dynamic(resource))
        .on_event(move |event| {
            let _ = sender.send(event.clone());
        })
        .start()
        .unwrap();
    let event = events.recv_timeout(SOON).unwrap();
    assert!(
        matches!(&event, Notification::Added { object, is_in_initial_list: true } if object.name() == "a")
    );
    server
        .patch(&format!("{MAPS}/a"), json!({"data": {"k": "v"}}))
        .unwrap();
    let Notification::Modified { old, new } = events.recv_timeout(SOON).unwrap() else {
        panic!("not an update")
    };
    assert_ne!(old.resource_version(), new.resource_version());
    server.delete(&format!("{MAPS}/a")).unwrap();
    assert!(
        matches!(events.recv_timeout(SOON).unwrap(), Notification::Deleted { gone, .. } if gone.name() == "a")
    );
}

#[test]
fn observations_of_equal_type_and_scope_share_informer() {
    let (server, client) = server_with(&["a", "b"]);
    let factory = SharedInformerFactory::new(client);
    let web = || InformerScope::all().label_selector("app=a".parse().unwrap());
    let start = |observe| {
        let (observe, received) = recording(observe);
        (observe.start().unwrap(), received)
    };
    let all = [(); 2].map(|()| start(factory.observe(Source::of::<ConfigMap>())));
    let some = [(); 2].map(|()| start(factory.observe(Source::of::<ConfigMap>()).scope(web())));
    let own = start(factory.observe(Source::of::<ConfigMap>()).one_thread(true));
    for (observation, received) in all.iter().chain([&own]) {
        observation.wait_for_sync(SOON, &Stop::never()).unwrap();
        let mut first = [next(received), next(received)];
        first.sort();
        assert_eq!(first, ["+a", "+b"], "a late observation gets all objects");
    }
    for (observation, received) in &some {
        assert_eq!(next(received), "+a");
        assert_eq!(observation.lister().list().len(), 1);
    }
    server.wait_for_watches(3, SOON).unwrap();
    assert_eq!(server.open_watches(), 3);

    let [(first, _), (second, received)] = all;
    first.shut_down(None).unwrap();
    create(&server, "c");
    assert_eq!(next(&received), "+c", "the other observation continues");
    drop(second);
    server.wait_for_watches(2, SOON).unwrap();
    let (again, received) = start(factory.observe(Source::of::<ConfigMap>()));
    let mut names = [next(&received), next(&received), next(&received)];
    names.sort();
    assert_eq!(names, ["+a", "+b", "+c"]);
    drop(again);
    factory.shut_down(None).unwrap();
    server.wait_for_watches(0, SOON).unwrap();
    assert!(
        some[0].0.lister().list().len() == 1,
        "the cache can still be read"
    );
    assert!(matches!(
        factory.observe(Source::of::<ConfigMap>()).start(),
        Err(InformerError::Stopped { .. })
    ));
}

#[test]
fn informer_also_requested_from_factory_outlives_observation() {
    let (server, client) = server_with(&["a"]);
    let factory = SharedInformerFactory::new(client);
    let (observe, received) = recording(factory.observe(Source::of::<ConfigMap>()));
    let observation = observe.start().unwrap();
    assert_eq!(next(&received), "+a");
    let maps = factory.informer::<ConfigMap>();
    observation.shut_down(None).unwrap();
    assert!(!maps.is_stopped());
    create(&server, "b");
    let (observe, received) = recording(factory.observe(Source::of::<ConfigMap>()));
    let _observation = observe.start().unwrap();
    let mut names = [next(&received), next(&received)];
    names.sort();
    assert_eq!(names, ["+a", "+b"]);
    factory.shut_down(None).unwrap();
    assert!(maps.is_stopped());
}

#[test]
fn observation_continues_after_panic_and_closure_may_stop_it() {
    for one_thread in [false, true] {
        let (server, client) = server_with(&["a"]);
        let slot: Arc<Mutex<Option<Observation<ConfigMap>>>> = Arc::default();
        let (sender, receiver) = mpsc::channel();
        let (own, mut calls) = (Arc::clone(&slot), 0);
        let observe = observe::<ConfigMap>(client).on_added(move |_| {
            calls += 1;
            if calls == 1 {
                panic!("panic in the first call");
            }
            let observation = own.lock().unwrap().take();
            let _ = sender.send(observation.map(|own| own.shut_down(None)));
        });
        let mut held = slot.lock().unwrap();
        *held = Some(observe.one_thread(one_thread).start().unwrap());
        drop(held);
        create(&server, "b");
        assert_eq!(
            receiver.recv_timeout(SOON).unwrap(),
            Some(Err(ShutdownError::FromWithin)),
            "a shutdown from its own closure does not wait"
        );
        server.wait_for_watches(0, SOON).unwrap();
        assert!(
            receiver.recv_timeout(SOON).is_err(),
            "the observation has ended"
        );
    }
}

#[test]
fn observation_syncs_after_initial_callbacks_return() {
    let (_server, client) = server_with(&["a"]);
    let (finish, finished) = mpsc::channel::<()>();
    let maps = observe::<ConfigMap>(client)
        .on_added(move |_| finished.recv().unwrap())
        .start()
        .unwrap();
    maps.informer().wait_for_sync(SOON, &Stop::never()).unwrap();
    let error = maps
        .wait_for_sync(Duration::from_millis(10), &Stop::never())
        .unwrap_err();
    assert!(error.is_timed_out());
    finish.send(()).unwrap();
    maps.wait_for_sync(SOON, &Stop::never()).unwrap();
    assert_eq!(maps.stats().delivered, 1);
}

#[test]
fn timed_out_wait_reports_the_last_error() {
    let (server, client) = server_with(&[]);
    server.fail_next(Fault::status(403).always());
    let maps = observe::<ConfigMap>(client).start().unwrap();
    server
        .wait_for_requests(|requests| requests.len() > 1, SOON)
        .unwrap();
    let error = maps
        .wait_for_sync(Duration::from_millis(50), &Stop::never())
        .unwrap_err();
    assert!(
        error.is_timed_out() && error.to_string().contains("403"),
        "{error}"
    );
}

#[test]
fn stopped_observation_drops_its_closures() {
    for one_thread in [false, true] {
        let (_server, client) = server_with(&["a"]);
        let factory = SharedInformerFactory::new(client);
        let (observe, received) = recording(factory.observe(Source::of::<ConfigMap>()));
        let observation = observe.one_thread(one_thread).start().unwrap();
        assert_eq!(next(&received), "+a");
        observation.shut_down(None).unwrap();
        assert_eq!(
            received.try_recv().unwrap_err(),
            mpsc::TryRecvError::Disconnected,
            "the closures were dropped"
        );
        factory.shut_down(None).unwrap();
    }
}

/// A clock whose next `now` runs a closure.
#[derive(Default)]
struct ClockWithHook(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Clock for ClockWithHook {
    fn now(&self) -> Instant {
        let hook = self.0.lock().unwrap().take();
        hook.into_iter().for_each(|hook| hook());
        Instant::now()
    }

    fn wait(&self, duration: Duration, stop: &Stop) -> bool {
        !stop.wait_timeout(duration)
    }
}

#[test]
fn observing_concurrently_stopped_informer_fails() {
    let (_server, client) = server_with(&["a"]);
    let clock = Arc::new(ClockWithHook::default());
    let mut options = ReflectorOptions::default();
    options.clock = clock.clone();
    let factory =
        SharedInformerFactory::with_options(client, FactoryOptions::new().reflector(options));
    let (inner, maps) = (factory.clone(), factory.informer::<ConfigMap>());
    *clock.0.lock().unwrap() = Some(Box::new(move || {
        inner.shut_down_informer(&maps, None).unwrap();
    }));
    let (observe, received) = recording(factory.observe(Source::of::<ConfigMap>()));
    assert!(
        matches!(observe.start(), Err(InformerError::Stopped { .. })),
        "a stopped informer delivers no events"
    );
    assert!(received.recv_timeout(SOON).is_err());
}

#[test]
fn empty_selector_matches_no_objects() {
    let (_server, client) = server_with(&["a"]);
    let nothing = InformerScope::all().label_selector(Selector::nothing());
    assert_ne!(nothing, InformerScope::all());
    let (observe, received) = recording(observe::<ConfigMap>(client).scope(nothing));
    let maps = observe.start().unwrap();
    maps.wait_for_sync(SOON, &Stop::never()).unwrap();
    assert!(maps.lister().list().is_empty());
    maps.shut_down(None).unwrap();
    assert!(received.recv().is_err());
}

/// Sends the names of all objects at each call of `on_changed`.
fn recording_states(observe: Observe<ConfigMap>) -> (Observe<ConfigMap>, Receiver<Vec<String>>) {
    let (sender, states) = mpsc::channel();
    let observe = observe.on_changed(move |maps| {
        let maps = maps.list();
        let mut names: Vec<_> = maps.iter().map(|map| map.name().to_owned()).collect();
        names.sort();
        let _ = sender.send(names);
    });
    (observe, states)
}

#[test]
fn on_changed_is_called_once_for_an_empty_list() {
    for one_thread in [false, true] {
        let (server, client) = server_with(&[]);
        let (observe, states) = recording_states(observe::<ConfigMap>(client));
        let maps = observe.one_thread(one_thread).start().unwrap();
        let first = states.recv_timeout(SOON).unwrap();
        assert!(first.is_empty(), "{first:?}");
        maps.wait_for_sync(SOON, &Stop::never()).unwrap();
        create(&server, "a");
        assert_eq!(states.recv_timeout(SOON).unwrap(), ["a"]);
        maps.shut_down(None).unwrap();
        assert!(states.recv().is_err(), "no further call");
    }
}

#[test]
fn on_changed_is_called_once_for_a_list_and_for_each_change() {
    for one_thread in [false, true] {
        let (server, client) = server_with(&["a", "b", "c"]);
        let (observe, states) = recording_states(observe::<ConfigMap>(client));
        let maps = observe.one_thread(one_thread).start().unwrap();
        let next = || states.recv_timeout(SOON).unwrap();
        assert_eq!(next(), ["a", "b", "c"]);
        create(&server, "d");
        assert_eq!(next(), ["a", "b", "c", "d"]);
        let path = format!("{MAPS}/d");
        server.patch(&path, json!({"data": {"k": "v"}})).unwrap();
        assert_eq!(next(), ["a", "b", "c", "d"]);
        server.delete(&path).unwrap();
        assert_eq!(next(), ["a", "b", "c"]);
        maps.shut_down(None).unwrap();
        assert!(states.recv().is_err(), "no further call");
    }
}

#[test]
fn wait_for_sync_includes_the_first_on_changed() {
    for (names, one_thread) in [
        (&[][..], false),
        (&["a"], false),
        (&[], true),
        (&["a"], true),
    ] {
        let (_server, client) = server_with(names);
        let (observe, states) = recording_states(observe::<ConfigMap>(client));
        let maps = observe.one_thread(one_thread).start().unwrap();
        maps.wait_for_sync(SOON, &Stop::never()).unwrap();
        assert!(maps.synced().is_done());
        assert_eq!(states.try_recv().unwrap(), names);
    }
}

#[test]
fn on_changed_runs_after_the_other_closures() {
    for one_thread in [false, true] {
        let (server, client) = server_with(&["a"]);
        let (sender, calls) = mpsc::channel();
        let changed = sender.clone();
        let _maps = observe::<ConfigMap>(client)
            .on_changed(move |maps| changed.send(format!("changed {}", maps.len())).unwrap())
            .on_added(move |map| sender.send(format!("added {}", map.name())).unwrap())
            .one_thread(one_thread)
            .start()
            .unwrap();
        let next_two = || [(); 2].map(|()| calls.recv_timeout(SOON).unwrap());
        assert_eq!(next_two(), ["added a", "changed 1"]);
        create(&server, "b");
        assert_eq!(next_two(), ["added b", "changed 2"]);
    }
}

/// Returns the same script for every resource.
struct OneScript(ScriptedListerWatcher);

impl ListerWatcherSource for OneScript {
    fn lister_watcher(&self, _: &GroupVersionResource, _: Option<&str>) -> Arc<dyn ListerWatcher> {
        Arc::new(self.0.clone())
    }
}

#[test]
fn burst_of_changes_is_few_calls_of_on_changed() {
    const LISTED: usize = 10;
    const CHANGES: usize = 1000;
    let object = |number: usize| {
        let version = (number + 1).to_string();
        json!({"metadata": {"name": format!("map-{number}"), "resourceVersion": version}})
    };
    for one_thread in [false, true] {
        let items: Vec<_> = (0..LISTED).map(object).collect();
        let version = LISTED.to_string();
        let list =
            json!({"kind": "List", "metadata": {"resourceVersion": version}, "items": items});
        let burst: String = (LISTED..LISTED + CHANGES)
            .map(|number| format!("{}\n", json!({"type": "ADDED", "object": object(number)})))
            .collect();
        let script =
            ScriptedListerWatcher::new([Answer::body(list.to_string()), Answer::open(burst)]);
        let (observe, states) = recording_states(observe::<ConfigMap>(OneScript(script)));
        let maps = observe.one_thread(one_thread).start().unwrap();

        let mut counts = Vec::new();
        while counts.last() != Some(&(LISTED + CHANGES)) {
            counts.push(states.recv_timeout(SOON).unwrap().len());
        }
        assert!(counts.is_sorted(), "{counts:?}");
        maps.shut_down(None).unwrap();
        counts.extend(states.iter().map(|names| names.len()));
        assert!(counts.len() < CHANGES / 10, "{counts:?}");
    }
}

#[test]
fn late_observation_gets_one_call_with_all_objects() {
    for names in [&[][..], &["a", "b"]] {
        let (_server, client) = server_with(names);
        let factory = SharedInformerFactory::new(client);
        let start = || {
            let observe = factory.observe(Source::of::<ConfigMap>());
            let (observe, states) = recording_states(observe);
            (observe.start().unwrap(), states)
        };
        let observations = [start(), start(), start()];
        for (maps, states) in observations {
            assert_eq!(states.recv_timeout(SOON).unwrap(), names);
            maps.shut_down(None).unwrap();
            assert!(states.recv().is_err(), "no further call");
        }
        let (first, first_states) = start();
        assert_eq!(first_states.recv_timeout(SOON).unwrap(), names);
        first.wait_for_sync(SOON, &Stop::never()).unwrap();
        let (late, late_states) = start();
        assert_eq!(late_states.recv_timeout(SOON).unwrap(), names);
        late.shut_down(None).unwrap();
        assert!(late_states.recv().is_err(), "no further call");
    }
}

#[test]
fn observation_continues_after_panic_of_on_changed() {
    for names in [&[][..], &["a"]] {
        for one_thread in [false, true] {
            let (server, client) = server_with(names);
            let (sender, calls) = mpsc::channel();
            let mut count = 0;
            let maps = observe::<ConfigMap>(client)
                .on_changed(move |_| {
                    count += 1;
                    sender.send(count).unwrap();
                    assert!(count > 2, "panic in the first two calls");
                })
                .one_thread(one_thread)
                .start()
                .unwrap();
            assert_eq!(calls.recv_timeout(SOON), Ok(1));
            maps.wait_for_sync(SOON, &Stop::never()).unwrap();
            for (call, name) in [(2, "b"), (3, "c")] {
                create(&server, name);
                assert_eq!(calls.recv_timeout(SOON), Ok(call));
            }
            assert_eq!(maps.lister().len(), names.len() + 2);
            maps.shut_down(None).unwrap();
        }
    }
}

/// The informer of an empty list has synced before the second observation starts, so its first
/// call is due at once.
#[test]
fn panic_of_on_changed_does_not_fail_the_start() {
    let (server, client) = server_with(&[]);
    let factory = SharedInformerFactory::new(client);
    let first = factory.observe(Source::of::<ConfigMap>()).start().unwrap();
    first.wait_for_sync(SOON, &Stop::never()).unwrap();
    let (sender, calls) = mpsc::channel();
    let maps = factory
        .observe(Source::of::<ConfigMap>())
        .on_changed(move |maps| {
            sender.send(maps.len()).unwrap();
            assert!(!maps.is_empty(), "panic in the first call");
        })
        .start()
        .unwrap();
    assert_eq!(calls.recv_timeout(SOON), Ok(0));
    create(&server, "a");
    assert_eq!(calls.recv_timeout(SOON), Ok(1));
    maps.shut_down(None).unwrap();
}

/// The first call is due at once, and blocks: it runs on the thread of its own handler.
#[test]
fn first_on_changed_delays_neither_start_nor_informer() {
    for files in [&[][..], &["a"]] {
        let (server, client) = server_with(files);
        let factory = SharedInformerFactory::new(client);
        let (observe, received) = recording(factory.observe(Source::of::<ConfigMap>()));
        let first = observe.start().unwrap();
        first.wait_for_sync(SOON, &Stop::never()).unwrap();
        let door = Door::new();
        let pass = door.clone();
        let late = factory.observe(Source::of::<ConfigMap>()).name("watcher");
        let late = late.on_changed(move |_| pass.pass()).start().unwrap();
        door.wait_for_arrivals(1);
        create(&server, "b");
        while next(&received) != "+b" {}

        let error = late.shut_down(Duration::from_millis(10)).unwrap_err();
        let after = Duration::from_millis(10);
        let stuck = vec!["watcher run".to_owned()];
        assert_eq!(error, ShutdownError::TimedOut { after, stuck });
        door.open();
        factory.shut_down(None).unwrap();
    }
}

/// Shuts an observation down while one of its closures is at the door. The error must name this
/// thread, and the observation must end once the closure returns.
fn assert_shutdown_names_blocked_thread(
    maps: Observation<ConfigMap>,
    received: &Receiver<Received>,
    door: &Door,
    thread: &str,
) {
    const TIMEOUT: Duration = Duration::from_millis(10);
    door.wait_for_arrivals(1);
    let ended = maps.informer().ended().clone();
    let error = maps.shut_down(TIMEOUT).unwrap_err();
    let (after, stuck) = (TIMEOUT, vec![thread.to_owned()]);
    assert_eq!(error, ShutdownError::TimedOut { after, stuck });
    assert!(!ended.is_done());
    door.open();
    while received.recv_timeout(SOON).is_ok() {}
    let error = received.try_recv().unwrap_err();
    assert_eq!(
        error,
        mpsc::TryRecvError::Disconnected,
        "the closures were dropped"
    );
    assert!(ended.wait_timeout(SOON));
}

/// Whether an observation runs on one thread, and the thread of its closures.
const CLOSURE_THREADS: [(bool, &str); 2] = [(false, "watcher run"), (true, "configmaps")];

#[test]
fn shutdown_of_observation_names_thread_in_on_event() {
    for (one_thread, thread) in CLOSURE_THREADS {
        let (server, client) = server_with(&["a"]);
        let (door, (observe, received)) = (Door::new(), recording(observe(client)));
        let at = door.clone();
        let observe = observe.on_event(move |_| at.pass()).name("watcher");
        let maps = observe.one_thread(one_thread).start().unwrap();
        assert_shutdown_names_blocked_thread(maps, &received, &door, thread);
        server.wait_for_watches(0, SOON).unwrap();
    }
}

#[test]
fn shutdown_of_observation_names_thread_in_on_changed() {
    for (one_thread, thread) in CLOSURE_THREADS {
        let (server, client) = server_with(&["a"]);
        let (door, (observe, received)) = (Door::new(), recording(observe(client)));
        let (first, first_call) = mpsc::channel();
        let (at, mut first) = (door.clone(), Some(first));
        let on_changed = move |_: &Lister<ConfigMap>| match first.take() {
            Some(first) => first.send(()).unwrap(),
            None => at.pass(),
        };
        let observe = observe.on_changed(on_changed).name("watcher");
        let maps = observe.one_thread(one_thread).start().unwrap();
        first_call.recv_timeout(SOON).unwrap();
        create(&server, "b");
        assert_shutdown_names_blocked_thread(maps, &received, &door, thread);
        server.wait_for_watches(0, SOON).unwrap();
    }
}
