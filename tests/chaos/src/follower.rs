//! A handler that builds a copy of the objects from its events alone, and checks each event against
//! that copy.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use k8s_informer::handler::ResourceEventHandler;
use k8s_informer::{Deleted, Object};

use crate::random::Random;

/// The number of events kept for reports.
const KEPT_EVENTS: usize = 20_000;

/// The compared parts of an object. Each write has a different token: after a restore, two states
/// may have the same UID and resourceVersion.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) uid: String,
    pub(crate) version: String,
    pub(crate) token: String,
    pub(crate) colour: String,
}

impl State {
    pub(crate) fn of<T: Object>(object: &T) -> Self {
        let label = |key| object.label(key).unwrap_or_default().to_owned();
        Self {
            uid: object.uid().to_owned(),
            version: object.resource_version().to_owned(),
            token: label("token"),
            colour: label("colour"),
        }
    }

    fn number(&self) -> u64 {
        self.version.parse().unwrap_or_default()
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let uid = self.uid.get(..8).unwrap_or(&self.uid);
        write!(f, "{} {} {} {uid}", self.version, self.token, self.colour)
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{self}]")
    }
}

pub(crate) type View = BTreeMap<String, State>;

/// The filter of the handlers that have one. Passes only red objects.
pub(crate) fn passes<T: Object>(object: &T) -> bool {
    object.label("colour") == Some("red")
}

/// A handler. Clones share their state.
#[derive(Clone)]
pub(crate) struct Follower {
    start: Instant,
    /// The maximum time for which the handler sleeps in a call.
    slow: Duration,
    random: Arc<Random>,
    /// Whether versions may go back: etcd was restored, and the informers have not settled yet.
    restored: Arc<AtomicBool>,
    known: Arc<Mutex<Known>>,
}

#[derive(Default)]
pub(crate) struct Known {
    pub(crate) view: View,
    /// Broken invariants. The informer would catch a panic.
    pub(crate) broken: Vec<String>,
    pub(crate) count: u64,
    /// The last version of each key, including deleted keys.
    versions: BTreeMap<String, u64>,
    events: VecDeque<String>,
}

impl Follower {
    pub(crate) fn new(
        start: Instant,
        slow: Duration,
        random: Random,
        restored: Arc<AtomicBool>,
    ) -> Self {
        let random = Arc::new(random);
        Self {
            start,
            slow,
            random,
            restored,
            known: Arc::default(),
        }
    }

    pub(crate) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn event(
        &self,
        event: String,
        key: &str,
        new: Option<&State>,
        check: impl FnOnce(&mut Known) -> Option<String>,
    ) {
        if !self.slow.is_zero() {
            let micros = self.random.below(self.slow.as_micros() as usize) as u64;
            thread::sleep(Duration::from_micros(micros));
        }
        let mut known = self.known();
        known.count += 1;
        if known.events.len() == KEPT_EVENTS {
            known.events.pop_front();
        }
        known.events.push_back(format!(
            "{:9.3} {event}",
            self.start.elapsed().as_secs_f64()
        ));
        let mut broken = check(&mut known);
        if let Some(new) = new {
            let last = known
                .versions
                .insert(key.to_owned(), new.number())
                .unwrap_or_default();
            if new.number() < last && !self.restored.load(SeqCst) {
                broken.get_or_insert_with(|| format!("the version is older than {last}"));
            }
        }
        if let Some(broken) = broken {
            known.broken.push(format!("{event}: {broken}"));
        }
    }
}

impl Known {
    /// Called after a restore of etcd: versions must now ascend from those that the handler holds.
    pub(crate) fn forget_versions(&mut self) {
        self.versions = self
            .view
            .iter()
            .map(|(key, state)| (key.clone(), state.number()))
            .collect();
    }

    /// Returns the last events of an object.
    pub(crate) fn history(&self, key: &str) -> Vec<&str> {
        let key = format!(" {key} ");
        let events: Vec<&str> = self
            .events
            .iter()
            .map(String::as_str)
            .filter(|event| event.contains(&key))
            .collect();
        events[events.len().saturating_sub(5)..].to_vec()
    }
}

fn key_of<T: Object>(object: &T) -> String {
    format!("{}/{}", object.namespace(), object.name())
}

impl<T: Object> ResourceEventHandler<T> for Follower {
    fn on_add(&mut self, object: &Arc<T>, is_in_initial_list: bool) {
        let (key, new) = (key_of(&**object), State::of(&**object));
        let initial = if is_in_initial_list { " initial" } else { "" };
        self.event(
            format!("add {key} {new}{initial}"),
            &key,
            Some(&new),
            |known| {
                let held = known.view.insert(key.clone(), new.clone());
                held.map(|held| format!("the handler already holds {held:?}"))
            },
        );
    }

    fn on_update(&mut self, old: &Arc<T>, new: &Arc<T>) {
        let (key, old, new) = (key_of(&**new), State::of(&**old), State::of(&**new));
        self.event(
            format!("update {key} {new} from {old}"),
            &key,
            Some(&new),
            |known| match known.view.insert(key.clone(), new.clone()) {
                None => Some("the handler does not hold the object".to_owned()),
                Some(held) if held != old => Some(format!("the handler last received {held:?}")),
                Some(_) => None,
            },
        );
    }

    fn on_delete(&mut self, gone: &Deleted<T>) {
        let last = gone.object().filter(|_| gone.is_final_state_unknown());
        self.deleted(gone, last.map(|object| State::of(&**object)));
    }

    fn on_delete_after(&mut self, last_delivered: &Arc<T>, gone: &Deleted<T>) {
        self.deleted(gone, Some(State::of(&**last_delivered)));
    }
}

impl Follower {
    /// Records a delete. `last` is the state that was delivered last, if the event contains it.
    fn deleted<T: Object>(&mut self, gone: &Deleted<T>, last: Option<State>) {
        let key = gone.key().to_string();
        let state = gone.object().map(|object| State::of(&**object));
        let what = if gone.is_final_state_unknown() {
            "delete (final state unknown)"
        } else {
            "delete"
        };
        let event = match &state {
            Some(state) => format!("{what} {key} {state}"),
            None => format!("{what} {key} without an object"),
        };
        let is_final = !gone.is_final_state_unknown();
        self.event(
            event,
            &key,
            state.as_ref().filter(|_| is_final),
            |known| match known.view.remove(&key) {
                None => Some("the handler does not hold the object".to_owned()),
                Some(held) if last.as_ref().is_some_and(|last| *last != held) => {
                    Some(format!("the handler last received {held:?}"))
                }
                Some(_) => None,
            },
        );
    }
}
