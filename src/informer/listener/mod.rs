//! A handler of a shared informer, and its two threads.

mod buffer;
mod coalescing;
mod resync;
mod ring_growing;
mod stats;
mod sync_tracker;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use self::buffer::Buffer;
use self::stats::Counters;
use self::sync_tracker::SyncTracker;
use super::handler::{KeyedNotification, Notification, ResourceEventHandler};
use super::reclaim::{ReclaimQueue, drop_each};
use crate::base::panic;
use crate::base::sync::Mutex;
use crate::base::sync::atomic::{AtomicUsize, Ordering};
use crate::base::sync::channel::{self, Receiver, Select, Sender};
use crate::base::threads::{Owner, StackSizes, Threads};
use crate::entry::Entry;
use crate::log;
use crate::stop::{Done, Stop};
use crate::time::Clock;

pub use buffer::HandlerBuffer;
pub(super) use resync::Resync;
pub use ring_growing::RingGrowing;
pub use stats::HandlerStats;

/// A slow call is logged only if more than this number of events wait when it begins (SP14).
const MANY: usize = 1024;

/// A call of a handler counts as slow if it takes longer than this.
const SLOW: Duration = Duration::from_millis(100);

/// The maximum number of events in one batch between threads.
const BATCH: usize = 64;

/// The events that go through a channel together.
type Batch<T> = Vec<KeyedNotification<T>>;

/// A handler of a shared informer, and its two threads. client-go's `processorListener`.
///
/// ```text
///  add() ──add channel──► pop thread + buffer ──next channel──► run thread ──► handler
/// ```
///
/// Neither channel stores events: a send waits for the receiver. Events that the handler is not
/// ready for wait in the buffer. Events are passed in batches, because waking a thread for each
/// event would cost more than all other work. While the pop thread has nothing and the run thread
/// waits, a batch skips the pop thread.
///
/// Dropping the listener closes the add channel. The pop thread then returns immediately and drops
/// the waiting events (SP12), which closes the next channel. The run thread finishes its current
/// call, drops the rest of its batch, and ends.
pub(super) struct ProcessorListener<T> {
    pub(super) handler: Arc<Handler>,
    pub(super) resync: Resync,
    inbox: Arc<Inbox<T>>,
    /// The initial state of the threads. `None` after they have started.
    idle: Mutex<Option<Idle<T>>>,
}

struct Idle<T> {
    added: Receiver<Batch<T>>,
    deliveries: Receiver<Delivery<T>>,
    callee: Callee<T>,
}

/// A handler, and what its threads need to call it.
pub(super) struct Callee<T> {
    pub(super) handler: Box<dyn ResourceEventHandler<T>>,
    pub(super) buffer: HandlerBuffer,
    pub(super) stacks: StackSizes,
    pub(super) clock: Arc<dyn Clock>,
}

/// The way into the add channel, and past it.
pub(super) struct Inbox<T> {
    add: Sender<Batch<T>>,
    next: Sender<Delivery<T>>,
    handler: Arc<Handler>,
    /// The size of the largest batch that may skip the pop thread. A coalescing buffer may have to
    /// merge the events of a larger one.
    skips: usize,
    /// The events that have been added but not sent to the pop thread. Locked during a send, to
    /// preserve the order.
    added: Mutex<Added<T>>,
}

struct Added<T> {
    events: Batch<T>,
    /// Whether a [`Replay`] is sending the initial list. The events wait until it has ended.
    is_replaying: bool,
    /// If the handler has no threads: calls it. `None` during a call, and after the last one.
    runner: Option<Runner<T>>,
    has_threads: bool,
}

