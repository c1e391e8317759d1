//! The cases that are compared.

use std::fmt;

/// The line that a child prints when it waits for events.
pub(crate) const SYNCED: &str = "synced";

// `run.rs` has its `run`.
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
