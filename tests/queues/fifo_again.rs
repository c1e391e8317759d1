//! Objects of a `Fifo` that the consumer requeues.

use k8s_informer::object::Key;
use k8s_informer::queue::Requeue;
use k8s_informer::store::ReflectorStore;

use super::fifo::{Action, drain, failure, pop, pop_with, queue, queue_with_list, requeue};
use super::things::{Thing, gone, thing, with_timeout};

#[test]
fn f6_requeued_object_moves_to_the_end() {
    let queue = queue();
    for key in ["a", "b"] {
        queue.add(thing(key, 1)).unwrap();
    }
    pop_with(&queue, |popped| {
        queue.add(thing("c", 1))?;
        requeue(popped)
    });
    assert_eq!(queue.list(), [thing("b", 1), thing("c", 1), thing("a", 1)]);
    let result = queue.pop(&mut |_, _| Err(Requeue::because("not today").into()));
    assert_eq!(failure(result), (("b", 1), "not today".to_owned()));
    assert_eq!(drain(&queue), [("c", 1), ("a", 1), ("b", 1)]);
}

#[test]
fn f6_requeued_object_alone_is_popped_again_immediately() {
    with_timeout(|| {
        let queue = queue();
        queue.add(thing("a", 1)).unwrap();
        let mut tries = 0;
        while tries < 5 {
            let popped = queue.pop(&mut |_, _| {
                tries += 1;
                if tries < 5 {
                    Err(Requeue::new().into())
                } else {
                    Ok(())
                }
            });
            assert_eq!(*popped.unwrap(), ("a", 1));
        }
        assert!(queue.is_empty());
    });
}

#[test]
fn f6_requeued_object_still_belongs_to_the_initial_list() {
    let queue = queue_with_list(&[("a", 1), ("b", 1), ("c", 1)]);
    queue.add(thing("later", 1)).unwrap();
    assert_eq!(pop_with(&queue, requeue), (("a", 1), true));
    let result = queue.pop(&mut |_, _| Err(Requeue::because("not today").into()));
    assert_eq!(failure(result).0, ("b", 1));
    assert_eq!(queue.list_keys(), ["c", "a", "b", "later"].map(Key::from));
    for expected in ["c", "a", "b"] {
        assert!(!queue.has_synced());
        assert_eq!(pop(&queue), ((expected, 1), true));
    }
    assert!(queue.has_synced());
    assert_eq!(pop(&queue), (("later", 1), false));
}

#[test]
fn f6_requeued_pop_still_counts_the_deleted_keys_it_skipped() {
    let queue = queue_with_list(&[("a", 1), ("b", 1), ("c", 1)]);
    queue.delete(gone("a", 0)).unwrap();
    assert_eq!(pop_with(&queue, requeue), (("b", 1), true));
    assert_eq!(
        [pop(&queue), pop(&queue)],
        [(("c", 1), true), (("b", 1), true)]
    );
    assert!(queue.has_synced());
    queue.add(thing("d", 1)).unwrap();
    assert_eq!(pop_with(&queue, requeue), (("d", 1), false));
    assert_eq!(pop(&queue), (("d", 1), false));
}

#[test]
fn f6_changes_during_processing_override_a_requeue() {
    let requeued_after = |write: Action| {
        let queue = queue_with_list(&[("a", 1), ("b", 1)]);
        let mut initial = vec![
            pop_with(&queue, |popped| {
                write(&queue);
                requeue(popped)
            })
            .1,
        ];
        let rest = queue.list().iter().map(|thing| **thing).collect::<Vec<_>>();
        initial.extend(rest.iter().map(|_| pop(&queue).1));
        (rest, initial)
    };
    let cases: [(Action, &[Thing], &[bool]); 7] = [
        (|_| (), &[("b", 1), ("a", 1)], &[true, true, true]),
        (
            |queue| queue.add(thing("a", 2)).unwrap(),
            &[("b", 1), ("a", 2)],
            &[true, true, false],
        ),
        (
            |queue| drop(queue.add_if_not_present(thing("a", 0))),
            &[("b", 1), ("a", 0)],
            &[true, true, false],
        ),
        (
            |queue| queue.delete(gone("a", 0)).unwrap(),
            &[("b", 1)],
            &[true, true],
        ),
        (
            |queue| queue.delete(gone("b", 0)).unwrap(),
            &[("a", 1)],
            &[true, true],
        ),
        (
            |queue| queue.replace(vec![thing("c", 2)], "2").unwrap(),
            &[("c", 2)],
            &[true, true],
        ),
        (
            |queue| queue.replace(vec![thing("a", 2)], "2").unwrap(),
            &[("a", 2)],
            &[true, true],
        ),
    ];
    for (number, (write, rest, initial)) in cases.into_iter().enumerate() {
        assert_eq!(
            requeued_after(write),
            (rest.to_vec(), initial.to_vec()),
            "case {number}"
        );
    }
}
