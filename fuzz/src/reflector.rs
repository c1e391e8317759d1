//! A reflector against a server that answers with anything: it must come to its end without a panic, and what
//! it tells the store must be objects that can be looked up.
//!
//! The input is the bodies that the server answers with, one a request, separated by a zero byte. They arrive
//! a few bytes at a time.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use k8s_informer::{
    Body, Clock, DynamicObject, Error, Indexer, ListOptions, ListWatch, Reflector, ReflectorOptions, Stop,
};

pub fn run(input: &[u8]) {
    let stop = Stop::new();
    let bodies: Arc<Vec<Vec<u8>>> =
        Arc::new(input.split(|&byte| byte == 0).take(8).map(<[u8]>::to_vec).collect());
    let next = Arc::new(AtomicUsize::new(0));
    let answer = {
        let stop = stop.clone();
        move |_: &ListOptions, _: &Stop| match bodies.get(next.fetch_add(1, Ordering::Relaxed)) {
            Some(body) => Ok(Body::new(Dripping { rest: body.clone(), step: 1 + body.len() % 13 })),
            None => {
                stop.stop();
                Err(Error::other("no more bodies"))
            }
        }
    };
    let store = Arc::new(Indexer::<DynamicObject>::for_objects());
    let mut options = ReflectorOptions::default();
    options.clock = Arc::new(NoWaiting);
    let reflector = Reflector::new(Arc::new(ListWatch::new(answer.clone(), answer)), store.clone(), options);
    reflector.run(&stop);

    for key in store.list_keys() {
        let object = store.get_by_key(&key).expect("a key that is listed can be got");
        let _ = store.index("namespace", &object).expect("every object is indexed by its namespace");
    }
}

/// A body whose bytes arrive a few at a time.
struct Dripping {
    rest: Vec<u8>,
    step: usize,
}

impl Read for Dripping {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.step.min(self.rest.len()).min(buffer.len());
        buffer[..length].copy_from_slice(&self.rest[..length]);
        self.rest.drain(..length);
        Ok(length)
    }
}

/// A clock on which every wait is over at once.
struct NoWaiting;

impl Clock for NoWaiting {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn wait(&self, _: Duration, stop: &Stop) -> bool {
        !stop.is_stopped()
    }
}
