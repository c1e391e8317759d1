//! The configuration of a world.

use std::sync::OnceLock;

use k8s_informer::informer::{InformerQueue, InformerScope};
use serde_json::Value;

use crate::differential::random::Random;

pub(crate) const NAMESPACES: [&str; 3] = ["a", "b", "c"];

/// The default of `DIFFERENTIAL_WITHOUT`: cases in which informers still differ from the model.
const EXCLUDED_BY_DEFAULT: &str = "restore found by silence,repeated events,unknown deletions";

/// Whether the step, fault or configuration named `what` is left out.
pub(crate) fn is_excluded(what: &str) -> bool {
    static NAMES: OnceLock<Vec<String>> = OnceLock::new();
    let names = NAMES.get_or_init(|| {
        let names = std::env::var("DIFFERENTIAL_WITHOUT")
            .unwrap_or_else(|_| EXCLUDED_BY_DEFAULT.to_owned());
        names
            .split(',')
            .map(|name| name.trim().to_owned())
            .collect()
    });
    names.iter().any(|name| name == what)
}

#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) form: Form,
    pub(crate) queue: InformerQueue,
    pub(crate) lists: Lists,
    pub(crate) scope: Scope,
    pub(crate) transform: Transformation,
    pub(crate) recreation_as_delete_and_add: bool,
    pub(crate) one_thread: bool,
    /// Whether an index function fails on objects with the label `mood=odd`.
    pub(crate) rejecting_index: bool,
    /// Whether the server may have objects that the type cannot decode.
    pub(crate) undecodable: bool,
    /// Whether the informer reopens a watch after [`IDLE`](crate::differential::world::IDLE) of
    /// silence.
    pub(crate) idle_timeout: bool,
    /// Whether the server sends bookmarks continuously. Otherwise it sends none.
    pub(crate) bookmarks: bool,
    /// The number of changes that the server keeps for watches.
    pub(crate) history: usize,
    /// The number of different names in each namespace.
    pub(crate) names: usize,
    pub(crate) handlers: Vec<HandlerConfig>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Form {
    Dynamic,
    /// A custom struct.
    Custom,
    /// A type of k8s-openapi.
    Typed,
    Metadata,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Lists {
    /// Watch-lists.
    Streamed,
    /// Watch-lists are requested, and the server rejects them.
    Refused,
    /// A LIST without a page size.
    Whole,
    /// A LIST with pages of this many objects.
    Paged(u32),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Transformation {
    None,
    /// Fails on objects with the label `mood=poison`.
    Failing,
    /// Removes the annotation `note` if the form has annotations, and fails like `Failing`.
    Stripping,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct HandlerConfig {
    pub(crate) coalescing: bool,
    /// Whether the handler is behind a filter for `tier=x`.
    pub(crate) filtered: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Scope {
    /// Empty for all namespaces.
    pub(crate) namespaces: Vec<&'static str>,
    /// Whether only objects with the label `app=in` are in scope.
    pub(crate) labelled: bool,
    /// Whether only objects with `spec.nodeName=n0` are in scope.
    pub(crate) on_node: bool,
}

impl Config {
    pub(crate) fn random(random: &mut Random) -> Self {
        let form = random.pick(&[Form::Dynamic, Form::Custom, Form::Typed, Form::Metadata]);
        let queues = [InformerQueue::DeltaFifo, InformerQueue::RealFifo];
        let pages = 1 + random.below(4) as u32;
        let lists = [
            (3, Lists::Streamed),
            (1, Lists::Refused),
            (2, Lists::Whole),
            (3, Lists::Paged(pages)),
        ];
        Self {
            form,
            queue: random.pick(&queues),
            lists: random.weighted(&lists),
            scope: Scope::random(random),
            transform: random.weighted(&[
                (3, Transformation::None),
                (1, Transformation::Failing),
                (1, Transformation::Stripping),
            ]),
            recreation_as_delete_and_add: random.percent(30),
            one_thread: random.percent(30),
            rejecting_index: random.percent(25) && !is_excluded("rejecting index"),
            undecodable: random.percent(30)
                && !is_excluded("undecodable")
                && matches!(form, Form::Custom | Form::Typed),
            idle_timeout: random.percent(25),
            bookmarks: random.percent(30),
            history: random.weighted(&[(4, 16_384), (1, 8)]),
            names: 1 + random.below(4),
            handlers: (0..1 + random.below(3))
                .map(|_| HandlerConfig::random(random))
                .collect(),
        }
    }

    /// Whether the objects are custom resources. List items of a built-in kind carry no
    /// `apiVersion` and `kind`.
    pub(crate) fn is_custom_resource(&self) -> bool {
        match self.form {
            Form::Custom => true,
            Form::Typed => false,
            _ => self.names.is_multiple_of(2),
        }
    }
}

impl HandlerConfig {
    pub(crate) fn random(random: &mut Random) -> Self {
        Self {
            coalescing: random.percent(50),
            filtered: random.percent(50) && !is_excluded("filter"),
        }
    }

    pub(crate) fn passes(self, tier: Option<&str>) -> bool {
        !self.filtered || tier == Some("x")
    }
}

impl Scope {
    fn random(random: &mut Random) -> Self {
        let namespaces: &[&str] =
            random.weighted(&[(3, &[] as &[_]), (2, &["a"]), (3, &["a", "b"])]);
        Self {
            namespaces: namespaces.to_vec(),
            labelled: random.percent(40),
            on_node: random.percent(20),
        }
    }

    pub(crate) fn informer_scope(&self) -> InformerScope {
        let mut scope = InformerScope::all();
        for namespace in &self.namespaces {
            scope = scope.namespace(*namespace);
        }
        if self.labelled {
            scope = scope.label_selector("app=in".parse().expect("a valid selector"));
        }
        if self.on_node {
            scope = scope.field_selector("spec.nodeName=n0");
        }
        scope
    }

    /// Whether an object on the server is in scope.
    pub(crate) fn contains(&self, object: &Value) -> bool {
        let metadata = &object["metadata"];
        (self.namespaces.is_empty()
            || self
                .namespaces
                .iter()
                .any(|name| metadata["namespace"] == *name))
            && (!self.labelled || metadata["labels"]["app"] == "in")
            && (!self.on_node || object["spec"]["nodeName"] == "n0")
    }

    /// Returns one entry per reflector: its namespace, or `None` for all namespaces.
    pub(crate) fn sources(&self) -> Vec<Option<&'static str>> {
        match self.namespaces.as_slice() {
            [] => vec![None],
            namespaces => namespaces.iter().copied().map(Some).collect(),
        }
    }
}
