//! The two routes of notifications from a listener to its handler: [`Threaded`] and [`Inline`].

use std::sync::Arc;

use super::buffer::{Buffer, HandlerBuffer};
use super::callee::{Batch, Callee, Handler};
use super::runner::Runner;
use crate::base::sync::Mutex;
use crate::base::sync::atomic::{AtomicUsize, Ordering};
use crate::base::sync::channel::{self, Receiver, Select, Sender};
use crate::base::threads::Threads;
use crate::entry::Entry;
use crate::informer::delivery::Delivery;
use crate::informer::handler::{KeyedNotification, Notification};
use crate::reflector::{ReclaimQueue, drop_each};

/// The maximum number of events in one batch between threads.
const BATCH: usize = 64;

/// The way from a listener to its handler, for each [`Delivery`].
pub(super) enum Route<T> {
    Threaded(Arc<Threaded<T>>),
    Inline(Arc<Inline<T>>),
}

impl<T: Send + Sync + 'static> Route<T> {
    /// Creates the route, and starts its threads if it has any. If this fails, the handler has ended
    /// or is about to.
    pub(super) fn start(
        delivery: Delivery,
        runner: Runner<T>,
        threads: &Threads,
    ) -> std::io::Result<Self> {
        match delivery {
            Delivery::Threads => Ok(Self::Threaded(Arc::new(Threaded::start(runner, threads)?))),
            Delivery::Inline => Ok(Self::Inline(Arc::new(Inline::new(runner)))),
        }
    }
}

/// The route of [`Delivery::Threads`]: two threads for each handler. client-go's `processorListener`.
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
/// Dropping the route closes the add channel. The pop thread then returns immediately and drops the
/// waiting events (SP12), which closes the next channel. The run thread finishes its current call,
/// drops the rest of its batch, and ends.
pub(crate) struct Threaded<T> {
    handler: Arc<Handler>,
    /// To the pop thread.
    add: Sender<Batch<T>>,
    /// To the run thread, past the pop thread.
    next: Sender<RunBatch<T>>,
    /// The size of the largest batch that may skip the pop thread. A coalescing buffer may have to
    /// merge the events of a larger one.
    largest_shortcut: usize,
    /// The number of batches on their way to or in the pop thread since it last had nothing. The
    /// sender adds before it sends, so a batch never overtakes one that is not counted yet.
    in_pop: Arc<AtomicUsize>,
    /// The events that have been added but not sent to the pop thread. Locked during a send, to
    /// preserve the order. No other lock is taken under it.
    added: Mutex<Added<T>>,
}

struct Added<T> {
    events: Batch<T>,
    sent_by: SentBy,
}

/// Which thread sends the added events.
enum SentBy {
    /// The thread that adds them: each full batch, and the rest at each flush.
    Adder,
    /// The thread with the [`Replay`], after the initial list. Until then, all events wait.
    Replay,
}

/// A batch for the run thread.
struct RunBatch<T> {
    /// The number of adds of the initial list that the buffer has dropped, for example because the
    /// object was deleted. The run thread counts them as processed: counting the last one runs the
    /// callbacks of `synced`, which must not block the pop thread.
    dropped_initial_adds: usize,
    events: Batch<T>,
}

impl<T: Send + Sync + 'static> Threaded<T> {
    fn start(runner: Runner<T>, threads: &Threads) -> std::io::Result<Self> {
        let (add, added) = channel::bounded(0);
        let (next, run_batches) = channel::bounded(0);
        let handler = Arc::clone(&runner.handler);
        let owner = handler.owner;
        let reclaim = Arc::clone(&runner.reclaim);
        let Callee { stacks, buffer, .. } = *runner.callee();
        let route = Self {
            handler: Arc::clone(&handler),
            add,
            next,
            largest_shortcut: match buffer {
                HandlerBuffer::Unbounded => BATCH,
                HandlerBuffer::Coalescing => 1,
            },
            in_pop: Arc::default(),
            added: Mutex::new(Added {
                events: Vec::new(),
                sent_by: SentBy::Adder,
            }),
        };
        // The run thread comes first, because it has the handler. Without it, the handler is dropped
        // here, and nothing else would signal its end.
        let runs = move || owner.adopt(|| run(&run_batches, runner));
        threads
            .spawn(format!("{} run", handler.name), stacks.handlers, runs)
            .inspect_err(|_| handler.ended.set())?;
        // Without the pop thread, all senders are dropped here, which ends the run thread.
        let next = route.next.clone();
        let in_pop = Arc::clone(&route.in_pop);
        let name = format!("{} pop", handler.name);
        let pops = move || {
            pop(
                &added,
                &next,
                Buffer::new(buffer),
                &in_pop,
                &handler,
                &reclaim,
            );
            handler.counters.clear_waiting();
        };
        threads.spawn(name, stacks.others, pops)?;
        Ok(route)
    }
}

