//! A round: random steps, then the comparison.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use k8s_informer_testing::{Backup, Fault, Verb};
use serde_json::{Value, json};

use crate::differential::cluster::marker_key;
use crate::differential::config::{HandlerConfig, Transformation, is_excluded};
use crate::differential::faults::Kind;
use crate::differential::form::CacheForm;
use crate::differential::model::{key, version};
use crate::differential::random::Random;
use crate::differential::world::{PATIENCE, World};

/// The maximum time that a step waits for the informer. If the informer is slower, the round goes
/// on without an error.
const STEP_TIMEOUT: Duration = Duration::from_millis(50);

/// How long rejections last at most for the informer to find on its own that they have ended. It
/// lists up to five times, at least a second apart.
const SHORT_REJECTION: Duration = Duration::from_secs(3);

/// The number of rounds that had each kind of step or fault.
pub(crate) type Tally = BTreeMap<&'static str, u64>;

#[derive(Clone, Copy)]
enum Step {
    Write,
    WaitForMarkers,
    Fault,
    Compact,
    Restart,
    Pause,
    RepeatEvents,
    LateHandler,
    RemoveHandler,
    LateIndex,
    HoldHandler,
    HoldProcessing,
    ToggleRejections,
}

impl Step {
    fn random(random: &mut Random) -> Self {
        random.weighted(&[
            (20, Self::Write),
            (6, Self::WaitForMarkers),
            (6, Self::Fault),
            (1, Self::Compact),
            (1, Self::Restart),
            (1, Self::Pause),
            (1, Self::RepeatEvents),
            (1, Self::LateHandler),
            (1, Self::RemoveHandler),
            (1, Self::LateIndex),
            (3, Self::HoldHandler),
            (1, Self::HoldProcessing),
            (2, Self::ToggleRejections),
        ])
    }

    fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::WaitForMarkers => "pause between writes",
            Self::Fault => "fault",
            Self::Compact => "compaction",
            Self::Restart => "restart",
            Self::Pause => "server paused",
            Self::RepeatEvents => "repeated events",
            Self::LateHandler => "late handler",
            Self::RemoveHandler => "handler removed",
            Self::LateIndex => "late index",
            Self::HoldHandler => "busy handler",
            Self::HoldProcessing => "slow processing",
            Self::ToggleRejections => "changed rejections",
        }
    }
}

impl<T: CacheForm> World<T> {
    /// Runs one round. Returns an error that describes the first difference.
    pub(crate) fn round(&mut self, random: &mut Random, tally: &mut Tally) -> Result<(), String> {
        self.was_restored = false;
        let mut occurred = Vec::new();
        if random.percent(25) && !is_excluded("restore") {
            self.restore(random, &mut occurred)?;
        } else {
            for _ in 0..3 + random.below(14) {
                self.step(random, &mut occurred);
            }
        }
        occurred.sort_unstable();
        occurred.dedup();
        for what in occurred {
            *tally.entry(what).or_default() += 1;
        }
        self.settle()
    }

