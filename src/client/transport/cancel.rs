//! Which socket belongs to which request, so that a [`Stop`] ends just the request it was given for.
//!
//! A connection outlives a request in the pool, and its socket comes to be deep below ureq, whose calls carry
//! nothing of ours. So the request that a thread is making is in a thread-local while ureq runs (it
//! connects and writes on the calling thread), and a socket takes note of it when it is made and whenever a
//! request is written to it.

use std::cell::RefCell;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use super::deadline::ReadDeadline;
use crate::stop::{Stop, Subscription};
use crate::sync::Mutex;

thread_local! {
    static CURRENT: RefCell<Option<Arc<Call>>> = const { RefCell::new(None) };
}

/// A TCP socket, from before it is connected on.
pub(in crate::client) struct Socket {
    pub(in crate::client) stream: TcpStream,
    /// The id of the call that uses it. Held while the socket is shut down, so that the end of one call
    /// can't hit the next one on the same connection. Locked after `Call::sockets` or alone; nobody
    /// waits on it.
    owner: Mutex<u64>,
}

impl Socket {
    pub(in crate::client) fn new(stream: TcpStream) -> Arc<Self> {
        Arc::new(Self {
            stream,
            owner: Mutex::new(0),
        })
    }

    fn shut_down_if_owned_by(&self, call: u64) {
        let owner = self.owner.lock();
        if *owner == call {
            // An error means that it is closed already.
            let _ = self.stream.shutdown(Shutdown::Both);
        }
    }
}

/// One try of one request.
pub(in crate::client) struct Call {
    id: u64,
    stop: Stop,
    /// What to shut down when the stop is given. Locked by the thread that stops and by the one that
    /// connects, never while either blocks.
    sockets: Mutex<Vec<Weak<Socket>>>,
    deadline: Arc<ReadDeadline>,
    fresh: bool,
    reused: AtomicBool,
}

impl Call {
    /// The request that this thread is making.
    pub(in crate::client) fn current() -> Option<Arc<Self>> {
        CURRENT.with_borrow(Clone::clone)
    }

    pub(in crate::client) fn stop(&self) -> &Stop {
        &self.stop
    }

    /// Until when reads of its response's body may wait.
    pub(in crate::client) fn deadline(&self) -> Arc<ReadDeadline> {
        Arc::clone(&self.deadline)
    }

    /// Whether it must not use a connection from the pool.
    pub(in crate::client) fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// From now on the stop of this call shuts the socket down. A stop that was given before does so at once.
    pub(in crate::client) fn adopt(&self, socket: &Arc<Socket>) {
        *socket.owner.lock() = self.id;
        self.sockets.lock().push(Arc::downgrade(socket));
        // The stop is marked as given before its callbacks run: either they see the socket, or this sees the
        // mark.
        if self.stop.is_stopped() {
            socket.shut_down_if_owned_by(self.id);
        }
    }

    /// The same for a socket that may come from the pool: called whenever something is written.
    pub(in crate::client) fn adopt_if_new(&self, socket: &Arc<Socket>) {
        if *socket.owner.lock() != self.id {
            self.reused.store(true, Ordering::Relaxed);
            self.adopt(socket);
        }
    }

    fn shut_down(&self) {
        let sockets = std::mem::take(&mut *self.sockets.lock());
        for socket in sockets.iter().filter_map(Weak::upgrade) {
            socket.shut_down_if_owned_by(self.id);
        }
    }
}

/// A [`Call`] that listens to its stop, until it is dropped.
pub(in crate::client) struct Running {
    call: Arc<Call>,
    _subscription: Subscription,
}

impl Running {
    /// `fresh`: on a connection of its own, not on one from the pool.
    pub(in crate::client) fn begin(stop: &Stop, fresh: bool) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let call = Arc::new(Call {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            stop: stop.clone(),
            sockets: Mutex::default(),
            deadline: Arc::default(),
            fresh,
            reused: AtomicBool::new(false),
        });
        let weak = Arc::downgrade(&call);
        let subscription = stop.on_stop(move || {
            if let Some(call) = weak.upgrade() {
                call.shut_down();
            }
        });
        Self {
            call,
            _subscription: subscription,
        }
    }

    /// Runs `work` as this call.
    pub(in crate::client) fn enter<R>(&self, work: impl FnOnce() -> R) -> R {
        /// Puts back what was there, also when `work` panics.
        struct Leave(Option<Arc<Call>>);
        impl Drop for Leave {
            fn drop(&mut self) {
                CURRENT.set(self.0.take());
            }
        }
        let _leave = Leave(CURRENT.replace(Some(self.call.clone())));
        work()
    }

    /// Until when reads of the response's body may wait.
    pub(in crate::client) fn deadline(&self) -> &ReadDeadline {
        &self.call.deadline
    }

    /// Whether it went over a connection from the pool.
    pub(in crate::client) fn reused(&self) -> bool {
        self.call.reused.load(Ordering::Relaxed)
    }
}
