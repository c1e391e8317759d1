//! Resyncs, driven by a fake clock (I9, I10, I16, SP1, SP2, W13).

use std::time::Duration;

use k8s_informer::testing::FakeClock;

use super::informer_with;
use crate::informer::support::{
    Events, Feed, Informer, Running, SECOND, SOON, options, record, record_every, run_synced,
};

struct Resyncing {
    feed: Feed,
    clock: FakeClock,
    informer: Informer,
    ticks: usize,
    running: Option<Running<Result<(), k8s_informer::informer::InformerError>>>,
}

impl Resyncing {
    fn new(name: &'static str, period: Duration) -> Self {
        let (feed, clock) = (Feed::new(name), FakeClock::new());
        let mut options = options(&clock);
        options.resync_period = period;
        let informer = informer_with(&feed, options);
        Self {
            feed,
            clock,
            informer,
            ticks: 0,
            running: None,
        }
    }

    fn start(&mut self, objects: &[(&str, &str)]) {
        self.feed.list("10", objects);
        self.running = Some(run_synced(&self.informer));
        self.until_waiting();
    }

    /// Waits until the resync thread waits for its next tick.
    fn until_waiting(&mut self) {
        self.ticks += 1;
        assert!(
            self.clock.until_waits(self.ticks, SOON),
            "{:?}",
            self.clock.waits()
        );
    }

    /// Advances the clock by one period, and waits until the resync is done.
    fn tick(&mut self, period: Duration) {
        assert_eq!(self.clock.waits().last(), Some(&period));
        self.clock.advance(period);
        self.until_waiting();
    }

    /// Adds a mark object. The returned function takes a handler's notifications up to the mark.
    fn mark(&self, version: u32) -> impl Fn(&Events) -> Vec<String> + use<> {
        self.feed
            .event("ADDED", &format!("mark{version}"), &version.to_string());
        move |events| events.until(&format!("add mark{version}@{version}"))
    }
}

