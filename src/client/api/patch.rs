use serde::Serialize;
use serde_json::Value;

use super::options::WriteOptions;
use crate::client::Request;
use crate::error::Error;

/// A change of an object that says what is to be different ([`merge`](Self::merge), [`json`](Self::json),
/// [`strategic_merge`](Self::strategic_merge)), or what is to be there ([`apply`](Self::apply)). client-go's
/// `types.PatchType` and the data that goes with it.
///
/// None of them touches what it doesn't name, so every type of objects can be patched, also one that knows
/// but a few fields.
///
/// ```
/// use k8s_informer::client::api::Patch;
/// use serde_json::json;
///
/// // Sets one label, and takes another away; of this state of the object alone.
/// let patch = json!({"metadata": {"labels": {"a": "1", "b": null}, "resourceVersion": "7"}});
/// let patch = Patch::merge(patch);
///
/// // Takes the first finalizer, if it is still this one.
/// let patch = Patch::json(json!([
///     {"op": "test", "path": "/metadata/finalizers/0", "value": "example.com/mine"},
///     {"op": "remove", "path": "/metadata/finalizers/0"},
/// ]));
///
/// // Wants these fields, and owns them.
/// let wanted = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "1"}});
/// let patch = Patch::apply("my-controller", wanted).force();
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Patch<B> {
    kind: Kind,
    body: B,
}

#[derive(Clone, Debug)]
enum Kind {
    Merge,
    Json,
    StrategicMerge,
    Apply { field_manager: String, force: bool },
}

impl<B: Serialize> Patch<B> {
    /// A JSON merge patch (RFC 7386): fields that it names are set, those that are `null` taken away, lists
    /// replaced as a whole. With a `metadata.resourceVersion` it is a conflict unless the object has that.
    pub fn merge(body: B) -> Self {
        Self {
            kind: Kind::Merge,
            body,
        }
    }

    /// A JSON patch (RFC 6902): a list of operations that are done one after the other, or not at all. A
    /// `test` that fails is [`is_invalid`](Error::is_invalid).
    pub fn json(operations: B) -> Self {
        Self {
            kind: Kind::Json,
            body: operations,
        }
    }

    /// A strategic merge patch: as [`merge`](Self::merge), but lists whose items have a key are merged by it.
    /// For built-in kinds only; others answer 415.
    pub fn strategic_merge(body: B) -> Self {
        Self {
            kind: Kind::StrategicMerge,
            body,
        }
    }

    /// Server-side apply: the object is made if it is not there, has all the fields of the body from then on,
    /// and none that this manager has applied before and left out now. The manager owns them: another one who
    /// applies other values gets a conflict, unless by [`force`](Self::force).
    ///
    /// The body says name, apiVersion and kind (the last two may be left out where a type knows them), and
    /// never `metadata.managedFields`. It says just what is wanted: applying an object that was read owns
    /// everything that it had. client-go's `Apply`.
    pub fn apply(field_manager: impl Into<String>, body: B) -> Self {
        Self {
            kind: Kind::Apply {
                field_manager: field_manager.into(),
                force: false,
            },
            body,
        }
    }

    /// Takes the fields that it applies from the managers who own them. What a controller does that is the
    /// only one to know better. No other kind of patch has owners, and none is changed by this.
    pub fn force(mut self) -> Self {
        if let Kind::Apply { force, .. } = &mut self.kind {
            *force = true;
        }
        self
    }

    pub(super) fn verb(&self) -> &'static str {
        match self.kind {
            Kind::Apply { .. } => "apply",
            _ => "patch",
        }
    }

    /// Puts it into a request; `whole` makes what is applied an object with a kind.
    pub(super) fn request(
        &self,
        request: Request,
        options: &WriteOptions,
        whole: impl FnOnce(&B) -> Result<Value, Error>,
    ) -> Result<Request, Error> {
        let request = match &self.kind {
            Kind::Apply { field_manager, .. } => options.of_manager(field_manager).add_to(request),
            _ => options.add_to(request),
        };
        let (request, media_type) = match &self.kind {
            Kind::Merge => (request.json(&self.body)?, "application/merge-patch+json"),
            Kind::Json => (request.json(&self.body)?, "application/json-patch+json"),
            Kind::StrategicMerge => (
                request.json(&self.body)?,
                "application/strategic-merge-patch+json",
            ),
            Kind::Apply { force, .. } => {
                let mut request = request.json(&whole(&self.body)?)?;
                if *force {
                    request = request.query("force", "true");
                }
                // JSON is YAML.
                (request, "application/apply-patch+yaml")
            }
        };
        Ok(request.content_type(media_type))
    }
}
