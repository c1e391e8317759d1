use std::fmt;
use std::sync::Arc;

use super::patch;
use super::patches::remove_patch;
use k8s_informer::__private::debug_as_display;
use k8s_informer::client::Client;
use k8s_informer::client::api::Api;
use k8s_informer::error::Error;
use k8s_informer::informer::{InformerScope, Source};
use k8s_informer::object::{
    FullObjectMeta, GroupVersionResource, Key, Object, PartialObjectMetadata, meta_namespace_key,
};
use k8s_informer::reflector::ListOptions;
use k8s_informer::stop::Stop;

/// The number of objects that an error names.
const MOST_NAMED: usize = 10;

/// Removes finalizers from all objects of a source, for an uninstall.
///
/// A finalizer without its controller makes objects and their namespaces impossible to delete.
/// Before you remove a controller from a cluster:
///
/// 1. **Stop the controller**, or it adds the finalizers again.
/// 2. Call this function with the current and the former names of its finalizers.
///
/// **The cleanup does not run.** Effects outside the cluster remain, and objects that wait only for
/// these finalizers are gone afterwards. To clean up, delete the objects while the controller runs.
///
/// It reads the metadata of the objects in pages of 500, also for a source of whole objects. The
/// scope of the source applies; without one, all namespaces. It needs permission to `list` and
/// `patch` the resource, and to `get` it if other programs change the objects at the same time or a
/// response is lost. It sends one request after another, and returns when all objects are done.
/// Other finalizers stay.
///
/// You can call it again at any time: it skips objects without these finalizers, and a name that no
/// object has is no error. It corresponds to nothing in client-go, controller-runtime and kube-rs.
///
/// # Errors
///
/// An object that cannot be patched does not end the others. The error names the objects that may
/// have kept their finalizers. The function ends early if the stop is set, if the client lacks
/// credentials (401), if the server cannot be reached, and if a list fails.
///
/// ```
/// use k8s_informer::informer::Source;
/// use k8s_informer::{Client, Config, Stop};
/// use k8s_informer_controller::{RemovalOutcome, remove_finalizers};
/// use k8s_informer_testing::{ApiServer, Fault, Verb};
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use serde_json::json;
///
/// let server = ApiServer::start()?;
/// let path = "/api/v1/namespaces/default/configmaps";
/// for name in ["a", "b"] {
///     let finalizers = json!(["example.com/other", "example.com/bucket"]);
///     server.create(path, json!({"metadata": {"name": name, "finalizers": finalizers}}))?;
/// }
/// let client = Client::new(Config::new(server.url()))?;
/// let (source, stop) = (Source::of::<ConfigMap>(), Stop::never());
///
/// server.fail_next(Fault::status(500).on(Verb::Patch));
/// let error = remove_finalizers(&client, &source, ["example.com/bucket"], &stop).unwrap_err();
/// assert_eq!((error.removed().changed, error.failed(), error.objects()), (1, 1, &["default/a".into()][..]));
/// assert_eq!(error.outcome(), RemovalOutcome::Partial); // `b` was tried all the same.
///
/// let removed = remove_finalizers(&client, &source, ["example.com/bucket"], &stop)?;
/// assert_eq!((removed.listed, removed.changed), (2, 1));
/// let map = server.get(&format!("{path}/a"))?;
/// assert_eq!(map["metadata"]["finalizers"], json!(["example.com/other"]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn remove_finalizers<T>(
    client: &Client,
    source: &Source<T>,
    names: impl IntoIterator<Item = impl Into<String>>,
    stop: &Stop,
) -> Result<RemovedFinalizers, RemoveFinalizersError> {
    let names: Vec<String> = names.into_iter().map(Into::into).collect();
    let mut removal = Removal {
        client,
        resource: source.resource(),
        scope: source.own_scope().cloned().unwrap_or_default(),
        names: &names,
        stop,
        removed: RemovedFinalizers::default(),
        failures: Failures::default(),
    };
    let result = removal.run();
    let (removed, failures) = (removal.removed, removal.failures);
    let (error, outcome) = match (result, failures.first) {
        (Ok(()), None) => return Ok(removed),
        (Ok(()), Some(first)) => (first, RemovalOutcome::Partial),
        (Err(error), _) => (error, RemovalOutcome::Aborted),
    };
    Err(RemoveFinalizersError {
        resource: source.resource().to_string(),
        finalizers: names,
        removed,
        failed: failures.count,
        objects: failures.objects,
        error,
        outcome,
    })
}

/// What [`remove_finalizers`] has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RemovedFinalizers {
    /// The number of objects in the lists. An object counts again if a list expires and starts
    /// again.
    pub listed: usize,
    /// The number of objects from which finalizers were removed. Objects that were deleted in the
    /// meantime are included.
    pub changed: usize,
}

/// The error of [`remove_finalizers`].
///
/// `Display` names the resource, the objects that have kept their finalizers, and the cause.
#[derive(Clone)]
pub struct RemoveFinalizersError {
    resource: String,
    finalizers: Vec<String>,
    removed: RemovedFinalizers,
    failed: usize,
    objects: Vec<Key>,
    error: Error,
    outcome: RemovalOutcome,
}