impl<T> Inbox<T> {
    /// Sends a batch to the pop thread, which is always ready to receive. If the pop thread has
    /// nothing and the run thread waits, sends it there: the order is the same, and one thread less
    /// is woken. Returns the batch if the threads have ended or could not be started.
    fn send(&self, mut batch: Batch<T>) -> Batch<T> {
        let (counters, in_pop) = (&self.handler.counters, &self.handler.in_pop);
        let events = batch.len();
        if events <= self.skips && in_pop.load(Ordering::Acquire) == 0 {
            let delivery = Delivery {
                dropped_initial_adds: 0,
                events: batch,
            };
            let Err(unsent) = self.next.try_send(delivery) else {
                counters.taken(events);
                counters.set_buffered(0);
                return Vec::new();
            };
            batch = unsent.into_inner().events;
        }
        in_pop.fetch_add(1, Ordering::Relaxed);
        match self.add.send(batch) {
            Ok(()) => Vec::new(),
            Err(unsent) => unsent.0,
        }
    }

    /// Whether a handler without threads has not received all added events, or has not begun.
    pub(super) fn has_work(&self) -> bool {
        let added = self.added.lock();
        let runner = added.runner.as_ref();
        runner.is_some_and(|runner| !runner.has_begun || !added.events.is_empty())
    }

    /// Calls a handler without threads with the added events. The caller has the lock of the calls,
    /// so no other thread is in the handler.
    pub(super) fn deliver(&self) {
        let (mut runner, events) = {
            let mut added = self.added.lock();
            // A removed handler has none.
            let Some(runner) = added.runner.take() else {
                return;
            };
            let events = std::mem::take(&mut added.events);
            self.handler.counters.taken(events.len());
            self.handler.counters.set_buffered(0);
            (runner, events)
        };
        let handler = Arc::clone(&runner.handler);
        handler.owner.adopt(|| runner.deliver(0, events));
        let ended = {
            let mut added = self.added.lock();
            match handler.removed.is_stopped() {
                true => Some(runner),
                false => added.runner.replace(runner),
            }
        };
        if let Some(runner) = ended {
            handler.owner.adopt(|| runner.end());
        }
    }
}

/// The initial list of a handler that was added late. No lock of the informer is held while it is
/// sent. The events that follow wait.
pub(super) struct Replay<T> {
    initial: Vec<Entry<T>>,
    handler: Arc<Handler>,
    inbox: Arc<Inbox<T>>,
}

impl<T> Replay<T> {
    /// Sends the initial list, then the events that were added meanwhile. Returns early if the
    /// handler is removed.
    pub(super) fn send(self) {
        let Self {
            initial,
            handler,
            inbox,
        } = self;
        let mut initial = initial.into_iter().map(initial_add);
        let mut unsent = Vec::new();
        while unsent.is_empty() && initial.len() > 0 && !handler.removed.is_stopped() {
            let batch: Vec<_> = initial.by_ref().take(BATCH).collect();
            handler.counters.received(batch.len());
            unsent = inbox.send(batch);
        }
        {
            let mut added = inbox.added.lock();
            added.is_replaying = false;
            // One batch of any size, so the process thread hardly waits for this lock.
            unsent.extend(inbox.send(std::mem::take(&mut added.events)));
        }
        // The pop thread of a removed handler waits for this, and the destructors of objects are
        // user code.
        drop(inbox);
        drop_each(unsent.into_iter().chain(initial), &*handler);
    }
}

/// Returns the notification about an object that was in the cache before the handler.
fn initial_add<T>(entry: Entry<T>) -> KeyedNotification<T> {
    KeyedNotification {
        key: entry.key,
        event: Notification::Added {
            object: entry.object,
            is_in_initial_list: true,
        },
    }
}

/// The state that a handler's threads, its listener and its registration share.
#[derive(Debug)]
pub(super) struct Handler {
    pub(super) name: Arc<str>,
    /// The name of the informer, for the log.
    informer: Arc<str>,
    tracker: SyncTracker,
    counters: Counters,
    /// The number of batches on their way to or in the pop thread since it last had nothing. The
    /// sender adds before it sends, so a batch never overtakes one that is not counted yet.
    in_pop: AtomicUsize,
    /// Set when the listener is dropped, or by a stop if the handler has no threads.
    removed: Stop,
    /// Set after the last call of the handler.
    pub(super) ended: Done,
    /// An owner of the run thread alone. The informer is a second owner of this thread.
    pub(super) owner: Owner,
}

