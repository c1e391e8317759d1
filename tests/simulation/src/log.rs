//! The logger, the callback for errors and the metrics of a run. All of them panic.

use std::cell::RefCell;
use std::panic::resume_unwind;
use std::sync::{Arc, Once, Weak};
use std::time::Duration;

use simulation::Error;
use simulation::metrics::InformerMetrics;

use crate::plan::Fault;
use crate::run::Run;

thread_local! {
    /// The run of this thread. Lines of other threads are ignored.
    static RUN: RefCell<Weak<Run>> = const { RefCell::new(Weak::new()) };
}

/// Passes the lines of this thread to a run.
pub fn begin(run: &Arc<Run>) {
    static SET: Once = Once::new();
    SET.call_once(|| {
        ::log::set_logger(&Logger).expect("the only logger");
        ::log::set_max_level(::log::LevelFilter::Trace);
    });
    RUN.set(Arc::downgrade(run));
}

struct Logger;

impl ::log::Log for Logger {
    fn enabled(&self, _: &::log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &::log::Record<'_>) {
        let Some(run) = RUN.with_borrow(Weak::upgrade) else {
            return;
        };
        let line = record.args().to_string();
        run.trace(|| format!("log: {line}"));
        // The duration of a list is logged before the list is processed.
        if record.target().ends_with("::reflector") && !line.contains(" took ") {
            run.check_processed();
        }
        run.may_panic(Fault::LoggerPanics, 30);
    }

    fn flush(&self) {}
}

/// Metrics that panic.
pub struct Metrics(pub Weak<Run>);

impl Metrics {
    fn measure(&self) {
        if let Some(run) = self.0.upgrade().filter(|run| run.is_own_thread()) {
            run.may_panic(Fault::MetricsPanic, 3);
        }
    }
}

impl InformerMetrics for Metrics {
    fn queued_items(&self, _: usize) {
        self.measure();
    }

    fn processing_latency(&self, _: Duration) {
        self.measure();
    }

    fn store_resource_version(&self, _: u64) {
        self.measure();
    }
}

impl Run {
    /// The callback for failed requests.
    pub fn failed(self: &Arc<Self>, error: &Error) {
        self.trace(|| format!("error callback: {error}"));
        self.check_processed();
        let is_slow = self.world().user_fault(Fault::ErrorCallbackIsSlow, 100);
        if is_slow {
            let until = self.time.now() + self.world().user_rng.between(1_000, 30_000_000);
            self.pass_time(until);
        }
        self.may_panic(Fault::ErrorCallbackPanics, 200);
    }

    /// Checks that everything has been processed that was read before a failure: loggers and callbacks
    /// may wait for it.
    fn check_processed(&self) {
        if !self.stop.is_stopped() {
            self.look(true);
        }
    }

    fn may_panic(&self, fault: Fault, permille: u64) {
        let panics = self.world().user_fault(fault, permille);
        if panics {
            resume_unwind(Box::new(fault.name()));
        }
    }
}
