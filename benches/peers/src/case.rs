//! The cases that are compared. Each case runs in its own process and reports its cost.

use std::error::Error;
use std::fmt;
use std::hint::black_box;

use k8s_informer::reflector::ReflectorStatus;
use k8s_informer::{Config, Stop};
use k8s_openapi::api::core::v1::Pod;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde::de::DeserializeOwned;

use crate::SYNCED;
use crate::common::bare::{Bare, Decoder};
use crate::common::pods::VERSIONS;
use crate::measure::custom;
use crate::measure::meter::Reading;
use crate::measure::report::Report;
use crate::measure::run::{Listing, ProgressObserver, Run, Settings};
use crate::measure::types;
use crate::peer;
use crate::structs::{CustomPod, SameFieldsPod};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) program: Program,
    pub(crate) object: ObjectType,
    pub(crate) listing: ListMethod,
    pub(crate) managed_fields: ManagedFields,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    KubeRs,
    /// A runtime with one thread per processor.
    KubeRsMultiThread,
    Ours,
    /// One handler, called on the only thread of the informer.
    OursOneThread,
    /// A loop around a socket that decodes each object and drops it.
    Bare,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObjectType {
    /// The type of k8s-openapi.
    Pod,
    /// A struct with metadata, node and phase. In kube-rs, the metadata is the whole `ObjectMeta`.
    Custom,
    /// In kube-rs, a custom struct that decodes only the fields of ours.
    SameFields,
    Dynamic,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListMethod {
    /// In pages of 500 in kube-rs, and in pages of the crate's default size in ours.
    List,
    WatchList,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ManagedFields {
    Kept,
    /// kube-rs decodes the managed fields and then drops them. This crate does not decode them.
    Dropped,
}

impl Case {
    /// Returns the kube-rs case with the same configuration and the same fields.
    pub(crate) fn reference(self) -> Self {
        Self {
            program: Program::KubeRs,
            object: match self.object {
                ObjectType::Custom => ObjectType::SameFields,
                object => object,
            },
            ..self
        }
    }

    /// Returns all cases. A kube-rs case precedes the cases that are compared with it.
    pub(crate) fn all() -> Vec<Self> {
        use ListMethod::{List, WatchList};
        use ManagedFields::{Dropped, Kept};
        use ObjectType::{Custom, Dynamic, Pod, SameFields};
        use Program::{Bare, KubeRs, KubeRsMultiThread, Ours, OursOneThread};

        let case = |program, object, listing, managed_fields| Self {
            program,
            object,
            listing,
            managed_fields,
        };
        let mut all = Vec::new();
        for listing in [List, WatchList] {
            for managed_fields in [Kept, Dropped] {
                for (program, object) in [
                    (KubeRs, Pod),
                    (Ours, Pod),
                    (KubeRs, Dynamic),
                    (Ours, Dynamic),
                    (KubeRs, Custom),
                    (KubeRs, SameFields),
                    (Ours, Custom),
                ] {
                    all.push(case(program, object, listing, managed_fields));
                }
            }
        }
        for object in [Pod, Dynamic, Custom] {
            all.push(case(OursOneThread, object, WatchList, Dropped));
        }
        all.push(case(KubeRsMultiThread, Pod, List, Kept));
        for managed_fields in [Kept, Dropped] {
            for object in [Pod, Dynamic, Custom] {
                all.push(case(Bare, object, WatchList, managed_fields));
            }
        }
        all
    }

    pub(crate) fn is_bare(self) -> bool {
        self.program == Program::Bare
    }

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

impl Case {
    /// The program and the type of object.
    pub(crate) fn short_name(self) -> String {
        let program = match self.program {
            Program::KubeRs => "kube-rs",
            Program::KubeRsMultiThread => "kube-rs multi-threaded",
            Program::Ours => "ours",
            Program::OursOneThread => "ours, one thread,",
            Program::Bare => "bare",
        };
        let object = match self.object {
            ObjectType::Pod => "Pod",
            ObjectType::Custom => "custom struct",
            ObjectType::SameFields => "custom struct, same fields",
            ObjectType::Dynamic => "dynamic",
        };
        format!("{program} {object}")
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.short_name())?;
        match self.listing {
            _ if self.is_bare() => {}
            ListMethod::List => f.write_str(", LIST")?,
            ListMethod::WatchList => f.write_str(", watch-list")?,
        }
        f.write_str(match self.managed_fields {
            ManagedFields::Kept => "",
            ManagedFields::Dropped => ", no managedFields",
        })
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Task<'a> {
    /// The URL of the server.
    pub(crate) url: &'a str,
    /// The number of events after which the task ends.
    pub(crate) events: usize,
    pub(crate) handlers: usize,
    /// Whether handlers read the send time of objects.
    pub(crate) latency: bool,
}

struct Parent;

impl ProgressObserver for Parent {
    fn progress(&mut self, _: &ReflectorStatus) {}

    fn synced(&mut self, _: &Report) {
        println!("{SYNCED}");
    }
}
