//! kube-rs as its users write it: a watcher with the default configuration (LIST in pages of 500,
//! then WATCH) and the default backoff. The watcher is reflected into a store, and every changed
//! object appears in a stream.

use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use futures::{StreamExt, pin_mut};
use kube::runtime::watcher::Config;
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::runtime;
use tokio::sync::Notify;

use crate::case::{Case, ListMethod, ManagedFields, Program, SYNCED, Task};
use crate::measure::latency::{SENT_AT, Samples, parse};
use crate::measure::meter::Reading;
use crate::measure::report::Report;

struct EventLog {
    /// Objects before the sync belong to the initial list.
    synced: bool,
    first_object: Option<Instant>,
    events: usize,
    first: Option<Instant>,
    last: Option<Instant>,
    samples: Samples,
}

pub(crate) fn run<K>(
    task: Task<'_>,
    case: Case,
    r#type: K::DynamicType,
) -> Result<Report, Box<dyn Error>>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + Sync + 'static,
    K::DynamicType: Clone + Eq + std::hash::Hash + Unpin + Send + Sync,
{
    let Task {
        url,
        events,
        handlers,
        latency,
    } = task;
    let drop_managed_fields = case.managed_fields == ManagedFields::Dropped;
    let (before, begun) = (Reading::now(), Instant::now());
    let mut builder = if case.program == Program::KubeRsMultiThread {
        runtime::Builder::new_multi_thread()
    } else {
        runtime::Builder::new_current_thread()
    };
    builder.enable_all().build()?.block_on(async {
        let client = Client::try_from(kube::Config::new(url.parse()?))?;
        let api = Api::<K>::all_with(client, &r#type);
        let writer = reflector::store::Writer::new(r#type);
        let reader = writer.as_reader();
        let config = Config::default();
        let config = if case.listing == ListMethod::WatchList {
            config.streaming_lists()
        } else {
            config
        };

        let samples = Samples::with_capacity(events * handlers);
        let log = Arc::new(Mutex::new(EventLog {
            synced: false,
            first_object: None,
            events: 0,
            first: None,
            last: None,
            samples,
        }));
        let limit_reached = Arc::new(Notify::new());
        let handler = {
            let (log, limit_reached) = (Arc::clone(&log), Arc::clone(&limit_reached));
            move |object: &K| {
                let log = &mut *log.lock().expect("no thread panics");
                let now = Instant::now();
                log.first_object.get_or_insert(now);
                if !log.synced {
                    return;
                }
                log.first.get_or_insert(now);
                log.last = Some(now);
                log.events += 1;
                if latency {
                    log.samples.add(
                        object
                            .annotations()
                            .get(SENT_AT)
                            .map_or(0, |text| parse(text)),
                    );
                }
                if log.events == events * handlers {
                    limit_reached.notify_one();
                }
            }
        };
        // `modify` is always part of the stream, so that both configurations have the same type. It
        // costs one branch.
        let stream = watcher(api, config)
            .default_backoff()
            .modify(move |object| {
                if drop_managed_fields {
                    object.managed_fields_mut().clear();
                }
            })
            .reflect(writer)
            .touched_objects();
        tokio::spawn(async move {
            pin_mut!(stream);
            while let Some(object) = stream.next().await {
                match object {
                    // There is one stream. Its handlers are sequential calls.
                    Ok(object) => (0..handlers).for_each(|_| handler(&object)),
                    Err(error) => eprintln!("kube-rs: {error}"),
                }
            }
        });

        reader.wait_until_ready().await?;
        let (synced, took) = (Reading::now(), begun.elapsed());
        log.lock().expect("no thread panics").synced = true;
        let objects = reader.len();
        println!("{SYNCED}");
        limit_reached.notified().await;
        let end = Reading::now();

        let log = &mut *log.lock().expect("no thread panics");
        let elapsed = log
            .first
            .zip(log.last)
            .map_or(0.0, |(first, last)| (last - first).as_secs_f64());
        Ok(Report {
            resource: "pods".to_owned(),
            objects,
            first_object_seconds: log
                .first_object
                .map_or(0.0, |at| (at - begun).as_secs_f64()),
            handlers,
            sync_seconds: took.as_secs_f64(),
            sync_cpu_seconds: synced.cpu.saturating_sub(before.cpu).as_secs_f64(),
            resident_before_bytes: before.resident,
            resident_bytes: synced.resident,
            peak_bytes: synced.peak,
            threads: synced.threads,
            events: events as u64,
            events_seconds: elapsed,
            events_cpu_seconds: end.cpu.saturating_sub(synced.cpu).as_secs_f64(),
            wakeups: end.wakeups.saturating_sub(synced.wakeups),
            latency: log.samples.summary(),
            resident_after_bytes: end.resident,
            peak_after_bytes: end.peak,
            ..Report::default()
        })
    })
}
