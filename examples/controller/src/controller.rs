//! The controller: maintains a ConfigMap with the team's name in every Namespace of a team.
//!
//! It has the usual structure of a controller. Handlers only put keys into a queue. Workers take
//! keys from the queue, compare the desired state with the actual state, and write the difference.
//! They read both states from caches. A worker depends only on the current state and not on past
//! events, so a delay or a restart loses nothing.
//!
//! The controller needs `list` and `watch` on namespaces and configmaps, and `create`, `patch` and
//! `delete` on configmaps.

use std::error::Error;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use k8s_informer::client::api::{DeleteOptions, Patch};
use k8s_informer::informer::{InformerError, InformerScope, Source};
use k8s_informer::object::{GroupVersionResource, Key, PartialObjectMetadata};
use k8s_informer::reflector::ReflectorOptions;
use k8s_informer::workqueue::{RateLimitingQueue, default_controller_rate_limiter};
use k8s_informer::{
    Client, Lister, Notification, Object, ObjectMeta, SharedIndexInformer, SharedInformerFactory,
    Stop, impl_object,
};
use serde::Deserialize;
use serde_json::json;

/// The label that marks the Namespace of a team. Its value is the name of the team.
pub(crate) const TEAM: &str = "example.com/team";

/// The name of the ConfigMaps.
pub(crate) const NAME: &str = "team";

/// The label of the ConfigMaps that this controller manages. The informer selects by this label, so
/// it ignores other ConfigMaps with the same name.
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
const MANAGER: &str = "team-controller";

/// How often every key is reconciled again. This retries keys that were given up and repairs
/// changes that no event reported.
const RESYNC: Duration = Duration::from_secs(10 * 60);

/// How long a worker waits until the cache contains its own write.
const CATCH_UP: Duration = Duration::from_secs(5);

/// The parts of a ConfigMap that the controller needs. Other fields are not decoded and take no
/// memory.
#[derive(Deserialize)]
struct TeamMap {
    metadata: ObjectMeta,
    #[serde(default)]
    data: TeamData,
}
#[derive(Default, Deserialize)]
struct TeamData {
    team: Option<String>,
}
impl_object!(TeamMap, "v1", "ConfigMap", "configmaps", Namespaced);

/// The keys are names of Namespaces: a change of a Namespace or of its ConfigMap reconciles the
/// Namespace.
type Queue = RateLimitingQueue<Key>;

type Report = dyn Fn(&str, &Outcome) + Send + Sync;

pub(crate) struct Options {
    pub(crate) workers: usize,
    /// The number of retries after a failure. After these retries, the key is given up until its
    /// Namespace or ConfigMap changes, or until the resync.
    pub(crate) max_retries: usize,
    /// How long work in progress can take after the stop.
    pub(crate) grace: Duration,
    pub(crate) reflector: ReflectorOptions,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            workers: 2,
            max_retries: 15,
            grace: Duration::from_secs(5),
            reflector: ReflectorOptions::default(),
        }
    }
}

/// The outcome of reconciling a key.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    Done(Action),
    /// It failed and will be retried.
    Retry(k8s_informer::Error),
    /// It failed too often.
    GivenUp(k8s_informer::Error),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// The actual state was already the desired state.
    Nothing,
    Created,
    Repaired,
    Deleted,
}

pub(crate) struct TeamController {
    client: Client,
    factory: SharedInformerFactory,
    namespaces: Lister<PartialObjectMetadata>,
    maps: SharedIndexInformer<TeamMap>,
    queue: Arc<Queue>,
    workers: usize,
    max_retries: usize,
    grace: Duration,
    /// Receives the outcome for each key. A real controller would update metrics or record
    /// Kubernetes events.
    report: Box<Report>,
}

impl TeamController {
    /// Creates the informers and the queue. Nothing runs before [`TeamController::run`].
    pub(crate) fn new(
        client: Client,
        options: Options,
        report: impl Fn(&str, &Outcome) + Send + Sync + 'static,
    ) -> Result<Self, Box<dyn Error>> {
        let Options {
            workers,
            max_retries,
            grace,
            reflector,
        } = options;
        let factory = SharedInformerFactory::builder(client.clone())
            .reflector_options(reflector)
            .resync(RESYNC)
            .build();
        // The server selects, so only relevant objects are transferred and cached. Metadata is
        // enough for Namespaces.
        let scope = InformerScope::all().label_selector(TEAM.parse()?);
        let namespaces = factory.informer_of(
            Source::metadata(GroupVersionResource::new("", "v1", "namespaces"))
                .scope(scope.clone()),
        );
        let scope = InformerScope::all()
            .label_selector(format!("{MANAGED_BY}={MANAGER}").parse()?)
            .field_selector(format!("metadata.name={NAME}"));
        let maps = factory.informer_of(Source::of::<TeamMap>().scope(scope.clone()));

        let queue = Arc::new(Queue::new(default_controller_rate_limiter())?);
        enqueue(&namespaces, &queue, Notification::name)?;
        enqueue(&maps, &queue, Notification::namespace)?;
        let (namespaces, report) = (namespaces.lister(), Box::new(report));
        Ok(Self {
            client,
            factory,
            namespaces,
            maps,
            queue,
            workers,
            max_retries,
            grace,
            report,
        })
    }

