//! Helpers for all tests: waits with a timeout, a handler that keeps a copy, and a check for
//! leftover threads.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use k8s_informer::handler::ResourceEventHandler;
use k8s_informer::object::meta_namespace_key;
use k8s_informer::reflector::ReflectorOptions;
use k8s_informer::time::Backoff;
use k8s_informer::{Deleted, Object, SharedIndexInformer, SharedInformerFactory, Stopper};

/// Long enough for the slowest machine. A passing test never waits this long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The maximum time of a shutdown. It is longer than the documented limit, because the machine may
/// be busy.
const SHUTDOWN: Duration = Duration::from_secs(2);

/// Polls a condition that does not notify, such as the state of another process.
#[track_caller]
pub(crate) fn wait_until<R>(what: &str, mut poll: impl FnMut() -> Option<R>) -> R {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = poll() {
            return found;
        }
        assert!(
            Instant::now() < deadline,
            "condition not met in time: {what}"
        );
        thread::park_timeout(Duration::from_millis(5));
    }
}

/// Returns options with short waits that still back off exponentially with jitter.
pub(crate) fn quick() -> ReflectorOptions {
    let mut options = ReflectorOptions::default();
    options.backoff = Backoff::new(Duration::from_millis(50))
        .factor(2.0)
        .cap(Duration::from_millis(400))
        .jitter(1.0);
    options
}

/// Sets a stop on drop, also if the test fails.
pub(crate) struct StopOnDrop<'a>(pub(crate) &'a Stopper);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Shuts a factory down, which must always be quick.
#[track_caller]
pub(crate) fn shut_down(factory: &SharedInformerFactory, when: &str) {
    let start = Instant::now();
    factory.shut_down(None).unwrap();
    let took = start.elapsed();
    println!("  shutdown {when}: {took:?}");
    assert!(took < SHUTDOWN, "shutdown {when} took {took:?}");
}

/// Starts a factory. Waits until the informer has synced and a follower has all objects.
#[track_caller]
pub(crate) fn synced<T: Object>(
    factory: &SharedInformerFactory,
    informer: &SharedIndexInformer<T>,
) -> Follower {
    let (follower, stop) = (Follower::default(), Stopper::new());
    let registration = informer.add_handler(follower.clone()).unwrap();
    factory.start(&stop).unwrap();
    factory.wait_for_cache_sync(None, &stop).unwrap();
    registration.synced().wait();
    follower
}

/// Returns the names of all cached objects, sorted.
pub(crate) fn names<T: Object>(informer: &SharedIndexInformer<T>) -> Vec<String> {
    let mut names: Vec<_> = informer
        .lister()
        .list()
        .iter()
        .map(|object| object.name().to_owned())
        .collect();
    names.sort();
    names
}

/// Returns the versions of all cached objects by key.
pub(crate) fn cached<T: Object>(informer: &SharedIndexInformer<T>) -> Versions {
    let key = |object: &T| format!("{}/{}", object.namespace(), object.name());
    let objects = informer.lister().list();
    objects
        .iter()
        .map(|object| (key(object), object.resource_version().to_owned()))
        .collect()
}

/// Maps a key to its resourceVersion.
pub(crate) type Versions = BTreeMap<String, String>;

/// A handler that builds a copy of all objects from adds, updates and deletes alone. It also checks
/// the guarantees of these events. Clones share their state.
#[derive(Clone, Default)]
pub(crate) struct Follower {
    shared: Arc<(Mutex<Known>, Condvar)>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    pub(crate) versions: Versions,
    /// The events as `+name`, `~name` and `-name`.
    pub(crate) events: Vec<String>,
    /// The number of updates without a change: a relist notifies about every object.
    pub(crate) echoes: usize,
    pub(crate) initial: usize,
    /// The keys of deletions with an unknown final state.
    pub(crate) unknown: BTreeSet<String>,
    /// Broken guarantees. The informer would catch a panic.
    pub(crate) problems: Vec<String>,
}

impl Follower {
    pub(crate) fn known(&self) -> Known {
        self.lock().clone()
    }

