use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read};
use std::sync::Arc;

use serde_json::{Value, json};

use k8s_informer::error::Error;
use k8s_informer::error::Status;
use k8s_informer::reflector::ListOptions;
use k8s_informer::reflector::{Body, ListerWatcher};
use k8s_informer::stop::{Stop, Subscription};
use parking_lot::{Condvar, Mutex};

/// An in-memory source of objects of one kind, without a server. A test changes the objects, and an
/// informer lists and watches them. Watches can miss changes on request. It corresponds to
/// client-go's `FakeControllerSource`.
///
/// Each change gets the next resourceVersion, starting at 1. The source keeps all changes for
/// watches that start at an older version. It ignores selectors and page limits. Clones share the
/// same source.
///
/// ```
/// use k8s_informer::{DynamicObject, SharedIndexInformer, Stopper};
/// use k8s_informer_testing::FakeControllerSource;
/// use serde_json::json;
/// use std::sync::Arc;
///
/// let source = FakeControllerSource::new();
/// source.add(json!({ "metadata": { "name": "a" } }));
/// let informer = SharedIndexInformer::<DynamicObject>::new(Arc::new(source.clone()), Default::default());
/// let (sender, events) = std::sync::mpsc::channel();
/// informer.add_event_handler(|handler| handler.on_delete(move |gone| sender.send(gone.key()).unwrap()))?;
///
/// let stop = Stopper::new();
/// std::thread::scope(|scope| {
///     scope.spawn(|| informer.run(&stop));
///     informer.synced().wait();
///     // The watch misses this deletion. The list after the end of the watch detects it.
///     source.delete_drop_watch(json!({ "metadata": { "name": "a" } }));
///     source.reset_watch();
///     assert_eq!(&*events.recv().unwrap(), "a");
///     stop.stop();
/// });
/// # Ok::<(), k8s_informer::informer::InformerError>(())
/// ```
#[derive(Clone)]
pub struct FakeControllerSource {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// This is an innermost lock: no other lock is taken while it is held.
    state: Mutex<State>,
    /// Notified of changes of `state` and of stops: by each change, by each reset and by the stop.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    version: u64,
    /// The objects by namespace, name and UID.
    items: BTreeMap<[String; 3], Value>,
    changes: Vec<Change>,
    /// Changes up to this version are not available anymore.
    forgotten: u64,
    /// The number of resets. A watch that began before the last reset has ended.
    resets: u64,
    list_error: Option<Error>,
}

struct Change {
    version: u64,
    /// Whether the watches that were open at the time of the change do not receive it.
    dropped: bool,
    frame: String,
}

impl FakeControllerSource {
    /// Creates a source without objects.
    pub fn new() -> Self {
        Self {
            shared: Arc::default(),
        }
    }

    /// Adds an object and returns it with its resourceVersion.
    pub fn add(&self, object: Value) -> Value {
        self.change("ADDED", object, false)
    }

    /// Replaces an object and returns it with its resourceVersion.
    pub fn modify(&self, object: Value) -> Value {
        self.change("MODIFIED", object, false)
    }

    /// Deletes an object and returns its last state, with the resourceVersion of the deletion.
    pub fn delete(&self, object: Value) -> Value {
        self.change("DELETED", object, false)
    }

    /// Like [`add`](Self::add), but open watches do not receive the event.
    pub fn add_drop_watch(&self, object: Value) -> Value {
        self.change("ADDED", object, true)
    }

    /// Like [`modify`](Self::modify), but open watches do not receive the event.
    pub fn modify_drop_watch(&self, object: Value) -> Value {
        self.change("MODIFIED", object, true)
    }

    /// Like [`delete`](Self::delete), but open watches do not receive the event.
    pub fn delete_drop_watch(&self, object: Value) -> Value {
        self.change("DELETED", object, true)
    }

