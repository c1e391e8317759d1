//! The controller: every Namespace of a team has a ConfigMap that says so.
//!
//! It is built as all controllers are. Handlers put keys into a queue, and do nothing else. Workers take the
//! keys out, compare what is wanted with what is there, both read from caches, and write what differs. What
//! has happened doesn't matter to them, only how things stand: so nothing is lost if they come late, or are
//! started anew.
//!
//! It needs `list` and `watch` on namespaces and configmaps, and `create`, `patch` and `delete` on
//! configmaps.

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

/// Namespaces with this label belong to a team, which its value names.
pub(crate) const TEAM: &str = "example.com/team";

/// What the ConfigMaps are called.
pub(crate) const NAME: &str = "team";

/// The label that ours have. Somebody else's of the same name are left alone: we don't even see them.
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
const MANAGER: &str = "team-controller";

/// How often everything is looked at once more: what was given up, and what no event has told.
const RESYNC: Duration = Duration::from_secs(10 * 60);

/// How long a worker waits for the cache to have what it has written.
const CATCH_UP: Duration = Duration::from_secs(5);

/// Of a ConfigMap what the controller looks at. What is not decoded costs no memory.
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

/// The keys are names of Namespaces: whatever has happened, to a Namespace or to its ConfigMap, it is the
/// Namespace that is looked at.
type Queue = RateLimitingQueue<Key>;

type Report = dyn Fn(&str, &Outcome) + Send + Sync;

pub(crate) struct Options {
    pub(crate) workers: usize,
    /// How often a failure is followed by another try. Then it is given up until something changes.
    pub(crate) max_retries: usize,
    /// How long what has begun may take after the stop.
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

/// What has become of a key.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    Done(Action),
    /// It failed, and is tried again.
    Retry(k8s_informer::Error),
    /// It failed too often.
    GivenUp(k8s_informer::Error),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// All was as it is to be.
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
    /// Is told of every key what has become of it. A real one would count, or make Kubernetes events.
    report: Box<Report>,
}

impl TeamController {
    /// Puts everything together; nothing runs yet.
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
        // The server selects, so that nothing comes over the wire and into the caches that isn't ours. Of
        // Namespaces the metadata is enough.
        let ours = InformerScope::all().label_selector(TEAM.parse()?);
        let namespaces = factory.informer_of(
            Source::metadata(GroupVersionResource::new("", "v1", "namespaces")).scope(ours.clone()),
        );
        let ours = InformerScope::all()
            .label_selector(format!("{MANAGED_BY}={MANAGER}").parse()?)
            .field_selector(format!("metadata.name={NAME}"));
        let maps = factory.informer_of(Source::of::<TeamMap>().scope(ours.clone()));

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

    /// Runs until `stop` is given, and then ends in order: no new keys, those that wait are done, then the
    /// informers stop. When it returns no thread is left. It runs once.
    pub(crate) fn run(&self, stop: &Stop) -> Result<(), Box<dyn Error>> {
        let result = self.work_until(stop);
        self.queue.shut_down();
        self.factory.shutdown();
        result
    }

    fn work_until(&self, stop: &Stop) -> Result<(), Box<dyn Error>> {
        // Not by `stop`: what has begun by then needs caches and the server for a moment longer.
        let calls = Stop::new();
        self.factory.start(&calls)?;
        // Not before: what is not in the caches yet would be created, or deleted.
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

    /// A worker: each key once for however many events, no key by two workers at a time, and what fails later
    /// again.
    fn work(&self, calls: &Stop) {
        // `None` when the queue is shut down and empty.
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

    /// Makes a Namespace's ConfigMap what it is to be. It reads nothing but caches, which may be behind: so
    /// every write says on what it relies, and fails if that has changed.
    fn reconcile(&self, namespace: &str, calls: &Stop) -> Result<Action, k8s_informer::Error> {
        let maps = self.client.api::<TeamMap>(Some(namespace));
        let wanted = self.namespaces.get_by_key(namespace);
        if wanted
            .as_ref()
            .is_some_and(|namespace| namespace.metadata.is_being_deleted())
        {
            return Ok(Action::Nothing); // What is in it goes with it.
        }
        let team = wanted.as_ref().and_then(|namespace| namespace.label(TEAM));
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
                    // Also that there is one: somebody else's, as the cache has none, which is for people to
                    // sort out.
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
        // Nobody else has this key until this returns: so the next one to look at it sees what was done here.
        // If the watch is later than that it comes to a conflict, and another try.
        let _ = self.maps.wait_for_object(&written, CATCH_UP, calls);
        Ok(action)
    }
}

/// Has an informer put a key into the queue for all that it tells.
fn enqueue<T: Object>(
    informer: &SharedIndexInformer<T>,
    queue: &Arc<Queue>,
    namespace: fn(&Notification<T>) -> &str,
) -> Result<(), InformerError> {
    let queue = Arc::clone(queue);
    // Every event, not `HandlerBuffer::Coalescing`: that does not tell of what came and went, which a worker
    // may have seen in the cache. The queue has each key once anyway.
    informer.add_event_handler(|handler| {
        handler.on_event(move |event| queue.add(namespace(event).into()))
    })?;
    Ok(())
}