impl Handler {
    /// `only_threads` is the owner of the informer's threads if they call the handler.
    pub(super) fn new(name: Arc<str>, informer: Arc<str>, only_threads: Option<Owner>) -> Self {
        let owner = Owner::new();
        let synced = match only_threads {
            Some(informer) => Done::set_by(informer, &*name),
            // The process loop may set it during a call.
            None => Done::new(&*name),
        };
        Self {
            tracker: SyncTracker::new(synced),
            counters: Counters::default(),
            in_pop: AtomicUsize::new(0),
            removed: Stop::new(),
            ended: Done::set_by(only_threads.unwrap_or(owner), &*name),
            owner,
            name,
            informer,
        }
    }

    /// Returns the signal that is set when the handler has processed its whole initial list. It
    /// stays set (SP11).
    pub(super) fn synced(&self) -> &Done {
        self.tracker.synced()
    }

    /// Records that the whole initial list has been added.
    pub(super) fn set_upstream_synced(&self) {
        self.tracker.set_upstream_synced();
    }

    /// Ends the calls of the handler, and its waits.
    pub(super) fn remove(&self) {
        self.removed.stop();
    }

    pub(super) fn stats(&self) -> HandlerStats {
        self.counters.read()
    }
}

/// The name in log messages.
impl fmt::Display for Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: handler {:?}", self.informer, self.name)
    }
}

impl<T: Send + Sync + 'static> ProcessorListener<T> {
    pub(super) fn new(
        handler: Arc<Handler>,
        resync: Resync,
        callee: Callee<T>,
        has_threads: bool,
    ) -> Self {
        let (add, added) = channel::bounded(0);
        let (next, deliveries) = channel::bounded(0);
        let inbox = Inbox {
            add,
            next,
            handler: Arc::clone(&handler),
            skips: match callee.buffer {
                HandlerBuffer::Unbounded => BATCH,
                HandlerBuffer::Coalescing => 1,
            },
            added: Mutex::new(Added {
                events: Vec::new(),
                is_replaying: false,
                runner: None,
                has_threads,
            }),
        };
        Self {
            handler,
            resync,
            inbox: Arc::new(inbox),
            idle: Mutex::new(Some(Idle {
                added,
                deliveries,
                callee,
            })),
        }
    }

    pub(super) fn inbox(&self) -> &Arc<Inbox<T>> {
        &self.inbox
    }

    /// Starts the two threads, if the handler has threads. Later calls do nothing.
    pub(super) fn start(
        &self,
        threads: &Threads,
        reclaim: &Arc<ReclaimQueue<T>>,
    ) -> std::io::Result<()> {
        let Some(idle) = self.idle.lock().take() else {
            return Ok(());
        };
        let (added, deliveries, callee) = (idle.added, idle.deliveries, idle.callee);
        let (name, stacks, buffer) = (&self.handler.name, callee.stacks, callee.buffer);
        let runner = Runner {
            callee,
            handler: Arc::clone(&self.handler),
            reclaim: Arc::clone(reclaim),
            has_begun: false,
        };
        {
            let mut added = self.inbox.added.lock();
            if !added.has_threads {
                added.runner = Some(runner);
                return Ok(());
            }
        }
        let owner = self.handler.owner;
        let runs = move || owner.adopt(|| run(&deliveries, runner));
        let runs = threads.spawn(format!("{name} run"), stacks.handlers, runs);
        runs.inspect_err(|_| self.handler.ended.set())?;
        let (next, handler) = (self.inbox.next.clone(), Arc::clone(&self.handler));
        let pops = move || {
            pop(&added, &next, Buffer::new(buffer), &handler);
            handler.counters.clear_waiting();
        };
        threads.spawn(format!("{name} pop"), stacks.others, pops)
    }

    /// Begins the delivery of an initial list. Events that are added from now on follow after it.
    /// The caller must send the returned replay. A handler without threads has none: its initial
    /// list waits for the next delivery.
    pub(super) fn replay(&self, initial: Vec<Entry<T>>) -> Option<Replay<T>> {
        self.handler.tracker.start(initial.len());
        let mut added = self.inbox.added.lock();
        if !added.has_threads {
            self.handler.counters.received(initial.len());
            added.events.extend(initial.into_iter().map(initial_add));
            self.handler.counters.set_buffered(added.events.len());
            return None;
        }
        added.is_replaying = true;
        drop(added);
        Some(Replay {
            initial,
            handler: Arc::clone(&self.handler),
            inbox: Arc::clone(&self.inbox),
        })
    }

    /// Adds a notification. It is sent with the next batch, at the latest by
    /// [`flush`](Self::flush).
    pub(super) fn add(&self, notification: KeyedNotification<T>) {
        if notification.event.is_in_initial_list() {
            self.handler.tracker.start(1);
        }
        self.handler.counters.received(1);
        let mut added = self.inbox.added.lock();
        added.events.push(notification);
        if !added.has_threads {
            self.handler.counters.set_buffered(added.events.len());
        }
        self.send(&mut added, BATCH);
    }

    /// Sends the added notifications to the pop thread.
    pub(super) fn flush(&self) {
        self.send(&mut self.inbox.added.lock(), 1);
    }

    /// Sends the added notifications if there are at least this many, and no replay precedes them.
    fn send(&self, added: &mut Added<T>, least: usize) {
        if added.events.len() >= least && !added.is_replaying && added.has_threads {
            self.inbox.send(std::mem::take(&mut added.events));
        }
    }
}

