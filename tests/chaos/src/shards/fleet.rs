//! The replicas, each behind a proxy of its own, and what they report.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use k8s_informer_controller::ShardBy;

use super::history::History;
use super::process::LOST;
use super::protocol::{Caches, Event};
use crate::child::ChildProcess;
use crate::counts::Counts;
use crate::proxy::Proxy;
use crate::random::Random;
use crate::server::Server;

/// The maximum time of an orderly stop.
const STOP: Duration = Duration::from_secs(20);

/// The maximum time until a process reports its caches. It can end instead.
const REPORT: Duration = Duration::from_secs(10);

/// The number of log lines that are kept.
const LINES: usize = 20_000;

#[derive(Default)]
pub(crate) struct Feed(Mutex<Reports>);

#[derive(Default)]
pub(crate) struct Reports {
    pub(crate) history: History,
    /// By the number of the process.
    caches: BTreeMap<usize, Caches>,
    log: VecDeque<String>,
}

impl Feed {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Reports> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn line(&self, number: usize, count: u32, line: &str) {
        let event = serde_json::from_str(line);
        let mut reports = self.lock();
        match event {
            Ok(Event::Caches(caches)) => drop(reports.caches.insert(number, caches)),
            Ok(event) => reports.history.report(number, count, event),
            Err(_) => {
                if reports.log.len() == LINES {
                    reports.log.pop_front();
                }
                reports.log.push_back(format!("process {number}: {line}"));
            }
        }
    }

    /// Returns the last log lines of a process.
    pub(crate) fn log(&self, number: usize, count: usize) -> Vec<String> {
        let (reports, prefix) = (self.lock(), format!("process {number}: "));
        let lines = reports.log.iter().rev();
        let lines = lines.filter(|line| line.starts_with(&prefix));
        let mut lines: Vec<_> = lines.take(count).cloned().collect();
        lines.reverse();
        lines
    }
}

pub(crate) struct Fleet {
    feed: Arc<Feed>,
    certificates: String,
    by: ShardBy,
    slots: Vec<Slot>,
    launched: usize,
}

struct Slot {
    proxy: Proxy,
    process: Option<ChildProcess>,
    number: usize,
    /// The number of shards.
    count: u32,
}

impl Fleet {
    pub(crate) fn new(
        server: &Server,
        by: ShardBy,
        slots: usize,
        random: &Random,
        feed: &Arc<Feed>,
    ) -> Self {
        let slot = |_| Slot {
            proxy: Proxy::start(
                server.port(),
                None,
                random.fork(),
                Arc::new(Counts::default()),
            ),
            process: None,
            number: 0,
            count: 0,
        };
        Self {
            feed: Arc::clone(feed),
            certificates: server.certificates().display().to_string(),
            by,
            slots: (0..slots).map(slot).collect(),
            launched: 0,
        }
    }

    /// Starts a process with this number of shards.
    pub(crate) fn launch(&mut self, at: usize, count: u32) {
        self.launched += 1;
        let (number, slot) = (self.launched, &mut self.slots[at]);
        let arguments = [
            "replica".to_owned(),
            number.to_string(),
            slot.proxy.url(),
            self.certificates.clone(),
            count.to_string(),
            match self.by {
                ShardBy::Namespace => "namespace".to_owned(),
                ShardBy::Uid => "uid".to_owned(),
            },
        ];
        let feed = Arc::clone(&self.feed);
        (slot.number, slot.count) = (number, count);
        slot.process = Some(ChildProcess::start(arguments, move |line| {
            feed.line(number, count, &line);
        }));
    }

    /// Starts processes in place of those that have ended on their own.
    pub(crate) fn tend(&mut self) {
        for at in 0..self.slots.len() {
            let slot = &mut self.slots[at];
            let Some(status) = slot.process.as_mut().and_then(ChildProcess::ended) else {
                continue;
            };
            let number = slot.number;
            let mut reports = self.feed.lock();
            if status.code() == Some(i32::from(LOST)) {
                reports.history.lost(number);
            } else {
                let problem = format!("process {number} has ended: {status}");
                reports.history.violation(problem);
            }
            drop(reports);
            self.launch(at, self.slots[at].count);
        }
    }

    pub(crate) fn kill(&mut self, at: usize) {
        self.slots[at].process = None;
    }

    /// Stops a process and waits for its end.
    pub(crate) fn stop(&mut self, at: usize) {
        let slot = &mut self.slots[at];
        let Some(process) = slot.process.take() else {
            return;
        };
        let status = process.stop(STOP);
        let code = status.and_then(|status| status.code());
        if code != Some(0) && code != Some(i32::from(LOST)) {
            let problem = format!("process {} did not stop: {status:?}", slot.number);
            self.feed.lock().history.violation(problem);
        }
    }

    pub(crate) fn signal(&self, at: usize, signal: &str) {
        if let Some(process) = &self.slots[at].process {
            process.signal(signal);
        }
    }

    pub(crate) fn proxy(&self, at: usize) -> &Proxy {
        &self.slots[at].proxy
    }

    /// Returns the number of processes so far, which is the number of the newest one.
    pub(crate) fn launched(&self) -> usize {
        self.launched
    }

    /// Returns the number of the process.
    pub(crate) fn number(&self, at: usize) -> usize {
        self.slots[at].number
    }

    /// Returns the caches of all processes, by the number of the process.
    pub(crate) fn caches(&mut self) -> BTreeMap<usize, Caches> {
        self.feed.lock().caches.clear();
        let slots = self.slots.iter_mut();
        let running = slots.filter_map(|slot| slot.process.as_mut());
        let expected = running.map(|process| process.send("caches")).count();
        let deadline = Instant::now() + REPORT;
        while self.feed.lock().caches.len() < expected && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(20));
        }
        self.feed.lock().caches.clone()
    }

    /// Returns the resident memory of each process without files, in kilobytes.
    pub(crate) fn memory(&self) -> Vec<u64> {
        let processes = self.slots.iter().filter_map(|slot| slot.process.as_ref());
        let of = |process: &ChildProcess| {
            let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).ok()?;
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix("RssAnon:"))?;
            line.trim().strip_suffix(" kB")?.parse().ok()
        };
        processes.filter_map(of).collect()
    }
}
