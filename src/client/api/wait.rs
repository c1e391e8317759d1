use std::ops::ControlFlow;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::lister_watcher::{PARTIAL, describe};
use super::{Api, Fetched, WatchEvent};
use crate::base::text::{EscapedName, EscapedText};
use crate::client::wait::{Condition, Ended, Wait};
use crate::error::{Error, WaitError};
use crate::object::{DynamicObject, FullMetadata, Object, PartialObjectMetadata};
use crate::stop::Stop;
use crate::wire::ListOptions;

/// After this time the server ends a watch, and the wait lists again.
const WATCH_SECONDS: u32 = 300;

/// The state of the selected objects, or a change.
pub(in crate::client) enum Update<T> {
    /// All objects. Others do not exist.
    All(Vec<T>),
    /// A new state of an object.
    Changed(T),
    /// The last state of an object that does not exist anymore.
    Gone(T),
}

/// The result of looking at an object.
enum Look<R> {
    Met(R),
    /// The description of what was seen.
    NotYet(String),
}

impl<T: Object + DeserializeOwned> Api<T> {
    /// Blocks until the object of this name is in a certain state, and returns the object.
    ///
    /// `until` is called with the current object, and after each change. It gets `None` while the
    /// object does not exist. The result is `None` if `until` accepted that. Changes in quick
    /// succession can be combined, so `until` should test a state that lasts.
    ///
    /// This lists and watches only this object, and does not poll. It needs the permissions `list`
    /// and `watch`. Ended watches, expired versions, broken connections, 429 and 5xx are retried
    /// with back-off. Both `stop` and `timeout` end the wait immediately. Pass `None` to wait without
    /// a timeout. A wait with a timeout runs one thread. A very short timeout can elapse before the
    /// first list; to test the state once, use [`get`](Self::get).
    ///
    /// A reconcile function of a controller should not wait, because it blocks a worker: return
    /// `Next::After` instead.
    ///
    /// The counterparts are `kubectl wait`, client-go's `watch.UntilWithSync` and kube's
    /// `runtime::wait::await_condition`.
    ///
    /// ```
    /// use k8s_informer::{Client, Config, Stop};
    /// use k8s_informer_testing::ApiServer;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use serde_json::json;
    /// use std::time::Duration;
    ///
    /// let server = ApiServer::start()?;
    /// let client = Client::new(Config::new(server.url()))?;
    /// let (maps, stop) = (client.api::<ConfigMap>(Some("default")), Stop::never());
    /// let has_data = |map: Option<&ConfigMap>| map.is_some_and(|map| map.data.is_some());
    /// let minute = Duration::from_secs(60);
    /// let map = std::thread::scope(|scope| {
    ///     let waiter = scope.spawn(|| maps.wait_for("settings", has_data, minute, &stop));
    ///     maps.create(&json!({"metadata": {"name": "settings"}, "data": {"colour": "red"}}), &stop)?;
    ///     Ok::<_, Box<dyn std::error::Error>>(waiter.join().unwrap()?)
    /// })?;
    /// assert_eq!(map.unwrap().data.as_ref().unwrap()["colour"], "red");
    ///
    /// let soon = Duration::from_millis(1);
    /// let error = maps.wait_for("other", has_data, soon, &stop).unwrap_err();
    /// assert!(error.is_timed_out());
    /// let text = r#"timed out after 1ms waiting for configmaps "other" in namespace "default"; last seen: "#;
    /// assert!(error.to_string().starts_with(text), "{error}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error that [timed out](WaitError::is_timed_out) or [is
    /// stopped](WaitError::is_stopped), with the state that was seen last and the last error. The
    /// wait [is refused](WaitError::is_refused) immediately after an error that does not heal: 400,
    /// 401, 403, 404 because the kind does not exist, 405, 422, a TLS failure, a body above the
    /// [`body_limit`](crate::Config::body_limit), an id-token that has expired, an invalid
    /// configuration or an invalid name. An object that cannot be decoded can change, so the wait
    /// continues; the error is the last one.
    pub fn wait_for(
        &self,
        name: &str,
        mut until: impl FnMut(Option<&T>) -> bool,
        timeout: impl Into<Option<Duration>>,
        stop: &Stop,
    ) -> Result<Option<Fetched<T>>, WaitError> {
        let wanted = Wanted {
            what: "",
            name,
            timeout: timeout.into(),
            stop,
            refusal: None,
        };
        self.look_until(&wanted, |object| {
            Ok(if until(object.as_ref()) {
                Look::Met(object.map(Fetched::new))
            } else {
                Look::NotYet(seen(object.as_ref(), ""))
            })
        })
    }