    /// Ends all watches and drops all recorded changes, so that clients have to relist.
    pub fn reset_watch(&self) {
        let mut state = self.shared.state.lock();
        state.resets += 1;
        state.forgotten = state.version;
        state.changes.clear();
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Sets the error with which lists fail. `None` lets them succeed again.
    pub fn set_list_error(&self, error: Option<Error>) {
        self.shared.state.lock().list_error = error;
    }

    /// Returns the resourceVersion of the last change, or 0 before the first one.
    pub fn resource_version(&self) -> u64 {
        self.shared.state.lock().version
    }

    fn change(&self, kind: &str, mut object: Value, dropped: bool) -> Value {
        let mut state = self.shared.state.lock();
        state.version += 1;
        let version = state.version;
        if let Some(fields) = object.as_object_mut() {
            let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
            if let Some(metadata) = metadata.as_object_mut() {
                metadata.insert("resourceVersion".to_owned(), version.to_string().into());
            }
        }
        let key = ["namespace", "name", "uid"].map(|field| {
            object["metadata"][field]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        });
        match kind {
            "DELETED" => drop(state.items.remove(&key)),
            _ => drop(state.items.insert(key, object.clone())),
        }
        let frame = json!({ "type": kind, "object": &object });
        state.changes.push(Change {
            version,
            dropped,
            frame: format!("{frame}\n"),
        });
        drop(state);
        self.shared.changed.notify_all();
        object
    }
}

impl Default for FakeControllerSource {
    fn default() -> Self {
        Self::new()
    }
}

impl ListerWatcher for FakeControllerSource {
    fn list(&self, _: &ListOptions, _: &Stop) -> Result<Body, Error> {
        let state = self.shared.state.lock();
        if let Some(error) = &state.list_error {
            return Err(error.clone());
        }
        let items: Vec<_> = state.items.values().collect();
        let metadata = json!({ "resourceVersion": state.version.to_string() });
        Ok(Body::from(
            json!({ "kind": "List", "metadata": metadata, "items": items }).to_string(),
        ))
    }

    /// Requires a numeric resourceVersion. A version before the last reset fails with `Expired`,
    /// and a future version with another error.
    fn watch(&self, options: &ListOptions, stop: &Stop) -> Result<Body, Error> {
        let after = options.resource_version.as_ref();
        let Some(after) = after.and_then(|after| after.to_string().parse::<u64>().ok()) else {
            return Err(Error::other(
                "a watch of this source needs a numeric resourceVersion",
            ));
        };
        let state = self.shared.state.lock();
        if after < state.forgotten {
            let message = format!("too old resource version: {after} ({})", state.forgotten);
            return Err(Error::from_status(Status::failure(410, "Expired", message)));
        }
        if after > state.version {
            return Err(Error::other("the resourceVersion is in the future"));
        }
        let (opened, resets) = (state.version, state.resets);
        drop(state);
        let shared = Arc::clone(&self.shared);
        let wakes = stop.on_stop(move || {
            // Takes the lock, so that the wake-up cannot fall between a reader's check and its
            // wait.
            let _state = shared.state.lock();
            shared.changed.notify_all();
        });
        let shared = Arc::clone(&self.shared);
        let (stop, rest) = (stop.clone(), Vec::new());
        Ok(Body::new(Watch {
            shared,
            after,
            opened,
            resets,
            rest,
            stop,
            _wakes: wakes,
        }))
    }

    fn description(&self) -> String {
        "fake objects".to_owned()
    }
}

impl fmt::Debug for FakeControllerSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeControllerSource")
            .field("resource_version", &self.resource_version())
            .finish_non_exhaustive()
    }
}

struct Watch {
    shared: Arc<Shared>,
    /// The version of the last change that was read.
    after: u64,
    /// The newest version when the watch began. Changes up to it are delivered even if they are
    /// marked as `dropped`.
    opened: u64,
    /// The number of resets when the watch began.
    resets: u64,
    rest: Vec<u8>,
    stop: Stop,
    _wakes: Subscription,
}

impl Read for Watch {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.rest.is_empty() {
            let mut state = self.shared.state.lock();
            loop {
                if self.stop.is_stopped() {
                    return Err(io::Error::other(Error::stopped()));
                }
                if state.resets > self.resets {
                    return Ok(0);
                }
                let (after, opened) = (self.after, self.opened);
                let read = state
                    .changes
                    .partition_point(|change| change.version <= after);
                let is_visible = |change: &&Change| !change.dropped || change.version <= opened;
                if let Some(change) = state.changes[read..].iter().find(is_visible) {
                    self.after = change.version;
                    self.rest = change.frame.clone().into_bytes();
                    break;
                }
                self.shared.changed.wait(&mut state);
            }
        }
        let length = self.rest.len().min(buffer.len());
        buffer[..length].copy_from_slice(&self.rest[..length]);
        self.rest.drain(..length);
        Ok(length)
    }
}
