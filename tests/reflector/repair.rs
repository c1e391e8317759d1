//! Relists that fetch objects which could not be decoded.

use std::io::{self, Cursor, Read};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use k8s_informer::reflector::{
    Body, ListOptions, ListerWatcher, Reflector, ReflectorOptions, ReflectorStatus, TimedRead,
};
use k8s_informer::time::{Backoff, Clock};
use k8s_informer::{Error, Indexer, Object, Stop, Stopper};
use k8s_informer_testing::Answer;
use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::reflector::support::{SECOND, SILENCE, Server, TICK, describe};

fn map(name: &str, version: &str, data: &Value) -> Value {
    let metadata = json!({"namespace": "n", "name": name, "uid": name, "resourceVersion": version});
    json!({ "metadata": metadata, "data": data })
}

fn good(name: &str, version: &str) -> Value {
    map(name, version, &json!({}))
}

fn broken(name: &str, version: &str) -> Value {
    map(name, version, &json!(7))
}

fn list(version: &str, items: &[Value]) -> Answer {
    let list = json!({"kind": "List", "metadata": {"resourceVersion": version}, "items": items});
    Answer::body(list.to_string())
}

fn event(kind: &str, object: &Value) -> String {
    json!({"type": kind, "object": object}).to_string() + "\n"
}

/// The bookmark that ends the initial events of a watch-list.
fn end(version: &str) -> String {
    let annotations = json!({"k8s.io/initial-events-end": "true"});
    event(
        "BOOKMARK",
        &json!({"metadata": {"resourceVersion": version, "annotations": annotations}}),
    )
}

/// Runs a reflector of config maps until it has sent `requests` requests. Returns the requests, the
/// read timeouts below a minute in seconds, and the status.
fn run(server: &Server, requests: usize) -> (Vec<String>, Vec<u64>, ReflectorStatus) {
    /// Stops the reflector even if the test panics.
    struct StopOnDrop(Stopper);
    impl Drop for StopOnDrop {
        fn drop(&mut self) {
            self.0.stop();
        }
    }
    let mut options = ReflectorOptions::default();
    options.clock = Arc::new(server.clock.clone());
    options.backoff = Backoff::new(SECOND).factor(2.0).cap(30 * SECOND);
    let store = Arc::new(Indexer::<ConfigMap>::for_objects());
    let reflector = Reflector::new(Arc::new(server.clone()), store, options);
    let stop = Stopper::new();
    let sent = thread::scope(|scope| {
        scope.spawn(|| reflector.run(&stop));
        let _stop_on_drop = StopOnDrop(stop.clone());
        server.options(requests)
    });
    assert_eq!(
        server.request_count(),
        requests,
        "an unexpected request followed"
    );
    let waits = server
        .read_timeouts()
        .into_iter()
        .flatten()
        .map(|wait| wait.as_secs());
    (
        sent.iter().map(describe).collect(),
        waits.filter(|wait| *wait < 60).collect(),
        reflector.status(),
    )
}

/// Scripts a list with a broken object, five relists with the same broken object, and then
/// `watches`. Each list is followed by a silent watch.
fn after_five_relists(watches: impl IntoIterator<Item = Answer>) -> Server {
    let lists = (10..16).flat_map(|version| {
        [
            list(&version.to_string(), &[broken("a", "1"), good("b", "1")]),
            Answer::open(SILENCE),
        ]
    });
    Server::new(lists.chain(watches))
}

const FIVE_RELISTS: [&str; 12] = [
    "list 0 limit 500",
    "watch 10",
    "list 10",
    "watch 11",
    "list 11",
    "watch 12",
    "list 12",
    "watch 13",
    "list 13",
    "watch 14",
    "list 14",
    "watch 15",
];

#[test]
fn w15_missed_object_triggers_five_relists() {
    let server = after_five_relists([
        // An event of the same broken object triggers no relist. An event of another broken object
        // triggers one.
        Answer::open(event("MODIFIED", &broken("a", "20")) + SILENCE),
        Answer::open(event("ADDED", &broken("c", "30")) + SILENCE),
        list("40", &[good("a", "40"), good("b", "1"), good("c", "40")]),
        Answer::open(""),
    ]);
    let (requests, waits, status) = run(&server, 16);
    assert_eq!(requests[..12], FIVE_RELISTS);
    assert_eq!(
        requests[12..],
        ["watch 15", "watch 20", "list 30", "watch 40"]
    );
    assert_eq!(waits, [1, 2, 4, 8, 16, 30]);
    assert_eq!(
        (status.complete, status.relists, status.unreadable),
        (true, 6, 8)
    );
}