impl<T> Threaded<T> {
    /// Adds an event. It is sent with the next full batch, or by the next [`flush`](Self::flush).
    pub(super) fn add(&self, event: KeyedNotification<T>) {
        let mut added = self.added.lock();
        added.events.push(event);
        if added.events.len() >= BATCH {
            self.send_added(&mut added);
        }
    }

    /// Sends the added events to the threads.
    pub(super) fn flush(&self) {
        let mut added = self.added.lock();
        if !added.events.is_empty() {
            self.send_added(&mut added);
        }
    }

    fn send_added(&self, added: &mut Added<T>) {
        match added.sent_by {
            // The threads end only after the listener has been removed, and then nothing is added.
            SentBy::Adder => drop(self.send(std::mem::take(&mut added.events))),
            SentBy::Replay => {}
        }
    }

    /// Lets the run thread look whether the handler has synced: an empty initial list has no event.
    /// During a replay, the thread that sends it does this afterwards.
    pub(crate) fn wake(&self) {
        let added = self.added.lock();
        match added.sent_by {
            SentBy::Adder => drop(self.send(Vec::new())),
            SentBy::Replay => {}
        }
    }

    /// Sends a batch to the pop thread, which is always ready to receive: it runs no user code before
    /// the handler ends. If the pop thread has nothing and the run thread waits, sends it there: the
    /// order is the same, and one thread less is woken. Returns the batch as the error if the threads
    /// have ended.
    fn send(&self, mut batch: Batch<T>) -> Result<(), Batch<T>> {
        // The shortcut. Only this thread sends now, and each earlier batch was counted before it was
        // sent. So if none is counted, the run thread has received all of them, and this batch
        // overtakes nothing. The load pairs with the pop thread's release, so the pop thread's
        // counters do not overwrite those set here.
        let counters = &self.handler.counters;
        let events = batch.len();
        if events <= self.largest_shortcut && self.in_pop.load(Ordering::Acquire) == 0 {
            let run_batch = RunBatch {
                dropped_initial_adds: 0,
                events: batch,
            };
            let Err(unsent) = self.next.try_send(run_batch) else {
                counters.taken(events);
                counters.set_buffered(0);
                return Ok(());
            };
            // The run thread is in a call, or has not begun to wait.
            batch = unsent.into_inner().events;
        }
        // The usual way. Counted before the send: from now on, later batches stay behind this one.
        self.in_pop.fetch_add(1, Ordering::Relaxed);
        self.add.send(batch).map_err(|unsent| unsent.0)
    }

    /// Makes all events wait for the initial list, which the caller must send with the returned
    /// replay.
    pub(super) fn replay(self: &Arc<Self>, initial: Vec<Entry<T>>) -> Replay<T> {
        self.added.lock().sent_by = SentBy::Replay;
        Replay {
            initial,
            route: Arc::clone(self),
        }
    }

    /// Drops the events that have not been sent. The handler has been removed.
    pub(super) fn end(&self) {
        // After the unlock, because the destructors of objects are user code.
        let unsent = std::mem::take(&mut self.added.lock().events);
        drop_each(unsent, &*self.handler);
    }
}

/// The initial list of a handler that was added late. No lock of the informer is held while it is
/// sent. The events that follow wait.
pub(crate) struct Replay<T> {
    initial: Vec<Entry<T>>,
    route: Arc<Threaded<T>>,
}

