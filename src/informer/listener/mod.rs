//! One handler of a shared informer, with its two threads.

mod buffer;
mod coalescing;
mod ring_growing;
mod stats;
mod sync_tracker;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::buffer::Buffer;
use self::stats::Counters;
use self::sync_tracker::SyncTracker;
use super::handler::{KeyedNotification, ResourceEventHandler};
use super::reclaim::{ReclaimQueue, drop_each};
use crate::panic;
use crate::stop::{Done, Stop};
use crate::sync::Mutex;
use crate::sync::channel::{self, Receiver, Select, Sender};
use crate::threads::{Owner, StackSizes, Threads};
use crate::time::Clock;

pub use buffer::HandlerBuffer;
pub use ring_growing::RingGrowing;
pub use stats::HandlerStats;

/// A call is worth a line in the log if more than this many events wait when it begins (SP14) ...
const MANY: usize = 1024;

/// ... and it takes longer than this.
const SLOW: Duration = Duration::from_millis(100);

/// The number of events that are handed from thread to thread together, at most.
const BATCH: usize = 64;

/// One handler of a shared informer, with its two threads. client-go's `processorListener`.
///
/// ```text
///  add() ──add channel──► pop thread + buffer ──next channel──► run thread ──► handler
/// ```
///
/// Both channels hand over from thread to thread without a place in between; what the handler is not ready
/// for waits in the buffer. Events are handed over in batches: waking a thread for each would cost more than
/// everything else. Dropping the listener closes the add channel: the pop thread returns at once, and
/// with it goes what waits (SP12); that closes the next channel, and the run thread ends after the call that
/// it is in, and drops what it has in hand.
pub(super) struct ProcessorListener<T> {
    pub(super) id: u64,
    pub(super) handler: Arc<Handler>,
    add: Sender<Vec<KeyedNotification<T>>>,
    /// What has been added and not been sent. Locked while it is sent, so that nothing overtakes it.
    added: Mutex<Vec<KeyedNotification<T>>>,
    /// What the threads begin with. Taken when they are started.
    idle: Mutex<Option<Idle<T>>>,
    /// When to resync. Innermost.
    resync: Mutex<Resync>,
}

/// What the threads of a handler, its listener and its registration share.
#[derive(Debug)]
pub(super) struct Handler {
    pub(super) name: Arc<str>,
    /// Whose it is: for the log.
    informer: Arc<str>,
    tracker: SyncTracker,
    counters: Counters,
    /// Given when the listener is dropped.
    removed: Stop,
    /// Happens when it will not be called any more.
    ended: Done,
    /// Whose thread the run thread is, beside the informer's.
    owner: Owner,
}

impl Handler {
    fn new(name: Arc<str>, informer: Arc<str>) -> Self {
        Self {
            tracker: SyncTracker::new(&*name),
            counters: Counters::default(),
            removed: Stop::new(),
            ended: Done::new(&*name),
            owner: Owner::new(),
            name,
            informer,
        }
    }

    /// Happens when it has been called for its whole initial list; stays (SP11).
    pub(super) fn synced(&self) -> &Done {
        self.tracker.synced()
    }

    /// Everything of the initial list has been handed over.
    pub(super) fn set_upstream_synced(&self) {
        self.tracker.set_upstream_synced();
    }

    /// Happens when it will not be called any more.
    pub(super) fn ended(&self) -> &Done {
        &self.ended
    }

    pub(super) fn stats(&self) -> HandlerStats {
        self.counters.read()
    }

    /// Of the thread that it is called on.
    pub(super) fn owner(&self) -> Owner {
        self.owner
    }
}

/// As it stands in the log.
impl fmt::Display for Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: handler {:?}", self.informer, self.name)
    }
}

/// What a listener is made of.
pub(super) struct NewListener<T> {
    pub(super) id: u64,
    pub(super) name: Arc<str>,
    pub(super) informer: Arc<str>,
    pub(super) handler: Box<dyn ResourceEventHandler<T>>,
    pub(super) buffer: HandlerBuffer,
    /// The resync period that was asked for.
    pub(super) requested: Duration,
    /// What is done: `requested` as the informer's own period allows.
    pub(super) period: Duration,
    /// How many reflectors the informer has: each has resyncs of its own.
    pub(super) sources: usize,
    pub(super) stacks: StackSizes,
    pub(super) clock: Arc<dyn Clock>,
    /// The time by `clock`, read before the informer's locks were taken.
    pub(super) now: Instant,
}

struct Idle<T> {
    added: Receiver<Vec<KeyedNotification<T>>>,
    callee: Box<dyn ResourceEventHandler<T>>,
    buffer: HandlerBuffer,
    stacks: StackSizes,
    clock: Arc<dyn Clock>,
}

