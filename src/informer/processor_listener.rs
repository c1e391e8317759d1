use std::sync::Arc;
use std::time::{Duration, Instant};

use super::handler::{Notification, ResourceEventHandler};
use super::ring_growing::RingGrowing;
use super::sync_tracker::SyncTracker;
use crate::panic;
use crate::sync::Mutex;
use crate::sync::channel::{self, Receiver, Select, Sender};
use crate::threads::Threads;

/// How many notifications the ring has room for before it grows.
const INITIAL_BUFFER: usize = 1024;

/// One handler of a shared informer, with its two threads. client-go's `processorListener`.
///
/// ```text
///  add() ──add channel──► pop thread + ring ──next channel──► run thread ──► handler
/// ```
///
/// Both channels hand over from thread to thread without a place in between; what the handler is not ready
/// for waits in the ring. Dropping the listener closes the add channel: the pop thread returns at once, and
/// with it goes what waits (SP12); that closes the next channel, and the run thread ends after the call that
/// it is in.
pub(super) struct ProcessorListener<T> {
    pub(super) id: u64,
    pub(super) name: Arc<str>,
    pub(super) tracker: Arc<SyncTracker>,
    add: Sender<Notification<T>>,
    /// What the threads begin with. Taken when they are started.
    idle: Mutex<Option<Idle<T>>>,
    /// When to resync. Innermost.
    resync: Mutex<Resync>,
}

struct Idle<T> {
    added: Receiver<Notification<T>>,
    handler: Box<dyn ResourceEventHandler<T>>,
}

struct Resync {
    /// What was asked for, zero for never.
    requested: Duration,
    /// What is done: [`requested`](Self::requested) as the informer's own period allows.
    period: Duration,
    /// `None` when that is further away than the clock can tell.
    next: Option<Instant>,
    /// Whether it takes part in the resync that is under way; true before the first (SP1).
    syncing: bool,
}

impl<T: Send + Sync + 'static> ProcessorListener<T> {
    pub(super) fn new(
        id: u64,
        name: Arc<str>,
        handler: Box<dyn ResourceEventHandler<T>>,
        requested: Duration,
        period: Duration,
        now: Instant,
    ) -> Self {
        let (add, added) = channel::bounded(0);
        let tracker = Arc::new(SyncTracker::new(&*name));
        let idle = Mutex::new(Some(Idle { added, handler }));
        let resync = Mutex::new(Resync { requested, period, next: now.checked_add(period), syncing: true });
        Self { id, name, tracker, add, idle, resync }
    }

    /// Starts the two threads. Once; later calls do nothing.
    pub(super) fn start(&self, threads: &Threads) -> std::io::Result<()> {
        let Some(Idle { added, handler }) = self.idle.lock().take() else { return Ok(()) };
        let (next, nexts) = channel::bounded(0);
        let (name, tracker) = (Arc::clone(&self.name), Arc::clone(&self.tracker));
        threads.spawn(format!("{name} run"), move || run(&nexts, handler, &name, &tracker))?;
        threads.spawn(format!("{} pop", self.name), move || pop(&added, &next))
    }

    /// Hands a notification over to the pop thread, which is always ready to take one.
    pub(super) fn add(&self, notification: Notification<T>) {
        if notification.is_in_initial_list() {
            self.tracker.start();
        }
        // It fails only if the threads could not be started, and then nobody is there to be told.
        let _ = self.add.send(notification);
    }

    /// Whether it takes part in the resync that is under way.
    pub(super) fn is_syncing(&self) -> bool {
        self.resync.lock().syncing
    }

    /// Whether its time to resync has come; if so it takes part, and the next one is set (SP2).
    pub(super) fn should_resync(&self, now: Instant) -> bool {
        let mut resync = self.resync.lock();
        resync.syncing = !resync.period.is_zero() && resync.next.is_some_and(|next| now >= next);
        if resync.syncing {
            resync.next = now.checked_add(resync.period);
        }
        resync.syncing
    }

    /// The informer's own period has changed: `effective` says what becomes of the one that was asked for
    /// (I9).
    pub(super) fn resync_period_changed(&self, effective: impl FnOnce(Duration) -> Duration, now: Instant) {
        let mut resync = self.resync.lock();
        resync.period = effective(resync.requested);
        resync.next = now.checked_add(resync.period);
    }
}

/// The pop thread: from the add channel to the next channel, by way of the ring (SP8).
fn pop<T>(add: &Receiver<Notification<T>>, next: &Sender<Notification<T>>) {
    let mut pending = RingGrowing::new(INITIAL_BUFFER);
    let mut notification = None;
    loop {
        let Some(offered) = notification.take() else {
            match add.recv() {
                Ok(added) => notification = Some(added),
                Err(_) => return,
            }
            continue;
        };
        let mut select = Select::new();
        let added = select.recv(add);
        select.send(next);
        let ready = select.select();
        if ready.index() == added {
            match ready.recv(add) {
                Ok(added) => pending.write(added),
                Err(_) => return,
            }
            notification = Some(offered);
        } else {
            if ready.send(next, offered).is_err() {
                return;
            }
            notification = pending.read();
        }
    }
}

/// The run thread: from the next channel to the handler, one call after the other (SP9).
fn run<T>(
    nexts: &Receiver<Notification<T>>,
    mut handler: Box<dyn ResourceEventHandler<T>>,
    name: &str,
    tracker: &SyncTracker,
) {
    for notification in nexts {
        let is_in_initial_list = notification.is_in_initial_list();
        // It is dropped in there, too: the last reference to an object may go with it, and its destructor is
        // a user's code.
        let handler = &mut *handler;
        if let Err(panic) = panic::catch(move || notification.deliver(handler)) {
            log::error!("handler {name:?} {panic}; the next event follows");
        }
        // Also after a panic: one bad object must not keep the handler unsynced for ever (SP13).
        if is_in_initial_list {
            tracker.finished();
        }
    }
    // A destructor is a user's code, too.
    if let Err(panic) = panic::catch(|| drop(handler)) {
        log::error!("handler {name:?}, being dropped, {panic}");
    }
}
