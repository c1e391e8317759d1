//! Installs CustomResourceDefinitions.
//!
//! [`Client::install_crds`] applies definitions and waits until their resources are served. Its
//! page has an example.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use super::api::{Api, Patch, Update};
use super::wait::{Condition, Ended, Wait, backoff};
use super::{Client, Request, Response};
use crate::base::text::{EscapedName, EscapedText, listed};
use crate::error::{Error, ErrorKind, WaitError};
use crate::object::{DynamicObject, FullMetadata, GroupVersionResource, Object};
use crate::stop::Stop;

const API_VERSION: &str = "apiextensions.k8s.io/v1";
const KIND: &str = "CustomResourceDefinition";

/// The name of an object that should not exist.
const PROBE: &str = "install-crds-probe";

/// The maximum number of names in a message.
const MAX_LISTED: usize = 5;

/// Options for [`Client::install_crds`].
///
/// By default, conflicts with other field managers are errors, and the wait has no timeout.
///
/// ```
/// use k8s_informer::client::crds::InstallOptions;
/// use std::time::Duration;
///
/// let options = InstallOptions::new("team-controller").timeout(Duration::from_secs(60)).force(true);
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct InstallOptions {
    field_manager: String,
    force: bool,
    timeout: Option<Duration>,
}

impl InstallOptions {
    /// Creates options with the name of the field manager that applies the definitions.
    ///
    /// Use the same name in each version of your program: an apply removes the fields that this
    /// manager applied before and does not apply anymore.
    pub fn new(field_manager: impl Into<String>) -> Self {
        Self {
            field_manager: field_manager.into(),
            force: false,
            timeout: None,
        }
    }

    /// Sets whether to take over the fields that other managers own, for example if the definitions
    /// were created with kubectl or Helm before. See [`Patch::force`].
    pub fn force(mut self, force: bool) -> Self {
        self.force = force;
        self
    }

    /// Sets a timeout for the whole installation.
    pub fn timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.timeout = timeout.into();
        self
    }
}

