//! Runs a case. Each one runs in its own process and reports its cost.

use std::error::Error;
use std::hint::black_box;

use k8s_informer::reflector::ReflectorStatus;
use k8s_informer::{Config, Stop};
use k8s_openapi::api::core::v1::Pod;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde::de::DeserializeOwned;

use crate::case::{Case, ListMethod, ManagedFields, ObjectType, Program, SYNCED, Task};
use crate::common::bare::{Bare, Decoder};
use crate::common::pods::VERSIONS;
use crate::measure::custom;
use crate::measure::meter::Reading;
use crate::measure::report::Report;
use crate::measure::run::{Listing, ProgressObserver, Run, Settings};
use crate::measure::types;
use crate::peer;
use crate::structs::{CustomPod, SameFieldsPod};

impl Case {
    pub(crate) fn run(self, task: Task<'_>) -> Result<Report, Box<dyn Error>> {
        match (self.program, self.object) {
            (Program::Ours | Program::OursOneThread, _) => self.ours(task),
            (Program::Bare, ObjectType::Pod) => self.bare::<Pod>(task),
            (Program::Bare, ObjectType::Custom | ObjectType::SameFields) => {
                self.bare::<custom::Pod>(task)
            }
            (Program::Bare, ObjectType::Dynamic) => self.bare::<k8s_informer::DynamicObject>(task),
            (_, ObjectType::Dynamic) => {
                let pods = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Pod"));
                peer::run::<DynamicObject>(task, self, pods)
            }
            (_, ObjectType::Custom) => peer::run::<CustomPod>(task, self, ()),
            (_, ObjectType::SameFields) => peer::run::<SameFieldsPod>(task, self, ()),
            (_, ObjectType::Pod) => peer::run::<Pod>(task, self, ()),
        }
    }

    /// Runs an informer like the example `measure`, otherwise with the defaults of the crate.
    fn ours(self, task: Task<'_>) -> Result<Report, Box<dyn Error>> {
        let settings = Settings {
            events: Some(task.events as u64),
            keep_managed_fields: self.managed_fields == ManagedFields::Kept,
            listing: match self.listing {
                ListMethod::List => Listing::List(None),
                ListMethod::WatchList => Listing::WatchList,
            },
            handlers: task.handlers,
            one_thread: self.program == Program::OursOneThread,
            latency: task.latency,
            ..Settings::default()
        };
        let config = Config::new(task.url);
        let run = Run {
            config,
            settings: &settings,
            stop: &Stop::never(),
            observer: &mut Parent,
        };
        let r#type = match self.object {
            ObjectType::Pod => "k8s-openapi",
            ObjectType::Custom | ObjectType::SameFields => "custom",
            ObjectType::Dynamic => "dynamic",
        };
        types::measure(r#type, "pods", run)
    }

    /// Reads from a socket, cuts out skipped fields, decodes the rest and drops it.
    fn bare<T: DeserializeOwned>(self, task: Task<'_>) -> Result<Report, Box<dyn Error>> {
        // The version of the first list of the replay server.
        let target = format!("/api/v1/pods?watch=true&resourceVersion={}", VERSIONS[0]);
        let mut watch = Bare::open(task.url, &target)?;
        let mut decoder = Decoder::new(self.managed_fields == ManagedFields::Dropped);
        let synced = Reading::now();
        println!("{SYNCED}");
        for _ in 0..task.events {
            let frame = watch.frame()?.ok_or("the watch ended early")?;
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
}

struct Parent;

impl ProgressObserver for Parent {
    fn progress(&mut self, _: &ReflectorStatus) {}

    fn synced(&mut self, _: &Report) {
        println!("{SYNCED}");
    }
}