    /// Runs until `stop` is signalled and then shuts down in order: the queue accepts no new keys,
    /// the workers finish the waiting keys, and the informers stop. No thread is left when it
    /// returns. Call it at most once.
    pub(crate) fn run(&self, stop: &Stop) -> Result<(), Box<dyn Error>> {
        let result = self.work_until(stop);
        self.queue.shut_down();
        self.factory.shutdown();
        result
    }

    fn work_until(&self, stop: &Stop) -> Result<(), Box<dyn Error>> {
        // A separate signal from `stop`: work in progress needs the caches and the server until it
        // is done.
        let calls = Stop::new();
        self.factory.start(&calls)?;
        // Reconcile only after the sync: with an incomplete cache a worker would create or delete
        // by mistake.
        match self.factory.wait_for_cache_sync(stop) {
            Err(error) if error.is_stopped() => return Ok(()),
            synced => synced?,
        }
        thread::scope(|scope| {
            let started = (0..self.workers).try_for_each(|n| {
                let worker = thread::Builder::new().name(format!("worker-{n}"));
                worker.spawn_scoped(scope, || self.work(&calls)).map(drop)
            });
            if started.is_ok() {
                stop.wait();
            }
            if !self.queue.shut_down_with_drain_timeout(self.grace) {
                calls.stop();
            }
            Ok(started?)
        })
    }

    /// Runs a worker. The queue combines all events of a key and never gives one key to two workers
    /// at the same time. Failed keys are retried later.
    fn work(&self, calls: &Stop) {
        // `None` means that the queue is shut down and empty.
        while let Some(namespace) = self.queue.take() {
            let outcome = match self.reconcile(&namespace, calls) {
                Ok(action) => {
                    self.queue.forget(&namespace);
                    Outcome::Done(action)
                }
                Err(error) if self.queue.num_requeues(&namespace) < self.max_retries => {
                    self.queue.add_rate_limited(Key::clone(&namespace));
                    Outcome::Retry(error)
                }
                Err(error) => {
                    self.queue.forget(&namespace);
                    Outcome::GivenUp(error)
                }
            };
            (self.report)(&namespace, &outcome);
        }
    }

    /// Makes the ConfigMap of a Namespace match the desired state. It reads only from caches, which
    /// may be out of date. Every write therefore names the state that it relies on, and fails if
    /// that state has changed.
    fn reconcile(&self, namespace: &str, calls: &Stop) -> Result<Action, k8s_informer::Error> {
        let maps = self.client.api::<TeamMap>(Some(namespace));
        let cached_namespace = self.namespaces.get_by_key(namespace);
        if cached_namespace
            .as_ref()
            .is_some_and(|namespace| namespace.metadata.is_being_deleted())
        {
            return Ok(Action::Nothing); // The ConfigMap is deleted with its Namespace.
        }
        let team = cached_namespace
            .as_ref()
            .and_then(|namespace| namespace.label(TEAM));
        let found = self.maps.lister().get(namespace, NAME);

        let (written, action) = match (team, found) {
            (None, None) => return Ok(Action::Nothing),
            (Some(team), Some(map)) if map.data.team.as_deref() == Some(team) => {
                return Ok(Action::Nothing);
            }
            (Some(team), None) => {
                let map = json!({
                    "metadata": { "name": NAME, "labels": { MANAGED_BY: MANAGER } },
                    "data": { "team": team },
                });
                match maps.create(&map, calls) {
                    Ok(map) => (map, Action::Created),
                    Err(error) if error.is_namespace_terminating() => return Ok(Action::Nothing),
                    // One of these errors is "already exists". The cache has only ConfigMaps of
                    // this controller, so another owner created this one, and a person must resolve
                    // the conflict.
                    Err(error) => return Err(error),
                }
            }
            (Some(team), Some(map)) => {
                let version = map.resource_version();
                let patch =
                    json!({ "metadata": { "resourceVersion": version }, "data": { "team": team } });
                (
                    maps.patch(NAME, &Patch::merge(patch), calls)?,
                    Action::Repaired,
                )
            }
            (None, Some(map)) => {
                return match maps.delete(NAME, &DeleteOptions::unchanged(&*map), calls) {
                    Err(error) if !error.is_not_found() => Err(error),
                    _ => Ok(Action::Deleted),
                };
            }
        };
        // Wait until the cache has this write. No other worker gets the key before that, so the
        // next reconcile usually sees the write. After CATCH_UP it may see the old state: a write
        // based on that fails with a conflict and is retried.
        let _ = self.maps.wait_for_object(&written, CATCH_UP, calls);
        Ok(action)
    }
}

/// Puts a key into the queue for each notification of an informer.
fn enqueue<T: Object>(
    informer: &SharedIndexInformer<T>,
    queue: &Arc<Queue>,
    namespace: fn(&Notification<T>) -> &str,
) -> Result<(), InformerError> {
    let queue = Arc::clone(queue);
    // `HandlerBuffer::Coalescing` would omit objects that were added and deleted in quick
    // succession, although a worker may have seen them in the cache. So the handler receives every
    // event; the queue removes duplicate keys.
    informer.add_event_handler(|handler| {
        handler.on_event(move |event| queue.add(namespace(event).into()))
    })?;
    Ok(())
}
