//! The comparison of the informer with the model at the end of a round.

use std::collections::BTreeMap;

use k8s_informer::error::WaitCause;
use serde_json::Value;

use crate::differential::config::NAMESPACES;
use crate::differential::form::CacheForm;
use crate::differential::model::{Outcome, version};
use crate::differential::world::{Handler, PATIENCE, World};

impl<T: CacheForm> World<T> {
    /// Waits until everything matches the model. Returns the remaining difference if that takes too
    /// long.
    pub(crate) fn converge(&self) -> Result<(), String> {
        let mut difference = String::new();
        let done = self.changed.until(PATIENCE, || match self.compare() {
            Ok(()) => Some(Ok(())),
            Err(Difference::Wrong(why)) => Some(Err(why)),
            Err(Difference::NotYet(why)) => {
                difference = why;
                None
            }
        });
        done.unwrap_or_else(|| Err(format!("still different after {PATIENCE:?}: {difference}")))
    }

    /// Writes a marker for each reflector and checks that `wait_for_object` returns once the marker
    /// is cached.
    pub(crate) fn mark(&mut self) -> Result<(), String> {
        let sources = self.config.scope.sources();
        let mut markers = Vec::new();
        for namespace in sources {
            let state = self.cluster.mark(namespace);
            self.model.remember(&state);
            markers.push(state);
        }
        self.marked = markers.iter().map(version).min().unwrap_or_default();
        if self.was_restored {
            // The cache may have reached this version before the restore.
            return Ok(());
        }
        for state in markers {
            let marker = T::of(&state).expect("a marker can be decoded");
            let wait = || self.informer.wait_for_object(&marker, PATIENCE, &self.stop);
            let reached = self.changed.until(PATIENCE, || match wait() {
                // A garbled list has the marker, which is unreadable until the relist that follows.
                Err(error) if matches!(error.cause(), WaitCause::NotStored { .. }) => None,
                reached => Some(reached),
            });
            let reached = reached.unwrap_or_else(wait);
            reached.map_err(|error| format!("wait_for_object for a marker: {error}"))?;
            let Outcome::Cached(expected) = self.model.outcome(&state) else {
                unreachable!("markers are always accepted");
            };
            let cached = self
                .informer
                .lister()
                .get(marker.namespace(), marker.name());
            if cached.as_ref().map(|cached| cached.show()) != Some(expected) {
                let cached = cached.map(|cached| cached.show());
                return Err(format!(
                    "wait_for_object returned before the marker was cached: {cached:?}"
                ));
            }
        }
        Ok(())
    }

    fn compare(&self) -> Result<(), Difference> {
        let expected = self.model.expected(&self.cluster.states());
        let cached = self.cached();
        let shown: BTreeMap<String, Value> = cached
            .iter()
            .map(|(key, object)| (key.clone(), object.show()))
            .collect();
        if let Some(why) = self.model.difference(&expected, &shown) {
            return Err(Difference::NotYet(format!("cache: {why}")));
        }
        let is_missing = |(key, outcome): (&String, &Outcome)| match outcome {
            Outcome::Cached(_) => false,
            Outcome::Unreadable => true,
            Outcome::Rejected(content) => shown.get(key) != Some(content),
        };
        let is_rejected = |outcome: &Outcome| matches!(outcome, Outcome::Rejected(_));
        let may_miss = self.was_incomplete || expected.values().any(is_rejected);
        self.compare_status(expected.iter().any(is_missing), may_miss)?;
        self.compare_indices()?;
        self.handlers
            .iter()
            .try_for_each(|handler| compare_handler(handler, &cached))
    }

    /// Compares the status. `is_missing` is whether the cache lacks a state of the server, and
    /// `may_miss` whether the informer may not know that it lacks none.
    fn compare_status(&self, is_missing: bool, may_miss: bool) -> Result<(), Difference> {
        let status = self.informer.status();
        if is_missing && status.complete {
            return Err(Difference::NotYet(
                "status: complete, although an object can't be read or stored".to_owned(),
            ));
        }
        if !is_missing && !may_miss && !status.complete {
            let error = status.last_error;
            return Err(Difference::NotYet(format!(
                "status: not complete, although every object can be read ({error:?})"
            )));
        }
        let reached = self.informer.store_resource_version();
        let newest = self.cluster.server.resource_version();
        let number = reached.as_ref().map(ToString::to_string);
        let number = number.and_then(|number| number.parse::<u64>().ok());
        if !number.is_some_and(|number| (self.marked..=newest).contains(&number)) {
            let (from, seen) = (self.marked, self.informer.last_sync_resource_version());
            return Err(Difference::NotYet(format!(
                "the cache is at {reached:?}, expected {from} to {newest}; the reflector is at {seen:?}"
            )));
        }
        Ok(())
    }