impl<T> Drop for ProcessorListener<T> {
    fn drop(&mut self) {
        self.handler.remove();
        let (events, runner) = {
            let mut added = self.inbox.added.lock();
            if !added.has_threads {
                self.handler.counters.clear_waiting();
            }
            (std::mem::take(&mut added.events), added.runner.take())
        };
        drop_each(events, &*self.handler);
        if let Some(runner) = runner {
            self.handler.owner.adopt(|| runner.end());
        }
        if let Some(idle) = self.idle.lock().take() {
            // The handler never ran. Its destructor is user code and runs on the current thread.
            if let Err(panic) = panic::catch(|| self.handler.owner.adopt(|| drop(idle))) {
                log::error!("{}: the destructor {panic}", self.handler);
            }
            self.handler.ended.set();
        }
    }
}

/// A batch from the pop thread to the run thread.
struct Delivery<T> {
    /// The number of adds of the initial list that the buffer has dropped, for example because the
    /// object was deleted. The run thread counts them as processed: counting the last one runs the
    /// callbacks of `synced`, which must not block the pop thread.
    dropped_initial_adds: usize,
    events: Batch<T>,
}

/// The pop thread: moves events from the add channel through the buffer to the next channel (SP8).
fn pop<T>(
    add: &Receiver<Batch<T>>,
    next: &Sender<Delivery<T>>,
    mut buffer: Buffer<T>,
    handler: &Handler,
) {
    let counters = &handler.counters;
    let (mut dropped_initial_adds, mut batches) = (0, 0);
    loop {
        // Events stay in the buffer until the run thread takes them, so they can still be merged.
        let added = if buffer.len() == 0 && dropped_initial_adds == 0 {
            handler.in_pop.fetch_sub(batches, Ordering::Release);
            batches = 0;
            add.recv().ok()
        } else {
            let mut select = Select::new();
            let added = select.recv(add);
            select.send(next);
            let ready = select.select();
            if ready.index() == added {
                ready.recv(add).ok()
            } else {
                let delivery = Delivery {
                    dropped_initial_adds: std::mem::take(&mut dropped_initial_adds),
                    events: buffer.read(BATCH),
                };
                let taken = delivery.events.len();
                if let Err(unsent) = ready.send(next, delivery) {
                    drop_each(unsent.0.events, handler);
                    break;
                }
                counters.taken(taken);
                counters.set_buffered(buffer.len());
                continue;
            }
        };
        let Some(notifications) = added else { break };
        batches += 1;
        for notification in notifications {
            if let Some(merged) = buffer.write(notification) {
                counters.merged(merged.events);
                dropped_initial_adds += merged.initial;
                drop_each(merged.replaced, handler);
            }
        }
        counters.set_buffered(buffer.len());
    }
    while buffer.len() > 0 {
        drop_each(buffer.read(BATCH), handler);
    }
}

