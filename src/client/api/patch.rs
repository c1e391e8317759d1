use serde::Serialize;
use serde_json::Value;

use super::options::WriteOptions;
use crate::client::Request;
use crate::error::Error;

/// A change to an object. The client-go counterpart is `types.PatchType` together with the patch
/// data.
///
/// [`merge`](Self::merge), [`json`](Self::json) and [`strategic_merge`](Self::strategic_merge)
/// describe what to change. [`apply`](Self::apply) describes the fields that the object must have.
///
/// A patch keeps all fields that it does not name. You can therefore patch with every object type,
/// including a struct with only a few fields.
///
/// ```
/// use k8s_informer::client::api::Patch;
/// use serde_json::json;
///
/// // Sets one label and removes another, only if the object has this resource version.
/// let patch = json!({"metadata": {"labels": {"a": "1", "b": null}, "resourceVersion": "7"}});
/// let patch = Patch::merge(patch);
///
/// // Removes the first finalizer, if it has this value.
/// let patch = Patch::json(json!([
///     {"op": "test", "path": "/metadata/finalizers/0", "value": "example.com/mine"},
///     {"op": "remove", "path": "/metadata/finalizers/0"},
/// ]));
///
/// // Sets these fields and owns them.
/// let wanted = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "1"}});
/// let patch = Patch::apply("my-controller", wanted).force(true);
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
    /// A JSON merge patch (RFC 7386).
    ///
    /// The patch sets the fields that it contains, removes those that are `null`, and replaces
    /// lists completely. With a `metadata.resourceVersion`, it fails with a conflict if the object
    /// has another version.
    pub fn merge(body: B) -> Self {
        Self {
            kind: Kind::Merge,
            body,
        }
    }

    /// A JSON patch (RFC 6902): a list of operations.
    ///
    /// The server executes them in order, either all or none. A failed `test` is an
    /// [`is_invalid`](Error::is_invalid) error. Before 1.35, a kube-apiserver closes the connection
    /// if a `test` has no `value`, not even `null`, or a path below a field that is `null`.
    pub fn json(operations: B) -> Self {
        Self {
            kind: Kind::Json,
            body: operations,
        }
    }

    /// A strategic merge patch.
    ///
    /// It works like [`merge`](Self::merge), but merges lists whose items have a key. Only built-in
    /// kinds support it. For other kinds, the server responds with 415.
    pub fn strategic_merge(body: B) -> Self {
        Self {
            kind: Kind::StrategicMerge,
            body,
        }
    }

    /// A server-side apply. The client-go counterpart is `Apply`.
    ///
    /// The server creates the object if it does not exist, and sets all fields of the body. It
    /// removes the fields that this manager applied before and that the body omits. The manager
    /// then owns the fields of the body. Another manager that applies different values to them gets
    /// a conflict, unless it uses [`force`](Self::force).
    ///
    /// The body contains the name, `apiVersion` and `kind`. You can omit the last two if the
    /// [`Api`](crate::client::api::Api) was made by [`Client::api`](crate::Client::api). The body
    /// must not contain `metadata.managedFields`. Include only the fields that you want to own: if
    /// you apply an object that you have read, the manager owns all of its fields.
    pub fn apply(field_manager: impl Into<String>, body: B) -> Self {
        Self {
            kind: Kind::Apply {
                field_manager: field_manager.into(),
                force: false,
            },
            body,
        }
    }

    /// Sets whether to take over the applied fields from the managers that own them.
    ///
    /// Use this in a controller that is the only authority for these fields. It affects only
    /// [`apply`](Self::apply): other patches have no ownership.
    pub fn force(mut self, force: bool) -> Self {
        if let Kind::Apply { force: forced, .. } = &mut self.kind {
            *forced = force;
        }
        self
    }

    pub(super) fn verb(&self) -> &'static str {
        match self.kind {
            Kind::Apply { .. } => "apply",
            _ => "patch",
        }
    }

    /// Adds the patch to a request. For an apply, `whole` serializes the body and adds the kind.
    pub(super) fn request(
        &self,
        request: Request,
        options: &WriteOptions,
        whole: impl FnOnce(&B) -> Result<Value, Error>,
    ) -> Result<Request, Error> {
        if let Kind::Apply {
            field_manager,
            force,
        } = &self.kind
        {
            let options = options.with_field_manager(field_manager);
            let mut request = options.add_to(request).json(&whole(&self.body)?)?;
            if *force {
                request = request.query("force", "true");
            }
            // The body is JSON, which is valid YAML.
            return Ok(request.content_type("application/apply-patch+yaml"));
        }
        let media_type = match &self.kind {
            Kind::Merge => "application/merge-patch+json",
            Kind::Json => "application/json-patch+json",
            _ => "application/strategic-merge-patch+json",
        };
        let request = options.add_to(request).json(&self.body)?;
        Ok(request.content_type(media_type))
    }
}
