//! Waits until the cache contains everything that was committed before a moment.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use k8s_informer::error::WaitCause;
use k8s_informer::informer::SharedIndexInformerOptions;
use k8s_informer::reflector::{Body, ListOptions, ListerWatcher, TimedRead};
use k8s_informer::stop::DoneSetter;
use k8s_informer::time::Backoff;
use k8s_informer::{DynamicObject, Error, SharedIndexInformer, Stop, Stopper};
use k8s_informer_testing::{Answer, FakeClock, ScriptedListerWatcher};

use crate::informer::support::{self, Feed, Running, SECOND, SOON, status, until, version};
use crate::informer::versions::{QUEUES, event, list, options, run};

type Informer = SharedIndexInformer<DynamicObject>;

/// A consistent read, without the items that nothing looks at.
fn read(version: &str) -> Answer {
    let metadata = format!(r#"{{"resourceVersion": "{version}"}}"#);
    Answer::body(format!(
        r#"{{"kind": "List", "metadata": {metadata}, "items": []}}"#
    ))
}

fn bookmark(version: &str) -> String {
    event("BOOKMARK", "", "", version)
}

/// Runs an informer with this script on each queue, and waits until it is current after its first
/// watch was opened. Returns the options of the requests after that.
fn wait_for_current_state(
    first: &str,
    answers: impl Fn() -> Vec<Answer>,
    check: impl Fn(&Informer),
) -> Vec<ListOptions> {
    let mut requests = Vec::new();
    for queue in QUEUES {
        let mut all = vec![list(first, "n"), Answer::open("")];
        all.extend(answers());
        let script = ScriptedListerWatcher::new(all);
        let informer = Informer::new(Arc::new(script.clone()), options(queue));
        run(&informer, |stop| {
            script.wait_for_requests(2, SOON).unwrap();
            informer
                .wait_for_current_state(Instant::now(), None, stop)
                .unwrap();
            check(&informer);
        });
        let all = script.requests().into_iter().skip(2);
        requests = all.map(|request| request.options().clone()).collect();
    }
    requests
}

#[test]
fn bookmark_of_a_reopened_watch_is_enough() {
    let answers = || {
        let events = event("ADDED", "n", "b", "12") + &bookmark("20");
        vec![read("20"), Answer::open(events)]
    };
    let requests = wait_for_current_state("10", answers, |informer| {
        assert_eq!(informer.lister().len(), 2);
        assert_eq!(informer.store_resource_version(), Some(version("20")));
    });
    let [read, watch] = &requests[..] else {
        panic!("{requests:?}")
    };
    assert_eq!((read.limit, &read.resource_version), (Some(1), &None));
    assert_eq!(watch.resource_version, Some(version("10")));
    assert_eq!(watch.timeout_seconds, Some(3));
}

/// A cut connection is no reason for a list.
#[test]
fn short_watch_that_ends_early_is_opened_again() {
    let answers = || {
        let cut = Answer::body(event("ADDED", "n", "b", "12"));
        vec![read("20"), cut, Answer::open(bookmark("20"))]
    };
    let requests = wait_for_current_state("10", answers, |informer| {
        assert_eq!(informer.lister().len(), 2);
    });
    let versions: Vec<_> = requests
        .iter()
        .map(|request| request.resource_version.clone())
        .collect();
    assert_eq!(versions, [None, Some(version("10")), Some(version("12"))]);
    assert_eq!(requests[2].timeout_seconds, Some(3));
}

/// A bookmark below the version does not count.
#[test]
fn watches_that_end_below_the_version_are_followed_by_a_consistent_list() {
    let answers = || {
        let below = Answer::body(event("ADDED", "n", "b", "12") + &bookmark("18"));
        let still_below = Answer::body(bookmark("19"));
        let list = list("20", "m");
        vec![read("20"), below, still_below, list, Answer::open("")]
    };
    let requests = wait_for_current_state("10", answers, |informer| {
        assert_eq!(informer.lister().list_keys().len(), 1);
        assert!(informer.lister().get_by_key("m/a").is_some());
    });
    let versions: Vec<_> = requests
        .iter()
        .map(|request| request.resource_version.clone())
        .collect();
    let (first, second) = (Some(version("10")), Some(version("18")));
    assert_eq!(versions[..4], [None, first, second, None]);
    assert!(requests[3].limit != Some(1));
}

/// Versions without an order prove nothing, nor do those of a server that was restored.
#[test]
fn only_a_list_proves_anything_without_comparable_versions() {
    for (first, second) in [("v10", "v20"), ("10", "v20"), ("", ""), ("10", "9")] {
        let answers = || vec![read(second), list(second, "m"), Answer::open("")];
        let requests = wait_for_current_state(first, answers, |informer| {
            assert!(informer.lister().get_by_key("m/a").is_some());
            assert!(informer.lister().get_by_key("n/a").is_none());
        });
        let list = &requests[1];
        assert_eq!(
            (&list.resource_version, list.timeout_seconds),
            (&None, None),
            "{first}"
        );
    }
}

/// The initial events of a watch-list.
fn initial(version: &str) -> String {
    let end = r#"{"k8s.io/initial-events-end": "true"}"#;
    let metadata = format!(r#"{{"resourceVersion": "{version}", "annotations": {end}}}"#);
    let end = format!(r#"{{"type": "BOOKMARK", "object": {{"metadata": {metadata}}}}}"#);
    event("ADDED", "n", "a", "7") + &end + "\n"
}

/// No request is necessary: what the cache has was read after that moment.
#[test]
fn consistent_first_list_is_current() {
    let script = ScriptedListerWatcher::new([
        Answer::open(initial("10")),
        read("20"),
        Answer::open(bookmark("20")),
    ]);
    let script = script.with_watch_list();
    let informer = Informer::new(
        Arc::new(script.clone()),
        SharedIndexInformerOptions::default(),
    );
    let before = Instant::now();
    run(&informer, |stop| {
        // It waits for the start.
        informer.wait_for_current_state(before, None, stop).unwrap();
        assert_eq!(informer.lister().len(), 1);
        assert_eq!(script.requests().len(), 1);
        // A second wait for the same moment shares the read of the first one.
        let later = Instant::now();
        for _ in 0..2 {
            informer.wait_for_current_state(later, None, stop).unwrap();
            assert_eq!(script.requests().len(), 3);
        }
    });
}

/// Answers the second watch byte by byte, from the time when a version is read.
struct SlowSecondWatch {
    script: ScriptedListerWatcher,
    watches: AtomicUsize,
    is_read: Arc<AtomicBool>,
}

struct Slow {
    bytes: VecDeque<u8>,
    is_read: Arc<AtomicBool>,
    stop: Stop,
}

impl TimedRead for Slow {
    fn read_within(&mut self, buffer: &mut [u8], most: Option<Duration>) -> io::Result<usize> {
        until("the version is read", || {
            self.is_read.load(Ordering::SeqCst)
        });
        thread::yield_now();
        let Some(byte) = self.bytes.pop_front() else {
            self.stop.wait_timeout(most.unwrap_or(Duration::MAX));
            return Err(io::ErrorKind::TimedOut.into());
        };
        buffer[0] = byte;
        Ok(1)
    }
}

impl ListerWatcher for SlowSecondWatch {
    fn list(&self, options: &ListOptions, stop: &Stop) -> Result<Body, Error> {
        self.is_read.store(true, Ordering::SeqCst);
        self.script.list(options, stop)
    }

    fn watch(&self, options: &ListOptions, stop: &Stop) -> Result<Body, Error> {
        let body = self.script.watch(options, stop)?;
        if self.watches.fetch_add(1, Ordering::SeqCst) != 1 {
            return Ok(body);
        }
        let mut bytes = vec![b'\n'; 1_000];
        bytes.extend(initial("15").into_bytes());
        Ok(Body::timed(Slow {
            bytes: bytes.into(),
            is_read: Arc::clone(&self.is_read),
            stop: stop.clone(),
        }))
    }

    fn supports_watch_list(&self) -> bool {
        true
    }
}

/// A watch-list does not end with a wait, and a quiet one does not send newer versions.
#[test]
fn watch_list_below_the_version_is_followed_by_a_short_watch() {
    let expired = r#"{"type": "ERROR", "object": {"kind": "Status", "code": 410}}"#;
    let script = ScriptedListerWatcher::new([
        Answer::body(initial("10") + expired),
        Answer::open(""),
        read("20"),
        Answer::open(bookmark("20")),
    ]);
    let from = SlowSecondWatch {
        script: script.clone(),
        watches: AtomicUsize::new(0),
        is_read: Arc::default(),
    };
    let informer = Informer::new(Arc::new(from), SharedIndexInformerOptions::default());
    run(&informer, |stop| {
        script.wait_for_requests(2, SOON).unwrap();
        thread::scope(|scope| {
            let wait = scope.spawn(|| informer.wait_for_current_state(Instant::now(), None, stop));
            if script.wait_for_requests(4, SOON).is_err() {
                stop.stop();
            }
            wait.join().unwrap().unwrap();
        });
        let requests = script.requests();
        let last = requests[3].options();
        assert_eq!(last.resource_version, Some(version("15")));
        assert_eq!(last.timeout_seconds, Some(3));
    });
}

#[test]
fn failed_read_is_returned_and_leaves_the_watch_open() {
    let script = ScriptedListerWatcher::new([
        list("10", "n"),
        Answer::open(bookmark("10")),
        Answer::error(status(403, "Forbidden", "no")),
        read("10"),
    ]);
    let informer = Informer::new(
        Arc::new(script.clone()),
        SharedIndexInformerOptions::default(),
    );
    run(&informer, |stop| {
        script.wait_for_requests(2, SOON).unwrap();
        let error = informer
            .wait_for_current_state(Instant::now(), None, stop)
            .unwrap_err();
        assert!(error.is_refused(), "{error}");
        assert!(error.last_error().unwrap().is_forbidden(), "{error}");
        assert!(
            error.to_string().contains("to learn the version"),
            "{error}"
        );
        // The version was reached before.
        informer
            .wait_for_current_state(Instant::now(), None, stop)
            .unwrap();
        assert_eq!(script.requests().len(), 4);
    });
}

#[test]
fn wait_ends_with_its_stop_and_with_the_informer() {
    // The watch stays silent, and so does each one that follows.
    let script = || {
        ScriptedListerWatcher::new([
            list("10", "n"),
            Answer::open(""),
            read("20"),
            Answer::open(""),
        ])
    };
    let informer = Informer::new(Arc::new(script()), SharedIndexInformerOptions::default());
    let waits = |stop: &Stop| {
        let error = informer
            .wait_for_current_state(Instant::now(), None, stop)
            .unwrap_err();
        assert!(error.is_stopped(), "{error}");
    };
    thread::scope(|scope| {
        let stop = Stopper::new();
        let before_the_start = scope.spawn({
            let stop = stop.clone();
            move || waits(&stop)
        });
        stop.stop();
        before_the_start.join().unwrap();
        let (script, other) = (script(), Stopper::new());
        let informer = Informer::new(
            Arc::new(script.clone()),
            SharedIndexInformerOptions::default(),
        );
        let run = scope.spawn({
            let (informer, stop) = (informer.clone(), other.clone());
            move || informer.run(&stop)
        });
        let wait = scope
            .spawn(move || informer.wait_for_current_state(Instant::now(), None, &Stop::never()));
        script.wait_for_requests(4, SOON).unwrap();
        other.stop();
        run.join().unwrap().unwrap();
        let ended = wait.join().unwrap().unwrap_err();
        assert_eq!(ended.cause(), &WaitCause::Ended, "{ended}");
    });
}

#[test]
fn each_namespace_has_its_own_version() {
    let script = |version: &str, answers: [Answer; 2]| {
        let first = [list(version, &format!("n{version}")), Answer::open("")];
        let read = [read("20")];
        ScriptedListerWatcher::new(first.into_iter().chain(read).chain(answers))
    };
    let scripts = [
        script("10", [Answer::open(bookmark("20")), Answer::open("")]),
        // The server is behind the cache, so only a list will do.
        script("30", [list("20", "n30"), Answer::open("")]),
    ];
    let of = |at: usize, name: &str| {
        (
            name.to_owned(),
            Arc::new(scripts[at].clone()) as Arc<dyn ListerWatcher>,
        )
    };
    let informer = Informer::for_namespaces(
        [of(0, "n10"), of(1, "n30")],
        SharedIndexInformerOptions::default(),
    );
    run(&informer, |stop| {
        for script in &scripts {
            script.wait_for_requests(2, SOON).unwrap();
        }
        informer
            .wait_for_current_state(Instant::now(), None, stop)
            .unwrap();
        assert_eq!(informer.lister().len(), 2);
    });
}

/// An informer whose server the test controls, with a watch that is open.
fn informer_for(
    from: Arc<dyn ListerWatcher>,
    feed: &Feed,
    clock: &FakeClock,
) -> (Informer, Running<()>) {
    let options = SharedIndexInformerOptions::new().reflector(support::options(clock));
    let informer = Informer::new(from, options);
    feed.list("10", &[("a", "1")]);
    let running = Running::new({
        let informer = informer.clone();
        move |stop| informer.run(stop).unwrap()
    });
    until("the watch is open", || feed.requests().len() == 2);
    (informer, running)
}

/// Begins a wait on another thread.
fn wait(informer: &Informer) -> Running<()> {
    let (informer, since) = (informer.clone(), Instant::now());
    Running::new(move |stop| informer.wait_for_current_state(since, None, stop).unwrap())
}

/// If each wait opened the watch again, none would end while others come.
#[test]
fn later_wait_keeps_the_short_watch_of_an_earlier_one() {
    let (feed, clock) = (Feed::new("feed"), FakeClock::new());
    let (informer, running) = informer_for(Arc::new(feed.clone()), &feed, &clock);
    feed.list("20", &[]);
    let first = wait(&informer);
    until("the short watch is open", || feed.requests().len() == 4);
    feed.list("30", &[]);
    let second = wait(&informer);
    until("the second read", || feed.requests().len() == 5);
    // Enough for the first wait, and not for the second one.
    feed.event("BOOKMARK", "", "20");
    first.ended();
    // Only now, the watch is opened again.
    until("the second short watch is open", || {
        feed.requests().len() == 6
    });
    feed.event("BOOKMARK", "", "30");
    second.ended();
    let requests = feed.requests();
    let [.., short, read, again] = &requests[..] else {
        panic!("{requests:?}")
    };
    assert_eq!(
        (short.0, &short.1.resource_version),
        ("watch", &Some(version("10")))
    );
    assert_eq!((read.0, read.1.limit), ("list", Some(1)));
    assert_eq!(
        (again.0, &again.1.resource_version),
        ("watch", &Some(version("20")))
    );
    assert_eq!(short.1.timeout_seconds, Some(3));
    assert_eq!(again.1.timeout_seconds, Some(3));
    running.end();
}

/// A wait ends a watch. If the watch worked, the failure of the next one is a first failure.
#[test]
fn l3_watch_that_a_wait_ends_is_healthy_after_an_event() {
    type Open = fn(&Feed, &FakeClock);
    let cases: [(Open, u64); 2] = [
        (|feed, _| feed.event("BOOKMARK", "", "11"), 7),
        (|_, clock| clock.advance(SECOND), 28),
    ];
    for (open, after_the_watch) in cases {
        let clock = FakeClock::new();
        let feed = Feed::on_clock("feed", &clock);
        let mut options = SharedIndexInformerOptions::default();
        options.reflector = support::options(&clock);
        options.reflector.backoff = Backoff::new(7 * SECOND).factor(2.0).cap(56 * SECOND);
        let informer = Informer::new(Arc::new(feed.clone()), options);
        // The other waits are reads.
        let backoffs = || {
            let waits = clock.waits().into_iter();
            let backoffs = waits.filter(|wait| [7, 14, 28].map(Duration::from_secs).contains(wait));
            backoffs.map(|wait| wait.as_secs()).collect::<Vec<_>>()
        };
        for _ in 0..2 {
            feed.fail_list(status(503, "ServiceUnavailable", "busy"));
        }
        feed.list("10", &[]);
        let run = informer.clone();
        let running = Running::new(move |stop| run.run(stop).unwrap());
        for failure in 1..=2 {
            clock.wait_for_waits(failure, SOON).unwrap();
            clock.advance(14 * SECOND);
        }
        clock.wait_for_waits(3, SOON).unwrap();
        open(&feed, &clock);
        until("the frame is read", || feed.unread() == 0);
        feed.list("20", &[]);
        let wait = wait(&informer);
        until("the short watch is open", || feed.requests().len() == 6);
        feed.expire();
        until("a third back-off", || backoffs().len() == 3);
        assert_eq!(backoffs(), [7, 14, after_the_watch]);
        feed.list("20", &[]);
        clock.advance(28 * SECOND);
        wait.ended();
        running.end();
    }
}

/// The first consistent read of a wait ends late, with the version of its beginning.
struct SlowRead {
    feed: Feed,
    reads: AtomicUsize,
    end: DoneSetter,
}

impl ListerWatcher for SlowRead {
    fn list(&self, options: &ListOptions, stop: &Stop) -> Result<Body, Error> {
        if options.limit != Some(1) {
            return ListerWatcher::list(&self.feed, options, stop);
        }
        let version = match self.reads.fetch_add(1, Ordering::SeqCst) {
            0 => {
                let _ = self.end.wait_or_stop(None, stop);
                "20"
            }
            _ => "30",
        };
        let metadata = format!(r#"{{"resourceVersion": "{version}"}}"#);
        Ok(format!(r#"{{"kind": "List", "metadata": {metadata}, "items": []}}"#).into())
    }

    fn watch(&self, options: &ListOptions, stop: &Stop) -> Result<Body, Error> {
        self.feed.watch(options, stop)
    }
}

#[test]
fn slow_read_of_a_lower_version_lowers_no_other_wait() {
    let (feed, clock) = (Feed::new("feed"), FakeClock::new());
    let from = Arc::new(SlowRead {
        feed: feed.clone(),
        reads: AtomicUsize::new(0),
        end: DoneSetter::new("the slow read may end"),
    });
    let (informer, running) = informer_for(from.clone(), &feed, &clock);
    let slow = wait(&informer);
    until("the slow read", || from.reads.load(Ordering::SeqCst) == 1);
    let other = wait(&informer);
    until("the short watch is open", || feed.requests().len() == 3);
    from.end.set();
    // Enough for the slow one only.
    feed.event("BOOKMARK", "", "20");
    slow.ended();
    // The other one still has its deadline, after which a consistent list follows.
    feed.list("30", &[("b", "25")]);
    clock.advance(3 * SECOND);
    feed.event("BOOKMARK", "", "21");
    until("a list is requested", || {
        let requests = feed.requests();
        requests[2..].iter().any(|(verb, _)| *verb == "list")
    });
    other.ended();
    assert!(informer.lister().get_by_key("b").is_some());
    running.end();
}