/// The run thread: receives from the next channel and calls the handler, one event at a time (SP9).
fn run<T>(deliveries: &Receiver<Delivery<T>>, mut runner: Runner<T>) {
    runner.begin();
    for Delivery {
        dropped_initial_adds,
        events,
    } in deliveries
    {
        if !runner.deliver(dropped_initial_adds, events) {
            break;
        }
    }
    runner.end();
}

/// Calls a handler.
struct Runner<T> {
    callee: Callee<T>,
    handler: Arc<Handler>,
    reclaim: Arc<ReclaimQueue<T>>,
    has_begun: bool,
}

impl<T> Runner<T> {
    fn begin(&mut self) {
        let Self {
            callee, handler, ..
        } = self;
        if !std::mem::replace(&mut self.has_begun, true)
            && let Err(panic) = panic::catch(|| callee.handler.begin(&handler.removed))
        {
            log::error!("{handler}: `begin` {panic}");
        }
    }

    /// Calls the handler for each event. Returns false once the handler was removed: the pop thread
    /// may not have noticed the removal yet.
    fn deliver(&mut self, dropped_initial_adds: usize, events: Batch<T>) -> bool {
        self.begin();
        let Self {
            callee,
            handler,
            reclaim,
            ..
        } = self;
        let Handler {
            counters, tracker, ..
        } = &**handler;
        let mut events = events.into_iter();
        // Count the dropped adds before the first event is delivered: counting may run a callback
        // of `synced`, which may remove the handler.
        if !handler.removed.is_stopped() {
            (0..dropped_initial_adds).for_each(|_| tracker.finished());
        }
        while !handler.removed.is_stopped()
            && let Some(notification) = events.next()
        {
            let is_in_initial_list = notification.event.is_in_initial_list();
            let waiting = counters.begin();
            // Reads the clock only if SP14 needs it. Catches its panics, because it is user code as well.
            let now = || panic::catch(|| callee.clock.now()).ok();
            let began = (waiting > MANY).then(now).flatten();
            let called = panic::catch(|| notification.event.deliver(&mut *callee.handler));
            // A separate catch: a destructor that panics during the unwind of another panic would
            // abort the process.
            reclaim.put(notification, &**handler);
            counters.delivered(called.is_err());
            if let Err(panic) = called {
                log::error!("{handler} {panic}; continuing with the next event");
            }
            let took = began.and_then(|began| Some(now()?.duration_since(began)));
            if let Some(took) = took.filter(|took| *took > SLOW) {
                log::warn!(
                    "{handler} took {} ms for an event; waiting events: {waiting}",
                    took.as_millis()
                );
            }
            // Count the add even if the handler panicked, so that one bad object does not keep the
            // handler unsynced forever (SP13).
            if is_in_initial_list {
                tracker.finished();
            }
        }
        drop_each(events, &**handler);
        !handler.removed.is_stopped()
    }

    fn end(self) {
        let Self {
            callee, handler, ..
        } = self;
        // Catch panics: the handler's destructor is user code as well.
        if let Err(panic) = panic::catch(|| drop(callee)) {
            log::error!("{handler}: the destructor {panic}");
        }
        handler.ended.set();
    }
}
