//! An informer with a random configuration behind its own proxy, its handlers, and the invariants
//! that must hold.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use k8s_informer::handler::{FilteringHandler, HandlerBuffer, HandlerOptions, HandlerRegistration};
use k8s_informer::informer::{
    FactoryOptions, InformerQueue, InformerScope, Progress, Source, step_all,
};
use k8s_informer::object::{GroupVersionResource, PartialObjectMetadata};
use k8s_informer::reflector::{
    FieldPaths, ListerWatcher, ListerWatcherSource, ReflectorOptions, ReflectorStatus, Shard,
};
use k8s_informer::store::{IndexFunc, Indexers};
use k8s_informer::time::{Backoff, Clock};
use k8s_informer::{
    Client, Object, ObjectMeta, SharedIndexInformer, SharedInformerFactory, Stop, impl_object,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::follower::{Follower, State, View, passes};
use crate::hurried::{Hurried, HurriedClock};
use crate::proxy::Proxy;
use crate::random::Random;
use crate::world::{NAMESPACES, Resource, Truth, is_marker};

/// The maximum number of keys in a report.
const REPORTED: usize = 12;

#[derive(Deserialize)]
struct Own {
    metadata: ObjectMeta,
    #[serde(default)]
    #[allow(dead_code, reason = "decoded, as a program would")]
    data: Option<Value>,
}

impl_object!(Own, "v1", "ConfigMap", "configmaps", Namespaced);

#[derive(Clone, Copy, Debug)]
enum Form {
    Own,
    Dynamic,
    Metadata,
}

/// The objects that an informer selects.
#[derive(Clone, Debug)]
enum Scope {
    All,
    Namespaces(BTreeSet<&'static str>),
    /// Selected by label.
    Colour(&'static str),
    /// Selected by field.
    Field(&'static str),
    /// One of two shards.
    Shard(u32),
}

impl Scope {
    fn pick(random: &Random) -> Self {
        match random.below(8) {
            0 | 1 => Self::Namespaces(BTreeSet::from([random.pick(&NAMESPACES)])),
            2 => Self::Namespaces(BTreeSet::from([NAMESPACES[0], NAMESPACES[2]])),
            3 => Self::Colour("red"),
            4 => Self::Field(random.pick(&NAMESPACES)),
            5 => Self::Shard(random.below(2) as u32),
            _ => Self::All,
        }
    }

    fn informer_scope(&self) -> InformerScope {
        let all = InformerScope::all();
        match self {
            Self::All => all,
            Self::Namespaces(names) => names.iter().fold(all, |scope, name| scope.namespace(*name)),
            Self::Colour(colour) => {
                all.label_selector(format!("colour={colour}").parse().expect("a selector"))
            }
            Self::Field(namespace) => all.field_selector(format!("metadata.namespace={namespace}")),
            Self::Shard(index) => all.shard(shard(*index)),
        }
    }

    fn contains(&self, key: &str, state: &State) -> bool {
        let namespace = key.split('/').next().unwrap_or_default();
        match self {
            Self::All => true,
            Self::Namespaces(names) => names.contains(namespace),
            Self::Colour(colour) => state.colour == *colour,
            Self::Field(name) => namespace == *name,
            Self::Shard(index) => shard(*index).contains(&state.uid),
        }
    }
}

fn shard(index: u32) -> Shard {
    Shard::new(index, 2).expect("a shard")
}

/// The configuration of an informer.
#[derive(Clone, Debug)]
struct Plan {
    resource: Resource,
    form: Form,
    scope: Scope,
    queue: InformerQueue,
    watch_list: bool,
    page_size: Option<u32>,
    /// Whether the proxy terminates TLS and serves HTTP. Otherwise TLS ends at the server.
    http: bool,
    /// Whether time passes faster.
    hurried: bool,
    watch_idle_timeout: bool,
    recreation_as_delete_and_add: bool,
    runs: Runs,
    resync: bool,
    skip: bool,
    /// How long the index function takes for an object, in microseconds. It slows down the process
    /// loop.
    slow_index: u64,
    /// Whether the index function fails for some states, each once.
    picky_index: bool,
}

/// Who runs an informer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Runs {
    Threads,
    OneThread,
    Drivers,
}

/// The longest step of the drivers.
const STEP: Duration = Duration::from_millis(100);

impl Plan {
    /// Returns a random plan, except that `number` selects the queue and the way of listing. Eight
    /// consecutive numbers cover all combinations of these two.
    fn new(number: usize, random: &Random) -> Self {
        let queues = [InformerQueue::DeltaFifo, InformerQueue::RealFifo];
        let hurried = random.one_in(2);
        Self {
            resource: if random.one_in(4) {
                Resource::Widgets
            } else {
                Resource::Maps
            },
            form: match random.below(4) {
                0 | 1 => Form::Dynamic,
                // `Hurried` always requests whole objects.
                2 if !hurried => Form::Metadata,
                _ => Form::Own,
            },
            scope: Scope::pick(random),
            queue: queues[number % 2],
            watch_list: (number / 2).is_multiple_of(2),
            page_size: (number / 4 % 2 == 1).then(|| random.pick(&[5, 20, 100])),
            http: random.below(3) > 0,
            hurried,
            watch_idle_timeout: random.one_in(2),
            recreation_as_delete_and_add: random.one_in(3),
            runs: random.pick(&[Runs::Threads, Runs::Threads, Runs::OneThread, Runs::Drivers]),
            resync: random.one_in(4),
            skip: random.one_in(3),
            slow_index: random.pick(&[0, 0, 300, 2000]),
            picky_index: random.one_in(3),
        }
    }

    fn reflector_options(&self, name: &str, clock: Option<Arc<dyn Clock>>) -> ReflectorOptions {
        let mut options = ReflectorOptions::default();
        options.name = Some(name.to_owned());
        options.watch_list = self.watch_list;
        options.page_size = self.page_size;
        if self.skip {
            options.skip = FieldPaths::managed_fields();
        }
        if self.resync {
            options.resync_period = Duration::from_secs(if self.hurried { 120 } else { 3 });
        }
        if self.watch_idle_timeout {
            options.watch_idle_timeout =
                Some(Duration::from_secs(if self.hurried { 40 } else { 2 }));
        }
        match clock {
            Some(clock) => options.clock = clock,
            None => {
                options.backoff = Backoff::new(Duration::from_millis(50))
                    .factor(2.0)
                    .cap(Duration::from_millis(800))
                    .jitter(1.0);
            }
        }
        options
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            resource,
            form,
            scope,
            queue,
            watch_list,
            page_size,
            ..
        } = self;
        write!(f, "{resource:?} as {form:?}, {scope:?}, {queue:?}")?;
        write!(
            f,
            "{}",
            if *watch_list {
                ", watch-list"
            } else {
                ", list"
            }
        )?;
        if let Some(size) = page_size {
            write!(f, " in pages of {size}")?;
        }
        for (is_enabled, what) in [
            (self.http, "http proxy"),
            (self.hurried, "fast clock"),
            (self.watch_idle_timeout, "watch_idle_timeout"),
            (
                self.recreation_as_delete_and_add,
                "recreation_as_delete_and_add",
            ),
            (self.runs == Runs::OneThread, "one thread"),
            (self.runs == Runs::Drivers, "drivers"),
            (self.resync, "resync"),
            (self.skip, "skip"),
            (self.picky_index, "failing index"),
        ] {
            if is_enabled {
                write!(f, ", {what}")?;
            }
        }
        if self.slow_index > 0 {
            write!(f, ", {} us per object", self.slow_index)?;
        }
        Ok(())
    }
}

/// State that all subjects share.
pub(crate) struct Setting {
    pub(crate) start: Instant,
    pub(crate) restored: Arc<AtomicBool>,
}

/// An informer of any object type.
pub(crate) trait Subject: Send + Sync {
    fn name(&self) -> &str;
    fn plan(&self) -> String;
    fn proxy(&self) -> &Proxy;
    /// Whether the informer notices a restore even if its connections stay open.
    fn notices_silence(&self) -> bool;
    fn statuses(&self) -> Vec<ReflectorStatus>;
    /// Adds a handler, and may remove one.
    fn change_handlers(&self, random: &Random);
    /// Returns the number of events that the handlers of the informer have received.
    fn events(&self) -> u64;
    /// Compares the cache, the indexes and the handlers with `truth` and returns the differences.
    fn differences(&self, truth: &Truth) -> Vec<Difference>;
    /// Called after a restore: versions must now ascend from those that the handlers hold.
    fn forget_versions(&self);
    /// Returns the invariants that were broken since the last call.
    fn broken(&self) -> Vec<String>;
    /// Stops the informer and returns how long that took.
    fn stop(&self) -> Duration;
}

pub(crate) struct Difference {
    /// The cache, a handler or an index.
    pub(crate) what: String,
    pub(crate) lines: Vec<String>,
}

struct Informer<T> {
    name: String,
    plan: Plan,
    proxy: Proxy,
    factory: SharedInformerFactory,
    informer: SharedIndexInformer<T>,
    handlers: Mutex<Vec<Handler>>,
    setting: Arc<Setting>,
    /// The thread that steps the drivers.
    stepping: Mutex<Option<JoinHandle<()>>>,
}

struct Handler {
    name: String,
    filters: bool,
    follower: Follower,
    registration: HandlerRegistration,
}

/// Starts an informer with a random configuration. `proxy` creates a proxy; its argument is whether
/// the proxy terminates TLS. `client` creates a client behind that proxy. Its second argument is
/// the faster clock, or `None` for real time.
pub(crate) fn start(
    number: usize,
    random: &Random,
    setting: &Arc<Setting>,
    proxy: impl FnOnce(bool) -> Proxy,
    client: impl FnOnce(&Proxy, Option<Arc<dyn Clock>>) -> Client,
) -> Box<dyn Subject> {
    let plan = Plan::new(number, random);
    let name = format!("informer-{number:03}");
    let proxy = proxy(plan.http);
    let clock = plan
        .hurried
        .then(|| Arc::new(HurriedClock::new()) as Arc<dyn Clock>);
    let client = client(&proxy, clock.clone());
    let source: Box<dyn ListerWatcherSource> = if plan.hurried {
        Box::new(Hurried(client))
    } else {
        Box::new(client)
    };
    let factory = SharedInformerFactory::with_options(
        BoxedSource(source),
        FactoryOptions::new()
            .one_thread(plan.runs == Runs::OneThread)
            .reflector(plan.reflector_options(&name, clock))
            .queue(plan.queue)
            .recreation_as_delete_and_add(plan.recreation_as_delete_and_add)
            .scope(plan.scope.informer_scope()),
    );
    let resource = plan.resource.group_version_resource();
    let setting = Arc::clone(setting);
    match (plan.form, plan.resource) {
        (Form::Own, Resource::Maps) => {
            let informer = factory.informer::<Own>();
            Informer::start(name, plan, proxy, factory, informer, random, setting)
        }
        (Form::Own, Resource::Widgets) => {
            let informer = factory.informer_for(Source::dynamic_as::<Own>(resource));
            Informer::start(name, plan, proxy, factory, informer, random, setting)
        }
        (Form::Dynamic, _) => {
            let informer = factory.informer_for(Source::dynamic(resource));
            Informer::start(name, plan, proxy, factory, informer, random, setting)
        }
        (Form::Metadata, _) => {
            let informer = factory.informer_for(Source::metadata(resource));
            Informer::<PartialObjectMetadata>::start(
                name, plan, proxy, factory, informer, random, setting,
            )
        }
    }
}

/// A plain client or a [`Hurried`] one.
struct BoxedSource(Box<dyn ListerWatcherSource>);

impl ListerWatcherSource for BoxedSource {
    fn lister_watcher(
        &self,
        resource: &GroupVersionResource,
        namespace: Option<&str>,
    ) -> Arc<dyn ListerWatcher> {
        self.0.lister_watcher(resource, namespace)
    }

    fn metadata_lister_watcher(
        &self,
        resource: &GroupVersionResource,
        namespace: Option<&str>,
    ) -> Arc<dyn ListerWatcher> {
        self.0.metadata_lister_watcher(resource, namespace)
    }
}

impl<T: Object + DeserializeOwned> Informer<T> {
    fn start(
        name: String,
        plan: Plan,
        proxy: Proxy,
        factory: SharedInformerFactory,
        informer: SharedIndexInformer<T>,
        random: &Random,
        setting: Arc<Setting>,
    ) -> Box<dyn Subject> {
        let slow = Duration::from_micros(plan.slow_index);
        let (is_picky, failed) = (plan.picky_index, Mutex::new(BTreeSet::new()));
        let index = IndexFunc::fallible(move |object: &T| {
            if !slow.is_zero() {
                thread::sleep(slow);
            }
            let version = object.resource_version().to_owned();
            if is_picky && version.ends_with("00") {
                let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                if failed.insert(version) {
                    return Err("the first attempt fails");
                }
            }
            Ok(vec![object.label("colour").unwrap_or_default().to_owned()])
        });
        let indexers = Indexers::new().with("colour", index);
        informer.add_indexers(indexers).expect("an index");
        let handlers = Mutex::default();
        let this = Self {
            name,
            plan,
            proxy,
            factory,
            informer,
            handlers,
            setting,
            stepping: Mutex::default(),
        };
        this.add_handler(random);
        this.add_handler(random);
        match this.plan.runs {
            Runs::Threads | Runs::OneThread => this.factory.start(&Stop::never()).expect("threads"),
            Runs::Drivers => this.drive(),
        }
        Box::new(this)
    }

    /// Steps the drivers on a thread of the program, until the factory is shut down.
    fn drive(&self) {
        let mut drivers = self.factory.drivers(&Stop::never()).expect("drivers");
        let steps = move || while step_all(&mut drivers, STEP) != Progress::Ended {};
        let mut stepping = self.stepping.lock().unwrap_or_else(PoisonError::into_inner);
        *stepping = Some(thread::spawn(steps));
    }

    fn handlers(&self) -> MutexGuard<'_, Vec<Handler>> {
        self.handlers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add_handler(&self, random: &Random) {
        let (coalesces, filters) = (random.one_in(2), random.one_in(2));
        // A handler without coalescing receives every event and must keep up. Only a handler with
        // threads has a buffer in which events coalesce.
        let max_millis = if coalesces && self.plan.runs == Runs::Threads {
            random.pick(&[1, 10, 40])
        } else {
            random.pick(&[0, 0, 1])
        };
        let Setting { start, restored } = &*self.setting;
        let follower = Follower::new(
            *start,
            Duration::from_millis(max_millis),
            random.fork(),
            Arc::clone(restored),
        );
        let mut handlers = self.handlers();
        let (c, f) = (
            if coalesces { " coalescing" } else { "" },
            if filters { " filtering" } else { "" },
        );
        let name = format!(
            "handler{c}{f} {max_millis} ms, at {:.1} s",
            start.elapsed().as_secs_f64()
        );
        let mut options = HandlerOptions::new().name(&name);
        if coalesces {
            options = options.buffer(HandlerBuffer::Coalescing);
        }
        let registration = if filters {
            let handler = FilteringHandler::new(passes::<T>, follower.clone());
            self.informer.add_handler_with_options(handler, options)
        } else {
            self.informer
                .add_handler_with_options(follower.clone(), options)
        };
        let registration = registration.expect("threads");
        handlers.push(Handler {
            name,
            filters,
            follower,
            registration,
        });
    }
}

impl<T: Object + DeserializeOwned> Subject for Informer<T> {
    fn name(&self) -> &str {
        &self.name
    }

    fn plan(&self) -> String {
        self.plan.to_string()
    }

    fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    fn notices_silence(&self) -> bool {
        self.plan.hurried
    }

    fn statuses(&self) -> Vec<ReflectorStatus> {
        self.informer
            .statuses()
            .into_iter()
            .map(|(_, status)| status)
            .collect()
    }

    fn change_handlers(&self, random: &Random) {
        self.add_handler(random);
        let removed = {
            let mut handlers = self.handlers();
            if handlers.len() < 4 {
                None
            } else {
                Some(handlers.remove(random.below(4)))
            }
        };
        if let Some(handler) = removed {
            self.informer.remove_event_handler(&handler.registration);
        }
    }

    fn events(&self) -> u64 {
        self.handlers()
            .iter()
            .map(|handler| handler.follower.known().count)
            .sum()
    }

    fn differences(&self, truth: &Truth) -> Vec<Difference> {
        let objects = truth.of(self.plan.resource).iter();
        let expected: View = objects
            .filter(|(key, state)| self.plan.scope.contains(key, state))
            .map(|(key, state)| (key.clone(), state.clone()))
            .collect();
        let mut differences = Vec::new();
        let mut compare =
            |what: String, found: &View, expected: &View, history: &dyn Fn(&str) -> Vec<String>| {
                let lines = compare(found, expected, history);
                let differs = !lines.is_empty();
                if differs {
                    differences.push(Difference { what, lines });
                }
                differs
            };
        let lister = self.informer.lister();
        let view = |objects: &[Arc<T>]| -> View {
            let key = |object: &T| format!("{}/{}", object.namespace(), object.name());
            objects
                .iter()
                .map(|object| (key(object), State::of(&**object)))
                .collect()
        };
        let cache_differs = compare(
            "cache".to_owned(),
            &view(&lister.list()),
            &expected,
            &|_| Vec::new(),
        );
        let mut colours: BTreeMap<&str, View> = BTreeMap::new();
        // Those for which the index function failed are in the cache, but in no index.
        let unindexed = self.informer.lister().unindexed("colour");
        let unindexed = unindexed.expect("an index");
        let is_indexed = |key: &str| unindexed.iter().all(|unindexed| **unindexed != *key);
        for (key, state) in expected.iter().filter(|(key, _)| is_indexed(key)) {
            colours
                .entry(&state.colour)
                .or_default()
                .insert(key.clone(), state.clone());
        }
        // If the cache differs, its indexes differ as well.
        let indices: &[&str] = if cache_differs {
            &[]
        } else {
            &["", "red", "green", "blue"]
        };
        for colour in indices {
            let found = view(&lister.by_index("colour", colour).expect("an index"));
            let expected = colours.remove(colour).unwrap_or_default();
            compare(format!("index of {colour:?}"), &found, &expected, &|_| {
                Vec::new()
            });
        }
        for handler in &*self.handlers() {
            let mut expected = expected.clone();
            if handler.filters {
                expected.retain(|_, state| state.colour == "red");
            }
            let known = handler.follower.known();
            let history = |key: &str| known.history(key).into_iter().map(str::to_owned).collect();
            compare(handler.name.clone(), &known.view, &expected, &history);
        }
        let status = self.informer.status();
        if !status.complete {
            let why = status
                .last_error
                .map_or("no error".to_owned(), |error| error.to_string());
            let lines = vec![format!(
                "{} unreadable objects so far; {why}",
                status.unreadable
            )];
            differences.push(Difference {
                what: "not complete".to_owned(),
                lines,
            });
        }
        differences
    }

    fn forget_versions(&self) {
        self.handlers()
            .iter()
            .for_each(|handler| handler.follower.known().forget_versions());
    }

    fn broken(&self) -> Vec<String> {
        let mut all = Vec::new();
        for handler in &*self.handlers() {
            let broken = std::mem::take(&mut handler.follower.known().broken);
            all.extend(
                broken
                    .into_iter()
                    .map(|broken| format!("{}: {broken}", handler.name)),
            );
        }
        all
    }

    fn stop(&self) -> Duration {
        let start = Instant::now();
        self.factory
            .shut_down(None)
            .expect("no callback calls this");
        let mut stepping = self.stepping.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stepping) = stepping.take() {
            stepping.join().expect("a step does not panic");
        }
        start.elapsed()
    }
}

/// Describes the keys at which two views differ. Ignores markers.
fn compare(found: &View, expected: &View, history: &dyn Fn(&str) -> Vec<String>) -> Vec<String> {
    let keys: BTreeSet<&String> = found.keys().chain(expected.keys()).collect();
    let differing: Vec<_> = keys
        .into_iter()
        .filter(|key| !is_marker(key))
        .map(|key| (key, found.get(key), expected.get(key)))
        .filter(|(_, found, expected)| found != expected)
        .collect();
    let mut lines: Vec<String> = differing
        .iter()
        .take(REPORTED)
        .flat_map(|(key, found, expected)| {
            let text = |state: &Option<&State>| {
                state.map_or("nothing".to_owned(), |state| state.to_string())
            };
            let line = format!(
                "{key}: got {}, the server has {}",
                text(found),
                text(expected)
            );
            std::iter::once(line)
                .chain(history(key).into_iter().map(|event| format!("    {event}")))
        })
        .collect();
    if differing.len() > REPORTED {
        lines.push(format!("and {} more", differing.len() - REPORTED));
    }
    lines
}
