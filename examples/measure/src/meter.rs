//! The resource usage of this process. It runs only on Linux, because it reads `/proc`.

use std::fs;
use std::time::{Duration, Instant};

/// The resource usage at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub(crate) at: Instant,
    /// The CPU time of all live threads.
    pub(crate) cpu: Duration,
    /// The anonymous memory of this process in bytes. It includes memory that the allocator keeps
    /// after objects are freed.
    pub(crate) resident: u64,
    /// The approximate peak of `resident`: the peak of all resident memory, minus the current file
    /// and shared memory.
    pub(crate) peak: u64,
    pub(crate) threads: usize,
    /// The number of times that a thread was woken up.
    pub(crate) wakeups: u64,
}

impl Reading {
    pub(crate) fn now() -> Self {
        let status = fs::read_to_string("/proc/self/status").expect("Linux");
        let files = bytes(&status, "RssFile:") + bytes(&status, "RssShmem:");
        let mut reading = Self {
            at: Instant::now(),
            cpu: Duration::ZERO,
            resident: bytes(&status, "RssAnon:"),
            peak: bytes(&status, "VmHWM:").saturating_sub(files),
            threads: 0,
            wakeups: 0,
        };
        for thread in fs::read_dir("/proc/self/task").expect("Linux").flatten() {
            let file = |name| fs::read_to_string(thread.path().join(name));
            // The thread may have ended since the directory was read.
            let (Ok(schedule), Ok(status)) = (file("schedstat"), file("status")) else {
                continue;
            };
            reading.cpu += Duration::from_nanos(first_number(&schedule));
            reading.wakeups += field(&status, "voluntary_ctxt_switches:");
            reading.threads += 1;
        }
        reading
    }
}

fn bytes(status: &str, name: &str) -> u64 {
    field(status, name) * 1024
}

fn field(status: &str, name: &str) -> u64 {
    status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .map_or(0, first_number)
}

fn first_number(text: &str) -> u64 {
    text.split_whitespace()
        .next()
        .and_then(|number| number.parse().ok())
        .unwrap_or(0)
}
