//! Whether the last list has been processed.

use k8s_informer::object::ResourceVersion;
use k8s_informer::queue::{Origin, Queue};

use super::watermark::{Versioned, each_kind, versioned};

use super::things::version;

fn is_settled(queue: &dyn Queue<Versioned>) -> bool {
    queue.staging().unwrap().is_settled()
}

fn pop_all(queue: &dyn Queue<Versioned>) {
    queue.close();
    while queue.pop(&mut |_, _| Ok(())).is_ok() {}
}

#[test]
fn list_is_settled_once_all_of_it_is_processed() {
    for (kind, _) in each_kind() {
        let queue = kind.queue();
        assert!(is_settled(queue), "no list has arrived");
        queue
            .replace(
                vec![versioned("a", 1), versioned("b", 1)],
                Some(version("2")),
            )
            .unwrap();
        queue.update(versioned("c", 3)).unwrap();
        queue.update(versioned("a", 4)).unwrap();
        assert!(!is_settled(queue));
        let mut later = 0;
        queue.close();
        loop {
            let process = |deltas: &k8s_informer::queue::Deltas<Versioned>, _: Origin| {
                let newest = deltas.newest().and_then(|delta| delta.object());
                // The items behind the list: `c`, and the later change of `a` if each change is a
                // separate item.
                let is_later = newest.is_some_and(|versioned| {
                    versioned.0 == "c" || versioned.1 == "4" && deltas.len() == 1
                });
                later += usize::from(is_later);
                assert_eq!(is_settled(queue), is_later, "{deltas:?}");
                Ok(())
            };
            if queue.pop(&mut { process }).is_err() {
                break;
            }
        }
        assert!(is_settled(queue) && later > 0);
        queue.replace(Vec::new(), Some(version("5"))).unwrap();
        pop_all(queue);
        assert!(is_settled(queue), "an empty list");
    }
}

#[test]
fn failed_list_is_settled_as_well() {
    for (kind, _) in each_kind() {
        let queue = kind.queue();
        for version in ["2", "3"] {
            queue
                .replace(
                    vec![versioned("a", 1), versioned("b", 1)],
                    ResourceVersion::new(version),
                )
                .unwrap();
            assert!(queue.pop(&mut |_, _| Err("no".into())).is_err());
            pop_all(queue);
            assert!(is_settled(queue));
        }
        queue.update(versioned("a", 5)).unwrap();
        assert!(queue.pop(&mut |_, _| Err("no".into())).is_err());
        assert!(
            is_settled(queue),
            "a failed later change must not unsettle the list"
        );
    }
}
