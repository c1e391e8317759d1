//! Tracks the socket that each request uses, so that a [`Stop`] ends only its own request.
//!
//! A pooled connection outlives a request, and its socket is deep inside ureq, which can't pass our
//! values through its calls. Therefore a thread-local holds the current request of a thread while
//! ureq runs. ureq connects and writes on the calling thread. A socket records this request when it
//! is created and whenever a request is written to it.
//!
//! The stop shuts the socket down, which ends a blocked read, write or connect. Where it may not,
//! they run in [slices](in_slices).

use std::cell::RefCell;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::deadline::ReadDeadline;
use crate::base::sync::Mutex;
use crate::error::{Error, Sent};
use crate::stop::{Stop, Subscription};

thread_local! {
    static CURRENT: RefCell<Option<Arc<Call>>> = const { RefCell::new(None) };
}

/// Whether a shutdown is known to end a read or write that another thread is blocked in. On Windows
/// it does not (rust-lang/rust#121594).
const SHUTDOWN_ENDS_READS: bool = cfg!(any(
    target_os = "linux",
    target_os = "android",
    target_os = "macos",
    target_os = "ios",
    target_os = "freebsd",
    target_os = "netbsd",
    target_os = "openbsd",
    target_os = "dragonfly",
));

/// Whether a shutdown also ends a connect that begins after it. Other systems may refuse to shut
/// down an unconnected socket (rust-lang/socket2#48).
const SHUTDOWN_ENDS_CONNECTS: bool = cfg!(any(target_os = "linux", target_os = "android"));

/// The longest time to block without a look at the stop.
pub(super) const SLICE: Duration = Duration::from_millis(50);

/// Only tests set this. A static, because it replaces a property of the system.
static SHUTDOWN_IGNORED: AtomicBool = AtomicBool::new(false);

/// Simulates a system whose shutdown ends nothing, for the whole process: stops no longer shut
/// sockets down. For tests.
#[doc(hidden)]
pub fn ignore_shutdowns() {
    SHUTDOWN_IGNORED.store(true, Ordering::Relaxed);
}

/// Whether reads and writes run in slices.
pub(super) fn reads_need_slices() -> bool {
    !SHUTDOWN_ENDS_READS || SHUTDOWN_IGNORED.load(Ordering::Relaxed)
}

/// Whether connects run in slices.
pub(super) fn connects_need_slices() -> bool {
    !SHUTDOWN_ENDS_CONNECTS || reads_need_slices()
}

/// Calls `attempt` with the time for which it may block, at most [`SLICE`], until it returns a
/// value. Returns `None` after `limit`, and an error if `stop` is set.
pub(super) fn in_slices<T>(
    stop: &Stop,
    limit: Option<Duration>,
    mut attempt: impl FnMut(Duration) -> io::Result<Option<T>>,
) -> io::Result<Option<T>> {
    let start = Instant::now();
    loop {
        if stop.is_stopped() {
            return Err(io::Error::other("stopped"));
        }
        let slice = limit.map_or(SLICE, |limit| {
            limit.saturating_sub(start.elapsed()).min(SLICE)
        });
        if slice.is_zero() {
            return Ok(None);
        }
        if let Some(value) = attempt(slice)? {
            return Ok(Some(value));
        }
    }
}

/// Like [`in_slices`], for an `attempt` that does not block. The pauses between the attempts grow
/// from 1 ms to [`SLICE`], and a stop ends them.
pub(super) fn retry_in_slices<T>(
    stop: &Stop,
    limit: Option<Duration>,
    mut attempt: impl FnMut() -> io::Result<Option<T>>,
) -> io::Result<Option<T>> {
    let mut pause = Duration::from_millis(1);
    in_slices(stop, limit, |slice| {
        let value = attempt()?;
        if value.is_none() {
            stop.wait_timeout(slice.min(pause));
            pause = SLICE.min(2 * pause);
        }
        Ok(value)
    })
}

/// A TCP socket. It exists before it is connected.
pub(in crate::client) struct Socket {
    pub(in crate::client) stream: TcpStream,
    /// The id of the call that uses the socket.
    ///
    /// Locked while the socket is shut down, so that the end of one call can't affect the next call
    /// on the same connection. Innermost lock. No thread waits while it holds this lock.
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
        if *owner == call && !SHUTDOWN_IGNORED.load(Ordering::Relaxed) {
            // An error means that the socket is closed, or that it is not connected. In the second
            // case, Linux still ends the connect, and on other systems the connect runs in slices.
            let _ = self.stream.shutdown(Shutdown::Both);
        }
    }
}

/// Asked immediately before the first byte of a request leaves. An error ends the request.
pub(in crate::client) type BeforeOutput = Box<dyn Fn() -> Result<(), Error> + Send + Sync>;

