//! Kinds that come, go and fail in a random order while a controller starts, in real time.
//!
//! A seed decides when a definition is created and deleted, which API servers know it, and what lists
//! and watches answer. Whatever it is, the controller starts, and its last call sees the truth. If
//! nothing was created or deleted, no call sees anything else.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Instant;

use k8s_informer::DynamicObject;
use k8s_informer_testing::Verb;

use super::*;
use crate::support::widgets;

/// Starts that run at the same time, because most of their time they wait.
const SEEDS: u64 = 64;

/// The longest time between two events of a start.
const STEP: Duration = Duration::from_millis(300);

/// If a start is disturbed for longer, the kind may count as missing.
const BRIEF: Duration = Duration::from_secs(4);

/// The random numbers of a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn one_of(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// What happens in one start.
struct World {
    cluster: Cluster,
    random: Random,
    /// The number of widgets. `None` without their definition.
    truth: Option<usize>,
    log: Vec<String>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed << 32);
        (0..5).for_each(|_| _ = random.below(2));
        Self {
            cluster: Cluster::new(),
            random,
            truth: None,
            log: Vec::new(),
        }
    }

    /// Creates the definition with a widget, or deletes both.
    fn toggle(&mut self) {
        match self.truth.take() {
            Some(_) => widgets::uninstall(&self.cluster.server),
            None => {
                widgets::install(&self.cluster.server);
                self.truth = Some(0);
                self.create();
            }
        }
        self.log.push(format!("exists: {}", self.truth.is_some()));
    }

    fn create(&mut self) {
        if let Some(count) = &mut self.truth {
            widgets::create(&self.cluster.server, &format!("w{count}"));
            *count += 1;
        }
    }

    /// Changes which requests fail, until the next event.
    fn disturb(&mut self) {
        let server = &self.cluster.server;
        server.clear_faults();
        if self.random.one_of(3) {
            server.fail_next(widgets::discovery_without_widgets());
            self.log.push("discovery lacks it".to_owned());
        }
        // A consistent read can succeed before the lists fail.
        let skipped = self.random.below(2) as usize;
        let kind = self.random.below(5);
        for (verb, skipped) in [(Verb::List, skipped), (Verb::Watch, 0)] {
            let fault = match kind {
                0 => Fault::stall(),
                1 => Fault::status(404),
                2 => Fault::status(403),
                3 => Fault::status(500),
                _ => continue,
            };
            server.fail_next(fault.on(verb).resource("widgets").skip(skipped).always());
        }
        self.log.push(format!("failure {kind} after {skipped}"));
        // Watches that are open go on, hang or break.
        match self.random.below(3) {
            0 => {}
            1 => _ = server.fail_watches(&Fault::stall().resource("widgets")),
            _ => self.cluster.reconnect(),
        }
    }

    /// Starts a controller among these events. Returns what its calls have seen, and whether that was
    /// true all the time.
    fn run(&mut self) -> (Vec<Option<usize>>, bool) {
        if !self.random.one_of(4) {
            self.toggle();
        }
        // The informer of a standby has listed before.
        if self.random.one_of(2) {
            let informer = self.cluster.factory.informer_for(widgets::source());
            self.cluster.factory.start(&Stop::never()).unwrap();
            if self.truth.is_some() {
                assert!(informer.synced().wait_timeout(LIMIT));
            }
            self.log.push("standby".to_owned());
            if self.random.one_of(3) {
                self.toggle();
            }
        }
        self.disturb();
        if self.random.one_of(2) {
            self.create();
        }
        let (running, seen) = self.start();
        let (began, is_steady) = (Instant::now(), self.random.one_of(2));
        for _ in 0..1 + self.random.below(3) {
            // Some requests later, or after a pause.
            let server = &self.cluster.server;
            let count = server.requests().len() + 4 + self.random.below(20) as usize;
            let _ = server.wait_for_requests(|requests| requests.len() >= count, STEP);
            match is_steady {
                true => self.disturb(),
                false => self.toggle(),
            }
        }
        let is_steady = is_steady && began.elapsed() < BRIEF;
        self.cluster.server.clear_faults();
        self.cluster.reconnect();
        self.log.push("the faults end".to_owned());
        // There are no more calls once they have seen the truth.
        let (mut all, deadline) = (Vec::new(), Instant::now() + LIMIT);
        while all.last() != Some(&self.truth) && Instant::now() < deadline {
            assert!(!running.thread.is_finished(), "the controller has ended");
            all.extend(seen.recv_timeout(STEP));
        }
        running.end(());
        (all, is_steady)
    }

    fn start(&self) -> (Running<ConfigMap>, Receiver<Option<usize>>) {
        self.cluster.create(MAPS, "a");
        let (sender, seen) = unbounded();
        let client = Client::new(Config::new(self.cluster.server.url())).unwrap();
        let controller = Controller::builder(&client, Source::of::<ConfigMap>(), "starts")
            .factory(&self.cluster.factory)
            .watches_optional(widgets::source(), |_| Some(Key::from("default/a")))
            .by(move |cx, _| {
                let widgets = cx.optional::<DynamicObject>();
                sender.send(widgets.map(|widgets| widgets.list().len()))?;
                Ok(Next::Done)
            });
        (Running::new(controller.unwrap()), seen)
    }
}

#[test]
fn cr9_random_starts_see_the_kinds_that_exist() {
    let runs = (0..SEEDS).map(|seed| {
        thread::spawn(move || {
            let mut world = World::new(seed);
            let run = catch_unwind(AssertUnwindSafe(|| world.run()));
            let (truth, log) = (world.truth, world.log.join(", "));
            let (seen, is_steady) = run.unwrap_or_else(|_| panic!("seed {seed}: {log}"));
            assert_eq!(seen.last(), Some(&truth), "seed {seed}: {log}");
            let is_true = |seen: &Option<usize>| seen.is_some() == truth.is_some();
            let has_lied = is_steady && !seen.iter().all(is_true);
            assert!(!has_lied, "seed {seed}: {seen:?}: {log}");
        })
    });
    let runs: Vec<_> = runs.collect();
    let failed = runs.into_iter().map(|run| run.join().is_err());
    assert_eq!(failed.filter(|has_failed| *has_failed).count(), 0);
}
