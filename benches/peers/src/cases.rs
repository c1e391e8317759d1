//! What is compared: each case runs in a process of its own, and says what it has cost.

use std::error::Error;
use std::hint::black_box;

use k8s_informer::reflector::ReflectorStatus;
use k8s_informer::{Config, Stop};
use k8s_openapi::api::core::v1::Pod;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde::de::DeserializeOwned;

use crate::SYNCED;
use crate::common::bare::{Bare, Decoder};
use crate::common::pods::VERSIONS;
use crate::measure::meter::Reading;
use crate::measure::own;
use crate::measure::report::Report;
use crate::measure::run::{Audience, Run, Settings};
use crate::measure::types;
use crate::peer::{self, Options};

pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// It is a loop around a socket and no informer: nothing is cached.
    pub(crate) bare: bool,
    pub(crate) run: fn(Task<'_>) -> Result<Report, Box<dyn Error>>,
}

#[derive(Clone, Copy)]
pub(crate) struct Task<'a> {
    /// The server.
    pub(crate) url: &'a str,
    /// It ends with so many.
    pub(crate) events: usize,
    /// Whether handlers look when objects were sent.
    pub(crate) latency: bool,
}

/// The first one is what the others are compared with.
pub(crate) const CASES: &[Case] = &[
    informer("kube-rs typed", |task| typed(task, Options::default())),
    informer("kube-rs typed, managedFields dropped", |task| {
        typed(
            task,
            Options {
                drop_managed_fields: true,
                ..Options::default()
            },
        )
    }),
    informer("kube-rs typed, watch-list", |task| {
        typed(
            task,
            Options {
                watch_list: true,
                ..Options::default()
            },
        )
    }),
    informer("kube-rs typed, multi-thread", |task| {
        typed(
            task,
            Options {
                multi_thread: true,
                ..Options::default()
            },
        )
    }),
    informer("kube-rs dynamic", |task| {
        let pods = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Pod"));
        peer::run::<DynamicObject>(task, Options::default(), pods)
    }),
    informer("ours k8s-openapi, managedFields skipped", |task| {
        ours("k8s-openapi", true, task)
    }),
    bare("bare k8s-openapi, managedFields skipped", |task| {
        decode::<Pod>(true, task)
    }),
    // What it has no field for is not decoded anyway; to skip it is to pass over it in larger steps.
    informer("ours own struct", |task| ours("own", false, task)),
    bare("bare own struct", |task| decode::<own::Pod>(false, task)),
    informer("ours own struct, managedFields skipped", |task| {
        ours("own", true, task)
    }),
    bare("bare own struct, managedFields skipped", |task| {
        decode::<own::Pod>(true, task)
    }),
    informer("ours dynamic, managedFields skipped", |task| {
        ours("dynamic", true, task)
    }),
    bare("bare dynamic, managedFields skipped", |task| {
        decode::<k8s_informer::DynamicObject>(true, task)
    }),
];

const fn informer(name: &'static str, run: fn(Task<'_>) -> Result<Report, Box<dyn Error>>) -> Case {
    Case {
        name,
        bare: false,
        run,
    }
}

const fn bare(name: &'static str, run: fn(Task<'_>) -> Result<Report, Box<dyn Error>>) -> Case {
    Case {
        name,
        bare: true,
        run,
    }
}

fn typed(task: Task<'_>, options: Options) -> Result<Report, Box<dyn Error>> {
    peer::run::<Pod>(task, options, ())
}

/// As the example `measure` does it, with the crate's defaults.
fn ours(r#type: &str, skip: bool, task: Task<'_>) -> Result<Report, Box<dyn Error>> {
    let settings = Settings {
        events: Some(task.events as u64),
        keep_managed_fields: !skip,
        latency: task.latency,
        ..Settings::default()
    };
    let config = Config::new(task.url);
    let run = Run {
        config,
        settings: &settings,
        stop: &Stop::new(),
        audience: &mut Parent,
    };
    types::measure(r#type, "pods", run)
}

/// Read from a socket, skip what is skipped, decode the rest, drop it.
fn decode<T: DeserializeOwned>(skip: bool, task: Task<'_>) -> Result<Report, Box<dyn Error>> {
    // The version of the replay server's first list.
    let target = format!("/api/v1/pods?watch=true&resourceVersion={}", VERSIONS[0]);
    let mut watch = Bare::open(task.url, &target)?;
    let mut decoder = Decoder::new(skip);
    let synced = Reading::now();
    println!("{SYNCED}");
    for _ in 0..task.events {
        let frame = watch.frame()?.ok_or("it has ended")?;
        drop(black_box(decoder.object::<T>(frame)?));
    }
    let end = Reading::now();
    Ok(Report {
        events: task.events as u64,
        events_cpu_seconds: end.cpu.saturating_sub(synced.cpu).as_secs_f64(),
        wakeups: end.wakeups.saturating_sub(synced.wakeups),
        resident_after_bytes: end.resident,
        ..Report::default()
    })
}

struct Parent;

impl Audience for Parent {
    fn progress(&mut self, _: &ReflectorStatus) {}

    fn synced(&mut self, _: &Report) {
        println!("{SYNCED}");
    }
}
