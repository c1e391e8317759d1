//! The part of crossbeam-channel that the tests need: channels without a buffer or with an
//! unbounded one, and `Select`.
//!
//! A sender leaves an *offer*, a receiver a *request*. The side that finds the other waiting serves
//! it. A [`Select`] is never found: it waits until one of its operations finds a partner. This is
//! sufficient because the other end of a selected channel always blocks in a plain `send` or
//! `recv`, and no other thread serves it: a `try_send` beside a ready `Select` is an error of the
//! program under test.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{Mutex, any, thread};

/// The receiver was dropped. Contains the unsent value.
#[derive(Debug)]
pub struct SendError<T>(pub T);

/// No receiver waits, or it was dropped. Contains the unsent value.
#[derive(Debug)]
pub struct TrySendError<T>(T);

impl<T> TrySendError<T> {
    pub fn into_inner(self) -> T {
        self.0
    }
}

/// The senders were dropped.
#[derive(Debug, PartialEq, Eq)]
pub struct RecvError;

/// No sender waits in a send.
#[derive(Debug)]
pub struct TryRecvError;

pub struct Sender<T>(Arc<Channel<T>>);

pub struct Receiver<T>(Arc<Channel<T>>);

struct Channel<T>(Mutex<State<T>>);

/// A thread that waits for a change parks after it has registered in `offers`, `requests` or
/// `selecting`.
struct State<T> {
    /// The threads that block in `send`, with their values. An entry is removed when its value is
    /// received.
    offers: VecDeque<(Waiter, T)>,
    /// The threads that block in `recv`.
    requests: VecDeque<Waiter>,
    /// The values sent to threads that block in `recv`.
    served: Vec<(thread::ThreadId, T)>,
    /// The values of an unbounded channel. A channel without a buffer has `None`.
    buffer: Option<VecDeque<T>>,
    /// The threads that block in a select.
    selecting: Vec<Waiter>,
    senders: usize,
    receiving: bool,
}

type Waiter = thread::Thread;

/// Creates a channel without a buffer; `capacity` must be 0.
pub fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    assert_eq!(capacity, 0, "bounded buffers are not simulated");
    channel(None)
}

/// Creates a channel whose senders never block.
pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    channel(Some(VecDeque::new()))
}

fn channel<T>(buffer: Option<VecDeque<T>>) -> (Sender<T>, Receiver<T>) {
    let channel = Arc::new(Channel(Mutex::new(State {
        offers: VecDeque::new(),
        requests: VecDeque::new(),
        served: Vec::new(),
        buffer,
        selecting: Vec::new(),
        senders: 1,
        receiving: true,
    })));
    (Sender(Arc::clone(&channel)), Receiver(channel))
}

impl<T> State<T> {
    /// Passes the value to a thread that blocks in `recv`, or returns it if no thread does.
    fn serve(&mut self, value: T) -> Option<T> {
        let Some(waiter) = self.requests.pop_front() else {
            return Some(value);
        };
        self.served.push((waiter.id(), value));
        waiter.unpark();
        None
    }

    /// Takes a value from the buffer, or that of a thread that blocks in `send`.
    fn take(&mut self) -> Option<T> {
        if let Some(buffer) = &mut self.buffer {
            return buffer.pop_front();
        }
        let (waiter, value) = self.offers.pop_front()?;
        waiter.unpark();
        Some(value)
    }

    fn wake_all(&self) {
        for waiter in self
            .offers
            .iter()
            .map(|(waiter, _)| waiter)
            .chain(&self.requests)
            .chain(&self.selecting)
        {
            waiter.unpark();
        }
    }
}

impl<T> Sender<T> {
    /// Sends only if a thread blocks in `recv`.
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        let mut state = self.0.0.lock();
        match state.serve(value) {
            Some(value) => Err(TrySendError(value)),
            None => Ok(()),
        }
    }

    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        let me = thread::current();
        {
            let mut state = self.0.0.lock();
            if !state.receiving {
                return Err(SendError(value));
            }
            let Some(value) = state.serve(value) else {
                return Ok(());
            };
            if let Some(buffer) = &mut state.buffer {
                buffer.push_back(value);
                state.selecting.iter().for_each(thread::Thread::unpark);
                return Ok(());
            }
            state.offers.push_back((me.clone(), value));
            state.selecting.iter().for_each(thread::Thread::unpark);
        }
        loop {
            let mut state = self.0.0.lock();
            let Some(at) = state
                .offers
                .iter()
                .position(|(waiter, _)| waiter.id() == me.id())
            else {
                return Ok(());
            };
            if !state.receiving {
                return state
                    .offers
                    .remove(at)
                    .map_or(Ok(()), |(_, value)| Err(SendError(value)));
            }
            drop(state);
            thread::park();
        }
    }
}

