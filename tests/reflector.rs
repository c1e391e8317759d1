//! The reflector's rules, driven through a scripted lister-watcher and a fake clock.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::cell::Cell;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use k8s_informer::testing::{Answer, FakeClock, Request, ScriptedListerWatcher};
use k8s_informer::{
    Backoff, Body, Deleted, DynamicObject, Error, ListOptions, ListWatch, Object, Reflector,
    ReflectorOptions, ReflectorState, ReflectorStore, Status, Stop, StoreError,
};
use parking_lot::Mutex;

const SOON: Duration = Duration::from_secs(20);
const SECOND: Duration = Duration::from_secs(1);

/// A store that writes down what it is told.
#[derive(Default)]
struct Recorder {
    calls: Mutex<Vec<String>>,
    refuse_replace: Mutex<bool>,
    refuse_resync: Mutex<bool>,
}

impl Recorder {
    fn note(&self, call: String) -> Result<(), StoreError> {
        self.calls.lock().push(call);
        Ok(())
    }

    fn calls(&self) -> Vec<String> {
        self.calls.lock().clone()
    }
}

fn tell(object: &DynamicObject) -> String {
    format!("{}@{}", object.name(), object.resource_version())
}

impl ReflectorStore<DynamicObject> for Recorder {
    fn add(&self, object: Arc<DynamicObject>) -> Result<(), StoreError> {
        self.note(format!("add {}", tell(&object)))
    }

    fn update(&self, object: Arc<DynamicObject>) -> Result<(), StoreError> {
        self.note(format!("update {}", tell(&object)))
    }

    fn delete(&self, object: Deleted<DynamicObject>) -> Result<(), StoreError> {
        self.note(format!("delete {}", object.object().map(|object| tell(object)).unwrap_or_default()))
    }

    fn replace(&self, objects: Vec<Arc<DynamicObject>>, resource_version: &str) -> Result<(), StoreError> {
        let names: Vec<_> = objects.iter().map(|object| tell(object)).collect();
        self.note(format!("replace [{}] at {resource_version}", names.join(" ")))?;
        if std::mem::take(&mut *self.refuse_replace.lock()) { Err(StoreError::other("no")) } else { Ok(()) }
    }

    fn resync(&self) -> Result<(), StoreError> {
        self.note("resync".to_owned())?;
        if std::mem::take(&mut *self.refuse_resync.lock()) { Err(StoreError::other("no")) } else { Ok(()) }
    }

    fn bookmark(&self, resource_version: &str) -> Result<(), StoreError> {
        self.note(format!("bookmark {resource_version}"))
    }
}

/// A reflector that runs on a script until the end of the test.
struct Running {
    script: ScriptedListerWatcher,
    store: Arc<Recorder>,
    clock: FakeClock,
    passed: Cell<usize>,
    reflector: Arc<Reflector<DynamicObject>>,
    errors: Arc<Mutex<Vec<Error>>>,
    stop: Stop,
    thread: Option<thread::JoinHandle<()>>,
}

impl Running {
    fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
        Self::with(answers, |_| {})
    }

    fn with(answers: impl IntoIterator<Item = Answer>, set: impl FnOnce(&mut ReflectorOptions)) -> Self {
        Self::with_store(Recorder::default(), answers, set)
    }

    fn with_store(
        store: Recorder,
        answers: impl IntoIterator<Item = Answer>,
        set: impl FnOnce(&mut ReflectorOptions),
    ) -> Self {
        let (clock, store) = (FakeClock::new(), Arc::new(store));
        let script = ScriptedListerWatcher::new(answers);
        let errors = Arc::new(Mutex::new(Vec::new()));
        let mut options = ReflectorOptions::default();
        options.clock = Arc::new(clock.clone());
        options.backoff = Backoff::new(SECOND, 2.0, 30 * SECOND, 0.0);
        let handed = Arc::clone(&errors);
        options.watch_error_handler = Some(Arc::new(move |error: &Error| handed.lock().push(error.clone())));
        set(&mut options);
        let reflector = Arc::new(Reflector::new(Arc::new(script.clone()), store.clone(), options));
        let stop = Stop::new();
        let thread = thread::spawn({
            let (reflector, stop) = (Arc::clone(&reflector), stop.clone());
            move || reflector.run(&stop)
        });
        Self { script, store, clock, passed: Cell::new(0), reflector, errors, stop, thread: Some(thread) }
    }

    /// Waits until this many requests were made, and tells those.
    fn requests(&self, count: usize) -> Vec<String> {
        assert!(self.script.until_requests(count, SOON), "only {:?}", self.script.requests());
        self.script.requests().iter().take(count).map(describe).collect()
    }

    /// Waits until this many bodies were read and dealt with.
    fn calls(&self, bodies: usize) -> Vec<String> {
        assert!(self.script.until_read(bodies, SOON), "{:?}", self.script.requests());
        self.store.calls()
    }

    /// Waits until another wait has begun, and lets time pass.
    fn pass(&self, time: Duration) {
        self.waits(self.passed.get() + 1);
        self.passed.set(self.clock.waits().len());
        self.clock.advance(time);
    }

    /// Waits until this many waits have begun.
    fn waits(&self, count: usize) {
        assert!(self.clock.until_waits(count, SOON), "it does not wait: {:?}", self.script.requests());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(thread::panicking() || ended.is_ok());
        }
    }
}