impl Client {
    /// Applies CustomResourceDefinitions, and blocks until their resources are served. After that,
    /// an informer for a resource can start, and [`discover`](Self::discover) finds it.
    ///
    /// A definition is any value that serializes to it: a `serde_json::Value`, a
    /// [`DynamicObject`], or the type of k8s-openapi. This method does the following:
    ///
    /// 1. It checks all definitions. If one is not a definition, nothing is written.
    /// 2. It applies each one (server-side apply). A definition that is unchanged is not written
    ///    again by the server.
    /// 3. It waits until all of them are `Established`, with one watch at a time. A definition that
    ///    is being deleted is applied again when it is gone.
    /// 4. It waits until discovery has each served version, and each can be listed. Discovery has
    ///    no watch, so this polls with back-off. A conversion webhook need not respond yet, and stored
    ///    objects need not be readable.
    ///
    /// Errors that can heal are retried as in [`Api::wait_for`]. The method needs the permissions
    /// `patch`, `create`, `list` and `watch` for CustomResourceDefinitions. It needs none for their
    /// resources.
    ///
    /// The counterparts are controller-runtime's `envtest.InstallCRDs` and Wrangler's
    /// `crd.BatchCreateCRDs`.
    ///
    /// ```
    /// use k8s_informer::client::crds::InstallOptions;
    /// use k8s_informer::{Client, Config, Stop};
    /// use k8s_informer_testing::ApiServer;
    /// use serde_json::json;
    /// use std::time::Duration;
    ///
    /// let server = ApiServer::start()?;
    /// let (client, stop) = (Client::new(Config::new(server.url()))?, Stop::never());
    /// let widgets = json!({
    ///     "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
    ///     "metadata": {"name": "widgets.example.com"},
    ///     "spec": {
    ///         "group": "example.com", "scope": "Namespaced",
    ///         "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
    ///         "versions": [{"name": "v1", "served": true, "storage": true,
    ///             "schema": {"openAPIV3Schema": {"type": "object"}}}],
    ///     },
    /// });
    /// let options = InstallOptions::new("widget-controller").timeout(Duration::from_secs(60));
    /// client.install_crds([&widgets], &options, &stop)?;
    /// assert_eq!(client.discover("widget", &stop)?.resource.to_string(), "widgets.v1.example.com");
    ///
    /// let error = client.install_crds([json!({"kind": "Widget"})], &options, &stop).unwrap_err();
    /// assert!(error.is_refused());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error that [is refused](WaitError::is_refused) if a value is not a definition, if
    /// two have the same name, if another definition has one of the names, and if the server rejects
    /// one: with 422 because it is invalid, with 409 because of another field manager, with 401 or
    /// 403. Otherwise the errors are those of [`Api::wait_for`]. Definitions that were applied before
    /// the error stay.
    pub fn install_crds<D: Serialize>(
        &self,
        definitions: impl IntoIterator<Item = D>,
        options: &InstallOptions,
        stop: &Stop,
    ) -> Result<(), WaitError> {
        let definitions = definitions.into_iter().enumerate();
        let definitions: Result<Vec<_>, _> = definitions
            .map(|(index, definition)| Definition::new(index, &definition))
            .collect();
        let doing = match &definitions {
            Ok(definitions) => {
                let names = definitions.iter().map(|one| &*one.name);
                format!("installing {}", listed(names, MAX_LISTED))
            }
            Err(_) => "installing CustomResourceDefinitions".to_owned(),
        };
        Wait::run(self, doing, options.timeout, stop, |wait| {
            let definitions = definitions?;
            let mut names = BTreeSet::new();
            if let Some(twice) = definitions.iter().find(|one| !names.insert(&*one.name)) {
                return Err(invalid(format!("{:?} is passed twice", twice.name)).into());
            }
            if definitions.is_empty() {
                return Ok(());
            }
            let resource = GroupVersionResource::new(
                "apiextensions.k8s.io",
                "v1",
                "customresourcedefinitions",
            );
            let api = self.dynamic_api(&resource, None);
            let (mut missing, mut backoff) = (names, backoff());
            let mut delay = Duration::ZERO;
            loop {
                for one in definitions
                    .iter()
                    .filter(|one| missing.contains(&*one.name))
                {
                    one.apply(&api, options, wait)?;
                }
                missing = establish(&api, &definitions, wait)?;
                if missing.is_empty() {
                    break;
                }
                // Another program may delete a definition again and again.
                wait.pause(delay)?;
                delay = backoff.step();
            }
            wait_until_served(self, &definitions, wait)
        })
    }
}

/// A valid definition.
struct Definition {
    name: String,
    content: Value,
    /// The served versions.
    resources: Vec<GroupVersionResource>,
    /// Whether a webhook converts the objects, as the server has it. Another manager may have set
    /// that.
    is_converted: Cell<bool>,
}

impl Definition {
    /// Checks a definition. Does not check what the server checks.
    fn new(index: usize, definition: &impl Serialize) -> Result<Self, Error> {
        let number = index + 1;
        let content = serde_json::to_value(definition)
            .map_err(|_| invalid(format!("number {number} can't be serialized as JSON")))?;
        let text = |pointer: &str| {
            let text = content.pointer(pointer).and_then(Value::as_str);
            text.unwrap_or_default()
        };
        let name = text("/metadata/name");
        let invalid = |why: String| {
            let name = EscapedName(name);
            invalid(format!("number {number} (\"{name}\"): {why}"))
        };
        let kind = [text("/apiVersion"), text("/kind")];
        if kind != [API_VERSION, KIND] {
            let [version, kind] = kind.map(EscapedName);
            return Err(invalid(format!(
                "the kind is \"{kind}\" in \"{version}\" instead of \"{KIND}\" in \"{API_VERSION}\""
            )));
        }
        let (group, plural) = (text("/spec/group"), text("/spec/names/plural"));
        if group.is_empty() || plural.is_empty() {
            return Err(invalid(
                "spec.group or spec.names.plural is missing".to_owned(),
            ));
        }
        if name != format!("{plural}.{group}") {
            let [plural, group] = [plural, group].map(EscapedName);
            return Err(invalid(format!("the name must be \"{plural}.{group}\"")));
        }
        let versions = content.pointer("/spec/versions").and_then(Value::as_array);
        let versions = versions.into_iter().flatten();
        let served = versions.filter(|version| version["served"] == true);
        let resources: Vec<_> = served
            .filter_map(|version| version["name"].as_str())
            .map(|version| GroupVersionResource::new(group, version, plural))
            .collect();
        if resources.is_empty() {
            return Err(invalid("no version is served".to_owned()));
        }
        Ok(Self {
            name: name.to_owned(),
            resources,
            content,
            is_converted: Cell::default(),
        })
    }

