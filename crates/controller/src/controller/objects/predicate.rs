use std::fmt;
use std::ops::Not;
use std::sync::Arc;

use k8s_informer::object::{FullMetadata, FullObjectMeta};

/// A condition for updates: an update that does not pass it causes no reconcile.
///
/// A predicate sees only updates of an object, with its old and new state. First sight, deletions,
/// resyncs and a newly requested deletion always pass, so that no predicate can lose them. An
/// object that was created again under the same name counts as first sight.
///
/// To select objects, use an [`InformerScope`](k8s_informer::informer::InformerScope). It also saves the
/// memory of the other objects.
///
/// Clones share the closure. A predicate runs on the threads of an informer, so it must not block.
/// It corresponds to controller-runtime's `predicate.Predicate`, reduced to its `Update`.
///
/// ```
/// use k8s_informer::object::PartialObjectMetadata;
/// use k8s_informer_controller::{Predicate, generation_changed, labels_changed};
///
/// let team = |json| serde_json::from_str::<PartialObjectMetadata>(json);
/// let old = team(r#"{"metadata": {"generation": 1, "labels": {"size": "3"}}}"#)?;
/// let new = team(r#"{"metadata": {"generation": 1, "labels": {"size": "4"}}}"#)?;
///
/// let predicate: Predicate<PartialObjectMetadata> = generation_changed().or(labels_changed());
/// assert!(predicate.matches(&old, &new));
/// assert!(!predicate.matches(&old, &old));
/// # Ok::<(), serde_json::Error>(())
/// ```
pub struct Predicate<T> {
    passes: Arc<Passes<T>>,
}

type Passes<T> = dyn Fn(&T, &T) -> bool + Send + Sync;

impl<T: 'static> Predicate<T> {
    /// Creates a predicate from a closure, which gets the old and the new object.
    ///
    /// ```
    /// use k8s_informer::{Object, ObjectMeta};
    /// use k8s_informer_controller::Predicate;
    ///
    /// let team_changed = Predicate::new(|old: &ObjectMeta, new| old.label("team") != new.label("team"));
    /// assert!(!team_changed.matches(&ObjectMeta::default(), &ObjectMeta::default()));
    /// ```
    pub fn new(passes: impl Fn(&T, &T) -> bool + Send + Sync + 'static) -> Self {
        Self {
            passes: Arc::new(passes),
        }
    }

    /// Returns whether an update from `old` to `new` passes.
    ///
    /// ```
    /// use k8s_informer::{Object, ObjectMeta};
    /// use k8s_informer_controller::Predicate;
    ///
    /// let mut new = ObjectMeta::default();
    /// new.resource_version = "2".to_owned();
    /// let changed = Predicate::new(|old: &ObjectMeta, new| old.resource_version() != new.resource_version());
    /// assert!(changed.matches(&ObjectMeta::default(), &new));
    /// ```
    pub fn matches(&self, old: &T, new: &T) -> bool {
        (self.passes)(old, new)
    }

    /// Returns a predicate that passes if both pass. It does not evaluate `other` if this one
    /// fails.
    ///
    /// ```
    /// use k8s_informer::ObjectMeta;
    /// use k8s_informer_controller::Predicate;
    ///
    /// let (all, none) = (Predicate::new(|_, _| true), Predicate::new(|_, _| false));
    /// let object = ObjectMeta::default();
    /// assert!(all.clone().and(all.clone()).matches(&object, &object));
    /// assert!(!all.and(none).matches(&object, &object));
    /// ```
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self::new(move |old, new| self.matches(old, new) && other.matches(old, new))
    }

    /// Returns a predicate that passes if one of the two passes. It does not evaluate `other` if
    /// this one passes.
    ///
    /// ```
    /// use k8s_informer::ObjectMeta;
    /// use k8s_informer_controller::Predicate;
    ///
    /// let (all, none) = (Predicate::new(|_, _| true), Predicate::new(|_, _| false));
    /// let object = ObjectMeta::default();
    /// assert!(none.clone().or(all).matches(&object, &object));
    /// assert!(!none.clone().or(none).matches(&object, &object));
    /// ```
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self::new(move |old, new| self.matches(old, new) || other.matches(old, new))
    }
}

/// Returns a predicate that passes if this one fails.
///
/// ```
/// use k8s_informer::object::FullObjectMeta;
/// use k8s_informer_controller::labels_changed;
///
/// let object = FullObjectMeta::default();
/// assert!((!labels_changed()).matches(&object, &object));
/// ```
impl<T: 'static> Not for Predicate<T> {
    type Output = Self;

    fn not(self) -> Self {
        Self::new(move |old, new| !self.matches(old, new))
    }
}

impl<T> Clone for Predicate<T> {
    fn clone(&self) -> Self {
        Self {
            passes: Arc::clone(&self.passes),
        }
    }
}

impl<T> fmt::Debug for Predicate<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Predicate").finish_non_exhaustive()
    }
}

/// Returns a predicate for changes of the desired state: `metadata.generation` changed.
///
/// The server increments the generation with each change of the object except its metadata and its
/// status. Kinds without generations, such as ConfigMaps, have generation 0: all of their updates
/// pass. It corresponds to controller-runtime's `GenerationChangedPredicate`, which lets none of
/// them pass. A custom resource needs the subresource `status`: without it, a write of the status
/// increments the generation.
///
/// ```
/// use k8s_informer::object::PartialObjectMetadata;
/// use k8s_informer_controller::generation_changed;
///
/// let team = |json| serde_json::from_str::<PartialObjectMetadata>(json);
/// let (first, second) = (team(r#"{"metadata": {"generation": 1}}"#)?, team(r#"{"metadata": {"generation": 2}}"#)?);
/// assert!(generation_changed().matches(&first, &second));
/// assert!(!generation_changed().matches(&second, &second));
///
/// let config_map = team(r#"{"metadata": {"name": "a"}}"#)?;
/// assert!(generation_changed().matches(&config_map, &config_map));
/// # Ok::<(), serde_json::Error>(())
/// ```
pub fn generation_changed<T: FullMetadata>() -> Predicate<T> {
    Predicate::new(|old: &T, new| {
        let generation = new.generation();
        generation == 0 || generation != old.generation()
    })
}