fn describe(request: &Request) -> String {
    let (kind, options) = match request {
        Request::List(options) => ("list", options),
        Request::Watch(options) => ("watch", options),
        _ => unreachable!(),
    };
    let mut text = format!("{kind} {}", options.resource_version.as_deref().unwrap_or("most recent"));
    if let Some(limit) = options.limit {
        text += &format!(" limit {limit}");
    }
    if let Some(token) = &options.continue_token {
        text += &format!(" continue {token}");
    }
    text
}

fn object(name: &str, version: &str) -> String {
    format!(r#"{{"metadata":{{"name":"{name}","resourceVersion":"{version}"}}}}"#)
}

fn list(version: &str, names: &[&str]) -> Answer {
    page(version, names, "")
}

fn page(version: &str, names: &[&str], continue_token: &str) -> Answer {
    let items: Vec<_> = names.iter().map(|name| object(name, "1")).collect();
    Answer::body(format!(
        r#"{{"kind":"PodList","metadata":{{"resourceVersion":"{version}","continue":"{continue_token}"}},"items":[{}]}}"#,
        items.join(","),
    ))
}

fn event(kind: &str, name: &str, version: &str) -> String {
    format!("{{\"type\":\"{kind}\",\"object\":{}}}\n", object(name, version))
}

fn error_event(code: u16, reason: &str) -> String {
    format!("{{\"type\":\"ERROR\",\"object\":{}}}\n", status_json(code, reason))
}

fn status(code: u16, reason: &str) -> Status {
    serde_json::from_value(status_json(code, reason)).unwrap()
}

fn status_json(code: u16, reason: &str) -> serde_json::Value {
    serde_json::json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason})
}

fn refused(code: u16, reason: &str) -> Answer {
    Answer::error(Error::from_status(status(code, reason)))
}

#[test]
fn l8_first_list_is_at_0_and_the_watch_starts_from_the_lists_version() {
    let it = Running::new([list("10", &["a", "b"]), Answer::open(event("ADDED", "c", "11"))]);
    assert_eq!(it.requests(2), ["list 0 limit 500", "watch 10"]);
    assert_eq!(it.calls(2), ["replace [a@1 b@1] at 10", "add c@11"]);
    let Request::Watch(options) = &it.script.requests()[1] else { panic!("no watch") };
    assert!(options.allow_watch_bookmarks);
    assert!((300..=600).contains(&options.timeout_seconds.unwrap()), "{options:?}");
}

#[test]
fn l9_page_size_is_500_where_any_state_will_do_and_none_on_a_relist() {
    let it = Running::new([list("10", &[]), Answer::body(error_event(410, "Expired")), list("20", &[])]);
    it.requests(2);
    it.pass(SECOND);
    assert_eq!(it.requests(4), ["list 0 limit 500", "watch 10", "list 10", "watch 20"]);
}

#[test]
fn l9_page_size_of_the_user_counts_for_every_list() {
    let answers = [list("10", &[]), Answer::body(error_event(410, "Expired")), list("20", &[])];
    let it = Running::with(answers, |options| options.page_size = Some(7));
    it.requests(2);
    it.pass(SECOND);
    assert_eq!(it.requests(3), ["list 0 limit 7", "watch 10", "list 10 limit 7"]);
}