    fn apply(
        &self,
        api: &Api<DynamicObject>,
        options: &InstallOptions,
        wait: &mut Wait<'_>,
    ) -> Result<(), Ended> {
        let mut patch = Patch::apply(&*options.field_manager, &self.content);
        if options.force {
            patch = patch.force(true);
        }
        // An apply can be repeated, unlike other writes.
        wait.retry(|wait| {
            api.patch(&self.name, &patch, wait.stop)?;
            wait.last_error = None;
            wait.last_seen = format!("applied {:?}", self.name);
            Ok(ControlFlow::Break(()))
        })
    }

    /// Returns a request that a server answers once it serves the version: a list, or the read of an
    /// object that should not exist.
    fn probe(&self, resource: &GroupVersionResource, lists: bool) -> Result<Request, Error> {
        if lists {
            return Ok(Request::get(resource.path(None)?).query("limit", "1"));
        }
        let is_namespaced = self.content.pointer("/spec/scope") == Some(&"Namespaced".into());
        let path = resource.path(is_namespaced.then_some("default"))?;
        Ok(Request::get(format!("{path}/{PROBE}")))
    }

    /// Whether the object is this definition.
    fn is(&self, object: &DynamicObject) -> bool {
        object.name() == self.name
    }

    /// Looks at the definition as the server has it.
    fn look(&self, object: &DynamicObject) -> Result<State, Error> {
        let content: Value = object
            .decode()
            .map_err(|error| Error::invalid(error.to_string()))?;
        let strategy = content.pointer("/spec/conversion/strategy");
        self.is_converted.set(strategy == Some(&"Webhook".into()));
        let names = content.pointer("/spec/names");
        let with_status = |type_, status| {
            Condition::of(&content, type_).filter(|condition| condition.status == status)
        };
        Ok(if object.is_being_deleted() {
            State::Waiting("being deleted")
        } else if let Some(refused) = with_status("NamesAccepted", "False") {
            if uses_name_in(refused.message, names) {
                let (reason, message) = (refused.reason, EscapedText(refused.message));
                let text = format!("{:?}: {}: {message}", self.name, EscapedText(reason));
                return Err(Error::other(text));
            }
            // The message is about an earlier name. The server has not checked the new one yet.
            State::Waiting("names not accepted yet")
        } else if with_status("Established", "True").is_none() {
            State::Waiting("not established yet")
        } else if content.pointer("/status/acceptedNames") == names {
            State::Established
        } else {
            // The names have been changed, and the server has not checked them yet.
            State::Waiting("names not accepted yet")
        })
    }
}

