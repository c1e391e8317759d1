//! The channels of crossbeam-channel that the models need: without a buffer, and a choice between them.
//!
//! A sender leaves an *offer*, a receiver a *request*; who finds the other's waiting serves it. A [`Select`]
//! is itself never found: it waits until one of its operations finds somebody. That is enough, as the other
//! end of a channel that is selected on blocks in a plain `send` or `recv`, and nobody else serves it.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{Mutex, any, thread};

/// Nobody receives any more; the value comes back.
#[derive(Debug)]
pub(crate) struct SendError<T>(pub(crate) T);

/// Nobody sends any more.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RecvError;

pub(crate) struct Sender<T>(Arc<Channel<T>>);

pub(crate) struct Receiver<T>(Arc<Channel<T>>);

struct Channel<T>(Mutex<State<T>>);

/// Who waits for a change of it parks, and has put itself in one of the three lists.
struct State<T> {
    /// Who blocks in `send`, and what with; the value is gone when it has been received.
    offers: VecDeque<(Waiter, T)>,
    /// Who blocks in `recv`.
    requests: VecDeque<Waiter>,
    /// What has been sent to those who blocked.
    served: Vec<(thread::ThreadId, T)>,
    /// Who blocks in a select.
    selecting: Vec<Waiter>,
    sending: bool,
    receiving: bool,
}

type Waiter = thread::Thread;

/// A channel that hands over from thread to thread; `capacity` is 0.
pub(crate) fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    assert_eq!(capacity, 0, "a channel with a buffer is not modelled");
    let channel = Arc::new(Channel(Mutex::new(State {
        offers: VecDeque::new(),
        requests: VecDeque::new(),
        served: Vec::new(),
        selecting: Vec::new(),
        sending: true,
        receiving: true,
    })));
    (Sender(Arc::clone(&channel)), Receiver(channel))
}

impl<T> State<T> {
    /// Hands the value to somebody who blocks in `recv`; without one it comes back.
    fn serve(&mut self, value: T) -> Option<T> {
        let Some(waiter) = self.requests.pop_front() else {
            return Some(value);
        };
        self.served.push((waiter.id(), value));
        waiter.unpark();
        None
    }

    /// Takes the value of somebody who blocks in `send`.
    fn take(&mut self) -> Option<T> {
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
    pub(crate) fn send(&self, value: T) -> Result<(), SendError<T>> {
        let me = thread::current();
        {
            let mut state = self.0.0.lock();
            if !state.receiving {
                return Err(SendError(value));
            }
            let Some(value) = state.serve(value) else {
                return Ok(());
            };
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
    pub(crate) fn recv(&self) -> Result<T, RecvError> {
        let me = thread::current();
        {
            let mut state = self.0.0.lock();
            if let Some(value) = state.take() {
                return Ok(value);
            }
            if !state.sending {
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
            if !state.sending {
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

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut state = self.0.0.lock();
        state.sending = false;
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

/// Blocks until one of several operations can be done; which one of those that can, the schedule decides.
pub(crate) struct Select<'a> {
    operations: Vec<(&'a dyn Selected, Operation)>,
}

#[derive(Clone, Copy)]
enum Operation {
    Send,
    Recv,
}

pub(crate) struct SelectedOperation(usize);

/// One end of a channel, as a select sees it.
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
            Operation::Recv => !state.offers.is_empty() || !state.sending,
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
    pub(crate) fn new() -> Self {
        Self {
            operations: Vec::new(),
        }
    }

    pub(crate) fn send<T>(&mut self, sender: &'a Sender<T>) -> usize {
        self.operations.push((&*sender.0, Operation::Send));
        self.operations.len() - 1
    }

    pub(crate) fn recv<T>(&mut self, receiver: &'a Receiver<T>) -> usize {
        self.operations.push((&*receiver.0, Operation::Recv));
        self.operations.len() - 1
    }

    pub(crate) fn select(&mut self) -> SelectedOperation {
        let me = thread::current();
        // Entered before it looks: what becomes ready after that wakes it.
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
    pub(crate) fn index(&self) -> usize {
        self.0
    }

    pub(crate) fn send<T>(self, sender: &Sender<T>, value: T) -> Result<(), SendError<T>> {
        let mut state = sender.0.0.lock();
        if !state.receiving {
            return Err(SendError(value));
        }
        assert!(
            state.serve(value).is_none(),
            "somebody else has served who was found ready"
        );
        Ok(())
    }

    pub(crate) fn recv<T>(self, receiver: &Receiver<T>) -> Result<T, RecvError> {
        let mut state = receiver.0.0.lock();
        match state.take() {
            Some(value) => Ok(value),
            None => {
                assert!(
                    !state.sending,
                    "somebody else has taken what was found ready"
                );
                Err(RecvError)
            }
        }
    }
}