#[test]
fn l10_a_server_that_pages_at_0_is_asked_for_pages_from_then_on() {
    let it = Running::new([
        page("10", &["a"], "next"),
        list("11", &["b"]),
        Answer::body(error_event(410, "Expired")),
        list("20", &[]),
    ]);
    it.requests(3);
    it.pass(SECOND);
    let requests =
        ["list 0 limit 500", "list most recent limit 500 continue next", "watch 10", "list 10 limit 500"];
    assert_eq!(it.requests(4), requests);
}

#[test]
fn l11_a_version_that_can_not_be_listed_gives_way_to_the_most_recent_one_at_once() {
    for (code, reason) in [(410, "Expired"), (410, "Gone")] {
        let it = Running::new([
            list("10", &["a"]),
            Answer::body(error_event(410, "Expired")),
            refused(code, reason),
            list("5", &["b"]),
        ]);
        it.requests(2);
        it.pass(SECOND);
        assert_eq!(it.requests(5)[2..], ["list 10", "list most recent", "watch 5"], "{reason}");
        assert_eq!(it.errors.lock().len(), 0);
    }
}

#[test]
fn l12_too_large_versions_give_way_to_the_most_recent_one() {
    let causes = [
        serde_json::json!({"code": 504, "reason": "Timeout", "details": {"causes": [{"reason": "ResourceVersionTooLarge"}]}}),
        serde_json::json!({"code": 504, "reason": "Timeout", "details": {"causes": [{"message": "Too large resource version"}]}}),
        serde_json::json!({"code": 504, "reason": "Timeout", "message": "Too large resource version: 9, current: 1", "details": {}}),
    ];
    for cause in causes {
        let refused = Answer::error(Error::from_status(serde_json::from_value(cause.clone()).unwrap()));
        let it = Running::new([refused, list("1", &[])]);
        assert_eq!(it.requests(3), ["list 0 limit 500", "list most recent limit 500", "watch 1"], "{cause}");
    }
}

#[test]
fn l11_the_most_recent_list_is_asked_for_once_a_cycle() {
    let it = Running::new([refused(410, "Expired"), refused(410, "Expired"), list("1", &[])]);
    it.requests(2);
    it.pass(SECOND);
    assert_eq!(
        it.requests(3),
        ["list 0 limit 500", "list most recent limit 500", "list most recent limit 500"]
    );
    assert!(it.errors.lock()[0].is_gone());
}

#[test]
fn l13_pages_are_one_list_with_the_version_of_the_first() {
    let it = Running::new([page("10", &["a"], "x"), page("11", &["b"], "y"), list("12", &["c"])]);
    let requests = [
        "list 0 limit 500",
        "list most recent limit 500 continue x",
        "list most recent limit 500 continue y",
    ];
    assert_eq!(it.requests(4)[..3], requests);
    assert_eq!(it.calls(3), ["replace [a@1 b@1 c@1] at 10"]);
}

#[test]
fn l13_an_expired_token_is_answered_by_one_full_list() {
    let it = Running::new([page("10", &["a"], "x"), refused(410, "Expired"), list("20", &["a", "b"])]);
    assert_eq!(
        it.requests(4),
        ["list 0 limit 500", "list most recent limit 500 continue x", "list 0", "watch 20"]
    );
    assert_eq!(it.calls(2), ["replace [a@1 b@1] at 20"]);
}

#[test]
fn l13_a_full_list_that_comes_in_pages_is_read_to_its_end() {
    let it = Running::new([
        page("10", &["a"], "x"),
        refused(410, "Expired"),
        page("20", &["a"], "y"),
        list("20", &["b"]),
    ]);
    assert_eq!(it.requests(5)[2..], ["list 0", "list most recent continue y", "watch 20"]);
    assert_eq!(it.calls(3), ["replace [a@1 b@1] at 20"]);
}

