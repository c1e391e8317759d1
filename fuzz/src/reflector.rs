//! A reflector against a server. The server follows a script and a [`Model`] predicts the state and
//! the next step of the reflector, or the server sends arbitrary bodies.
//!
//! The first byte selects the mode. If it is even, the rest is the response bodies, separated by
//! zero bytes, one for each request. The reflector must end without a panic, and every key in its
//! store must lead to an object. If the byte is odd, the rest is settings and a script.

use std::any::Any;
use std::io::{self, Read};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arbitrary::Unstructured;
use k8s_informer::object::{Accessor, GroupVersionKind, meta_namespace_key};
use k8s_informer::queue::{
    Delta, DeltaFifo, DeltaFifoOptions, Deltas, Origin, Queue, RealFifo, RealFifoOptions,
};
use k8s_informer::reflector::{
    Body, FieldPaths, ListOptions, ListWatch, Reflector, ReflectorOptions, ResourceVersionMatch,
    TimedRead,
};
use k8s_informer::store::ReflectorStore;
use k8s_informer::time::{Backoff, Clock};
use k8s_informer::{DynamicObject, Error, Indexer, Object, Stop, Stopper};

use super::item::version_of;
use super::reflector_model::{FIRST_BACKOFF, ListRequest, MAX_BACKOFF, Model, Page, Step, Stream};
use super::scripted::{Answer, End, Form, Frame, Live, QueueKind, Settings, Spoil, World, Written};
use super::serving::{NoWaiting, Pieces, Thing};

pub fn run(input: &[u8]) {
    match input.split_first() {
        Some((first, rest)) if first % 2 == 0 => run_bodies(rest),
        Some((_, rest)) => run_script(rest),
        None => {}
    }
}

fn run_bodies(input: &[u8]) {
    let stop = Stopper::new();
    let bodies: Arc<Vec<Vec<u8>>> = Arc::new(
        input
            .split(|&byte| byte == 0)
            .take(8)
            .map(<[u8]>::to_vec)
            .collect(),
    );
    let next = Arc::new(AtomicUsize::new(0));
    let reply = {
        let stop = stop.clone();
        move |_: &ListOptions, _: &Stop| match bodies.get(next.fetch_add(1, Ordering::Relaxed)) {
            Some(body) => Ok(Body::new(Pieces::new(body, &[(body.len() % 13) as u8]))),
            None => {
                stop.stop();
                Err(Error::other("no more bodies"))
            }
        }
    };
    let store = Arc::new(Indexer::<DynamicObject>::for_objects());
    let mut options = ReflectorOptions::default();
    options.clock = Arc::new(NoWaiting);
    let reflector = Reflector::new(
        Arc::new(ListWatch::new(reply.clone(), reply)),
        store.clone(),
        options,
    );
    reflector.run(&stop);

    for key in store.list_keys() {
        let object = store
            .get_by_key(&key)
            .expect("every listed key has an object");
        let _ = store
            .index("namespace", &object)
            .expect("every object is indexed by its namespace");
    }
}

/// The store that the reflector writes to. For a queue, it includes the consumer that fills the
/// cache.
struct Store {
    cache: Arc<Indexer<Thing>>,
    queue: Option<Arc<dyn Queue<Thing>>>,
}

impl Store {
    fn new(kind: QueueKind) -> Self {
        let cache = Arc::new(Indexer::<Thing>::for_objects());
        let queue: Option<Arc<dyn Queue<Thing>>> = match kind {
            QueueKind::Indexer => None,
            QueueKind::DeltaFifo => {
                let options = DeltaFifoOptions::new().known_objects(cache.clone());
                let options = options.emit_replaced(true);
                Some(Arc::new(DeltaFifo::with_options(
                    Accessor::object(),
                    options,
                )))
            }
            QueueKind::RealFifo => Some(Arc::new(RealFifo::with_options(
                Accessor::object(),
                RealFifoOptions::new().known_objects(cache.clone()),
            ))),
        };
        if let Some(queue) = &queue {
            // Once the queue is closed, a pop of the empty queue returns instead of blocking.
            queue.close();
        }
        Self { cache, queue }
    }

    fn reflector_store(&self) -> Arc<dyn ReflectorStore<Thing>> {
        match &self.queue {
            None => self.cache.clone(),
            Some(queue) => Arc::clone(queue) as Arc<dyn ReflectorStore<Thing>>,
        }
    }

