//! `observe`, which runs the informer for its caller.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use k8s_informer::informer::{InformerError, InformerScope, Observation, Observe, Source};
use k8s_informer::object::GroupVersionResource;
use k8s_informer::reflector::ReflectorOptions;
use k8s_informer::testing::{ApiServer, Fault};
use k8s_informer::time::Clock;
use k8s_informer::{
    Client, Config, Notification, Object, Selector, SharedInformerFactory, Stop, observe,
};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use crate::informer::support::SOON;

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

fn told(sender: &Sender<Received>, what: char, name: &str) {
    let thread = thread::current().name().unwrap_or_default().to_owned();
    let _ = sender.send((format!("{what}{name}"), thread));
}

fn recording(observe: Observe<ConfigMap>) -> (Observe<ConfigMap>, Receiver<Received>) {
    let (sender, receiver) = mpsc::channel();
    let [added, modified, deleted] = [sender.clone(), sender.clone(), sender];
    let observe = observe
        .on_added(move |map| told(&added, '+', map.name()))
        .on_modified(move |old, new| {
            assert_ne!(old.resource_version(), new.resource_version());
            told(&modified, '~', new.name());
        })
        .on_deleted(move |gone| told(&deleted, '-', gone.name()));
    (observe, receiver)
}

fn next(told: &Receiver<Received>) -> String {
    told.recv_timeout(SOON).unwrap().0
}

#[test]
fn what_happens_is_told_on_a_thread_of_its_own_or_inline() {
    for inline in [false, true] {
        let (server, client) = server_with(&["a"]);
        let (observe, told) = recording(observe::<ConfigMap>(client).name("watcher"));
        let observe = if inline { observe.inline() } else { observe };
        let maps = observe.start().unwrap();
        let (first, on) = told.recv_timeout(SOON).unwrap();
        assert_eq!(first, "+a");
        assert_eq!(
            on,
            if inline {
                "configmaps process"
            } else {
                "watcher run"
            }
        );
        maps.wait_for_sync(&Stop::new(), SOON).unwrap();
        assert!(maps.synced().is_done());
        assert_eq!(maps.stats().delivered, u64::from(!inline));
        assert_eq!(maps.informer().name(), "configmaps");

        create(&server, "b");
        server
            .patch(&format!("{MAPS}/b"), json!({"data": {"k": "v"}}))
            .unwrap();
        server.delete(&format!("{MAPS}/b")).unwrap();
        assert_eq!([next(&told), next(&told), next(&told)], ["+b", "~b", "-b"]);
        assert_eq!(maps.lister().list().len(), 1);
        assert!(maps.stop());
        assert!(told.recv().is_err(), "the closures are gone");
        assert!(server.wait_for_watches(0, SOON));
    }
}