    fn compare_indices(&self) -> Result<(), Difference> {
        let cached = self.cached();
        let lister = self.informer.lister();
        let compare = |index: &str, value: &str, has_it: &dyn Fn(&T) -> bool| {
            let expected: Vec<&str> = cached
                .iter()
                .filter(|(_, object)| has_it(object))
                .map(|(key, _)| key.as_str())
                .collect();
            let found = lister.index_keys(index, value);
            let found =
                found.map_err(|error| Difference::Wrong(format!("index {index}: {error}")))?;
            if !found.iter().map(|key| &**key).eq(expected.iter().copied()) {
                return Err(Difference::NotYet(format!(
                    "index {index}={value}: {found:?}, expected {expected:?}"
                )));
            }
            Ok(())
        };
        for label in &self.indices {
            for value in ["x", "y", "in", "out"] {
                compare(label, value, &|object| object.label(label) == Some(value))?;
            }
        }
        NAMESPACES
            .iter()
            .try_for_each(|name| compare("namespace", name, &|object| object.namespace() == *name))
    }
}

enum Difference {
    /// A difference that may still disappear.
    NotYet(String),
    /// A difference that cannot disappear.
    Wrong(String),
}

/// Compares the handler's view with the cached objects that pass its filter.
fn compare_handler<T: CacheForm>(
    handler: &Handler<T>,
    cached: &BTreeMap<String, std::sync::Arc<T>>,
) -> Result<(), Difference> {
    let Handler {
        name,
        config,
        recorder,
        registration,
        ..
    } = handler;
    let known = recorder.known().lock();
    let events = || format!("; its last events:\n    {}", known.last_events());
    if let Some(wrong) = known.wrong.first() {
        return Err(Difference::Wrong(format!(
            "{name} {config:?} received an event that contradicts earlier ones: {wrong}{}",
            events()
        )));
    }
    for (key, object) in cached
        .iter()
        .filter(|(_, object)| config.passes(object.label("tier")))
    {
        let delivered = known.objects.get(key);
        if !delivered.is_some_and(|delivered| {
            std::sync::Arc::ptr_eq(delivered, object) || delivered.show() == object.show()
        }) {
            let delivered = delivered.map_or_else(
                || "nothing".to_owned(),
                |delivered| delivered.show().to_string(),
            );
            let cached = object.show();
            return Err(Difference::NotYet(format!(
                "{name} {config:?}: {key}: the cache has\n  {cached}\nit received\n  {delivered}{}",
                events()
            )));
        }
    }
    let passes = |key: &String| {
        cached
            .get(key)
            .is_some_and(|object| config.passes(object.label("tier")))
    };
    if let Some(key) = known.objects.keys().find(|key| !passes(key)) {
        return Err(Difference::NotYet(format!(
            "{name} {config:?} did not receive the deletion of {key}{}",
            events()
        )));
    }
    if !registration.has_synced() {
        return Err(Difference::NotYet(format!(
            "{name} has not synced{}",
            events()
        )));
    }
    let stats = registration.stats();
    if stats.panics > 0 || stats.waiting > 0 || stats.received != stats.delivered + stats.merged {
        return Err(Difference::NotYet(format!("{name}: {stats:?}{}", events())));
    }
    Ok(())
}

impl<T: CacheForm> World<T> {
    /// Remembers whether the informer cannot read this state. If so, its status may be incomplete
    /// from now on.
    pub(crate) fn note_unreadable(&mut self, state: &Value) {
        let may_be_unreadable = match self.model.outcome(state) {
            Outcome::Cached(_) => false,
            Outcome::Unreadable => true,
            Outcome::Rejected(_) => state["metadata"]["labels"]["mood"] == "poison",
        };
        self.was_incomplete |= may_be_unreadable && self.config.scope.contains(state);
    }

    /// Whether this state never reaches the cache.
    pub(crate) fn is_kept_out(&self, state: &Value) -> bool {
        !matches!(self.model.outcome(state), Outcome::Cached(_))
    }
}
