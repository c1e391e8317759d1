//! One measurement of an informer, from before the client is created until the last awaited event.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use k8s_informer::informer::{FactoryOptions, InformerScope, Source};
use k8s_informer::reflector::{FieldPaths, ReflectorOptions, ReflectorStatus};
use k8s_informer::{Client, Config, Object, SharedInformerFactory, Stop};
use serde::de::DeserializeOwned;

use super::count::{Count, Counting};
use super::meter::Reading;
use super::report::Report;

/// The interval at which progress is reported and a failing first list is detected.
const FRAME: Duration = Duration::from_millis(100);

/// The number of consecutive failures after which the measurement fails, if nothing has
/// arrived yet.
const FAILURES: u64 = 3;

/// The settings of a measurement.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) scope: InformerScope,
    pub(crate) listing: Listing,
    pub(crate) keep_managed_fields: bool,
    /// Whether handlers read the send time of objects.
    pub(crate) latency: bool,
    /// The number of handlers.
    pub(crate) handlers: usize,
    /// Whether the informer has only one thread, which also calls the handlers.
    pub(crate) one_thread: bool,
    /// The number of events after the sync that each handler waits for. `None` means no limit.
    pub(crate) events: Option<u64>,
    /// How long to wait for these events. `None` means no limit.
    pub(crate) time: Option<Duration>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            scope: InformerScope::all(),
            listing: Listing::WatchList,
            keep_managed_fields: false,
            latency: true,
            handlers: 1,
            one_thread: false,
            events: None,
            time: None,
        }
    }
}

/// How the informer gets the initial objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listing {
    /// By a watch that starts with the initial objects. Falls back to LIST if the server does not
    /// support it.
    WatchList,
    /// By LIST in pages of this size. `None` means the default page size of the crate.
    List(Option<u32>),
}

/// Receives the progress of a measurement.
pub(crate) trait ProgressObserver {
    fn progress(&mut self, status: &ReflectorStatus);
    /// Called after the sync. The figures of the events are not set yet.
    fn synced(&mut self, report: &Report);
}

/// A measurement that is ready to start.
pub(crate) struct Run<'a> {
    pub(crate) config: Config,
    pub(crate) settings: &'a Settings,
    /// Ends the measurement early.
    pub(crate) stop: &'a Stop,
    pub(crate) observer: &'a mut dyn ProgressObserver,
}

impl Run<'_> {
    /// Measures an informer of the source. `sent_at` returns the send time of an object, or 0 if
    /// unknown.
    pub(crate) fn measure<T: Object + DeserializeOwned>(
        self,
        source: impl FnOnce(&Client) -> Result<Source<T>, k8s_informer::Error>,
        sent_at: fn(&T) -> u64,
    ) -> Result<Report, Box<dyn Error>> {
        let Self {
            config,
            settings,
            stop,
            observer,
        } = self;
        let before = Reading::now();
        let Settings {
            scope,
            listing,
            keep_managed_fields,
            latency,
            handlers,
            one_thread,
            events,
            time,
        } = settings;

        let mut options = ReflectorOptions::default();
        match listing {
            Listing::WatchList => {}
            Listing::List(page_size) => {
                (options.watch_list, options.page_size) = (false, *page_size);
            }
        }
        if !keep_managed_fields {
            options.skip = FieldPaths::managed_fields();
        }
        let client = Client::new(config)?;
        let factory = SharedInformerFactory::with_options(
            client.clone(),
            FactoryOptions::new()
                .scope(scope.clone())
                .one_thread(*one_thread)
                .reflector(options),
        );
        let source = source(&client)?;
        let sent_at = if *latency { sent_at } else { |_: &T| 0 };
        let limit_reached = stop.child();
        let counts = Count::several(*handlers, *events, &limit_reached);
        let informer = factory.informer_for(source);
        let mut registrations = Vec::new();
        for count in &counts {
            let count = Arc::clone(count);
            registrations.push(informer.add_handler(Counting { count, sent_at })?);
        }

        factory.start(stop)?;
        while !informer.synced().wait_timeout(FRAME) {
            if stop.is_stopped() {
                factory.shut_down(None)?;
                return Err(format!("stopped before the sync: {}", informer.status()).into());
            }
            let status = informer.status();
            observer.progress(&status);
            if !status.listed && status.failures >= FAILURES && status.last_error.is_some() {
                factory.shut_down(None)?;
                return Err(status.to_string().into());
            }
        }
        // Also wait until the handlers have received all initial objects. After a stop, the report
        // has what they have received until then.
        for registration in &registrations {
            let _ = registration.synced().wait_or_stop(None, stop);
        }
        let synced = Reading::now();
        let status = informer.status();
        let mut report = Report {
            objects: informer.lister().list().len(),
            lists: status.lists,
            unreadable: status.unreadable,
            handlers: *handlers,
            first_object_seconds: counts[0]
                .log()
                .first_object
                .map_or(0.0, |at| (at - before.at).as_secs_f64()),
            sync_seconds: (synced.at - before.at).as_secs_f64(),
            sync_cpu_seconds: synced.cpu.saturating_sub(before.cpu).as_secs_f64(),
            resident_before_bytes: before.resident,
            resident_bytes: synced.resident,
            peak_bytes: synced.peak,
            threads: synced.threads,
            ..Report::default()
        };
        observer.synced(&report);

        match time {
            Some(time) => _ = limit_reached.wait_timeout(*time),
            None => limit_reached.wait(),
        }
        let end = Reading::now();
        let mut log = counts[0].log();
        report.events = log.events;
        report.events_seconds = log.elapsed().as_secs_f64();
        report.events_cpu_seconds = end.cpu.saturating_sub(synced.cpu).as_secs_f64();
        report.waited_seconds = (end.at - synced.at).as_secs_f64();
        report.wakeups = end.wakeups.saturating_sub(synced.wakeups);
        report.resident_after_bytes = end.resident;
        report.peak_after_bytes = end.peak;
        report.unreadable = informer.status().unreadable;
        report.latency = log.samples.summary();
        drop(log);
        factory.shut_down(None)?;
        Ok(report)
    }
}