    /// Moves everything from the queue to the cache.
    fn drain(&self) {
        let Some(queue) = &self.queue else { return };
        let mut process = |deltas: &Deltas<Thing>, _: Origin| {
            for delta in deltas.iter() {
                match delta {
                    Delta::Added(entry)
                    | Delta::Updated(entry)
                    | Delta::Replaced(entry)
                    | Delta::Sync(entry) => self.cache.add(Arc::clone(&entry.object))?,
                    Delta::Deleted { gone, .. } => self.cache.delete(gone.clone())?,
                    Delta::ReplacedAll(list) => {
                        let mut objects = self.cache.list();
                        objects.retain(|object| list.may_exist(&meta_namespace_key(&**object)));
                        // Of two objects with the same key, the last one counts.
                        objects.extend(list.objects().cloned());
                        self.cache.replace(objects, list.resource_version.clone())?;
                    }
                    Delta::Bookmark(version) => self.cache.bookmark(version.clone())?,
                    // Only a resync is left, which these tests never trigger.
                    _ => {}
                }
            }
            Ok(())
        };
        while queue.pop(&mut process).is_ok() {}
    }
}

/// The simulated time in milliseconds. It advances only when the reflector waits, and just before a
/// response body ends or times out.
#[derive(Clone)]
struct Time {
    begin: Instant,
    millis: Arc<AtomicU64>,
}

impl Time {
    fn pass(&self, millis: u64) {
        self.millis.fetch_add(millis, Ordering::Relaxed);
    }

    fn millis(&self) -> u64 {
        self.millis.load(Ordering::Relaxed)
    }
}

/// A running script.
struct Run {
    settings: Settings,
    answers: std::vec::IntoIter<Answer>,
    world: World,
    model: Model,
    store: Store,
    time: Time,
    stop: Stopper,
}

/// The first failed assertion of the server or the clock. It is raised again at the end, because
/// the reflector catches panics of its lister-watcher and its clock.
type Failed = Option<Box<dyn Any + Send>>;

#[derive(Clone)]
struct Server(Arc<Mutex<Run>>, Arc<Mutex<Failed>>, Time);

impl Server {
    fn with<R>(&self, act: impl FnOnce(&mut Run) -> R) -> Option<R> {
        let act = || {
            act(&mut self
                .0
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner))
        };
        match catch_unwind(AssertUnwindSafe(act)) {
            Ok(result) => Some(result),
            Err(payload) => {
                self.1.lock().unwrap().get_or_insert(payload);
                self.0
                    .lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner)
                    .stop
                    .stop();
                None
            }
        }
    }
}

impl Clock for Server {
    fn now(&self) -> Instant {
        self.2.begin + Duration::from_millis(self.2.millis())
    }

    fn wait(&self, duration: Duration, stop: &Stop) -> bool {
        self.with(|run| {
            run.check();
            let Step::Wait(shortest, longest, then) = run.model.next.clone() else {
                panic!(
                    "the reflector waits for {duration:?}; expected {:?}",
                    run.model.next
                );
            };
            assert!(
                !shortest.is_zero() && (shortest..=longest).contains(&duration),
                "the wait of {duration:?} is not within {shortest:?} to {longest:?}"
            );
            run.time.pass(duration.as_millis() as u64 + 1);
            run.model.waited(then, run.time.millis());
        });
        !stop.is_stopped()
    }
}

