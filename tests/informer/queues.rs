//! The queues that an informer can run on: what is told is the same, but for what makes the difference.

use std::sync::Arc;

use k8s_informer::testing::FakeClock;
use k8s_informer::{InformerQueue, Object, SharedIndexInformer, SharedIndexInformerOptions};

use crate::support::{Feed, Informer, options, record, run_synced};

const QUEUES: [InformerQueue; 3] =
    [InformerQueue::DeltaFifo, InformerQueue::RealFifoAtomic, InformerQueue::RealFifoInOrder];

fn informer_on(queue: InformerQueue, feed: &Feed) -> Informer {
    let reflector = options(&FakeClock::new());
    let options = SharedIndexInformerOptions { reflector, queue, ..SharedIndexInformerOptions::default() };
    SharedIndexInformer::new(Arc::new(feed.clone()), options)
}

#[test]
fn p2_p3_p6_p8_every_queue_tells_lists_events_and_relists() {
    for queue in QUEUES {
        let feed = Feed::new("every queue");
        feed.list("10", &[("a", "1"), ("b", "2")]);
        let informer = informer_on(queue, &feed);
        let (_handler, events) = record(&informer);
        let running = run_synced(&informer);
        assert_eq!([events.next(), events.next()], ["add a@1 initial", "add b@2 initial"], "{queue:?}");
        feed.event("ADDED", "c", "11");
        feed.event("MODIFIED", "a", "12");
        feed.event("DELETED", "b", "13");
        let told = [events.next(), events.next(), events.next()];
        assert_eq!(told, ["add c@11", "update a@1-12", "delete b@13"], "{queue:?}");

        feed.expire();
        feed.list("20", &[("a", "15"), ("d", "16")]);
        let mut told = [events.next(), events.next(), events.next()];
        told.sort();
        assert_eq!(told, ["add d@16", "gone c@11", "update a@12-15"], "{queue:?}");
        let mut names: Vec<_> =
            informer.lister().list().iter().map(|object| object.name().to_owned()).collect();
        names.sort();
        assert_eq!(names, ["a", "d"], "{queue:?}");
        running.end().unwrap();
    }
}
