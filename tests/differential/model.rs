//! The expected content of the cache for a given state of the server.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use crate::differential::config::{Config, Transformation};
use crate::differential::form::CacheForm;

/// The expected outcomes by key.
pub(crate) type Expected = BTreeMap<String, Outcome>;

/// What a state on the server leads to in the cache.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    /// The object is cached with this content.
    Cached(Value),
    /// The object cannot be decoded. A cached copy stays.
    Unreadable,
    /// The transform rejects the object, whose content in the cache would be this one. A cached copy
    /// stays.
    Rejected(Value),
}

/// Predicts the cache and remembers every content that an object ever had.
pub(crate) struct Model<T> {
    config: Config,
    /// Whether the transform rejects objects and the index function fails now.
    rejects: Arc<AtomicBool>,
    ever: HashMap<String, HashSet<String>>,
    form: PhantomData<T>,
}

impl<T: CacheForm> Model<T> {
    pub(crate) fn new(config: Config, rejects: Arc<AtomicBool>) -> Self {
        Self {
            config,
            rejects,
            ever: HashMap::new(),
            form: PhantomData,
        }
    }

    /// Remembers a state that is on the server now.
    pub(crate) fn remember(&mut self, state: &Value) {
        if let Outcome::Cached(shown) | Outcome::Rejected(shown) = self.outcome(state) {
            self.ever
                .entry(key(state))
                .or_default()
                .insert(shown.to_string());
        }
    }

    pub(crate) fn outcome(&self, state: &Value) -> Outcome {
        let Some(mut object) = T::of(state) else {
            return Outcome::Unreadable;
        };
        // An object whose index function fails is cached as well.
        let is_poison = object.label("mood") == Some("poison");
        let rejected = is_poison && self.config.transform != Transformation::None;
        if self.config.transform == Transformation::Stripping {
            object.strip();
        }
        match rejected && self.rejects.load(Ordering::SeqCst) {
            true => Outcome::Rejected(object.show()),
            false => Outcome::Cached(object.show()),
        }
    }

    /// Returns the expected outcomes for these objects on the server.
    pub(crate) fn expected(&self, states: &[Value]) -> Expected {
        let in_scope = states
            .iter()
            .filter(|state| self.config.scope.contains(state));
        in_scope
            .map(|state| (key(state), self.outcome(state)))
            .collect()
    }

    /// Returns the first difference between the cache and `expected`.
    pub(crate) fn difference(
        &self,
        expected: &Expected,
        cache: &BTreeMap<String, Value>,
    ) -> Option<String> {
        for (key, outcome) in expected {
            match (outcome, cache.get(key)) {
                (Outcome::Cached(expected), Some(cached)) if expected == cached => {}
                (Outcome::Cached(expected), cached) => {
                    let cached = cached.map_or_else(|| "nothing".to_owned(), ToString::to_string);
                    return Some(format!(
                        "{key}: the server has\n  {expected}\nthe cache has\n  {cached}"
                    ));
                }
                (_, None) => {}
                (_, Some(cached)) => {
                    let ever = self.ever.get(key);
                    if !ever.is_some_and(|ever| ever.contains(&cached.to_string())) {
                        return Some(format!(
                            "{key}: the cache has a state that never existed: {cached}"
                        ));
                    }
                }
            }
        }
        let extra = cache.iter().find(|(key, _)| !expected.contains_key(*key));
        extra.map(|(key, cached)| {
            format!("{key}: the server has nothing in scope, the cache has\n  {cached}")
        })
    }
}

/// Returns `namespace/name`.
pub(crate) fn key(state: &Value) -> String {
    let text = |field: &str| {
        state["metadata"][field]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    format!("{}/{}", text("namespace"), text("name"))
}

pub(crate) fn version(state: &Value) -> u64 {
    let text = state["metadata"]["resourceVersion"].as_str();
    text.and_then(|text| text.parse().ok())
        .expect("an object of the server has a version")
}