    fn step(&mut self, random: &mut Random, occurred: &mut Vec<&'static str>) {
        let step = Step::random(random);
        if is_excluded(step.name()) {
            return;
        }
        if !matches!(step, Step::Write | Step::WaitForMarkers | Step::Fault) {
            occurred.push(step.name());
        }
        match step {
            Step::Write => drop(self.write(random)),
            Step::WaitForMarkers => {
                self.wait_for_markers(STEP_TIMEOUT);
            }
            Step::Fault => {
                let kind = Kind::random(&self.config, random);
                if is_excluded(kind.name()) {
                    return;
                }
                let description = kind.plant(&self.cluster.server, random);
                self.was_incomplete |= kind.garbles_objects();
                self.cluster.log(description);
                occurred.push(kind.name());
            }
            Step::Compact => {
                self.cluster.log("compact");
                self.cluster.server.compact();
            }
            Step::Restart => {
                self.cluster
                    .log("restart of the API server: a new watch cache");
                self.cluster.restart();
            }
            Step::Pause => {
                self.cluster.log("pause");
                self.cluster.server.pause();
                (0..random.below(4)).for_each(|_| drop(self.write(random)));
                self.resume();
            }
            Step::RepeatEvents => {
                let versions = 1 + random.below(8) as u64;
                self.cluster.log(format!(
                    "the next watch starts {versions} versions too early"
                ));
                self.rewind.store(versions, Ordering::Relaxed);
                self.cluster.server.close_watches();
            }
            Step::LateHandler => {
                // Adding a handler blocks while the process loop is in the gate.
                self.processing.open();
                let config = HandlerConfig::random(random);
                if self.handlers.len() < 8 {
                    self.cluster.log(format!("add a handler: {config:?}"));
                    self.add_handler(config);
                }
            }
            Step::RemoveHandler => {
                let at = random.below(self.handlers.len());
                if self.handlers.len() > 1 {
                    self.processing.open();
                    let handler = self.handlers.swap_remove(at);
                    self.cluster.log(format!("remove {}", handler.name));
                    self.remove_handler(handler);
                }
            }
            Step::LateIndex => {
                self.processing.open();
                if self.add_index("app") {
                    self.cluster.log("add an index");
                }
            }
            Step::HoldHandler => {
                let at = random.below(self.handlers.len());
                let handler = &self.handlers[at];
                self.cluster.log(format!("block {}", handler.name));
                handler.gate.close();
            }
            Step::HoldProcessing => {
                self.cluster.log("block processing");
                self.processing.close();
            }
            Step::ToggleRejections => {
                let accepts = self.rejects.fetch_xor(true, Ordering::SeqCst);
                self.cluster
                    .log(if accepts { "accept all" } else { "reject some" });
                // The informer may give up on objects that it has missed for long. If a transform
                // rejects a cached object, only a list finds it.
                self.must_relist |= accepts
                    && (random.percent(50) || self.rejects_since.elapsed() > SHORT_REJECTION);
                self.was_incomplete |= self.config.transform != Transformation::None;
                self.rejects_since = Instant::now();
            }
        }
    }

    /// Makes a random write. Returns the new state, or nothing after a delete.
    fn write(&mut self, random: &mut Random) -> Vec<Value> {
        let states = self.cluster.write(&self.config, random);
        states.iter().for_each(|state| self.note(state));
        states
    }

    fn note(&mut self, state: &Value) {
        self.model.remember(state);
        self.note_unreadable(state);
    }

    /// Writes a marker for each reflector and waits up to `patience` until all reflectors have
    /// received theirs. Returns the lowest version of the markers.
    fn wait_for_markers(&mut self, patience: Duration) -> u64 {
        let mut marked = Vec::new();
        for namespace in self.config.scope.sources() {
            let state = self.cluster.mark(namespace);
            self.model.remember(&state);
            marked.push(version(&state));
        }
        let seen = || {
            self.progress()
                .0
                .iter()
                .zip(&marked)
                .all(|(seen, marked)| seen >= marked)
        };
        let seen = self.changed.until(patience, || seen().then_some(()));
        self.cluster.log(if seen.is_some() {
            "marker received"
        } else {
            "marker not received yet"
        });
        marked.into_iter().min().unwrap_or_default()
    }

    fn resume(&mut self) {
        // Another program may use the port for a moment.
        let server = &self.cluster.server;
        let resumed = self
            .changed
            .until(Duration::from_secs(5), || server.resume().ok());
        resumed.expect("the server can resume");
        self.cluster.log("resume");
    }

    /// Restores a backup of the server. The server then assigns the same versions to different
    /// states.
    fn restore(
        &mut self,
        random: &mut Random,
        occurred: &mut Vec<&'static str>,
    ) -> Result<(), String> {
        (0..random.below(3)).for_each(|_| drop(self.write(random)));
        let backup = self.cluster.server.backup();
        self.cluster
            .log(format!("backup at {}", backup.resource_version()));
        let mut lost = Vec::new();
        for _ in 0..1 + random.below(4) {
            let states = self.write(random);
            lost.extend(states.iter().map(key));
        }
        let seen = self.wait_for_markers(PATIENCE);
        lost.extend(
            self.config
                .scope
                .sources()
                .iter()
                .map(|namespace| marker_key(*namespace)),
        );
        let silent = self.config.idle_timeout
            && random.percent(50)
            && !is_excluded("restore found by silence");
        if !silent && is_excluded("restore found by expiry") {
            return Ok(());
        }
        if random.percent(40) && !is_excluded(Step::HoldProcessing.name()) {
            self.cluster.log("block processing");
            self.processing.close();
            occurred.push(Step::HoldProcessing.name());
        }
        self.restore_backup(&backup);
        if silent {
            occurred.push("restore found by silence");
            // Stay below the version that the informer has seen, so that its watch stays silent.
            while self.cluster.server.resource_version() + 3 < seen && random.percent(70) {
                self.write(random);
            }
            self.resume();
            self.open_gates();
            self.marked = 0;
            self.converge()?;
        } else {
            occurred.push("restore found by expiry");
            // Repeat the lost writes, as controllers do after a restore. The same versions of the
            // same objects then often have different contents.
            let (again, at_once) = (random.percent(60), random.percent(50));
            if again && at_once {
                self.write_again(&lost, random);
            }
            (0..random.below(3)).for_each(|_| drop(self.write(random)));
            self.expire_each_watch_once();
            let lists = self.progress().1;
            self.resume();
            self.wait_for_lists(lists);
            if again && !at_once {
                self.write_again(&lost, random);
                self.relist();
            }
        }
        for _ in 0..random.below(8) {
            match random.below(3) {
                0 => drop(self.write(random)),
                1 => {
                    self.wait_for_markers(STEP_TIMEOUT);
                }
                _ => self.relist(),
            }
        }
        Ok(())
    }

