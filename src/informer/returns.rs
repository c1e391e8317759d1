use super::handler::Notification;
use crate::panic;
use crate::sync::Mutex;

/// How many events wait at most to go back.
const MOST: usize = 1024;

/// The way back to the reflectors of what all handlers have been told.
///
/// The last reference to an object mostly goes with the event that tells of the next one. To free it on the
/// thread of a handler, which is not the one that decoded it, is what allocators are slow at: it may double
/// the cost of an event. So while a reflector decodes, what nobody else has is dropped by that one, when it is
/// through with what it has read. Nothing waits here while none decodes.
pub(super) struct Returns<T> {
    /// Innermost.
    state: Mutex<State<T>>,
}

struct State<T> {
    /// How many reflectors are at it.
    decoding: usize,
    told: Vec<Notification<T>>,
}

impl<T> Returns<T> {
    pub(super) fn new() -> Self {
        Self { state: Mutex::new(State { decoding: 0, told: Vec::new() }) }
    }

    /// Drops what has been told, now or later. It may be the last reference to an object, whose destructor is
    /// a user's code.
    pub(super) fn put(&self, told: Notification<T>) {
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

    /// Calls `decode`; what has come back by the end of it is dropped here. `whose` is for the log.
    pub(super) fn while_decoding(&self, whose: &str, decode: &mut dyn FnMut()) {
        self.state.lock().decoding += 1;
        let _drops = Drops { returns: self, whose };
        decode();
    }
}

struct Drops<'a, T> {
    returns: &'a Returns<T>,
    whose: &'a str,
}

impl<T> Drop for Drops<'_, T> {
    fn drop(&mut self) {
        let told = {
            let mut state = self.returns.state.lock();
            state.decoding -= 1;
            std::mem::take(&mut state.told)
        };
        drop_each(told, &self.whose);
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