/// Returns a predicate for changes of `metadata.labels`.
///
/// Metadata that cannot be decoded passes. It corresponds to controller-runtime's
/// `LabelChangedPredicate`.
///
/// ```
/// use k8s_informer::object::PartialObjectMetadata;
/// use k8s_informer_controller::labels_changed;
///
/// let team = |json| serde_json::from_str::<PartialObjectMetadata>(json);
/// let (old, new) = (team(r#"{"metadata": {}}"#)?, team(r#"{"metadata": {"labels": {"size": "4"}}}"#)?);
/// assert!(labels_changed().matches(&old, &new));
/// assert!(!labels_changed().matches(&new, &new));
/// # Ok::<(), serde_json::Error>(())
/// ```
pub fn labels_changed<T: FullMetadata>() -> Predicate<T> {
    metadata_changed(|old, new| old.labels != new.labels)
}

/// Returns a predicate for changes of `metadata.annotations`.
///
/// Metadata that cannot be decoded passes. It corresponds to controller-runtime's
/// `AnnotationChangedPredicate`.
///
/// ```
/// use k8s_informer::object::PartialObjectMetadata;
/// use k8s_informer_controller::annotations_changed;
///
/// let team = |json| serde_json::from_str::<PartialObjectMetadata>(json);
/// let (old, new) = (team(r#"{"metadata": {}}"#)?, team(r#"{"metadata": {"annotations": {"size": "4"}}}"#)?);
/// assert!(annotations_changed().matches(&old, &new));
/// assert!(!annotations_changed().matches(&new, &new));
/// # Ok::<(), serde_json::Error>(())
/// ```
pub fn annotations_changed<T: FullMetadata>() -> Predicate<T> {
    metadata_changed(|old, new| old.annotations != new.annotations)
}

fn metadata_changed<T: FullMetadata>(
    changed: impl Fn(&FullObjectMeta, &FullObjectMeta) -> bool + Send + Sync + 'static,
) -> Predicate<T> {
    Predicate::new(
        move |old: &T, new| match (old.full_metadata(), new.full_metadata()) {
            (Ok(old), Ok(new)) => changed(&old, &new),
            // A reconcile too many is better than a missed change, and reports the error.
            _ => true,
        },
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use k8s_informer::object::{DynamicObject, ObjectMeta};

    fn object(metadata: Value) -> DynamicObject {
        DynamicObject::new(&json!({ "metadata": metadata })).unwrap()
    }

    #[track_caller]
    fn assert_passes(predicate: &Predicate<DynamicObject>, old: Value, new: Value, passes: bool) {
        let text = format!("{old} to {new}");
        assert_eq!(
            predicate.matches(&object(old), &object(new)),
            passes,
            "{text}"
        );
    }

    #[test]
    fn cr3_generation_predicate_ignores_status_and_labels() {
        let predicate = generation_changed();
        let first = json!({"generation": 1, "resourceVersion": "1", "labels": {"a": "1"}});
        let status = json!({"generation": 1, "resourceVersion": "2", "labels": {"a": "2"}});
        assert_passes(&predicate, first.clone(), status, false);
        assert_passes(&predicate, first, json!({"generation": 2}), true);
    }

    #[test]
    fn generation_zero_always_passes() {
        let predicate = generation_changed();
        for generation in [json!(null), json!(0), json!("not a number")] {
            let metadata = json!({ "generation": generation });
            assert_passes(&predicate, metadata.clone(), metadata.clone(), true);
            assert_passes(&predicate, json!({"generation": 3}), metadata, true);
        }
    }

    #[test]
    fn cr3_maps_are_compared_without_order() {
        for (predicate, field) in [
            (labels_changed(), "labels"),
            (annotations_changed(), "annotations"),
        ] {
            let old: DynamicObject = serde_json::from_str(&format!(
                r#"{{"metadata":{{"{field}":{{"a":"1","b":"2"}}}}}}"#
            ))
            .unwrap();
            let new: DynamicObject = serde_json::from_str(&format!(
                r#"{{"metadata":{{"{field}":{{"b":"2","a":"1"}}}}}}"#
            ))
            .unwrap();
            assert!(!predicate.matches(&old, &new), "{field}");
            let (one, none) = (json!({field: {"a": "1"}}), json!({field: null}));
            assert_passes(&predicate, one.clone(), json!({field: {"a": "2"}}), true);
            assert_passes(&predicate, one.clone(), none.clone(), true);
            assert_passes(&predicate, none, json!({}), false);
            assert_passes(&predicate, one.clone(), one, false);
        }
    }

    #[test]
    fn undecodable_metadata_passes() {
        let wrong = json!({"ownerReferences": "x"});
        assert_passes(&labels_changed(), wrong.clone(), wrong.clone(), true);
        assert_passes(&annotations_changed(), json!({}), wrong, true);
    }

    #[test]
    fn combined_predicates_short_circuit() {
        let never = || Predicate::new(|_: &ObjectMeta, _: &ObjectMeta| unreachable!());
        let (all, none) = (Predicate::new(|_, _| true), Predicate::new(|_, _| false));
        let object = ObjectMeta::default();
        assert!(all.clone().or(never()).matches(&object, &object));
        assert!(!none.clone().and(never()).matches(&object, &object));
        assert!((!none).and(all).matches(&object, &object));
    }
}
