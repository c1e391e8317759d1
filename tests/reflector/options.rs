//! Each option works with every way of creating a reflector.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use k8s_informer::informer::FactoryOptions;
use k8s_informer::informer::SharedIndexInformerOptions;
use k8s_informer::informer::Source;
use k8s_informer::object::{GroupVersionKind, GroupVersionResource};
use k8s_informer::reflector::{ListerWatcher, ListerWatcherSource, Reflector, ReflectorOptions};
use k8s_informer::time::Backoff;
use k8s_informer::{DynamicObject, Error, SharedIndexInformer, SharedInformerFactory, Stopper};
use k8s_informer_testing::Answer;

use crate::reflector::support::{Recorder, SECOND, SILENCE, Server, TICK, TIMEOUT, list, refused};

impl ListerWatcherSource for Server {
    fn lister_watcher(&self, _: &GroupVersionResource, _: Option<&str>) -> Arc<dyn ListerWatcher> {
        Arc::new(self.clone())
    }
}

/// Checks the options on three reflectors: a plain one, one of an informer, and one of a factory's
/// informer.
#[track_caller]
fn for_each_constructor<A: IntoIterator<Item = Answer>>(
    answers: impl Fn() -> A,
    set: impl Fn(&mut ReflectorOptions),
    check: impl Fn(&Server),
) {
    let make = || {
        let server = Server::new(answers()).with_watch_list();
        let mut options = ReflectorOptions::default();
        options.clock = Arc::new(server.clock.clone());
        options.backoff = Backoff::new(SECOND).factor(2.0).cap(30 * SECOND);
        options.watch_list = false;
        set(&mut options);
        (server, options, Stopper::new())
    };

    let (server, options, stop) = make();
    let reflector = Reflector::new(
        Arc::new(server.clone()),
        Arc::new(Recorder::default()),
        options,
    );
    thread::scope(|scope| {
        let _end = StopOnDrop(&stop);
        scope.spawn(|| reflector.run(&stop));
        check(&server);
    });

    let (server, reflector, stop) = make();
    let options = SharedIndexInformerOptions::new().reflector(reflector);
    let informer = SharedIndexInformer::<DynamicObject>::new(Arc::new(server.clone()), options);
    thread::scope(|scope| {
        let _end = StopOnDrop(&stop);
        scope.spawn(|| informer.run(&stop).unwrap());
        check(&server);
    });

    let (server, options, stop) = make();
    let factory = SharedInformerFactory::with_options(
        server.clone(),
        FactoryOptions::new().reflector(options),
    );
    let _pods = factory.informer_for(Source::dynamic(GroupVersionResource::new("", "v1", "pods")));
    factory.start(&stop).unwrap();
    check(&server);
    factory.shut_down(None).unwrap();
}

/// Stops the reflector even if a check panics.
struct StopOnDrop<'a>(&'a Stopper);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

#[track_caller]
fn first_wait(server: &Server) -> Duration {
    server.clock.wait_for_waits(1, TIMEOUT).unwrap();
    server.clock.waits()[0]
}

#[test]
fn l9_page_size_option_limits_the_first_list() {
    for_each_constructor(
        Vec::new,
        |options| options.page_size = Some(7),
        |server| assert_eq!(server.requests(1), ["list 0 limit 7"]),
    );
}

#[test]
fn l2_configured_backoff_is_the_first_wait_after_failure() {
    for_each_constructor(
        || [refused(403, "Forbidden")],
        |options| options.backoff = Backoff::new(7 * SECOND).factor(2.0).cap(30 * SECOND),
        |server| assert_eq!(first_wait(server), 7 * SECOND),
    );
}

#[test]
fn wl1_watch_list_option_chooses_between_list_and_watch_list() {
    for_each_constructor(
        Vec::new,
        |_| {},
        |server| assert_eq!(server.requests(1), ["list 0 limit 500"]),
    );
    for_each_constructor(
        Vec::new,
        |options| options.watch_list = true,
        |server| assert_eq!(server.requests(1), ["watch-list most recent"]),
    );
}

#[test]
fn w4_configured_idle_timeout_is_the_read_timeout_of_a_watch() {
    for_each_constructor(
        || [list("10", &[]), Answer::open(SILENCE)],
        |options| options.watch_idle_timeout = Some(77 * SECOND),
        |server| {
            assert_eq!(server.requests(3)[1..], ["watch 10", "watch 10"]);
            assert_eq!(server.read_timeouts(), [Some(77 * SECOND)]);
        },
    );
}

#[test]
fn w9_event_of_unexpected_kind_does_not_advance_the_version() {
    let secret = r#"{"type":"ADDED","object":{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a","resourceVersion":"11"}}}"#;
    for_each_constructor(
        || [list("10", &[]), Answer::broken(format!("{secret}\n{TICK}"))],
        |options| options.expected_kind = Some(GroupVersionKind::new("", "v1", "Pod")),
        |server| assert_eq!(server.requests(3)[2], "watch 10"),
    );
}

#[test]
fn w14_configured_handler_gets_the_error_of_a_failed_list() {
    let (sender, receiver) = std::sync::mpsc::channel();
    for_each_constructor(
        || [refused(403, "Forbidden")],
        |options| {
            let sender = sender.clone();
            options.watch_error_handler = Some(Arc::new(move |error: &Error| {
                let _ = sender.send(error.clone());
            }));
        },
        |_| assert!(receiver.recv_timeout(TIMEOUT).unwrap().is_forbidden()),
    );
}