struct Resync {
    /// What was asked for, zero for never.
    requested: Duration,
    /// What is done: [`requested`](Self::requested) as the informer's own period allows.
    period: Duration,
    /// For each reflector.
    by_source: Vec<SourceResync>,
}

struct SourceResync {
    /// `None` when that is further away than the clock can tell.
    next: Option<Instant>,
    /// Whether it takes part in the resync that is under way; true before the first (SP1).
    syncing: bool,
}

impl<T: Send + Sync + 'static> ProcessorListener<T> {
    pub(super) fn new(new: NewListener<T>) -> Self {
        let NewListener {
            id,
            name,
            informer,
            handler: callee,
            buffer,
            requested,
            period,
            sources,
            stacks,
            clock,
            now,
        } = new;
        let (add, added) = channel::bounded(0);
        let next = now.checked_add(period);
        let by_source = (0..sources)
            .map(|_| SourceResync {
                next,
                syncing: true,
            })
            .collect();
        Self {
            id,
            handler: Arc::new(Handler::new(name, informer)),
            add,
            added: Mutex::default(),
            idle: Mutex::new(Some(Idle {
                added,
                callee,
                buffer,
                stacks,
                clock,
            })),
            resync: Mutex::new(Resync {
                requested,
                period,
                by_source,
            }),
        }
    }

    /// Starts the two threads. Once; later calls do nothing.
    pub(super) fn start(
        &self,
        threads: &Threads,
        reclaim: &Arc<ReclaimQueue<T>>,
    ) -> std::io::Result<()> {
        let Some(Idle {
            added,
            callee,
            buffer,
            stacks,
            clock,
        }) = self.idle.lock().take()
        else {
            return Ok(());
        };
        let (next, nexts) = channel::bounded(0);
        let (handler, name, reclaim) = (
            Arc::clone(&self.handler),
            &self.handler.name,
            Arc::clone(reclaim),
        );
        let runs = move || {
            handler
                .owner
                .adopt(|| run(&nexts, callee, &handler, &reclaim, &*clock));
        };
        let runs = threads.spawn(format!("{name} run"), stacks.handlers, runs);
        runs.inspect_err(|_| self.handler.ended.set())?;
        let handler = Arc::clone(&self.handler);
        let pops = move || {
            pop(&added, &next, Buffer::new(buffer), &handler);
            handler.counters.nothing_waits();
        };
        threads.spawn(format!("{name} pop"), stacks.others, pops)
    }

    /// Adds a notification. It is sent with the next ones, at the latest by [`flush`](Self::flush).
    pub(super) fn add(&self, notification: KeyedNotification<T>) {
        if notification.event.is_in_initial_list() {
            self.handler.tracker.start();
        }
        self.handler.counters.received();
        let mut added = self.added.lock();
        added.push(notification);
        if added.len() == BATCH {
            self.send(&mut added);
        }
    }

    /// Sends what has been added to the pop thread.
    pub(super) fn flush(&self) {
        let mut added = self.added.lock();
        if !added.is_empty() {
            self.send(&mut added);
        }
    }

    /// To the pop thread, which is always ready to take something.
    fn send(&self, added: &mut Vec<KeyedNotification<T>>) {
        // The next ones will be about as many.
        let next = Vec::with_capacity(added.len());
        // It fails only if the threads could not be started, and then nobody is there to be told.
        let _ = self.add.send(std::mem::replace(added, next));
    }

    /// Whether it takes part in the resync of this reflector that is under way.
    pub(super) fn is_syncing(&self, source: usize) -> bool {
        self.resync
            .lock()
            .by_source
            .get(source)
            .is_some_and(|source_resync| source_resync.syncing)
    }

    /// Whether its time to resync with this reflector has come; if so it takes part, and the next one is set
    /// (SP2).
    pub(super) fn should_resync(&self, source: usize, now: Instant) -> bool {
        let mut resync = self.resync.lock();
        let Resync {
            period, by_source, ..
        } = &mut *resync;
        let Some(source_resync) = by_source.get_mut(source) else {
            return false;
        };
        source_resync.syncing =
            !period.is_zero() && source_resync.next.is_some_and(|next| now >= next);
        if source_resync.syncing {
            source_resync.next = now.checked_add(*period);
        }
        source_resync.syncing
    }

    /// The informer's own period has changed: `effective` says what becomes of the one that was asked for
    /// (I9).
    pub(super) fn resync_period_changed(
        &self,
        effective: impl FnOnce(Duration) -> Duration,
        now: Instant,
    ) {
        let mut resync = self.resync.lock();
        resync.period = effective(resync.requested);
        let next = now.checked_add(resync.period);
        resync
            .by_source
            .iter_mut()
            .for_each(|source_resync| source_resync.next = next);
    }
}