fn run_script(input: &[u8]) {
    let mut bytes = Unstructured::new(input);
    let Ok(settings) = bytes.arbitrary::<Settings>() else {
        return;
    };
    let mut answers = Vec::new();
    while !bytes.is_empty() && answers.len() < 40 {
        let Ok(reply) = bytes.arbitrary::<Answer>() else {
            return;
        };
        answers.push(reply);
    }
    let stop = Stopper::new();
    let time = Time {
        begin: Instant::now(),
        millis: Arc::default(),
    };
    let store = Store::new(settings.queue);
    let reflector_store = store.reflector_store();
    let run = Run {
        answers: answers.into_iter(),
        world: World::new(),
        model: Model::new(settings.clone()),
        store,
        time: time.clone(),
        stop: stop.clone(),
        settings: settings.clone(),
    };
    let server = Server(Arc::new(Mutex::new(run)), Arc::default(), time);
    let mut options = ReflectorOptions::default();
    options.backoff = Backoff::new(FIRST_BACKOFF).factor(2.0).cap(MAX_BACKOFF);
    options.page_size = (settings.page_size > 0).then_some(settings.page_size);
    options.watch_list = settings.watch_list;
    options.expected_kind = settings
        .expected_kind
        .then(|| GroupVersionKind::new("", "v1", "Thing"));
    options.clock = Arc::new(server.clone());
    if settings.skip {
        options.skip =
            FieldPaths::new(["/spec/aside", "/metadata/managedFields"]).expect("valid pointers");
    }
    if settings.shallow {
        options.limits.nesting = Settings::NESTING;
    }
    if settings.small {
        options.limits.object_bytes = Settings::BYTES;
    }
    let (lists, watches) = (server.clone(), server.clone());
    let gone = || Error::other("the script has ended");
    let list = move |options: &ListOptions, _: &Stop| {
        lists
            .with(|run| run.list(options))
            .unwrap_or_else(|| Err(gone()))
    };
    let watch = move |options: &ListOptions, _: &Stop| {
        watches
            .with(|run| run.watch(options))
            .unwrap_or_else(|| Err(gone()))
    };
    let mut lister_watcher = ListWatch::new(list, watch);
    if settings.supports_watch_list {
        lister_watcher = lister_watcher.with_watch_list();
    }
    let reflector = Reflector::new(Arc::new(lister_watcher), reflector_store, options);
    reflector.run(&stop);
    if let Some(payload) = server.1.lock().unwrap().take() {
        resume_unwind(payload);
    }
    let status = reflector.status();
    server.with(|run| {
        run.check();
        let Model {
            version,
            synced,
            complete,
            unreadable,
            ..
        } = &run.model;
        assert_eq!(
            (
                &version_of(status.resource_version.as_ref()),
                status.listed,
                status.complete,
                status.unreadable
            ),
            (version, *synced, *complete, *unreadable)
        );
    });
    if let Some(payload) = server.1.lock().unwrap().take() {
        resume_unwind(payload);
    }
}

impl Run {
    /// Checks that the cache equals the cache of the model.
    fn check(&self) {
        self.store.drain();
        let cached: Vec<_> = self.store.cache.list();
        assert_eq!(
            cached.len(),
            self.model.cache.len(),
            "the cache has {cached:?}; expected {:?}",
            self.model.cache
        );
        for (key, thing) in &self.model.cache {
            let Some(cached) = self.store.cache.get_by_key(key) else {
                panic!("{key} is missing in the cache")
            };
            assert_eq!(
                (cached.uid(), cached.resource_version(), cached.spec.value),
                (&*thing.uid, &*thing.version, thing.value),
                "{key}"
            );
        }
    }

    fn reply(&mut self) -> Option<Answer> {
        self.check();
        let reply = self.answers.next();
        match &reply {
            Some(reply) => {
                for change in &reply.changes {
                    self.world.change(*change);
                }
            }
            None => self.stop.stop(),
        }
        reply
    }

    fn list(&mut self, options: &ListOptions) -> Result<Body, Error> {
        let requested = options.resource_version.as_ref().map(ToString::to_string);
        let request = ListRequest {
            version: requested.clone(),
            token: options.continue_token.clone(),
            limit: options.limit,
        };
        // The reflector must send `resourceVersionMatch` with a limited list at a version. Without
        // it, the server would return exactly that version.
        let at_a_version = requested.as_deref().is_some_and(|version| version != "0");
        let rule =
            (at_a_version && options.limit.is_some()).then_some(ResourceVersionMatch::NotOlderThan);
        assert_eq!(Step::List(request), self.model.next);
        assert!(!options.send_initial_events && options.resource_version_match == rule);
        let Some(reply) = self.reply() else {
            return Err(Error::other("the script has ended"));
        };
        let mut limit = options.limit.map(|limit| limit as usize);
        if reply.form == Form::Paged {
            limit = Some(limit.unwrap_or(2).min(2));
        }
        let listed = match reply.failure {
            Some(failure) => Err(failure),
            None => {
                let token = options.continue_token.as_deref();
                self.world.list(requested.as_deref(), token, limit)
            }
        };
        let (mut items, mut version, token) = match listed {
            Ok(page) => page,
            Err(failure) => {
                self.model.list_failed(failure);
                return Err(failure.error());
            }
        };
        if let Some(served) = items.get_mut(reply.spoilt) {
            reply.spoil(served);
        }
        if reply.form == Form::NoVersion {
            version.clear();
        }
        let last = reply.form == Form::VersionLast;
        let written = Written::list(&items, &version, token.as_deref(), last);
        let end = written.end(reply.end);
        self.model.listed(Page {
            items: &items,
            version: &version,
            token,
            breaks: reply.end == End::Reset,
            received: written.parts.iter().map(|(_, stop)| *stop <= end).collect(),
            whole: end == written.bytes.len(),
            started: self.time.millis(),
            ended: self.time.millis() + reply.millis,
        });
        Ok(self.body(&written.bytes[..end], &reply))
    }