    /// Blocks until the object has a condition with this status: `True`, `False` or `Unknown`.
    ///
    /// An object that does not exist yet is awaited. A condition for an older generation of the
    /// object does not count. `type_` and `status` are case-sensitive. `T` needs no field for
    /// conditions: the wait reads the JSON. Otherwise this works like [`wait_for`](Self::wait_for).
    /// The counterparts are `kubectl wait --for=condition=Ready` and kube's `conditions`.
    ///
    /// ```
    /// use k8s_informer::client::api::Patch;
    /// use k8s_informer::{Client, Config, Object, Stop};
    /// use k8s_informer_testing::ApiServer;
    /// use k8s_openapi::api::batch::v1::Job;
    /// use serde_json::json;
    /// use std::time::Duration;
    ///
    /// let server = ApiServer::start()?;
    /// let client = Client::new(Config::new(server.url()))?;
    /// let (jobs, stop) = (client.api::<Job>(Some("default")), Stop::never());
    /// jobs.create(&json!({"metadata": {"name": "backup"}}), &stop)?;
    /// let status = json!({"conditions": [{"type": "Complete", "status": "True"}]});
    /// jobs.status().patch("backup", &Patch::merge(json!({"status": status})), &stop)?;
    /// let job = jobs.wait_for_condition("backup", "Complete", "True", Duration::from_secs(60), &stop)?;
    /// assert_eq!(job.name(), "backup");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`wait_for`](Self::wait_for). The wait is refused if this `Api` reads only the
    /// metadata.
    pub fn wait_for_condition(
        &self,
        name: &str,
        type_: &str,
        status: &str,
        timeout: impl Into<Option<Duration>>,
        stop: &Stop,
    ) -> Result<Fetched<T>, WaitError> {
        let (awaited, awaited_status) = (EscapedName(type_), EscapedName(status));
        let wanted = Wanted {
            what: &format!("the condition {awaited}={awaited_status} of "),
            name,
            timeout: timeout.into(),
            stop,
            refusal: (self.accept == PARTIAL)
                .then_some("this Api reads only the metadata, which contains no status"),
        };
        let api = self.view::<DynamicObject>(self.kind.clone(), None);
        api.look_until(&wanted, |object| {
            let Some(object) = object else {
                return Ok(Look::NotYet(seen(None::<&T>, "")));
            };
            let undecodable = |error: serde_json::Error| Error::invalid(error.to_string());
            let content: Value = object.decode().map_err(undecodable)?;
            let Some(condition) = Condition::of(&content, type_) else {
                let state = format!(", no condition {awaited}");
                return Ok(Look::NotYet(seen(Some(&object), &state)));
            };
            let number = |pointer: &str| content.pointer(pointer).and_then(Value::as_i64);
            // Some kinds have one observed generation for all conditions, such as Deployment.
            let observed = condition.observed_generation;
            let observed = observed.or_else(|| number("/status/observedGeneration"));
            let is_old = observed.is_some() && observed < number("/metadata/generation");
            if condition.status == status && !is_old {
                return Ok(Look::Met(Fetched::new(
                    object.decode().map_err(undecodable)?,
                )));
            }
            let reason = match condition.reason {
                "" => String::new(),
                reason => format!(" ({})", EscapedText(reason)),
            };
            let age = if is_old {
                " of an older generation"
            } else {
                ""
            };
            let status = EscapedText(condition.status);
            let state = format!(", {awaited}={status}{reason}{age}");
            Ok(Look::NotYet(seen(Some(&object), &state)))
        })
    }

    /// Blocks until the object does not exist anymore. Returns immediately if it does not exist.
    ///
    /// With a `uid`, the wait is for this object: a newer object of the same name counts as gone.
    /// Pass the [`uid`](Object::uid) of the object that you deleted. Pass `None` if no object may
    /// have this name afterwards. This does not delete
    /// the object; see [`delete`](Self::delete).
    ///
    /// Only the metadata is requested. Otherwise this works like [`wait_for`](Self::wait_for). The
    /// counterparts are `kubectl wait --for=delete` and kube's `conditions::is_deleted`.
    ///
    /// ```
    /// use k8s_informer::client::api::DeleteOptions;
    /// use k8s_informer::{Client, Config, Object, Stop};
    /// use k8s_informer_testing::ApiServer;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use serde_json::json;
    /// use std::time::Duration;
    ///
    /// let server = ApiServer::start()?;
    /// let client = Client::new(Config::new(server.url()))?;
    /// let (maps, stop) = (client.api::<ConfigMap>(Some("default")), Stop::never());
    /// let held = json!({"metadata": {"name": "settings", "finalizers": ["example.com/hold"]}});
    /// let map = maps.create(&held, &stop)?;
    /// maps.delete("settings", &DeleteOptions::same_object(&*map), &stop)?;
    /// let wait = |timeout| maps.wait_for_deletion("settings", Some(map.uid()), timeout, &stop);
    /// let error = wait(Duration::from_millis(500)).unwrap_err();
    /// let text = "being deleted, held by finalizers: example.com/hold";
    /// assert!(error.is_timed_out() && error.to_string().ends_with(text), "{error}");
    ///
    /// maps.modify("settings", |map| map.metadata.finalizers = None, &stop)?;
    /// wait(Duration::from_secs(60))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`wait_for`](Self::wait_for). The wait is refused if the `uid` is empty.
    pub fn wait_for_deletion(
        &self,
        name: &str,
        uid: Option<&str>,
        timeout: impl Into<Option<Duration>>,
        stop: &Stop,
    ) -> Result<(), WaitError> {
        let api = Api::<PartialObjectMetadata> {
            accept: PARTIAL,
            ..self.view(None, None)
        };
        let wanted = Wanted {
            what: "the deletion of ",
            name,
            timeout: timeout.into(),
            stop,
            refusal: uid
                .filter(|uid| uid.is_empty())
                .map(|_| "the UID is empty; pass the UID of an object, or None"),
        };
        api.look_until(&wanted, |object| {
            let Some(object) = object.filter(|object| uid.is_none_or(|uid| uid == object.uid()))
            else {
                return Ok(Look::Met(()));
            };
            let state = match (object.is_being_deleted(), &*object.metadata.finalizers) {
                (false, _) => ", not being deleted".to_owned(),
                (true, []) => ", being deleted".to_owned(),
                (true, held) => {
                    let held = held.join(", ");
                    format!(
                        ", being deleted, held by finalizers: {}",
                        EscapedText(&held)
                    )
                }
            };
            Ok(Look::NotYet(seen(Some(&object), &state)))
        })
    }