#[test]
fn w13_sp2_i10_each_handler_is_resynced_in_its_own_period() {
    let mut it = Resyncing::new("periods", 10 * SECOND);
    let (_h10, ten) = record(&it.informer);
    let (_h20, twenty) = record_every(&it.informer, 20 * SECOND);
    let (_h30, thirty) = record_every(&it.informer, 30 * SECOND);
    let (_never, never) = record_every(&it.informer, Duration::ZERO);
    it.start(&[("a", "1")]);
    let handlers = [&ten, &twenty, &thirty, &never];
    for events in handlers {
        assert_eq!(events.next(), "add a@1 initial");
    }
    let mut resyncs = [const { Vec::new() }; 4];
    for tick in 1..=6 {
        it.tick(10 * SECOND);
        // Only `a` is resynced, because each mark is deleted after it has been delivered.
        let told = it.mark(100 + 2 * tick);
        for (events, resyncs) in handlers.into_iter().zip(&mut resyncs) {
            let told: Vec<_> = told(events)
                .into_iter()
                .filter(|event| event.starts_with("update a@"))
                .collect();
            if !told.is_empty() {
                assert_eq!(told, ["update a@1-1"]);
                resyncs.push(tick * 10);
            }
        }
        it.feed.event(
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
fn i9_shorter_handler_resync_sets_informer_before_start() {
    let mut it = Resyncing::new("shorter", 60 * SECOND);
    let (_slow, slow) = record_every(&it.informer, 90 * SECOND);
    let (_quick, quick) = record_every(&it.informer, 30 * SECOND);
    // This handler gets the informer's configured period, not the shorter one that `quick` sets.
    let (_default, default) = record(&it.informer);
    it.start(&[("a", "1")]);
    let mut counts = [0; 3];
    for tick in 1..=6 {
        it.tick(30 * SECOND);
        let told = it.mark(100 + tick);
        for (events, count) in [&slow, &quick, &default].into_iter().zip(&mut counts) {
            *count += told(events)
                .iter()
                .filter(|event| *event == "update a@1-1")
                .count();
        }
    }
    assert_eq!(counts, [2, 6, 3]);
}

#[test]
fn i9_after_the_start_the_informers_period_is_the_shortest() {
    let mut it = Resyncing::new("late", 60 * SECOND);
    it.start(&[("a", "1")]);
    let (_late, late) = record_every(&it.informer, 30 * SECOND);
    let (_later, later) = record_every(&it.informer, 90 * SECOND);
    it.tick(60 * SECOND);
    let told = it.mark(100);
    assert_eq!(told(&late), ["add a@1 initial", "update a@1-1"]);
    assert_eq!(told(&later), ["add a@1 initial"]);
    it.tick(60 * SECOND);
    let told = it.mark(101);
    assert!(told(&late).contains(&"update a@1-1".to_owned()));
    assert!(
        told(&later).contains(&"update a@1-1".to_owned()),
        "at 120 s, the first tick after 90"
    );
}

#[test]
fn i9_nobody_is_resynced_more_than_once_a_second() {
    let mut it = Resyncing::new("a second", 10 * SECOND);
    let (_handler, events) = record_every(&it.informer, Duration::from_millis(10));
    it.start(&[("a", "1")]);
    it.tick(SECOND);
    assert_eq!(it.mark(100)(&events), ["add a@1 initial", "update a@1-1"]);
}

#[test]
fn i10_informer_without_period_never_resyncs() {
    let it = Resyncing::new("never", Duration::ZERO);
    let (_handler, events) = record_every(&it.informer, SECOND);
    it.feed.list("10", &[("a", "1")]);
    let _running = run_synced(&it.informer);
    it.clock.advance(1000 * SECOND);
    assert_eq!(it.mark(100)(&events), ["add a@1 initial"]);
    assert!(it.clock.waits().is_empty(), "nobody waits for a tick");
}

#[test]
fn i16_sp1_unchanged_relist_objects_reach_resyncing_only() {
    let mut it = Resyncing::new("hidden", 10 * SECOND);
    let (_resyncs, resyncs) = record(&it.informer);
    let (_never, never) = record_every(&it.informer, Duration::ZERO);
    it.start(&[("a", "1"), ("b", "1")]);
    // Before the first tick, every handler counts as resyncing.
    it.feed.expire();
    it.feed.list("20", &[("a", "1"), ("b", "15")]);
    for events in [&resyncs, &never] {
        let mut told = events.take(4);
        told.sort();
        assert_eq!(
            told,
            [
                "add a@1 initial",
                "add b@1 initial",
                "update a@1-1",
                "update b@1-15"
            ]
        );
    }
    // The first wait is the back-off of the relist, the second is the resync period of the next
    // watch.
    it.until_waiting();
    it.until_waiting();
    it.tick(10 * SECOND);
    let told = it.mark(100);
    let mut updates = told(&resyncs);
    updates.sort();
    assert_eq!(
        (updates, told(&never)),
        (
            vec!["update a@1-1".to_owned(), "update b@15-15".to_owned()],
            vec![]
        )
    );
    it.feed.expire();
    it.feed
        .list("30", &[("a", "1"), ("b", "25"), ("mark100", "100")]);
    let told = it.mark(101);
    let mut updates = told(&resyncs);
    updates.sort();
    assert_eq!(
        updates,
        ["update a@1-1", "update b@15-25", "update mark100@100-100"]
    );
    assert_eq!(
        told(&never),
        ["update b@15-25"],
        "I19: what did change is told to all"
    );
}

#[test]
fn periods_that_no_clock_can_reach_are_as_good_as_never() {
    let mut it = Resyncing::new("aeons", Duration::MAX);
    let (_one, one) = record(&it.informer);
    let (_two, two) = record_every(&it.informer, Duration::MAX);
    let (_three, three) = record_every(&it.informer, SECOND);
    it.start(&[("a", "1")]);
    it.tick(SECOND);
    let told = it.mark(100);
    assert_eq!(told(&one), ["add a@1 initial"]);
    assert_eq!(told(&two), ["add a@1 initial"]);
    assert_eq!(told(&three), ["add a@1 initial", "update a@1-1"]);
}
