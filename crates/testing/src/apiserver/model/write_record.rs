//! What a request has written.

use std::fmt;

use serde_json::Value;

use super::http::Response;
use super::log::{RequestRecord, Verb};
use super::resources::Target;

/// A successful write, recorded by a [`ControllerTest`](crate::ControllerTest).
///
/// `Display` is one line with the verb, the resource, and the namespace and name. Records compare
/// with such lines, so that a test can list what it expects.
///
/// ```
/// use k8s_informer::informer::Source;
/// use k8s_informer_controller::{Controller, Next};
/// use k8s_informer_testing::{ControllerTest, Verb};
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use serde_json::json;
///
/// let mut test = ControllerTest::new(Source::of::<ConfigMap>(), |controller| {
///     controller.by(|cx, _| {
///         let event = json!({"metadata": {"generateName": "seen-"}, "data": {"name": cx.name()}});
///         if !cx.name().starts_with("seen-") {
///             cx.api::<ConfigMap>(Some(cx.namespace())).create(&event, cx.stop())?;
///         }
///         Ok(Next::Done)
///     })
/// })?;
/// test.server().create("/api/v1/namespaces/default/configmaps", json!({"metadata": {"name": "a"}}))?;
/// test.run_until_idle()?;
///
/// let writes = test.writes();
/// assert_eq!(writes[0].verb, Verb::Create);
/// assert!(writes[0].name.starts_with("seen-"), "the server has generated {}", writes[0].name);
/// assert_eq!(writes[0].body["data"]["name"], "a");
/// assert!(writes[0].to_string().starts_with("create configmaps default/seen-"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct WriteRecord {
    /// The verb. A server-side apply is a [`Patch`](Verb::Patch).
    pub verb: Verb,
    /// The plural name of the resource, for example `configmaps`.
    pub resource: String,
    /// The subresource, for example `status`. Empty if the object itself was written.
    pub subresource: &'static str,
    /// The namespace. Empty for cluster-scoped objects.
    pub namespace: String,
    /// The name, also if the server has generated it. Empty for a deletion of a collection.
    pub name: String,
    /// The body of the request: the object, the patch, or the options of a deletion. Null if it was
    /// empty or is not JSON.
    pub body: Value,
}

impl WriteRecord {
    /// Returns `None` if the request failed or was a dry run.
    pub(crate) fn new(
        request: &RequestRecord,
        target: &Target,
        body: &[u8],
        response: &Response,
    ) -> Option<Self> {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let is_success = (200..300).contains(&response.status);
        let is_deletion = matches!(request.verb(), Verb::Delete | Verb::DeleteCollection);
        let is_dry_run =
            request.param("dryRun").is_some() || is_deletion && body.get("dryRun").is_some();
        if !is_success || is_dry_run {
            return None;
        }
        let generated = || {
            let created: Value = serde_json::from_slice(&response.body).unwrap_or_default();
            let name = created["metadata"]["name"].as_str();
            name.unwrap_or_default().to_owned()
        };
        let name = match (&target.name, request.verb()) {
            (Some(name), _) => name.clone(),
            (None, Verb::Create) => generated(),
            (None, _) => String::new(),
        };
        Some(Self {
            verb: request.verb(),
            resource: request.resource().unwrap_or_default().to_owned(),
            subresource: target.subresource(),
            namespace: target.namespace.clone().unwrap_or_default(),
            name,
            body,
        })
    }
}

impl fmt::Display for WriteRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb.name(), self.resource)?;
        let slash = |text: &str| if text.is_empty() { "" } else { "/" };
        write!(f, "{}{}", slash(self.subresource), self.subresource)?;
        let separator = slash(if self.name.is_empty() {
            ""
        } else {
            &self.namespace
        });
        write!(f, " {}{separator}{}", self.namespace, self.name)
    }
}

/// Writes the line of [`Display`](fmt::Display), so that a failed assertion is readable.
impl fmt::Debug for WriteRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

impl PartialEq<str> for WriteRecord {
    fn eq(&self, line: &str) -> bool {
        *line == *self.to_string()
    }
}

impl PartialEq<&str> for WriteRecord {
    fn eq(&self, line: &&str) -> bool {
        self == *line
    }
}