    /// Calls `look` with each state of an object until it is the awaited one.
    fn look_until<R>(
        &self,
        wanted: &Wanted<'_>,
        mut look: impl FnMut(Option<T>) -> Result<Look<R>, Error>,
    ) -> Result<R, WaitError> {
        let Wanted { what, name, .. } = *wanted;
        let object = describe(&self.resource, "", Some(name), self.namespace());
        let doing = format!("waiting for {what}{object}");
        Wait::run(&self.client, doing, wanted.timeout, wanted.stop, |wait| {
            self.path_of(name)?;
            if let Some(refusal) = wanted.refusal {
                return Err(Error::other(refusal).into());
            }
            let selector = format!("metadata.name={}", escaped(name));
            self.follow(&selector, wait, |update, wait| {
                let object = match update {
                    Update::All(mut objects) => objects.pop(),
                    Update::Changed(object) => Some(object),
                    Update::Gone(object) => {
                        self.check_is_requested(name, &object)?;
                        None
                    }
                };
                if let Some(object) = &object {
                    self.check_is_requested(name, object)?;
                }
                match look(object)? {
                    Look::Met(result) => Ok(ControlFlow::Break(result)),
                    Look::NotYet(seen) => {
                        wait.last_seen = seen;
                        Ok(ControlFlow::Continue(()))
                    }
                }
            })
        })
    }

    /// Rejects an object with another name or namespace: the server ignored the selector, or an
    /// `Api` for all namespaces found the object in one of them.
    fn check_is_requested(&self, name: &str, object: &T) -> Result<(), Error> {
        if object.name() == name && object.namespace() == self.namespace().unwrap_or_default() {
            return Ok(());
        }
        let found = describe(
            &self.resource,
            "",
            Some(object.name()),
            Some(object.namespace()),
        );
        Err(Error::other(format!(
            "the server sent {found}; wait for an object of one namespace"
        )))
    }

    /// Lists and watches the objects until `next` breaks. Lists again after the end of a watch.
    pub(in crate::client) fn follow<R>(
        &self,
        field_selector: &str,
        wait: &mut Wait<'_>,
        mut next: impl FnMut(Update<T>, &mut Wait<'_>) -> Result<ControlFlow<R>, Ended>,
    ) -> Result<R, Ended> {
        let lister_watcher = self.lister_watcher()?;
        let options = ListOptions::new().field_selector(field_selector);
        wait.retry(|wait| {
            // Without a version, the list shows the most recent state, and every write before it.
            let list = self.list_from(&lister_watcher, &options, wait.stop)?;
            wait.last_error = None;
            let mut options = options.clone();
            options.resource_version = list.resource_version;
            options.timeout_seconds = Some(WATCH_SECONDS);
            let done = next(Update::All(list.items), wait)?;
            if done.is_break() {
                return Ok(done);
            }
            for event in self.watch_from(&lister_watcher, &options, wait.stop)? {
                let update = match event? {
                    WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                        Update::Changed(object)
                    }
                    WatchEvent::Deleted(object) => Update::Gone(object),
                    WatchEvent::Bookmark { .. } => continue,
                };
                let done = next(update, wait)?;
                if done.is_break() {
                    return Ok(done);
                }
            }
            Ok(ControlFlow::Continue(()))
        })
    }
}

/// The object and the state that are awaited.
#[derive(Clone, Copy)]
struct Wanted<'a> {
    /// The state, for messages: `the deletion of `.
    what: &'a str,
    name: &'a str,
    timeout: Option<Duration>,
    stop: &'a Stop,
    /// Why the wait is refused.
    refusal: Option<&'static str>,
}

/// Describes the state of an object: its version, followed by `state`.
fn seen(object: Option<&impl Object>, state: &str) -> String {
    match object {
        None => "no such object".to_owned(),
        Some(object) => {
            let version = EscapedName(object.resource_version());
            format!("resource version {version}{state}")
        }
    }
}

/// Escapes a value in a field selector.
fn escaped(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for character in value.chars() {
        if matches!(character, '\\' | ',' | '=') {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}