/// The state of a definition on the server.
enum State {
    Established,
    Waiting(&'static str),
}

/// Waits until all definitions are established. Returns the names of those that do not exist.
///
/// They are watched one after the other, because a selector can select one name or all definitions
/// of the cluster.
fn establish<'a>(
    api: &Api<DynamicObject>,
    definitions: &'a [Definition],
    wait: &mut Wait<'_>,
) -> Result<BTreeSet<&'a str>, Ended> {
    let mut missing = BTreeSet::new();
    for definition in definitions {
        let selector = format!("metadata.name={}", definition.name);
        let exists = api.follow(&selector, wait, |update, wait| {
            let object = match update {
                Update::All(objects) => objects.into_iter().find(|one| definition.is(one)),
                Update::Changed(object) | Update::Gone(object) if !definition.is(&object) => {
                    return Ok(ControlFlow::Continue(()));
                }
                Update::Changed(object) => Some(object),
                Update::Gone(_) => None,
            };
            let Some(object) = object else {
                return Ok(ControlFlow::Break(false));
            };
            match definition.look(&object)? {
                State::Established => Ok(ControlFlow::Break(true)),
                State::Waiting(state) => {
                    wait.last_seen = format!("{:?} {state}", definition.name);
                    Ok(ControlFlow::Continue(()))
                }
            }
        })?;
        if !exists {
            missing.insert(&*definition.name);
        }
    }
    Ok(missing)
}

/// Waits until discovery has all versions of all definitions, and the server answers requests for
/// them.
///
/// A list of objects that a webhook converts waits for the webhook, and a list fails if a stored
/// object cannot be converted. In these cases, an object that should not exist is read instead.
fn wait_until_served<'a>(
    client: &Client,
    definitions: &'a [Definition],
    wait: &mut Wait<'_>,
) -> Result<(), Ended> {
    let versions = |one: &'a Definition| one.resources.iter().map(move |version| (one, version));
    let mut left: Vec<_> = definitions.iter().flat_map(versions).collect();
    wait.retry(|wait| {
        let discovery = client.rediscover(wait.stop)?;
        wait.last_error = None;
        while let Some(&(definition, resource)) = left.last() {
            if discovery.by_resource(resource).is_none() {
                wait.last_seen = format!("discovery lacks {resource}");
                let mut failures = discovery.failures().iter();
                if let Some(failure) = failures.find(|failure| failure.group == resource.group) {
                    wait.last_error = Some(failure.error.clone());
                }
                return Ok(ControlFlow::Continue(()));
            }
            let ask = |lists| {
                let request = definition.probe(resource, lists)?.retries(0);
                client
                    .request(&request, wait.stop)
                    .and_then(Response::discard)
            };
            let mut answer = ask(!definition.is_converted.get());
            if answer.as_ref().is_err_and(Error::is_internal_error) {
                answer = ask(false);
            }
            match answer {
                // The server checks permissions first, so nothing more can be found out.
                Err(error) if error.is_forbidden() => {}
                Err(error) if is_of_served_version(&error) => {}
                Err(error) if error.is_not_found() => {
                    wait.last_seen = format!("{resource} cannot be listed yet");
                    return Ok(ControlFlow::Continue(()));
                }
                answer => answer?,
            }
            left.pop();
        }
        Ok(ControlFlow::Break(()))
    })
}

/// Whether only a server that serves the version sends this error: it lacks the object, or its
/// conversion webhook failed.
fn is_of_served_version(error: &Error) -> bool {
    error.status().is_some_and(|status| {
        let details = status.details.as_ref();
        details.is_some_and(|details| details.name == PROBE)
            || status.message.contains("conversion webhook")
    })
}

/// Whether a message of the server quotes one of the names in the definition.
fn uses_name_in(message: &str, names: Option<&Value>) -> bool {
    let values = names.and_then(Value::as_object).into_iter().flatten();
    let texts = values.flat_map(|(_, value)| match value {
        Value::Array(values) => values.iter().collect(),
        value => vec![value],
    });
    texts
        .filter_map(Value::as_str)
        .any(|name| message.contains(&format!("\"{name}\"")))
}

/// The error for a value that is not a definition.
fn invalid(why: String) -> Error {
    Error::new(ErrorKind::Other(format!(
        "invalid CustomResourceDefinition: {why}; nothing was written"
    )))
}