/// One attempt of a request.
pub(in crate::client) struct Call {
    id: u64,
    stop: Stop,
    /// The sockets to shut down on stop. Locked by the stopping thread and by the connecting
    /// thread, never while either of them blocks.
    sockets: Mutex<Vec<Weak<Socket>>>,
    deadline: ReadDeadline,
    fresh: bool,
    /// Whether [`SMALL_OUTPUT`](super::SMALL_OUTPUT) suffices.
    short: bool,
    reused: AtomicBool,
    before_output: Option<BeforeOutput>,
    /// Whether the first byte of the request may have left.
    has_output: AtomicBool,
}

impl Call {
    /// The call that this thread is making.
    pub(in crate::client) fn current() -> Option<Arc<Self>> {
        CURRENT.with_borrow(Clone::clone)
    }

    pub(in crate::client) fn stop(&self) -> &Stop {
        &self.stop
    }

    /// The deadline for reads of the response body.
    pub(in crate::client) fn deadline(&self) -> &ReadDeadline {
        &self.deadline
    }

    pub(super) fn current_is_short() -> bool {
        CURRENT.with_borrow(|call| call.as_ref().is_some_and(|call| call.short))
    }

    /// Whether the call must not use a pooled connection.
    pub(in crate::client) fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// Makes this call the owner of the socket: the stop of the call now shuts the socket down. If
    /// the call is already stopped, the socket is shut down immediately.
    pub(in crate::client) fn adopt(&self, socket: &Arc<Socket>) {
        *socket.owner.lock() = self.id;
        self.sockets.lock().push(Arc::downgrade(socket));
        // A `Stop` is marked as stopped before its callbacks run. So either the callback finds the
        // socket and shuts it down, or this check finds the mark.
        if self.stop.is_stopped() {
            socket.shut_down_if_owned_by(self.id);
        }
    }

    /// Like [`adopt`](Self::adopt), but does nothing if this call has already adopted the socket.
    /// Otherwise the socket comes from the pool, and the call is marked as
    /// [`reused`](Running::reused). Called for every write.
    pub(in crate::client) fn adopt_if_new(&self, socket: &Arc<Socket>) {
        if *socket.owner.lock() != self.id {
            self.reused.store(true, Ordering::Relaxed);
            self.adopt(socket);
        }
    }

    /// Called by the thread of the request before each write. Fails if the request may not begin.
    pub(super) fn before_output(&self) -> Result<(), ureq::Error> {
        // What has begun is ended by the stop alone.
        if self.has_output.load(Ordering::Relaxed) {
            return Ok(());
        }
        if let Some(before_output) = &self.before_output {
            before_output().map_err(|error| ureq::Error::Io(io::Error::other(error)))?;
        }
        self.has_output.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn shut_down(&self) {
        let sockets = std::mem::take(&mut *self.sockets.lock());
        for socket in sockets.iter().filter_map(Weak::upgrade) {
            socket.shut_down_if_owned_by(self.id);
        }
    }
}

/// A [`Call`] that is subscribed to its stop until it is dropped.
pub(in crate::client) struct Running {
    call: Arc<Call>,
    _subscription: Subscription,
}

impl Running {
    /// Starts a call. If `fresh`, it uses a new connection and none from the pool. For `short`, see
    /// [`SMALL_OUTPUT`](super::SMALL_OUTPUT).
    pub(in crate::client) fn begin(
        stop: &Stop,
        fresh: bool,
        short: bool,
        before_output: Option<BeforeOutput>,
    ) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let call = Arc::new(Call {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            stop: stop.clone(),
            sockets: Mutex::default(),
            deadline: ReadDeadline::default(),
            fresh,
            short,
            reused: AtomicBool::new(false),
            before_output,
            has_output: AtomicBool::new(false),
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

    /// Runs `work` with this call as the current one of the thread.
    pub(in crate::client) fn enter<R>(&self, work: impl FnOnce() -> R) -> R {
        /// Restores the previous call, even after a panic.
        struct Leave(Option<Arc<Call>>);
        impl Drop for Leave {
            fn drop(&mut self) {
                CURRENT.set(self.0.take());
            }
        }
        let _leave = Leave(CURRENT.replace(Some(self.call.clone())));
        work()
    }

    /// The deadline for reads of the response body.
    pub(in crate::client) fn deadline(&self) -> &ReadDeadline {
        self.call.deadline()
    }

    /// Whether bytes of the request have left.
    pub(in crate::client) fn sent(&self) -> Sent {
        match self.call.has_output.load(Ordering::Relaxed) {
            true => Sent::Maybe,
            false => Sent::No,
        }
    }

    /// Whether the call used a pooled connection.
    pub(in crate::client) fn reused(&self) -> bool {
        self.call.reused.load(Ordering::Relaxed)
    }
}