    fn restore_backup(&mut self, backup: &Backup) {
        self.cluster
            .log(format!("restore of {}", backup.resource_version()));
        self.cluster.server.pause();
        self.cluster
            .server
            .restore(backup)
            .expect("the backup belongs to this server");
        self.was_restored = true;
    }

    /// Expires all open watches, so that the informer relists.
    fn relist(&mut self) {
        let lists = self.progress().1;
        self.cluster.log("relist");
        self.cluster.server.fail_watches(&Fault::status(410));
        self.wait_for_lists(lists);
    }

    /// Writes these objects again with different contents.
    fn write_again(&mut self, keys: &[String], random: &mut Random) {
        for key in keys {
            let state = self.cluster.write_object(&self.config, key, random);
            self.note(&state);
        }
    }

    /// Answers the next watch of each reflector with 410.
    fn expire_each_watch_once(&self) {
        for namespace in self.config.scope.sources() {
            let suffix = namespace
                .map(|namespace| format!("/namespaces/{namespace}/"))
                .unwrap_or_default();
            self.cluster
                .server
                .fail_next(Fault::status(410).after_events(0).on(Verb::Watch).when(
                    move |request| {
                        request.path().contains(&suffix)
                            && request.param("sendInitialEvents").is_none()
                    },
                ));
        }
    }

    /// Waits up to [`STEP_TIMEOUT`] for each reflector to list again.
    fn wait_for_lists(&mut self, before: u64) {
        let target = before + self.config.scope.sources().len() as u64;
        let listed = self
            .changed
            .until(STEP_TIMEOUT, || (self.progress().1 >= target).then_some(()));
        let version = self.cluster.server.resource_version();
        self.cluster.log(if listed.is_some() {
            format!("listed at {version}")
        } else {
            "not listed yet".into()
        });
    }

    /// Ends the round: stops the faults and compares everything with the model.
    fn settle(&mut self) -> Result<(), String> {
        self.check_backlog()?;
        self.open_gates();
        if !self.was_restored {
            self.cluster.server.clear_faults();
        }
        self.cluster.log("settle");
        if std::mem::take(&mut self.must_relist) && !self.was_restored {
            self.list_again()?;
        }
        self.mark()?;
        self.converge()?;
        self.cluster.server.clear_faults();
        Ok(())
    }

    /// The last round: repairs all objects and makes the informer relist.
    pub(crate) fn heal(&mut self) -> Result<(), String> {
        for state in self.cluster.states() {
            if self.is_kept_out(&state) {
                let content = json!({
                    "metadata": { "labels": { "mood": null } }, "spec": { "priority": 1 }
                });
                let state = self.cluster.put(&key(&state), content);
                self.model.remember(&state);
            }
        }
        self.was_restored = false;
        self.settle()?;
        self.list_again()?;
        self.was_incomplete = false;
        self.settle()
    }

    /// Makes each reflector list again.
    fn list_again(&mut self) -> Result<(), String> {
        self.cluster.log("relist of all");
        let relists = || {
            self.informer
                .statuses()
                .into_iter()
                .map(|(_, status)| status.relists)
        };
        let before: Vec<u64> = relists().collect();
        self.expire_each_watch_once();
        let listed = self.changed.until(PATIENCE, || {
            // A watch that was in flight when the faults were planted would stay open.
            self.cluster.server.close_watches();
            relists()
                .zip(&before)
                .all(|(now, before)| now > *before)
                .then_some(())
        });
        self.cluster.server.clear_faults();
        Ok(listed.ok_or("the informer did not list again after a 410")?)
    }
}
