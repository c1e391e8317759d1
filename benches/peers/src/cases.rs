//! What is compared: each case runs in a process of its own, and says what it has cost.

use std::error::Error;

use k8s_informer::{Config, ReflectorStatus, Stop};
use k8s_openapi::api::core::v1::Pod;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};

use crate::SYNCED;
use crate::measure::report::Report;
use crate::measure::run::{Audience, Run, Settings};
use crate::measure::types;
use crate::peer::{self, Options};

pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// It is a loop around a socket and no informer: nothing is cached.
    pub(crate) bare: bool,
    /// At this server, until so many events have come.
    pub(crate) run: fn(&str, usize) -> Result<Report, Box<dyn Error>>,
}

/// The first one is what the others are compared with.
pub(crate) const CASES: &[Case] = &[
    informer("kube-rs typed", |url, events| typed(url, events, Options::default())),
    informer("kube-rs typed, managedFields dropped", |url, events| {
        typed(url, events, Options { drop_managed_fields: true, ..Options::default() })
    }),
    informer("kube-rs typed, watch-list", |url, events| {
        typed(url, events, Options { watch_list: true, ..Options::default() })
    }),
    informer("kube-rs typed, multi-thread", |url, events| {
        typed(url, events, Options { multi_thread: true, ..Options::default() })
    }),
    informer("kube-rs dynamic", |url, events| {
        let pods = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Pod"));
        peer::run::<DynamicObject>(url, events, Options::default(), pods)
    }),
    informer("ours k8s-openapi, managedFields skipped", |url, events| ours("k8s-openapi", true, url, events)),
    informer("ours own struct", |url, events| ours("own", false, url, events)),
    informer("ours dynamic, managedFields skipped", |url, events| ours("dynamic", true, url, events)),
];

const fn informer(name: &'static str, run: fn(&str, usize) -> Result<Report, Box<dyn Error>>) -> Case {
    Case { name, bare: false, run }
}

fn typed(url: &str, events: usize, options: Options) -> Result<Report, Box<dyn Error>> {
    peer::run::<Pod>(url, events, options, ())
}

/// As the example `measure` does it, with the crate's defaults.
fn ours(r#type: &str, skip: bool, url: &str, events: usize) -> Result<Report, Box<dyn Error>> {
    let settings =
        Settings { events: Some(events as u64), keep_managed_fields: !skip, ..Settings::default() };
    let run =
        Run { config: Config::new(url), settings: &settings, stop: &Stop::new(), audience: &mut Parent };
    types::measure(r#type, "pods", run)
}

struct Parent;

impl Audience for Parent {
    fn progress(&mut self, _: &ReflectorStatus) {}

    fn synced(&mut self, _: &Report) {
        println!("{SYNCED}");
    }
}