    /// Waits until `enough` returns true.
    #[track_caller]
    pub(crate) fn wait(&self, what: &str, mut enough: impl FnMut(&Known) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        let mut known = self.lock();
        while !enough(&known) {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(
                !left.is_zero(),
                "condition not met in time: {what}; the last events: {:?}",
                known.last_events()
            );
            known = self
                .shared
                .1
                .wait_timeout(known, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Waits for these events. The order is checked only within an object: a queue that groups the
    /// changes of an object does not order objects.
    #[track_caller]
    pub(crate) fn wait_for_events(&self, events: &[&str]) {
        self.wait(&format!("{events:?}"), |known| {
            known.events.len() >= events.len()
        });
        let (mut delivered, mut expected) = (self.known().events, events.to_vec());
        delivered.sort_by(|one, other| one[1..].cmp(&other[1..]));
        expected.sort_by(|one, other| one[1..].cmp(&other[1..]));
        assert_eq!(delivered, expected);
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn event(&self, kind: char, name: &str, update: impl FnOnce(&mut Known)) {
        let mut known = self.lock();
        known.events.push(format!("{kind}{name}"));
        update(&mut known);
        self.shared.1.notify_all();
    }
}

impl Known {
    fn last_events(&self) -> &[String] {
        &self.events[self.events.len().saturating_sub(20)..]
    }

    fn expect(&mut self, what: &str, key: &str, before: Option<&str>, expected: Option<&str>) {
        if before != expected {
            self.problems.push(format!(
                "{what} of {key}: the follower has {before:?}, the event expects {expected:?}"
            ));
        }
    }
}

impl<T: Object> ResourceEventHandler<T> for Follower {
    fn on_add(&mut self, object: &Arc<T>, is_in_initial_list: bool) {
        let key = meta_namespace_key(&**object).to_string();
        self.event('+', object.name(), |known| {
            known.initial += usize::from(is_in_initial_list);
            let before = known
                .versions
                .insert(key.clone(), object.resource_version().to_owned());
            known.expect("add", &key, before.as_deref(), None);
        });
    }

    fn on_update(&mut self, old: &Arc<T>, new: &Arc<T>) {
        let key = meta_namespace_key(&**new).to_string();
        if old.resource_version() == new.resource_version() && old.uid() == new.uid() {
            let mut known = self.lock();
            let before = known.versions.get(&key).cloned();
            known.expect(
                "echo",
                &key,
                before.as_deref(),
                Some(new.resource_version()),
            );
            known.echoes += 1;
            self.shared.1.notify_all();
            return;
        }
        self.event('~', new.name(), |known| {
            let before = known
                .versions
                .insert(key.clone(), new.resource_version().to_owned());
            known.expect(
                "update",
                &key,
                before.as_deref(),
                Some(old.resource_version()),
            );
            let number = |object: &T| object.resource_version().parse::<u64>().unwrap_or_default();
            if number(new) < number(old) {
                known.problems.push(format!(
                    "update of {key}: from {} back to {}",
                    number(old),
                    number(new)
                ));
            }
        });
    }

    fn on_delete(&mut self, gone: &Deleted<T>) {
        let key = gone.key().to_string();
        self.event('-', gone.name(), |known| {
            let before = known.versions.remove(&key);
            if gone.is_final_state_unknown() {
                known.unknown.insert(key.clone());
                let last = gone.object().map(|object| object.resource_version());
                known.expect("delete", &key, before.as_deref(), last);
            } else if before.is_none() {
                known
                    .problems
                    .push(format!("delete of {key}, which was never added"));
            }
        });
    }
}

/// Returns the threads of this process by id, with their names. Excludes threads of the test
/// harness, which are named after tests, and of embedded servers.
pub(crate) fn threads() -> BTreeMap<String, String> {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else {
        return BTreeMap::new();
    };
    let named = |task: fs::DirEntry| {
        // A thread that ends meanwhile has no name.
        let name = fs::read_to_string(task.path().join("comm")).ok()?;
        Some((
            task.file_name().to_string_lossy().into_owned(),
            name.trim_end().to_owned(),
        ))
    };
    let is_ignored = |name: &str| name.contains("::") || name.starts_with("api-server");
    tasks
        .flatten()
        .filter_map(named)
        .filter(|(_, name)| !is_ignored(name))
        .collect()
}

/// Waits until no thread is left that was started since `before`.
#[track_caller]
pub(crate) fn assert_no_thread_since(before: &BTreeMap<String, String>) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        // A joined thread is listed for a moment longer.
        let left: Vec<_> = threads()
            .into_iter()
            .filter(|(id, _)| !before.contains_key(id))
            .map(|(_, name)| name)
            .collect();
        if left.is_empty() {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "threads are still running: {left:?}"
        );
        thread::yield_now();
    }
}

/// A folder that is deleted on drop.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(new_folder())
    }

    /// Writes a file into the folder and returns its path.
    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn new_folder() -> PathBuf {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let path =
        std::env::temp_dir().join(format!("k8s-informer-e2e-{}-{count}", std::process::id()));
    // An earlier process with the same id may have left this folder behind.
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

/// Returns a free port below the ephemeral range. Otherwise a connection could get the port while
/// its server is down, and even connect to itself.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Concurrent runs start at different ports.
    let start = (std::process::id() % 400 * 16) as u16;
    (0..8000)
        .map(|_| 24_000 + (start + NEXT.fetch_add(1, Ordering::Relaxed)) % 8000)
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .unwrap()
}