#[test]
fn w15_event_of_missed_object_triggers_a_relist() {
    for (kind, object) in [
        ("MODIFIED", good("a", "20")),
        ("DELETED", good("a", "20")),
        ("DELETED", broken("a", "20")),
    ] {
        let server = after_five_relists([
            Answer::open(event(kind, &object) + SILENCE),
            list("21", &[good("b", "1")]),
            Answer::open(""),
        ]);
        let (requests, waits, status) = run(&server, 15);
        assert_eq!(
            requests[12..],
            ["watch 15", "list 20", "watch 21"],
            "{kind}"
        );
        assert_eq!(waits, [1, 2, 4, 8, 16, 30]);
        assert!(status.complete);
    }
}

#[test]
fn w15_missed_object_triggers_a_relist_between_events() {
    let events = event("ADDED", &broken("a", "11")) + TICK + &event("ADDED", &good("b", "12"));
    let server = Server::new([
        list("10", &[]),
        Answer::open(events),
        list("12", &[good("a", "12"), good("b", "12")]),
        Answer::open(""),
    ]);
    let (requests, _, status) = run(&server.without_read_timeouts(), 4);
    assert_eq!(requests[1..], ["watch 10", "list 12", "watch 12"]);
    assert!(status.complete);
}

#[test]
fn w15_missed_object_triggers_a_watch_list() {
    let first = event("ADDED", &broken("a", "1")) + &end("10") + SILENCE;
    let second =
        event("ADDED", &good("a", "11")) + &end("11") + &event("MODIFIED", &broken("a", "12"));
    let third = event("ADDED", &good("a", "13")) + &end("13");
    let answers = [first, second + SILENCE, third].map(Answer::open);
    let (requests, waits, _) = run(&Server::new(answers).with_watch_list(), 3);
    assert_eq!(
        requests,
        ["watch-list most recent", "watch-list 10", "watch-list 12"]
    );
    assert_eq!(
        waits.iter().filter(|wait| **wait == 1).count(),
        2,
        "the waits start again after a complete list: {waits:?}"
    );
}

const MINUTE: Duration = Duration::from_secs(60);

/// A server in virtual time, which its clock and its watches move on. Its watches send something each
/// minute.
#[derive(Clone)]
struct Timed(Arc<TimedState>);

struct TimedState {
    /// Returns the items of a list in this minute.
    items: Box<dyn Fn(u64) -> Vec<Value> + Send + Sync>,
    /// Returns the events of this minute.
    events: Box<dyn Fn(u64) -> String + Send + Sync>,
    start: Instant,
    elapsed: Mutex<Duration>,
    /// When lists were requested.
    lists: Mutex<Vec<Duration>>,
    end: Duration,
    stop: Stopper,
}

impl Timed {
    /// Runs a reflector until this minute. Returns the server and the names of the stored objects.
    fn run(
        minutes: u32,
        items: impl Fn(u64) -> Vec<Value> + Send + Sync + 'static,
        events: impl Fn(u64) -> String + Send + Sync + 'static,
    ) -> (Self, Vec<String>, ReflectorStatus) {
        let server = Self(Arc::new(TimedState {
            items: Box::new(items),
            events: Box::new(events),
            start: Instant::now(),
            elapsed: Mutex::default(),
            lists: Mutex::default(),
            end: MINUTE * minutes,
            stop: Stopper::new(),
        }));
        let mut options = ReflectorOptions::default();
        options.clock = Arc::new(server.clone());
        options.backoff = Backoff::new(SECOND).factor(2.0).cap(30 * SECOND);
        let store = Arc::new(Indexer::<ConfigMap>::for_objects());
        let reflector = Reflector::new(Arc::new(server.clone()), store.clone(), options);
        reflector.run(&server.0.stop);
        let stored = store.list();
        let mut names: Vec<_> = stored.iter().map(|map| map.name().to_owned()).collect();
        names.sort();
        (server, names, reflector.status())
    }

    fn minute(&self) -> u64 {
        self.0.elapsed.lock().as_secs() / 60
    }

    /// The number of lists that were requested in these minutes.
    fn lists(&self, minutes: std::ops::Range<u32>) -> usize {
        let lists = self.0.lists.lock();
        let range = MINUTE * minutes.start..MINUTE * minutes.end;
        lists.iter().filter(|at| range.contains(*at)).count()
    }

    fn advance(&self, by: Duration) {
        let mut elapsed = self.0.elapsed.lock();
        *elapsed += by;
        if *elapsed >= self.0.end {
            self.0.stop.stop();
        }
    }
}

impl Clock for Timed {
    fn now(&self) -> Instant {
        self.0.start + *self.0.elapsed.lock()
    }