impl<T> Receiver<T> {
    /// Returns the value of a sender that waits in a send.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        self.0.0.lock().take().ok_or(TryRecvError)
    }

    pub fn recv(&self) -> Result<T, RecvError> {
        let me = thread::current();
        {
            let mut state = self.0.0.lock();
            if let Some(value) = state.take() {
                return Ok(value);
            }
            if state.senders == 0 {
                return Err(RecvError);
            }
            state.requests.push_back(me.clone());
            state.selecting.iter().for_each(thread::Thread::unpark);
        }
        loop {
            let mut state = self.0.0.lock();
            if let Some(at) = state.served.iter().position(|(id, _)| *id == me.id()) {
                return Ok(state.served.swap_remove(at).1);
            }
            if state.senders == 0 {
                state.requests.retain(|waiter| waiter.id() != me.id());
                return Err(RecvError);
            }
            drop(state);
            thread::park();
        }
    }
}

impl<T> Iterator for &Receiver<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.recv().ok()
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.0.lock().senders += 1;
        Self(Arc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut state = self.0.0.lock();
        state.senders -= 1;
        state.wake_all();
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = self.0.0.lock();
        state.receiving = false;
        state.wake_all();
    }
}

/// Blocks until one of several operations is ready. The schedule chooses among ready ones.
pub struct Select<'a> {
    operations: Vec<(&'a dyn Selected, Operation)>,
}

#[derive(Clone, Copy)]
enum Operation {
    Send,
    Recv,
}

pub struct SelectedOperation(usize);

/// One end of a channel in a select.
trait Selected {
    fn is_ready(&self, operation: Operation) -> bool;
    fn enter(&self, waiter: &Waiter);
    fn leave(&self, waiter: &Waiter);
}

impl<T> Selected for Channel<T> {
    fn is_ready(&self, operation: Operation) -> bool {
        let state = self.0.lock();
        match operation {
            Operation::Send => !state.requests.is_empty() || !state.receiving,
            Operation::Recv => {
                let is_buffered = state.buffer.as_ref().is_some_and(|all| !all.is_empty());
                is_buffered || !state.offers.is_empty() || state.senders == 0
            }
        }
    }

    fn enter(&self, waiter: &Waiter) {
        self.0.lock().selecting.push(waiter.clone());
    }

    fn leave(&self, waiter: &Waiter) {
        self.0
            .lock()
            .selecting
            .retain(|other| other.id() != waiter.id());
    }
}

impl<'a> Select<'a> {
    pub fn new() -> Self {
        Self {
            operations: Vec::new(),
        }
    }

    pub fn send<T>(&mut self, sender: &'a Sender<T>) -> usize {
        self.operations.push((&*sender.0, Operation::Send));
        self.operations.len() - 1
    }

    pub fn recv<T>(&mut self, receiver: &'a Receiver<T>) -> usize {
        self.operations.push((&*receiver.0, Operation::Recv));
        self.operations.len() - 1
    }

    pub fn select(&mut self) -> SelectedOperation {
        let me = thread::current();
        // Registers before the check, so that a later change unparks this thread.
        self.operations
            .iter()
            .for_each(|(channel, _)| channel.enter(&me));
        let ready = loop {
            let ready: Vec<usize> = (0..self.operations.len())
                .filter(|&at| {
                    let (channel, operation) = self.operations[at];
                    channel.is_ready(operation)
                })
                .collect();
            if !ready.is_empty() {
                break ready[any(ready.len())];
            }
            thread::park();
        };
        self.operations
            .iter()
            .for_each(|(channel, _)| channel.leave(&me));
        SelectedOperation(ready)
    }
}

impl SelectedOperation {
    pub fn index(&self) -> usize {
        self.0
    }

    pub fn send<T>(self, sender: &Sender<T>, value: T) -> Result<(), SendError<T>> {
        let mut state = sender.0.0.lock();
        if !state.receiving {
            return Err(SendError(value));
        }
        assert!(
            state.serve(value).is_none(),
            "another thread served the ready receiver"
        );
        Ok(())
    }

    pub fn recv<T>(self, receiver: &Receiver<T>) -> Result<T, RecvError> {
        let mut state = receiver.0.0.lock();
        match state.take() {
            Some(value) => Ok(value),
            None => {
                assert_eq!(state.senders, 0, "another thread received the ready value");
                Err(RecvError)
            }
        }
    }
}
