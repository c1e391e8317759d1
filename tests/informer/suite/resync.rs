//! Resyncs, driven by a fake clock (I9, I10, I16, SP1, SP2, W13).

use std::time::Duration;

use k8s_informer_testing::FakeClock;

use super::informer_with;
use crate::informer::support::{
    Events, Feed, Informer, Running, SECOND, SOON, options, record, record_with_resync, run_synced,
};

struct ResyncTest {
    feed: Feed,
    clock: FakeClock,
    informer: Informer,
    running: Option<Running<Result<(), k8s_informer::informer::InformerError>>>,
}

impl ResyncTest {
    fn new(name: &'static str, period: Duration) -> Self {
        let clock = FakeClock::new();
        let feed = Feed::on_clock(name, &clock);
        let mut options = options(&clock);
        options.resync_period = period;
        let informer = informer_with(&feed, options);
        Self {
            feed,
            clock,
            informer,
            running: None,
        }
    }

    fn start(&mut self, objects: &[(&str, &str)]) {
        self.feed.list("10", objects);
        self.running = Some(run_synced(&self.informer));
        // The watch has begun, and with it the first period.
        self.clock.wait_for_waits(1, SOON).unwrap();
    }

    /// Advances the clock by one period, and waits until the resync is done: the next read waits.
    fn tick(&mut self, period: Duration) {
        let waits = self.clock.waits().len();
        self.clock.advance(period);
        self.clock.wait_for_waits(waits + 1, SOON).unwrap();
    }

    /// Adds a mark object. The returned function takes a handler's notifications up to the mark.
    fn mark(&self, version: u32) -> impl Fn(&Events) -> Vec<String> + use<> {
        self.feed
            .event("ADDED", &format!("mark{version}"), &version.to_string());
        move |events| events.until(&format!("add mark{version}@{version}"))
    }
}

#[test]
fn w13_sp2_i10_each_handler_resyncs_at_its_own_period() {
    let mut test = ResyncTest::new("periods", 10 * SECOND);
    let (_h10, ten) = record(&test.informer);
    let (_h20, twenty) = record_with_resync(&test.informer, 20 * SECOND);
    let (_h30, thirty) = record_with_resync(&test.informer, 30 * SECOND);
    let (_never, never) = record_with_resync(&test.informer, Duration::ZERO);
    test.start(&[("a", "1")]);
    let handlers = [&ten, &twenty, &thirty, &never];
    for events in handlers {
        assert_eq!(events.next(), "add a@1 initial");
    }
    let mut resyncs = [const { Vec::new() }; 4];
    for tick in 1..=6 {
        test.tick(10 * SECOND);
        // Only `a` is resynced, because each mark is deleted after it has been delivered.
        let until_mark = test.mark(100 + 2 * tick);
        for (events, resyncs) in handlers.into_iter().zip(&mut resyncs) {
            let updates: Vec<_> = until_mark(events)
                .into_iter()
                .filter(|event| event.starts_with("update a@"))
                .collect();
            if !updates.is_empty() {
                assert_eq!(updates, ["update a@1-1"]);
                resyncs.push(tick * 10);
            }
        }
        test.feed.event(
            "DELETED",
            &format!("mark{}", 100 + 2 * tick),
            &(101 + 2 * tick).to_string(),
        );
    }
    assert_eq!(
        resyncs,
        [
            vec![10, 20, 30, 40, 50, 60],
            vec![20, 40, 60],
            vec![30, 60],
            vec![]
        ]
    );
}

#[test]
fn i9_handler_before_start_can_shorten_informer_period() {
    let mut test = ResyncTest::new("shorter", 60 * SECOND);
    let (_slow, slow) = record_with_resync(&test.informer, 90 * SECOND);
    let (_quick, quick) = record_with_resync(&test.informer, 30 * SECOND);
    // This handler gets the informer's configured period, not the shorter one that `quick` sets.
    let (_default, default) = record(&test.informer);
    test.start(&[("a", "1")]);
    let mut counts = [0; 3];
    for tick in 1..=6 {
        test.tick(30 * SECOND);
        let until_mark = test.mark(100 + tick);
        for (events, count) in [&slow, &quick, &default].into_iter().zip(&mut counts) {
            *count += until_mark(events)
                .iter()
                .filter(|event| *event == "update a@1-1")
                .count();
        }
    }
    assert_eq!(counts, [2, 6, 3]);
}

