use std::sync::Arc;

use super::handler::KeyedNotification;
use crate::panic;
use crate::reflector::Recycle;
use crate::sync::Mutex;

/// How many events wait at most to go back.
const MOST: usize = 1024;

/// The way back to the reflectors of what all handlers have been told.
///
/// The last reference to an object mostly goes with the event that tells of the next one. To free it on the
/// thread of a handler, which is not the one that decoded it, is what allocators are slow at: it may double
/// the cost of an event. So while a reflector decodes, what nobody else has is dropped by that one: an object
/// before each that it makes, which then finds the room, and the rest when it is through with what it has
/// read. Nothing waits here while none decodes.
pub(super) struct Returns<T> {
    /// Whose they are: for the log.
    informer: Arc<str>,
    /// Innermost.
    state: Mutex<State<T>>,
}

struct State<T> {
    /// How many reflectors are at it.
    decoding: usize,
    told: Vec<KeyedNotification<T>>,
}

impl<T> Returns<T> {
    pub(super) fn new(informer: Arc<str>) -> Self {
        Self {
            informer,
            state: Mutex::new(State {
                decoding: 0,
                told: Vec::new(),
            }),
        }
    }

    /// Drops what has been told, now or later. It may be the last reference to an object, whose destructor is
    /// a user's code.
    pub(super) fn put(&self, told: KeyedNotification<T>) {
        if told.event.is_last() {
            let mut state = self.state.lock();
            if state.decoding > 0 && state.told.len() < MOST {
                state.told.push(told);
                return;
            }
        }
        // Without the lock.
        drop(told);
    }
}

impl<T: Send + Sync> Recycle for Returns<T> {
    fn begin(&self) {
        self.state.lock().decoding += 1;
    }

    fn one(&self) {
        let told = self.state.lock().told.pop();
        drop_each(told, &self.informer);
    }

    fn end(&self) {
        let told = {
            let mut state = self.state.lock();
            state.decoding -= 1;
            std::mem::take(&mut state.told)
        };
        drop_each(told, &self.informer);
    }
}

/// Each by itself: a destructor that panics while another one's panic unwinds would end the process.
pub(super) fn drop_each<T>(dropped: impl IntoIterator<Item = T>, whose: &dyn std::fmt::Display) {
    for event in dropped {
        if let Err(panic) = panic::catch(|| drop(event)) {
            log::error!("{whose}: an object, being dropped, {panic}");
        }
    }
}