    fn watch(&mut self, options: &ListOptions) -> Result<Body, Error> {
        let timeout = options.timeout_seconds.expect("a watch ends");
        assert!(
            (300..600).contains(&timeout) && options.allow_watch_bookmarks,
            "{options:?}"
        );
        let initial = options.send_initial_events;
        let requested = options.resource_version.as_ref().map(ToString::to_string);
        if initial {
            assert_eq!(self.model.next, Step::WatchList);
            assert_eq!(requested, self.model.watch_list_version());
            assert_eq!(
                options.resource_version_match,
                Some(ResourceVersionMatch::NotOlderThan)
            );
        } else {
            assert_eq!(self.model.next, Step::Watch);
            assert_eq!(requested.as_deref().unwrap_or_default(), self.model.version);
        }
        let Some(reply) = self.reply() else {
            return Err(Error::other("the script has ended"));
        };
        let begun = match reply.failure {
            Some(failure) => Err(failure),
            None => self.world.watch(requested.as_deref(), initial),
        };
        let now = self.time.millis();
        let mut frames = match begun {
            Ok(frames) => frames,
            Err(failure) if reply.form == Form::ErrorEvent => {
                vec![Frame::Error(failure.in_stream())]
            }
            Err(failure) => {
                match initial {
                    true => self.model.watch_list_failed(failure, now),
                    false => self.model.watch_failed(failure),
                }
                return Err(failure.error());
            }
        };
        let mark = |world: &World| {
            let no_version = reply.form == Form::NoVersion;
            let version = if no_version {
                String::new()
            } else {
                world.version.to_string()
            };
            Frame::Bookmark {
                version,
                mark: true,
            }
        };
        if initial && !matches!(reply.form, Form::NoMark | Form::MarkLast) {
            frames.push(mark(&self.world));
        }
        for live in &reply.live {
            let version = self.world.version.to_string();
            frames.extend(match *live {
                Live::Change(change) => self.world.change(change),
                Live::Bookmark => Some(Frame::Bookmark {
                    version,
                    mark: false,
                }),
                Live::BookmarkWithoutVersion => Some(Frame::Bookmark {
                    version: String::new(),
                    mark: false,
                }),
                Live::Mark => Some(Frame::Bookmark {
                    version,
                    mark: true,
                }),
                Live::Error(failure) => Some(Frame::Error(failure.in_stream())),
                Live::Garbage(garbage) => Some(Frame::Garbage(garbage)),
            });
        }
        if initial && reply.form == Form::MarkLast {
            frames.push(mark(&self.world));
        }
        if reply.spoil != Spoil::Nothing {
            reply.spoil_frames(&mut frames);
        }
        let written = Written::stream(&frames);
        let end = written.end(reply.end);
        let silent = reply.end == End::Silent && self.settings.read_timeouts;
        self.model.watched(
            Stream {
                frames: &frames,
                received: written
                    .parts
                    .iter()
                    .map(|&(begin, stop)| {
                        (end.saturating_sub(begin).min(stop - begin), stop - begin)
                    })
                    .collect(),
                end: if silent { End::Silent } else { End::Clean },
                started: now,
                patience: u64::from(timeout) * 1000 + 30_000,
                ended: now + if silent { 30_000 } else { reply.millis },
            },
            initial,
        );
        Ok(self.body(&written.bytes[..end], &reply))
    }

    fn body(&self, bytes: &[u8], reply: &Answer) -> Body {
        let is_timed = reply.end == End::Silent && self.settings.read_timeouts;
        let body = Ending {
            pieces: Pieces::new(bytes, &self.settings.pieces),
            end: reply.end,
            millis: Some(reply.millis),
            timeout: 0,
            time: self.time.clone(),
        };
        match is_timed {
            true => Body::timed(body),
            false => Body::new(body),
        }
    }
}

/// A body that ends as its response specifies.
struct Ending {
    pieces: Pieces,
    end: End,
    millis: Option<u64>,
    /// The read timeout in milliseconds, or 0.
    timeout: u64,
    time: Time,
}

impl TimedRead for Ending {
    fn read_within(&mut self, buffer: &mut [u8], timeout: Option<Duration>) -> io::Result<usize> {
        if let Some(timeout) = timeout {
            self.timeout = timeout.as_millis() as u64;
        }
        self.read(buffer)
    }
}

impl Read for Ending {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.pieces.read(buffer)? {
            0 => {}
            length => return Ok(length),
        }
        if self.timeout > 0 {
            self.time.pass(self.timeout);
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.time.pass(self.millis.take().unwrap_or_default());
        match self.end {
            End::Reset => Err(io::ErrorKind::ConnectionReset.into()),
            _ => Ok(0),
        }
    }
}