#[test]
fn i9_handler_after_start_cannot_shorten_the_period() {
    let mut test = ResyncTest::new("late", 60 * SECOND);
    test.start(&[("a", "1")]);
    let (_late, late) = record_with_resync(&test.informer, 30 * SECOND);
    let (_later, later) = record_with_resync(&test.informer, 90 * SECOND);
    test.tick(60 * SECOND);
    let until_mark = test.mark(100);
    assert_eq!(until_mark(&late), ["add a@1 initial", "update a@1-1"]);
    assert_eq!(until_mark(&later), ["add a@1 initial"]);
    test.tick(60 * SECOND);
    let until_mark = test.mark(101);
    assert!(until_mark(&late).contains(&"update a@1-1".to_owned()));
    assert!(
        until_mark(&later).contains(&"update a@1-1".to_owned()),
        "resynced at 120 s, the first tick after its period of 90 s"
    );
}

#[test]
fn i9_resync_period_is_at_least_one_second() {
    let mut test = ResyncTest::new("a second", 10 * SECOND);
    let (_handler, events) = record_with_resync(&test.informer, Duration::from_millis(10));
    test.start(&[("a", "1")]);
    test.tick(SECOND);
    assert_eq!(test.mark(100)(&events), ["add a@1 initial", "update a@1-1"]);
}

#[test]
fn i10_informer_without_period_does_not_resync() {
    let test = ResyncTest::new("never", Duration::ZERO);
    let (_handler, events) = record_with_resync(&test.informer, SECOND);
    test.feed.list("10", &[("a", "1")]);
    let _running = run_synced(&test.informer);
    test.clock.advance(1000 * SECOND);
    assert_eq!(test.mark(100)(&events), ["add a@1 initial"]);
}

#[test]
fn i16_sp1_unchanged_relist_reaches_only_resyncing_handlers() {
    let mut test = ResyncTest::new("hidden", 10 * SECOND);
    let (_resyncs, resyncs) = record(&test.informer);
    let (_never, never) = record_with_resync(&test.informer, Duration::ZERO);
    test.start(&[("a", "1"), ("b", "1")]);
    // Before the first tick, every handler counts as resyncing. Both handlers therefore receive the
    // update of the unchanged `a`.
    let waits = test.clock.waits().len();
    test.feed.expire();
    test.feed.list("20", &[("a", "1"), ("b", "15")]);
    for events in [&resyncs, &never] {
        let mut received = events.take(4);
        received.sort();
        assert_eq!(
            received,
            [
                "add a@1 initial",
                "add b@1 initial",
                "update a@1-1",
                "update b@1-15"
            ]
        );
    }
    // The next watch has begun, and with it the first period: a tick before would not count.
    test.clock.wait_for_waits(waits + 1, SOON).unwrap();
    test.tick(10 * SECOND);
    let until_mark = test.mark(100);
    let mut updates = until_mark(&resyncs);
    updates.sort();
    assert_eq!(
        (updates, until_mark(&never)),
        (
            vec!["update a@1-1".to_owned(), "update b@15-15".to_owned()],
            vec![]
        )
    );
    test.feed.expire();
    test.feed
        .list("30", &[("a", "1"), ("b", "25"), ("mark100", "100")]);
    let until_mark = test.mark(101);
    let mut updates = until_mark(&resyncs);
    updates.sort();
    assert_eq!(
        updates,
        ["update a@1-1", "update b@15-25", "update mark100@100-100"]
    );
    assert_eq!(
        until_mark(&never),
        ["update b@15-25"],
        "I19: a changed object is delivered to all handlers"
    );
}

#[test]
fn unreachable_resync_period_disables_resync() {
    let mut test = ResyncTest::new("aeons", Duration::MAX);
    let (_one, one) = record(&test.informer);
    let (_two, two) = record_with_resync(&test.informer, Duration::MAX);
    let (_three, three) = record_with_resync(&test.informer, SECOND);
    test.start(&[("a", "1")]);
    test.tick(SECOND);
    let until_mark = test.mark(100);
    assert_eq!(until_mark(&one), ["add a@1 initial"]);
    assert_eq!(until_mark(&two), ["add a@1 initial"]);
    assert_eq!(until_mark(&three), ["add a@1 initial", "update a@1-1"]);
}
