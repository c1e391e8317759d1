//! Several changes that are written together: a pop that waits is woken when all of them are there.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::watermark::{each_kind, fact};

const SOON: Duration = Duration::from_secs(60);

#[test]
fn a_pop_that_waits_is_told_of_all_that_was_written_together() {
    for (kind, _) in each_kind() {
        let (queue, (popped, pops)) = (kind.queue(), mpsc::channel());
        thread::scope(|scope| {
            scope.spawn(|| {
                while let Ok(deltas) = queue.pop(&mut |_, _| Ok(())) {
                    popped.send(deltas.key().unwrap().to_string()).unwrap();
                }
            });
            // Again and again: it may be about to wait, or waiting already.
            for version in 0..100 {
                assert!(!queue.has_more());
                queue.write_together(&mut || {
                    for key in ["a", "b", "c"] {
                        queue.add(fact(key, version)).unwrap();
                    }
                });
                let keys: Vec<_> = (0..3).map(|_| pops.recv_timeout(SOON).unwrap()).collect();
                assert_eq!(keys, ["a", "b", "c"]);
            }
            queue.close();
        });
    }
}

#[test]
fn what_was_written_before_a_panic_is_told_and_so_is_what_comes_later() {
    for (kind, _) in each_kind() {
        let (queue, (popped, pops)) = (kind.queue(), mpsc::channel());
        thread::scope(|scope| {
            scope.spawn(|| {
                while let Ok(deltas) = queue.pop(&mut |_, _| Ok(())) {
                    popped.send(deltas.key().unwrap().to_string()).unwrap();
                }
            });
            let writes = catch_unwind(AssertUnwindSafe(|| {
                queue.write_together(&mut || {
                    queue.add(fact("a", 1)).unwrap();
                    panic!("in between");
                });
            }));
            assert!(writes.is_err());
            assert_eq!(pops.recv_timeout(SOON).unwrap(), "a");
            queue.add(fact("b", 2)).unwrap();
            assert_eq!(pops.recv_timeout(SOON).unwrap(), "b");
            queue.close();
        });
    }
}