#[test]
fn one_closure_takes_every_event() {
    let (server, client) = server_with(&["a"]);
    let (sender, events) = mpsc::channel();
    let resource = GroupVersionResource::new("", "v1", "configmaps");
    let _maps = SharedInformerFactory::builder(client)
        .build()
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
    let factory = SharedInformerFactory::builder(client).build();
    let web = || InformerScope::all().label_selector("app=a".parse().unwrap());
    let start = |observe| {
        let (observe, told) = recording(observe);
        (observe.start().unwrap(), told)
    };
    let all = [(); 2].map(|()| start(factory.observe(Source::of::<ConfigMap>())));
    let some = [(); 2].map(|()| start(factory.observe(Source::of::<ConfigMap>()).scope(web())));
    let own = start(factory.observe(Source::of::<ConfigMap>()).inline());
    for (observation, told) in all.iter().chain([&own]) {
        observation.wait_for_sync(&Stop::new(), SOON).unwrap();
        let mut first = [next(told), next(told)];
        first.sort();
        assert_eq!(
            first,
            ["+a", "+b"],
            "who comes late is told everything, too"
        );
    }
    for (observation, told) in &some {
        assert_eq!(next(told), "+a");
        assert_eq!(observation.lister().list().len(), 1);
    }
    assert!(server.wait_for_watches(3, SOON));
    assert_eq!(server.open_watches(), 3);

    let [(first, _), (second, told)] = all;
    assert!(first.stop());
    create(&server, "c");
    assert_eq!(next(&told), "+c", "the other one goes on");
    drop(second);
    assert!(
        server.wait_for_watches(2, SOON),
        "with the last one its informer ends"
    );
    let (again, told) = start(factory.observe(Source::of::<ConfigMap>()));
    let mut names = [next(&told), next(&told), next(&told)];
    names.sort();
    assert_eq!(names, ["+a", "+b", "+c"]);
    drop(again);
    factory.shutdown();
    assert!(server.wait_for_watches(0, SOON));
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
fn requested_informer_outlives_last_observation() {
    let (server, client) = server_with(&["a"]);
    let factory = SharedInformerFactory::builder(client).build();
    let (observe, told) = recording(factory.observe(Source::of::<ConfigMap>()));
    let observation = observe.start().unwrap();
    assert_eq!(next(&told), "+a");
    let maps = factory.informer::<ConfigMap>();
    assert!(observation.stop());
    assert!(!maps.is_stopped());
    create(&server, "b");
    let (observe, told) = recording(factory.observe(Source::of::<ConfigMap>()));
    let _observation = observe.start().unwrap();
    let mut names = [next(&told), next(&told)];
    names.sort();
    assert_eq!(names, ["+a", "+b"]);
    factory.shutdown();
    assert!(maps.is_stopped());
}

#[test]
fn observation_closure_may_end_itself_and_survives_panic() {
    for inline in [false, true] {
        let (server, client) = server_with(&["a"]);
        let slot: Arc<Mutex<Option<Observation<ConfigMap>>>> = Arc::default();
        let (sender, receiver) = mpsc::channel();
        let (own, mut calls) = (Arc::clone(&slot), 0);
        let observe = observe::<ConfigMap>(client).on_added(move |_| {
            calls += 1;
            if calls == 1 {
                panic!("not the first");
            }
            let stopped = own.lock().unwrap().take().map(Observation::stop);
            let _ = sender.send(stopped);
        });
        let observe = if inline { observe.inline() } else { observe };
        let mut held = slot.lock().unwrap();
        *held = Some(observe.start().unwrap());
        drop(held);
        create(&server, "b");
        assert_eq!(
            receiver.recv_timeout(SOON).unwrap(),
            Some(false),
            "it does not wait for itself"
        );
        assert!(
            server.wait_for_watches(0, SOON) && receiver.recv_timeout(SOON).is_err(),
            "it is over"
        );
    }
}

#[test]
fn it_has_synced_when_the_closures_know_what_was_there() {
    let (_server, client) = server_with(&["a"]);
    let (finish, finished) = mpsc::channel::<()>();
    let maps = observe::<ConfigMap>(client)
        .on_added(move |_| finished.recv().unwrap())
        .start()
        .unwrap();
    maps.informer().wait_for_sync(&Stop::new(), SOON).unwrap();
    let error = maps
        .wait_for_sync(&Stop::new(), Duration::from_millis(10))
        .unwrap_err();
    assert!(error.timed_out());
    finish.send(()).unwrap();
    maps.wait_for_sync(&Stop::new(), SOON).unwrap();
    assert_eq!(maps.stats().delivered, 1);
}

#[test]
fn a_wait_that_is_too_long_says_what_went_wrong() {
    let (server, client) = server_with(&[]);
    server.fail_next(Fault::status(403).always());
    let maps = observe::<ConfigMap>(client).start().unwrap();
    assert!(server.wait_for_requests(|requests| requests.len() > 1, SOON));
    let error = maps
        .wait_for_sync(&Stop::new(), Duration::from_millis(50))
        .unwrap_err();
    assert!(
        error.timed_out() && error.to_string().contains("403"),
        "{error}"
    );
}

#[test]
fn of_an_observation_that_was_stopped_the_factory_keeps_nothing() {
    for inline in [false, true] {
        let (_server, client) = server_with(&["a"]);
        let factory = SharedInformerFactory::builder(client).build();
        let (observe, told) = recording(factory.observe(Source::of::<ConfigMap>()));
        let observation = if inline { observe.inline() } else { observe }
            .start()
            .unwrap();
        assert_eq!(next(&told), "+a");
        assert!(observation.stop());
        assert_eq!(
            told.try_recv().unwrap_err(),
            mpsc::TryRecvError::Disconnected,
            "the closures are gone"
        );
        factory.shutdown();
    }
}

/// A clock whose next `now` runs a closure.
#[derive(Default)]
struct Meddles(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Clock for Meddles {
    fn now(&self) -> Instant {
        let meddle = self.0.lock().unwrap().take();
        meddle.into_iter().for_each(|meddle| meddle());
        Instant::now()
    }

    fn wait(&self, duration: Duration, stop: &Stop) -> bool {
        !stop.wait_timeout(duration)
    }
}

#[test]
fn observing_informer_stopped_meanwhile_is_an_error() {
    let (_server, client) = server_with(&["a"]);
    let clock = Arc::new(Meddles::default());
    let mut options = ReflectorOptions::default();
    options.clock = clock.clone();
    let factory = SharedInformerFactory::builder(client)
        .reflector_options(options)
        .build();
    let (inner, maps) = (factory.clone(), factory.informer::<ConfigMap>());
    *clock.0.lock().unwrap() = Some(Box::new(move || assert!(inner.stop_informer(&maps))));
    let (observe, told) = recording(factory.observe(Source::of::<ConfigMap>()));
    assert!(
        matches!(observe.start(), Err(InformerError::Stopped { .. })),
        "it would never be told anything"
    );
    assert!(told.recv_timeout(SOON).is_err());
}

#[test]
fn a_selector_that_selects_nothing_selects_nothing() {
    let (_server, client) = server_with(&["a"]);
    let nothing = InformerScope::all().label_selector(Selector::nothing());
    assert_ne!(nothing, InformerScope::all());
    let (observe, told) = recording(observe::<ConfigMap>(client).scope(nothing));
    let maps = observe.start().unwrap();
    maps.wait_for_sync(&Stop::new(), SOON).unwrap();
    assert!(maps.lister().list().is_empty());
    assert!(maps.stop() && told.recv().is_err());
}
