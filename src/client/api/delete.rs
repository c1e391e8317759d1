use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use crate::object::Object;

/// What a deletion asks for: `metav1.DeleteOptions`. The default is what the kind's is, without conditions.
///
/// ```
/// use k8s_informer::{DeleteOptions, PropagationPolicy};
///
/// let mut options = DeleteOptions::default();
/// options.propagation_policy = Some(PropagationPolicy::Foreground);
/// options.grace_period_seconds = Some(0);
/// let sent = serde_json::to_string(&options)?;
/// assert!(sent.ends_with(r#""kind":"DeleteOptions","propagationPolicy":"Foreground"}"#), "{sent}");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeleteOptions {
    /// Only the object that has this UID: not another one that has taken its name.
    pub uid: Option<String>,
    /// Only if this is still the object's resourceVersion: nobody has changed it.
    pub resource_version: Option<String>,
    /// What becomes of the objects that it owns.
    pub propagation_policy: Option<PropagationPolicy>,
    /// How many seconds it may take to end in order; 0 is at once. Only some kinds, as Pods, have that.
    pub grace_period_seconds: Option<u32>,
}

impl DeleteOptions {
    /// Only this very object, in whatever state it is by now.
    pub fn same_object(object: &impl Object) -> Self {
        Self { uid: Some(object.uid().to_owned()), ..Self::default() }
    }

    /// Only this very object, if nobody has changed it since.
    pub fn unchanged(object: &impl Object) -> Self {
        Self { resource_version: Some(object.resource_version().to_owned()), ..Self::same_object(object) }
    }
}

/// What becomes of the objects that a deleted one owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PropagationPolicy {
    /// They stay, without an owner.
    Orphan,
    /// They are deleted after it, by the garbage collector.
    Background,
    /// They are deleted before it.
    Foreground,
}

impl PropagationPolicy {
    /// As it stands in a request.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Orphan => "Orphan",
            Self::Background => "Background",
            Self::Foreground => "Foreground",
        }
    }
}

impl Serialize for DeleteOptions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Destructured so that a new field can't be forgotten.
        let Self { uid, resource_version, propagation_policy, grace_period_seconds } = self;
        let mut preconditions = Map::new();
        // One that is empty is one that nothing meets, which is better than none.
        for (field, wanted) in [("uid", uid), ("resourceVersion", resource_version)] {
            if let Some(wanted) = wanted {
                preconditions.insert(field.to_owned(), wanted.as_str().into());
            }
        }
        let mut options = Map::new();
        options.insert("apiVersion".to_owned(), "v1".into());
        options.insert("kind".to_owned(), "DeleteOptions".into());
        if !preconditions.is_empty() {
            options.insert("preconditions".to_owned(), Value::Object(preconditions));
        }
        if let Some(policy) = propagation_policy {
            options.insert("propagationPolicy".to_owned(), policy.as_str().into());
        }
        if let Some(seconds) = grace_period_seconds {
            options.insert("gracePeriodSeconds".to_owned(), json!(seconds));
        }
        options.serialize(serializer)
    }
}