#[test]
fn l13_any_other_failure_of_a_page_fails_the_list_and_leaves_the_store_alone() {
    let it = Running::new([page("10", &["a"], "x"), refused(500, "InternalError"), list("20", &["b"])]);
    it.requests(2);
    it.pass(SECOND);
    assert_eq!(it.requests(4)[2..], ["list 0 limit 500", "watch 20"]);
    assert_eq!(it.store.calls(), ["replace [b@1] at 20"]);
    assert!(it.errors.lock()[0].is_internal_error());
}

#[test]
fn l15_what_is_no_list_fails_and_leaves_the_store_alone() {
    let bodies = [
        r#"{"kind":"Table","metadata":{"resourceVersion":"1"},"items":[]}"#,
        r#"{"kind":"Status","status":"Failure","code":403}"#,
        r#"{"kind":"Pod","metadata":{"name":"a","resourceVersion":"1"}}"#,
        r#"{"items":[],"metadata":{"resourceVersion":"1"}}"#,
        "{}",
        "<html>sign in</html>",
        "[]",
        "",
        r#"{"kind": "List", "metadata":{"resourceVersion":"1"},"items":[{"metadata""#,
        r#"{"kind": "List", "metadata":{"resourceVersion":"1"},"items":[null]}"#,
    ];
    for body in bodies {
        let it = Running::new([Answer::body(body), list("20", &["b"])]);
        it.pass(SECOND);
        it.requests(3);
        assert_eq!(it.store.calls(), ["replace [b@1] at 20"], "{body}");
        assert!(it.errors.lock()[0].is_decode(), "{body}: {:?}", it.errors.lock());
    }
}

#[test]
fn l15_a_store_that_refuses_the_list_gets_it_again() {
    let store = Recorder::default();
    *store.refuse_replace.lock() = true;
    let it = Running::with_store(store, [list("10", &["a"]), list("10", &["a"])], |_| {});
    it.pass(SECOND);
    assert_eq!(it.requests(3), ["list 0 limit 500", "list 0 limit 500", "watch 10"]);
    assert_eq!(it.errors.lock()[0].to_string(), "list scripted objects: unable to sync list result: no");
}