impl<T> Replay<T> {
    /// Sends the initial list, then the events that were added meanwhile. Returns early if the
    /// handler is removed.
    pub(crate) fn send(self) {
        let Self { initial, route } = self;
        let handler = Arc::clone(&route.handler);
        // Send the list. Events that are added meanwhile wait, because `sent_by` is `Replay`.
        let mut initial = initial.into_iter().map(initial_add);
        let mut unsent = Vec::new();
        while unsent.is_empty() && initial.len() > 0 && !handler.removed.is_stopped() {
            let batch: Batch<T> = initial.by_ref().take(BATCH).collect();
            handler.counters.received(batch.len());
            if let Err(batch) = route.send(batch) {
                unsent = batch;
            }
        }
        // Send the events that waited, and give the sending back under the same lock: an event that
        // is added from now on comes after them.
        {
            let mut added = route.added.lock();
            added.sent_by = SentBy::Adder;
            // One batch of any size, so the process thread hardly waits for this lock.
            let waited = std::mem::take(&mut added.events);
            if !waited.is_empty()
                && let Err(rest) = route.send(waited)
            {
                unsent.extend(rest);
            }
        }
        // Drop what a removed handler does not receive. Its pop thread waits for the drop of the
        // route, and the destructors of objects are user code.
        drop(route);
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

/// The pop thread: moves events from the add channel through the buffer to the next channel (SP8).
fn pop<T>(
    add: &Receiver<Batch<T>>,
    next: &Sender<RunBatch<T>>,
    mut buffer: Buffer<T>,
    in_pop: &AtomicUsize,
    handler: &Handler,
    reclaim: &ReclaimQueue<T>,
) {
    let counters = &handler.counters;
    let (mut dropped_initial_adds, mut batches) = (0, 0);
    // Whether a batch without events waits for the run thread.
    let mut wakes = false;
    loop {
        // Events stay in the buffer until the run thread takes them, so they can still be merged.
        let added = if buffer.len() == 0 && dropped_initial_adds == 0 && !wakes {
            // The run thread has received all batches: from now on, a batch may skip this thread.
            in_pop.fetch_sub(batches, Ordering::Release);
            batches = 0;
            add.recv().ok()
        } else {
            // Whichever comes first: further events, or the run thread.
            let mut select = Select::new();
            let added = select.recv(add);
            select.send(next);
            let ready = select.select();
            if ready.index() == added {
                ready.recv(add).ok()
            } else {
                let run_batch = RunBatch {
                    dropped_initial_adds: std::mem::take(&mut dropped_initial_adds),
                    events: buffer.read(BATCH),
                };
                wakes = false;
                let taken = run_batch.events.len();
                // The run thread has noticed the removal of the handler first.
                if let Err(unsent) = ready.send(next, run_batch) {
                    drop_each(unsent.0.events, handler);
                    break;
                }
                counters.taken(taken);
                counters.set_buffered(buffer.len());
                continue;
            }
        };
        // The handler was removed, or the informer has stopped.
        let Some(notifications) = added else { break };
        batches += 1;
        wakes |= notifications.is_empty();
        for notification in notifications {
            if let Some(merged) = buffer.write(notification) {
                counters.merged(merged.events);
                dropped_initial_adds += merged.initial;
                // Not dropped here: a thread with the locks of the informer may wait for this one,
                // and a destructor may need these locks.
                let replaced = merged.replaced.into_iter();
                reclaim.defer(replaced.flat_map(|replaced| replaced.event.into_objects()));
            }
        }
        counters.set_buffered(buffer.len());
    }
    while buffer.len() > 0 {
        drop_each(buffer.read(BATCH), handler);
    }
}

/// The run thread: receives from the next channel and calls the handler, one event at a time (SP9).
fn run<T>(run_batches: &Receiver<RunBatch<T>>, mut runner: Runner<T>) {
    runner.begin();
    let mut received = run_batches.recv().ok();
    while let Some(RunBatch {
        dropped_initial_adds,
        events,
    }) = received
        && runner.deliver(dropped_initial_adds, events)
    {
        // A sender that has more waits in its send.
        received = match run_batches.try_recv() {
            Ok(ready) => {
                runner.after_many_changes();
                Some(ready)
            }
            Err(_) => {
                runner.after_changes();
                run_batches.recv().ok()
            }
        };
    }
    runner.end();
}

/// The route of [`Delivery::Inline`]: added events wait until a thread of the informer
/// [delivers](Self::deliver) them.
pub(crate) struct Inline<T> {
    handler: Arc<Handler>,
    /// An innermost lock, which is never held during a call.
    waiting: Mutex<Waiting<T>>,
}

struct Waiting<T> {
    /// The events that have been added but not delivered.
    events: Batch<T>,
    calls: Calls<T>,
}

/// Whether further events follow at once after those that an [`Inline`] route delivers.
#[derive(Clone, Copy)]
pub(crate) enum Further {
    /// They may be in the queue of the informer.
    MayBeReady,
    /// They are still on the connection.
    NotReady,
}

/// The calls of a handler. The thread that calls it owns the [`Runner`] meanwhile.
enum Calls<T> {
    /// The handler has not begun. It needs a delivery even if no event waits.
    New(Runner<T>),
    /// No thread is in the handler.
    Ready(Runner<T>),
    /// A thread is in the handler.
    Running,
    /// The handler was removed, and is not called any more.
    Ended,
}

impl<T> Inline<T> {
    fn new(runner: Runner<T>) -> Self {
        Self {
            handler: Arc::clone(&runner.handler),
            waiting: Mutex::new(Waiting {
                events: Vec::new(),
                calls: Calls::New(runner),
            }),
        }
    }

    /// Adds an event. It waits for the next delivery.
    pub(super) fn add(&self, event: KeyedNotification<T>) {
        let mut waiting = self.waiting.lock();
        waiting.events.push(event);
        self.handler.counters.set_buffered(waiting.events.len());
    }

    /// Adds the initial list of a late handler. It waits for the next delivery, like each event that
    /// is added afterwards.
    pub(super) fn add_initial(&self, initial: Vec<Entry<T>>) {
        self.handler.counters.received(initial.len());
        let mut waiting = self.waiting.lock();
        waiting.events.extend(initial.into_iter().map(initial_add));
        self.handler.counters.set_buffered(waiting.events.len());
    }

    /// Whether the handler has not received all added events, or has not begun. If no event is ready
    /// after them, also whether `after_changes` is due.
    pub(crate) fn has_work(&self, further: Further) -> bool {
        let waiting = self.waiting.lock();
        match &waiting.calls {
            Calls::New(_) => true,
            Calls::Ready(runner) => match further {
                Further::MayBeReady => !waiting.events.is_empty(),
                Further::NotReady => !waiting.events.is_empty() || runner.has_changes(),
            },
            // The thread in the handler has the lock of the calls. So this is another thread, and no
            // event is added meanwhile, except after the stop, when none is delivered.
            Calls::Running => false,
            Calls::Ended => false,
        }
    }

    /// Calls the handler with the added events, and `after_changes` if it is due. The caller has the
    /// lock of the calls, so no other thread is in the handler.
    pub(crate) fn deliver(&self, further: Further) {
        // Take the handler and the events, because a call may take long. A removal by another thread
        // must not wait for it, nor the changes that are distributed after the stop.
        let (calls, events) = {
            let mut waiting = self.waiting.lock();
            // Removed after the caller has found work for it.
            if matches!(waiting.calls, Calls::Ended) {
                return;
            }
            let events = std::mem::take(&mut waiting.events);
            self.handler.counters.taken(events.len());
            self.handler.counters.set_buffered(0);
            (
                std::mem::replace(&mut waiting.calls, Calls::Running),
                events,
            )
        };

        // Call the handler, outside of the lock: callbacks may add and remove handlers, also this
        // one.
        let runner = self.handler.owner.adopt(|| {
            let mut runner = match calls {
                Calls::New(mut runner) => {
                    runner.begin();
                    runner
                }
                Calls::Ready(runner) => runner,
                Calls::Running => unreachable!("the caller has the lock of the calls"),
                Calls::Ended => unreachable!("it was not ended when its events were taken"),
            };
            runner.deliver(0, events);
            match further {
                Further::MayBeReady => runner.after_many_changes(),
                Further::NotReady => runner.after_changes(),
            }
            runner
        });

        // Give the handler back, unless it was removed meanwhile. A removal sets `removed` before it
        // takes the lock. So either this thread sees the removal, or the removal finds the handler.
        {
            let mut waiting = self.waiting.lock();
            if !self.handler.removed.is_stopped() {
                waiting.calls = Calls::Ready(runner);
                return;
            }
            waiting.calls = Calls::Ended;
        }
        runner.end();
    }

    /// Drops the waiting events, and the handler if no thread is in it. `removed` has been set, so
    /// otherwise the thread in the handler drops it.
    pub(super) fn end(&self) {
        let (calls, events) = {
            let mut waiting = self.waiting.lock();
            self.handler.counters.clear_waiting();
            (
                std::mem::replace(&mut waiting.calls, Calls::Ended),
                std::mem::take(&mut waiting.events),
            )
        };
        // After the unlock, because the destructors of objects and of the handler are user code.
        drop_each(events, &*self.handler);
        match calls {
            Calls::New(runner) | Calls::Ready(runner) => runner.end(),
            Calls::Running | Calls::Ended => {}
        }
    }
}
