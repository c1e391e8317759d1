//! One informer, from before its client is made until enough has happened.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use k8s_informer::informer::{InformerScope, Source};
use k8s_informer::reflector::{FieldPaths, ReflectorOptions, ReflectorStatus};
use k8s_informer::{Client, Config, Object, SharedInformerFactory, Stop};
use serde::de::DeserializeOwned;

use super::count::{Count, Counting};
use super::meter::Reading;
use super::report::Report;

/// How often progress is told, and how soon it is seen that there is none.
const FRAME: Duration = Duration::from_millis(100);

/// After so many failures in a row, and before anything has come, it is no use.
const FAILURES: u64 = 3;

/// What is measured.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) scope: InformerScope,
    pub(crate) listing: Listing,
    pub(crate) keep_managed_fields: bool,
    /// Whether handlers look when objects were sent.
    pub(crate) latency: bool,
    /// The number of handlers.
    pub(crate) handlers: usize,
    /// Whether there is one handler only, called inline on the thread that keeps the cache.
    pub(crate) inline: bool,
    /// How many events after the sync are waited for, each handler told of them; `None` for no end.
    pub(crate) events: Option<u64>,
    /// For how long they are waited for; `None` for no end.
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
            inline: false,
            events: None,
            time: None,
        }
    }
}

/// How the informer gets to know what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listing {
    /// By a watch that begins with it; by LIST where the server has no such thing.
    WatchList,
    /// By LIST in pages of so many, or of as many as the crate takes.
    List(Option<u32>),
}

/// Who is told how it goes on.
pub(crate) trait Audience {
    fn progress(&mut self, status: &ReflectorStatus);
    /// The report has everything but the events.
    fn synced(&mut self, report: &Report);
}

/// A measurement that is about to begin.
pub(crate) struct Run<'a> {
    pub(crate) config: Config,
    pub(crate) settings: &'a Settings,
    /// Ends it early.
    pub(crate) stop: &'a Stop,
    pub(crate) audience: &'a mut dyn Audience,
}

impl Run<'_> {
    /// Measures an informer of this source. `sent_at` returns when an object was sent, or 0.
    pub(crate) fn measure<T: Object + DeserializeOwned>(
        self,
        source: impl FnOnce(&Client) -> Result<Source<T>, k8s_informer::Error>,
        sent_at: fn(&T) -> u64,
    ) -> Result<Report, Box<dyn Error>> {
        let Self {
            config,
            settings,
            stop,
            audience,
        } = self;
        let before = Reading::now();
        let Settings {
            scope,
            listing,
            keep_managed_fields,
            latency,
            handlers,
            inline,
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
        let factory = SharedInformerFactory::builder(client.clone()).scope(scope.clone());
        let factory = factory.reflector_options(options).build();
        let source = source(&client)?;
        let sent_at = if *latency { sent_at } else { |_: &T| 0 };
        let enough = stop.child();
        let counts = Count::several(*handlers, *events, &enough);
        let mut counting = counts.iter().map(|count| Counting {
            count: Arc::clone(count),
            sent_at,
        });
        let (mut observation, mut registrations) = (None, Vec::new());
        let informer = if *inline {
            let mut counting = counting.next().ok_or("inline is one handler")?;
            let observe = factory
                .observe(source)
                .on_event(move |event| event.deliver(&mut counting));
            let observation = observation.insert(observe.inline().start()?);
            observation.informer().clone()
        } else {
            let informer = factory.informer_of(source);
            for handler in counting {
                registrations.push(informer.add_handler(handler)?);
            }
            informer
        };

        factory.start(stop)?;
        while !informer.synced().wait_timeout(FRAME) {
            if stop.is_stopped() {
                factory.shutdown();
                return Err(format!("stopped before it had synced: {}", informer.status()).into());
            }
            let status = informer.status();
            audience.progress(&status);
            if !status.listed && status.failures >= FAILURES && status.last_error.is_some() {
                factory.shutdown();
                return Err(status.to_string().into());
            }
        }
        // Everything that is there has been told, too.
        for registration in &registrations {
            registration.synced().wait_or_stop(stop);
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
        audience.synced(&report);

        match time {
            Some(time) => _ = enough.wait_timeout(*time),
            None => enough.wait(),
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
        drop((log, observation));
        factory.shutdown();
        Ok(report)
    }
}