    fn wait(&self, duration: Duration, stop: &Stop) -> bool {
        self.advance(duration);
        !stop.is_stopped()
    }
}

impl ListerWatcher for Timed {
    fn list(&self, _: &ListOptions, _: &Stop) -> Result<Body, Error> {
        self.0.lists.lock().push(*self.0.elapsed.lock());
        let minute = self.minute();
        let metadata = json!({ "resourceVersion": (100 + minute).to_string() });
        let items = (self.0.items)(minute);
        let list = json!({ "kind": "List", "metadata": metadata, "items": items });
        Ok(Body::from(list.to_string()))
    }

    fn watch(&self, _: &ListOptions, _: &Stop) -> Result<Body, Error> {
        Ok(Body::timed(Minutes(self.clone(), Cursor::default())))
    }
}

struct Minutes(Timed, Cursor<String>);

impl TimedRead for Minutes {
    fn read_within(&mut self, buffer: &mut [u8], timeout: Option<Duration>) -> io::Result<usize> {
        let Self(server, events) = self;
        let length = events.read(buffer)?;
        if length > 0 {
            return Ok(length);
        }
        if server.0.stop.is_stopped() {
            return Err(io::Error::other("stopped"));
        }
        let into_minute = server.0.elapsed.lock().as_secs_f64() % 60.0;
        let left = MINUTE - Duration::from_secs_f64(into_minute);
        match timeout {
            Some(timeout) if timeout < left => {
                server.advance(timeout);
                Err(io::ErrorKind::TimedOut.into())
            }
            _ => {
                server.advance(left);
                *events = Cursor::new((server.0.events)(server.minute()));
                events.read(buffer)
            }
        }
    }
}

fn minute_bookmark(minute: u64) -> String {
    let version = (100 + minute).to_string();
    event(
        "BOOKMARK",
        &json!({"metadata": {"resourceVersion": version}}),
    )
}

fn expired() -> String {
    let status = json!({"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired"});
    event("ERROR", &status)
}

/// Any user who may create one object a minute could otherwise make each informer list without end.
#[test]
fn w15_new_missed_objects_do_not_cause_lists_without_end() {
    let name = |minute| format!("broken-{minute}");
    let items = move |until| {
        (1..=until)
            .map(|minute| broken(&name(minute), "1"))
            .collect()
    };
    let events =
        move |minute: u64| event("ADDED", &broken(&name(minute), &(100 + minute).to_string()));
    let (server, names, status) = Timed::run(240, items, events);
    assert_eq!(names, [""; 0]);
    assert!(!status.complete && status.unreadable >= 239);
    // Ten in a row, and then one each ten minutes.
    assert_eq!(server.lists(0..10), 1 + 10);
    for hour in 1..4 {
        let lists = server.lists(60 * hour..60 * (hour + 1));
        assert_eq!(lists, 6, "in hour {hour}");
    }
}

/// A list that contains an object without a name deletes nothing, so what was deleted before it stays
/// until a list is whole.
#[test]
fn w9_lists_are_repeated_while_deleted_objects_may_remain() {
    let nameless = || json!({"metadata": {"namespace": "n"}});
    let items = move |minute| match minute {
        0 => vec![good("a", "1"), good("b", "1")],
        1..180 => vec![nameless(), good("b", "1")],
        _ => vec![good("b", "1")],
    };
    let events = |minute| match minute {
        1 => expired(),
        _ => minute_bookmark(minute),
    };
    let (server, names, _) = Timed::run(179, items, events);
    assert_eq!(names, ["a", "b"], "the nameless one may be any of them");
    assert_eq!(server.lists(120..179), 6);
    let (server, names, status) = Timed::run(191, items, events);
    assert_eq!(names, ["b"]);
    assert!(status.complete);
    assert_eq!(server.lists(180..191), 1);
}

/// With more missing objects than are remembered, a nameless one is nothing new.
#[test]
fn w9_deletion_without_a_name_is_followed_by_a_list() {
    let items = |minute| {
        let mut items: Vec<_> = (0..1001).map(|n| broken(&format!("x-{n}"), "1")).collect();
        items.extend((minute < 60).then(|| good("a", "1")));
        items
    };
    let events = |minute| match minute {
        60 => event("DELETED", &json!({"metadata": {"resourceVersion": "160"}})),
        _ => minute_bookmark(minute),
    };
    let (server, names, _) = Timed::run(59, items, events);
    assert_eq!((names.len(), server.lists(30..59)), (1, 0));
    let (server, names, _) = Timed::run(71, items, events);
    assert_eq!((names.len(), server.lists(60..71)), (0, 1));
}