impl<T> Drop for ProcessorListener<T> {
    fn drop(&mut self) {
        self.handler.removed.stop();
        let added = std::mem::take(&mut *self.added.lock());
        drop_each(added, &*self.handler);
        if let Some(idle) = self.idle.lock().take() {
            // A handler that never ran: its destructor is a user's code, too, and runs on this thread.
            if let Err(panic) = panic::catch(|| self.handler.owner.adopt(|| drop(idle))) {
                log::error!("{}, being dropped, {panic}", self.handler);
            }
            self.handler.ended.set();
        }
    }
}

/// What the pop thread hands to the run thread.
struct Delivery<T> {
    /// Adds of the initial list that nobody will be told. They are counted on the run thread: whoever waits
    /// for the handler's sync is called by who counts the last one, and the pop thread must never wait.
    dropped_initial_adds: usize,
    events: Vec<KeyedNotification<T>>,
}

/// The pop thread: from the add channel to the next channel, by way of the buffer (SP8).
fn pop<T>(
    add: &Receiver<Vec<KeyedNotification<T>>>,
    next: &Sender<Delivery<T>>,
    mut buffer: Buffer<T>,
    handler: &Handler,
) {
    let counters = &handler.counters;
    let mut dropped_initial_adds = 0;
    loop {
        // What is offered can still be merged with what comes, so it stays where it is till it is taken.
        let added = if buffer.len() == 0 && dropped_initial_adds == 0 {
            add.recv().ok()
        } else {
            let mut select = Select::new();
            let added = select.recv(add);
            select.send(next);
            let ready = select.select();
            if ready.index() == added {
                ready.recv(add).ok()
            } else {
                let dropped_initial_adds = std::mem::take(&mut dropped_initial_adds);
                let events = buffer.read(BATCH);
                let taken = events.len();
                if let Err(unsent) = ready.send(
                    next,
                    Delivery {
                        dropped_initial_adds,
                        events,
                    },
                ) {
                    drop_each(unsent.0.events, handler);
                    break;
                }
                counters.taken(taken);
                counters.waits(buffer.len());
                continue;
            }
        };
        let Some(notifications) = added else { break };
        for notification in notifications {
            let merged = buffer.write(notification);
            counters.merged(merged.events);
            dropped_initial_adds += merged.initial;
            drop_each(merged.dropped, handler);
        }
        counters.waits(buffer.len());
    }
    while buffer.len() > 0 {
        drop_each(buffer.read(BATCH), handler);
    }
}

/// The run thread: from the next channel to the handler, one call after the other (SP9).
fn run<T>(
    nexts: &Receiver<Delivery<T>>,
    mut callee: Box<dyn ResourceEventHandler<T>>,
    handler: &Handler,
    reclaim: &ReclaimQueue<T>,
    clock: &dyn Clock,
) {
    let Handler {
        counters, tracker, ..
    } = handler;
    if let Err(panic) = panic::catch(|| callee.begin(&handler.removed)) {
        log::error!("{handler}, beginning, {panic}");
    }
    for Delivery {
        dropped_initial_adds,
        events,
    } in nexts
    {
        let mut events = events.into_iter();
        // Those before the first event: whoever waits for the sync may remove the handler.
        if !handler.removed.is_stopped() {
            (0..dropped_initial_adds).for_each(|_| tracker.finished());
        }
        while !handler.removed.is_stopped()
            && let Some(told) = events.next()
        {
            let is_in_initial_list = told.event.is_in_initial_list();
            let waiting = counters.begin();
            // The clock is a user's code, too.
            let now = || panic::catch(|| clock.now()).ok();
            let began = (waiting > MANY).then(now).flatten();
            let callee = &mut *callee;
            let called = panic::catch(|| told.event.deliver(callee));
            // By itself: a destructor that panics while another panic unwinds would end the process.
            if let Err(panic) = panic::catch(|| reclaim.put(told)) {
                log::error!("{handler}: an object, being dropped, {panic}");
            }
            counters.delivered(called.is_err());
            if let Err(panic) = called {
                log::error!("{handler} {panic}; the next event follows");
            }
            let took = began.and_then(|began| Some(now()?.duration_since(began)));
            if let Some(took) = took.filter(|took| *took > SLOW) {
                log::warn!(
                    "{handler} took {} ms for an event while {waiting} waited",
                    took.as_millis()
                );
            }
            // Also after a panic: one bad object must not keep the handler unsynced for ever (SP13).
            if is_in_initial_list {
                tracker.finished();
            }
        }
        // The pop thread may not have noticed yet.
        if handler.removed.is_stopped() {
            drop_each(events, handler);
            break;
        }
    }
    // A destructor is a user's code, too.
    if let Err(panic) = panic::catch(|| drop(callee)) {
        log::error!("{handler}, being dropped, {panic}");
    }
    handler.ended.set();
}