/// How far [`remove_finalizers`] got before it returned an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RemovalOutcome {
    /// It has tried all objects, and some of them have kept their finalizers.
    Partial,
    /// An error has ended it, so more objects can have the finalizers.
    Aborted,
}

impl RemoveFinalizersError {
    /// Returns whether all objects were tried.
    pub fn outcome(&self) -> RemovalOutcome {
        self.outcome
    }

    /// Returns the error that has ended the function, or else the error of the first object.
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// Returns what was done before the error and in spite of it.
    pub fn removed(&self) -> RemovedFinalizers {
        self.removed
    }

    /// Returns the number of objects from which the finalizers could not be removed.
    pub fn failed(&self) -> usize {
        self.failed
    }

    /// Returns the keys of the first 10 of these objects.
    pub fn objects(&self) -> &[Key] {
        &self.objects
    }
}

/// The objects that may have kept their finalizers.
#[derive(Clone, Default)]
struct Failures {
    count: usize,
    objects: Vec<Key>,
    first: Option<Error>,
}

struct Removal<'a> {
    client: &'a Client,
    resource: &'a GroupVersionResource,
    scope: InformerScope,
    names: &'a [String],
    stop: &'a Stop,
    removed: RemovedFinalizers,
    failures: Failures,
}

impl Removal<'_> {
    fn run(&mut self) -> Result<(), Error> {
        let options = self.scope.list_options();
        // An empty namespace selects all namespaces.
        let namespaces = match self.scope.namespaces() {
            [] => vec![String::new()],
            namespaces => namespaces.to_vec(),
        };
        for namespace in namespaces {
            loop {
                let (before, failures) = (self.removed.changed, self.failures.clone());
                match self.run_list(&namespace, &options) {
                    Ok(()) => break,
                    // The server forgets a list after some minutes. If nothing was removed in this
                    // time, the next list would expire as well.
                    Err(error) if error.is_gone() && self.removed.changed > before => {
                        // The next list contains the objects that failed.
                        self.failures = failures;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    fn run_list(&mut self, namespace: &str, options: &ListOptions) -> Result<(), Error> {
        for page in self.api(namespace).pages(options, self.stop) {
            for object in page? {
                self.removed.listed += 1;
                let has_finalizer = |name: &String| object.metadata.finalizers.contains(name);
                if self.is_in_shard(&object) && self.names.iter().any(has_finalizer) {
                    self.remove_from(object)?;
                }
            }
        }
        Ok(())
    }

    fn api(&self, namespace: &str) -> Api<PartialObjectMetadata> {
        self.client.metadata_api(self.resource, Some(namespace))
    }

    fn is_in_shard(&self, object: &PartialObjectMetadata) -> bool {
        let shard = self.scope.selected_shard();
        shard.is_none_or(|shard| shard.contains_object(&object.metadata))
    }

    /// Removes the finalizers from an object. Returns the errors that end the rest.
    fn remove_from(&mut self, object: PartialObjectMetadata) -> Result<(), Error> {
        let api = self.api(object.namespace());
        let object = Arc::new(object);
        let result = self.patch(&api, &object).or_else(|error| {
            // The server may have executed a patch whose response is lost. Then the test of the
            // second patch fails, and the object is read. This is also the test whether the server
            // can still be reached.
            match error.is_connection() || error.is_timeout() {
                true => self.patch(&api, &object),
                false => Err(error),
            }
        });
        let Err(error) = result else {
            self.removed.changed += 1;
            return Ok(());
        };
        let failures = &mut self.failures;
        failures.count += 1;
        if failures.objects.len() < MOST_NAMED {
            failures.objects.push(meta_namespace_key(&*object));
        }
        // An error without a status does not depend on the object, unless its response is invalid.
        // An admission plugin can deny one object with 403.
        match error.status().is_some() || error.is_decode() {
            true if !error.is_unauthorized() => {
                failures.first.get_or_insert(error);
                Ok(())
            }
            _ => Err(error),
        }
    }

    fn patch(
        &self,
        api: &Api<PartialObjectMetadata>,
        object: &Arc<PartialObjectMetadata>,
    ) -> Result<(), Error> {
        let is_removed = |name: &str| self.names.iter().any(|removed| removed == name);
        let remove = |_: &_, metadata: &FullObjectMeta| remove_patch(metadata, is_removed);
        patch(api, object, self.stop, remove).map(drop)
    }
}

impl fmt::Display for RemoveFinalizersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            resource,
            finalizers,
            removed: RemovedFinalizers { listed, changed },
            failed,
            objects,
            error,
            outcome,
        } = self;
        let finalizers = finalizers.join(", ");
        write!(
            f,
            "can't remove the finalizers {finalizers} from {resource}"
        )?;
        for (at, object) in objects.iter().enumerate() {
            let separator = if at == 0 { " " } else { ", " };
            write!(f, "{separator}{object:?}")?;
        }
        if *failed > objects.len() {
            write!(f, " and {} more", failed - objects.len())?;
        }
        let ended = match outcome {
            RemovalOutcome::Partial => "",
            RemovalOutcome::Aborted => ", the rest was not tried",
        };
        write!(
            f,
            " (removed from {changed} of {listed} listed objects{ended}): {error}; call it again after you have solved this"
        )
    }
}

impl std::error::Error for RemoveFinalizersError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

debug_as_display!(RemoveFinalizersError);