#[test]
fn l15_items_null_is_an_empty_list() {
    let it =
        Running::new([Answer::body(r#"{"kind": "List", "metadata":{"resourceVersion":"3"},"items":null}"#)]);
    assert_eq!(it.requests(2)[1], "watch 3");
    assert_eq!(it.calls(1), ["replace [] at 3"]);
}

#[test]
fn l2_waits_grow_and_l3_start_again_once_a_watch_was_healthy() {
    let mut answers: Vec<_> = (0..7).map(|_| refused(503, "ServiceUnavailable")).collect();
    answers.push(list("10", &[]));
    answers.push(Answer::body(event("ADDED", "a", "11") + &error_event(410, "Expired")));
    let it = Running::new(answers);
    for request in 1..=7 {
        it.requests(request);
        it.pass(60 * SECOND);
    }
    it.requests(9);
    it.pass(SECOND);
    it.requests(10);
    let waits: Vec<_> = it.clock.waits().iter().map(Duration::as_secs).collect();
    assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30, 1]);
}

#[test]
fn w3_a_refused_connection_or_429_is_waited_out_without_a_list() {
    let mut patient = status(429, "TooManyRequests");
    patient.details = Some(serde_json::from_str(r#"{"retryAfterSeconds": 9}"#).unwrap());
    let it = Running::new([list("10", &[]), Answer::error(Error::from_status(patient)), Answer::open("")]);
    it.requests(2);
    it.pass(9 * SECOND);
    assert_eq!(it.requests(3), ["list 0 limit 500", "watch 10", "watch 10"]);
    assert_eq!(it.clock.waits(), [9 * SECOND], "Retry-After counts where it is longer");
    assert!(it.errors.lock().is_empty());
}

#[test]
fn w3_any_other_refusal_of_the_watch_lists_again() {
    let it = Running::new([list("10", &[]), refused(403, "Forbidden"), list("12", &[])]);
    it.requests(2);
    it.pass(SECOND);
    assert_eq!(it.requests(4), ["list 0 limit 500", "watch 10", "list 10", "watch 12"]);
    assert!(it.errors.lock()[0].is_forbidden());
}

#[test]
fn w4_a_watch_that_ends_or_breaks_goes_on_from_the_last_version_at_once() {
    let it = Running::new([
        list("10", &[]),
        Answer::body(event("ADDED", "a", "11") + &event("MODIFIED", "a", "12")),
        Answer::broken(event("DELETED", "a", "13") + r#"{"type":"ADDED","obj"#),
        Answer::open(event("BOOKMARK", "", "20")),
    ]);
    assert_eq!(it.requests(4), ["list 0 limit 500", "watch 10", "watch 12", "watch 13"]);
    assert_eq!(it.calls(4), ["replace [] at 10", "add a@11", "update a@12", "delete a@13", "bookmark 20"]);
    assert!(it.clock.waits().is_empty() && it.errors.lock().is_empty());
    assert_eq!(it.reflector.last_sync_resource_version(), "20");
}

#[test]
fn w5_a_very_short_watch_backs_off_and_lists() {
    let it = Running::new([list("10", &[]), Answer::body(""), list("10", &[])]);
    it.requests(2);
    it.pass(SECOND);
    assert_eq!(it.requests(3)[2], "list 10");
    assert!(it.reflector.status().last_error.unwrap().to_string().contains("very short watch"));
    assert!(it.errors.lock().is_empty(), "W14: not for the handler");
}

#[test]
fn w6_an_error_event_lists_again_at_the_last_version() {
    for (code, reason) in [(410, "Expired"), (500, "InternalError"), (403, "Forbidden")] {
        let it = Running::new([
            list("10", &[]),
            Answer::body(event("ADDED", "a", "11") + &error_event(code, reason)),
            list("30", &[]),
        ]);
        it.requests(2);
        it.pass(SECOND);
        assert_eq!(it.requests(3)[2], "list 11", "{reason}");
        assert!(it.errors.lock().is_empty(), "W14: not for the handler");
    }
}

#[test]
fn w6_an_error_event_429_is_waited_out_without_a_list() {
    let it =
        Running::new([list("10", &[]), Answer::body(error_event(429, "TooManyRequests")), Answer::open("")]);
    it.requests(2);
    it.pass(SECOND);
    assert_eq!(it.requests(3)[2], "watch 10");
}

#[test]
fn w10_versions_of_synthetic_adds_do_not_count_until_another_event_came() {
    let it = Running::new([
        Answer::body(r#"{"kind": "List", "metadata":{},"items":[]}"#),
        Answer::body(event("ADDED", "a", "30") + &event("ADDED", "b", "20")),
        Answer::body(event("ADDED", "c", "25") + &event("MODIFIED", "b", "31")),
        Answer::open(""),
    ]);
    assert_eq!(it.requests(4)[1..], ["watch ", "watch ", "watch 31"]);
}

#[test]
fn w10_an_event_without_a_version_leaves_the_last_one() {
    let it = Running::new([
        list("10", &[]),
        Answer::body(
            event("ADDED", "a", "11")
                + "{\"type\":\"MODIFIED\",\"object\":{\"metadata\":{\"name\":\"a\"}}}\n",
        ),
    ]);
    assert_eq!(it.requests(3)[2], "watch 11");
}

#[test]
fn w15_garbage_ends_the_watch_which_goes_on_from_the_last_good_version() {
    let garbage = [
        "garbage\n",
        "{\"type\":\"ADDED\",\"object\":\n",
        "{\"type\":\"ADDED\",\"object\":{\"metadata\":7}\n",
        "{\"type\":\"WHAT\",\"object\":{}}\n",
        "{\"type\":\"ADDED\",\"object\":null}\n",
        "{\"object\":{}}\n",
        "\u{0}\n",
    ];
    for garbage in garbage {
        let it = Running::new([
            list("10", &[]),
            Answer::open(event("ADDED", "a", "11") + garbage + &event("ADDED", "b", "12")),
            Answer::open(event("ADDED", "b", "12")),
        ]);
        assert_eq!(it.requests(3)[2], "watch 11", "{garbage}");
        let error = it.reflector.status().last_error.unwrap();
        assert!(
            error.is_decode() && error.to_string().contains("event 2 after version 11"),
            "{garbage}: {error}"
        );
    }
}

#[test]
fn w15_garbage_twice_at_one_version_backs_off_and_lists() {
    let it =
        Running::new([list("10", &[]), Answer::open("garbage"), Answer::open("garbage"), list("20", &[])]);
    it.requests(3);
    it.pass(SECOND);
    assert_eq!(it.requests(5)[1..], ["watch 10", "watch 10", "list 10", "watch 20"]);
}

#[test]
fn w8_events_are_understood_however_they_are_written() {
    let it = Running::new([
        list("10", &[]),
        Answer::open(concat!(
            " { \"object\" : {\"metadata\":{\"name\":\"a\",\"resourceVersion\":\"11\"}} , \"type\" : \"ADDED\" } \r\n\n",
            "{\"type\":\"MODIFIED\",\"object\":{\"metadata\":{\"name\":\"a\",\"resourceVersion\":\"12\"}},\"more\":{}}\n",
            "{\"type\":\"MODIFIED\",\"object\":{\"metadata\":{\"name\":\"a\",\"resourceVersion\":\"13\"}}}",
            "{\"type\":\"DELETED\",\"object\":{\"metadata\":{\"name\":\"a\",\"resourceVersion\":\"14\"}}}\n",
            "{\n  \"type\": \"ADDED\",\n  \"object\": {\n    \"metadata\": {\n      \"name\": \"b\"\n    }\n  }\n}\n",
        )),
    ]);
    assert_eq!(it.calls(2)[1..], ["add a@11", "update a@12", "update a@13", "delete a@14", "add b@"]);
}

#[test]
fn w8_an_event_without_a_line_end_counts_when_the_stream_ends() {
    let it =
        Running::new([list("10", &[]), Answer::body(event("ADDED", "a", "11").trim_end()), Answer::open("")]);
    assert_eq!(it.requests(3)[2], "watch 11");
    assert_eq!(it.store.calls()[1..], ["add a@11"]);
}

#[test]
fn w9_an_object_without_a_name_is_told_and_left_out() {
    let it = Running::new([
        list("10", &[]),
        Answer::body(event("ADDED", "a", "11") + &event("MODIFIED", "", "12")),
        Answer::open(event("ADDED", "b", "13")),
    ]);
    assert_eq!(it.requests(3)[2], "watch 11");
    assert_eq!(it.calls(3)[1..], ["add a@11", "add b@13"]);
    assert!(it.reflector.status().last_error.unwrap().to_string().contains("has no name"));
}

#[test]
fn w13_resyncs_happen_while_it_watches_when_somebody_wants_them() {
    let wanted = Arc::new(Mutex::new(true));
    let asked = Arc::clone(&wanted);
    let it = Running::with([list("10", &[]), Answer::open("")], |options| {
        options.resync_period = 10 * SECOND;
        options.should_resync = Some(Arc::new(move || *asked.lock()));
    });
    it.calls(2);
    it.pass(10 * SECOND);
    it.waits(2);
    assert_eq!(it.store.calls(), ["replace [] at 10", "resync"]);
    *wanted.lock() = false;
    it.pass(10 * SECOND);
    it.waits(3);
    assert_eq!(it.store.calls(), ["replace [] at 10", "resync"]);
}

#[test]
fn w13_a_resync_that_fails_ends_the_watch() {
    let store = Recorder::default();
    *store.refuse_resync.lock() = true;
    let it = Running::with_store(store, [list("10", &[]), Answer::open(""), list("20", &[])], |options| {
        options.resync_period = 10 * SECOND;
    });
    it.calls(2);
    it.pass(10 * SECOND);
    it.pass(SECOND);
    assert_eq!(it.requests(4)[2..], ["list 10", "watch 20"]);
}

#[test]
fn w13_a_resync_that_panics_ends_the_watch() {
    let asked = Mutex::new(0);
    let it = Running::with([list("10", &[]), Answer::open(""), list("20", &[])], |options| {
        options.resync_period = 10 * SECOND;
        options.should_resync = Some(Arc::new(move || {
            *asked.lock() += 1;
            assert!(*asked.lock() > 1, "don't ask");
            true
        }));
    });
    it.calls(2);
    it.pass(10 * SECOND);
    it.pass(SECOND);
    assert_eq!(it.requests(4)[2..], ["list 10", "watch 20"]);
    assert_eq!(it.reflector.status().last_error.unwrap().to_string(), "resync: panicked: don't ask");
    it.pass(10 * SECOND);
    it.waits(4);
    assert_eq!(it.store.calls().last().unwrap(), "resync", "the next watch has resyncs again");
}

#[test]
fn a_store_that_panics_is_an_error_and_a_new_cycle() {
    struct Panics(Mutex<bool>);
    impl ReflectorStore<DynamicObject> for Panics {
        fn add(&self, _: Arc<DynamicObject>) -> Result<(), StoreError> {
            Ok(())
        }
        fn update(&self, _: Arc<DynamicObject>) -> Result<(), StoreError> {
            Ok(())
        }
        fn delete(&self, _: Deleted<DynamicObject>) -> Result<(), StoreError> {
            Ok(())
        }
        fn replace(&self, _: Vec<Arc<DynamicObject>>, _: &str) -> Result<(), StoreError> {
            assert!(std::mem::replace(&mut *self.0.lock(), true), "full");
            Ok(())
        }
        fn resync(&self) -> Result<(), StoreError> {
            Ok(())
        }
    }
    let script = ScriptedListerWatcher::new([list("10", &["a"]), list("20", &["a"])]);
    let mut options = ReflectorOptions::default();
    options.backoff = Backoff::new(Duration::ZERO, 1.0, Duration::ZERO, 0.0);
    let store = Arc::new(Panics(Mutex::new(false)));
    let reflector = Reflector::new(Arc::new(script.clone()), store, options);
    let stop = Stop::new();
    thread::scope(|scope| {
        scope.spawn(|| reflector.run(&stop));
        assert!(script.until_requests(3, SOON));
        stop.stop();
    });
    let requests: Vec<_> = script.requests().iter().map(describe).collect();
    assert_eq!(requests, ["list 0 limit 500", "list 0 limit 500", "watch 20"]);
    assert_eq!(
        reflector.status().last_error.unwrap().to_string(),
        "list scripted objects: a step of the reflector panicked: full"
    );
}

#[test]
fn stop_ends_whatever_it_is_blocked_in() {
    let silent: [fn() -> Vec<Answer>; 4] = [
        Vec::new,
        || vec![Answer::open("{")],
        || vec![list("10", &[])],
        || vec![list("10", &[]), Answer::open("")],
    ];
    for answers in silent {
        let answers = answers();
        let bodies = answers.len();
        let it = Running::new(answers);
        it.calls(bodies);
        it.stop.stop();
        let reflector = Arc::clone(&it.reflector);
        drop(it);
        assert_eq!(reflector.status().state, ReflectorState::Stopped);
        assert!(reflector.status().last_error.is_none(), "a stop is no error");
    }
    let it = Running::new([refused(500, "InternalError")]);
    it.waits(1);
    drop(it);
}

#[test]
fn a_lister_watcher_that_panics_is_an_error_like_any_other() {
    let calls = Mutex::new(0);
    let enough = Stop::new();
    let done = enough.clone();
    let panics = ListWatch::new(
        move |_: &ListOptions, _: &Stop| -> Result<Body, Error> {
            *calls.lock() += 1;
            if *calls.lock() == 1 {
                panic!("oh no");
            }
            done.stop();
            Err(Error::other("enough"))
        },
        |_: &ListOptions, _: &Stop| Err(Error::other("no watch")),
    );
    let mut options = ReflectorOptions::default();
    options.backoff = Backoff::new(Duration::ZERO, 1.0, Duration::ZERO, 0.0);
    let reflector = Reflector::new(Arc::new(panics), Arc::new(Recorder::default()), options);
    reflector.run(&enough);
    assert_eq!(reflector.status().last_error.unwrap().to_string(), "the lister-watcher panicked: oh no");
}

#[test]
fn progress_of_a_list_is_told_where_the_server_tells_it() {
    let body = r#"{"kind": "List", "metadata":{"resourceVersion":"1","continue":"x","remainingItemCount":3},"items":[{"metadata":{"name":"a"}}]}"#;
    let it = Running::new([Answer::body(body)]);
    it.requests(2);
    let status = it.reflector.status();
    assert_eq!((status.state, status.received, status.expected), (ReflectorState::Listing, 1, Some(4)));
    assert!(!status.listed);
}
