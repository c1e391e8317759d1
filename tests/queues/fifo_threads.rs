//! A `Fifo` used by several threads, or by destructors.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread;

use k8s_informer::Deleted;
use k8s_informer::object::{Accessor, KeyError};
use k8s_informer::queue::{Fifo, Origin, PopError};
use k8s_informer::store::ReflectorStore;

use super::things::{version, with_timeout};

/// Objects that are replaced, deleted or popped are dropped outside the lock.
#[test]
fn object_destructors_may_use_the_queue() {
    struct Noisy(&'static str, Weak<Fifo<Self>>);
    impl Drop for Noisy {
        fn drop(&mut self) {
            if let Some(queue) = self.1.upgrade() {
                queue.add(Arc::new(Self("echo", Weak::new()))).unwrap();
                drop((queue.len(), queue.list()));
            }
        }
    }
    with_timeout(|| {
        let queue = Arc::new(Fifo::new(Accessor::new(|noisy: &Noisy| match noisy.0 {
            "" => Err(KeyError::new("no key")),
            name => Ok(name.into()),
        })));
        let noisy = |name| Arc::new(Noisy(name, Arc::downgrade(&queue)));
        let silent = |name| Arc::new(Noisy(name, Weak::new()));
        let echoed = || {
            let echoed = queue.list_keys().contains(&"echo".into());
            queue.delete(Deleted::Final(silent("echo"))).unwrap();
            echoed
        };
        queue.add(noisy("a")).unwrap();
        queue.add(noisy("a")).unwrap();
        assert!(echoed());
        queue.delete(Deleted::Final(silent("a"))).unwrap();
        assert!(echoed());
        queue.add(noisy("a")).unwrap();
        queue
            .replace(vec![silent("b")], Some(version("1")))
            .unwrap();
        assert!(echoed());
        queue
            .replace(vec![noisy("c"), silent("c")], Some(version("2")))
            .unwrap();
        assert!(
            !echoed(),
            "the first c must be dropped before the list is queued"
        );
        assert!(
            queue
                .replace(vec![noisy("d"), silent("")], Some(version("3")))
                .is_err()
        );
        assert!(echoed());
        assert!(queue.add(noisy("")).is_err());
        assert!(echoed());
        queue.add(noisy("c")).unwrap();
        drop(queue.pop(&mut |_, _| Err("no".into())));
        assert!(echoed());
    });
}

/// Producers write each key once. Every key is processed, one at a time, and the keys of a producer
/// in their order.
#[test]
fn concurrent_producers_and_consumers_lose_no_item() {
    const PER_PRODUCER: u32 = 3000;
    with_timeout(|| {
        let queue = Arc::new(Fifo::new(Accessor::new(|number: &u32| {
            Ok(number.to_string().into())
        })));
        let produce = |producer: u32| {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                for number in producer * PER_PRODUCER..(producer + 1) * PER_PRODUCER {
                    match number % 4 {
                        1 => queue.update(Arc::new(number)).unwrap(),
                        _ => queue.add(Arc::new(number)).unwrap(),
                    }
                }
            })
        };
        let seen = Arc::new(Mutex::new(Vec::new()));
        let running = Arc::new(AtomicUsize::new(0));
        let consume = |_| {
            let (queue, seen, running) =
                (Arc::clone(&queue), Arc::clone(&seen), Arc::clone(&running));
            thread::spawn(move || {
                let mut process = |number: &Arc<u32>, _: Origin| {
                    assert_eq!(
                        running.fetch_add(1, Ordering::SeqCst),
                        0,
                        "two items are processed at once"
                    );
                    seen.lock().unwrap().push(**number);
                    running.fetch_sub(1, Ordering::SeqCst);
                    Ok(())
                };
                let mut done = 0;
                loop {
                    match queue.pop(&mut process) {
                        Ok(_) => done += 1,
                        Err(PopError::Closed) => return done,
                        Err(error) => panic!("{error}"),
                    }
                }
            })
        };
        let consumers: Vec<_> = (0..3).map(consume).collect();
        (0..3)
            .map(produce)
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        queue.close();
        let done: usize = consumers
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum();
        let seen = seen.lock().unwrap();
        assert_eq!((done, queue.len()), (3 * PER_PRODUCER as usize, 0));
        for producer in 0..3 {
            let range = producer * PER_PRODUCER..(producer + 1) * PER_PRODUCER;
            assert!(
                seen.iter()
                    .filter(|number| range.contains(number))
                    .copied()
                    .eq(range.clone())
            );
        }
    });
}
