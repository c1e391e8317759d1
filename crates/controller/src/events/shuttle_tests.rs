//! Interleaving tests of the recorder: calls against the writer, flushes and shutdowns.
//!
//! The schedule decides how time passes; a timed wait can end at any moment.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::{EventRecorder, EventSink, EventType};
use k8s_informer::__private::sync::{Mutex, check_times, join_all, thread};
use k8s_informer::error::Error;
use k8s_informer::object::GroupVersionKind;
use k8s_informer::object::ObjectReference;
use k8s_informer::stop::Stop;

const HOUR: Duration = Duration::from_secs(3600);

/// Keeps the last count of each event. Its second request fails.
#[derive(Default)]
struct Sink {
    counts: Mutex<Vec<(String, u64)>>,
    requests: Mutex<u32>,
}

impl Sink {
    fn write(&self, name: &str, event: &Value) -> Result<(), Error> {
        let number = {
            let mut requests = self.requests.lock();
            *requests += 1;
            *requests
        };
        if number == 2 {
            return Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset).into());
        }
        let count = event["series"]["count"].as_u64().unwrap_or(1);
        let mut counts = self.counts.lock();
        counts.retain(|(known, _)| known != name);
        counts.push((name.to_owned(), count));
        Ok(())
    }

    fn total(&self) -> u64 {
        self.counts.lock().iter().map(|(_, count)| count).sum()
    }
}

impl EventSink for Sink {
    fn create(&self, _namespace: &str, event: &Value, _stop: &Stop) -> Result<(), Error> {
        self.write(
            event["metadata"]["name"].as_str().unwrap_or_default(),
            event,
        )
    }

    fn patch(&self, _: &str, name: &str, patch: &Value, _stop: &Stop) -> Result<(), Error> {
        self.write(name, patch)
    }
}

fn recorder() -> (Arc<Sink>, EventRecorder) {
    let sink = Arc::new(Sink::default());
    let builder = EventRecorder::with_sink(sink.clone(), "ctl").instance("i");
    let Ok(recorder) = builder.build() else {
        panic!("no recorder");
    };
    (sink, recorder)
}

fn emit(recorder: &EventRecorder, name: &str) -> bool {
    let object = ObjectReference::named(&GroupVersionKind::of("v1", "Pod"), "", name);
    recorder.event(&object, EventType::Normal, "A", "n").is_ok()
}

/// Each accepted event is in the counts that the sink has, unless it is still pending.
#[test]
fn no_count_is_lost_between_calls_and_writer() {
    check_times(0.3, || {
        let (sink, recorder) = recorder();
        let callers = ["p", "q"].map(|name| {
            let recorder = recorder.clone();
            thread::spawn(move || (0..3).filter(|_| emit(&recorder, name)).count())
        });
        let accepted: usize = join_all(callers).iter().sum();
        assert_eq!(accepted, 6);
        let flushed = recorder.flush(HOUR);
        let stats = recorder.stats();
        assert_eq!(stats.recorded, 6);
        assert_eq!(stats.written + stats.merged + stats.pending, 6);
        if flushed.is_ok() {
            assert_eq!((stats.pending, sink.total()), (0, 6));
        }
        let _ = recorder.shut_down(Duration::ZERO);
    });
}

/// A call that races with a shutdown is either refused or accounted for.
#[test]
fn shutdown_accounts_for_concurrent_calls() {
    check_times(0.3, || {
        let (sink, recorder) = recorder();
        let caller = {
            let recorder = recorder.clone();
            thread::spawn(move || (0..3).filter(|_| emit(&recorder, "p")).count())
        };
        let other = {
            let recorder = recorder.clone();
            thread::spawn(move || {
                let _ = recorder.shut_down(HOUR);
                0
            })
        };
        let _ = recorder.shut_down(HOUR);
        let accepted: usize = join_all([caller, other]).iter().sum();
        let stats = recorder.stats();
        assert_eq!(
            (stats.recorded, stats.refused),
            (accepted as u64, 3 - accepted as u64)
        );
        assert_eq!(stats.written + stats.merged + stats.pending, stats.recorded);
        assert!(sink.total() >= stats.written + stats.merged);
    });
}
