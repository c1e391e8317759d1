//! The cost of an idle informer with a silent watch and no objects: memory, threads and wake-ups.
//! Each case runs in its own process with a real client. The server is the parent process. It runs
//! only on Linux, because it reads `/proc`.
//!
//! ```text
//! cargo bench --bench idle          # three minutes
//! cargo bench --bench idle -- 60    # each case for 60 seconds
//! ```
#![allow(clippy::unwrap_used, reason = "the included test servers use unwrap")]

#[allow(dead_code)]
#[path = "../tests/client/server.rs"]
mod server;
#[path = "common/silent.rs"]
mod silent;
#[allow(dead_code, unused_imports)]
#[path = "../tests/client/tls.rs"]
mod tls;

use std::process::Command;
use std::thread;
use std::time::Duration;

use k8s_informer::SharedIndexInformer;
use k8s_informer::informer::{FactoryOptions, InformerScope, Source};
use k8s_informer::object::GroupVersionResource;
use k8s_informer::object::PartialObjectMetadata;
use k8s_informer::{Client, Config, SharedInformerFactory, Stopper};
use server::Server;

fn main() {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
        .collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let ["--case", url, ca, one_thread, informers, seconds] = arguments[..] {
        return case(
            url,
            ca,
            one_thread.parse().unwrap(),
            informers.parse().unwrap(),
            seconds.parse().unwrap(),
        );
    }
    let test = arguments.contains(&"--test");
    let seconds = arguments.iter().find_map(|argument| argument.parse().ok());
    let seconds: u64 = seconds.unwrap_or(if test { 0 } else { 12 });

    let authority = tls::Authority::new();
    let server = Server::with_tls(Some(authority.server("127.0.0.1")), silent::serve);
    let plain = Server::start(silent::serve);
    println!(
        "Each case runs for {seconds} s. kB: resident anonymous memory, beyond a process with only a client;"
    );
    println!("stacks: the part in thread stacks; wakes: wake-ups of all threads.\n");
    println!(
        "{:>17} {:>9} {:>8} {:>8} {:>10} {:>8} {:>6}",
        "", "informers", "threads", "kB", "kB each", "stacks", "wakes"
    );
    let (plain, tls) = (plain.url(), server.https());
    let (plain, tls) = ((plain.as_str(), ""), (tls.as_str(), authority.pem.as_str()));
    for (name, (url, ca), one_thread) in [
        ("plain", plain, false),
        ("TLS", tls, false),
        ("plain, one thread", plain, true),
        ("TLS, one thread", tls, true),
    ] {
        for informers in [1, 2, 10] {
            let run = Command::new(std::env::current_exe().unwrap())
                .args([
                    "--case",
                    url,
                    ca,
                    &one_thread.to_string(),
                    &informers.to_string(),
                    &seconds.to_string(),
                ])
                .output()
                .unwrap();
            let figures = String::from_utf8_lossy(&run.stdout);
            let figures: Vec<usize> = figures
                .split_whitespace()
                .map(|figure| figure.parse().unwrap())
                .collect();
            let [threads, memory, stacks, wakes] = figures[..] else {
                panic!("{}", String::from_utf8_lossy(&run.stderr))
            };
            let each = memory / informers;
            println!(
                "{name:>17} {informers:>9} {threads:>8} {memory:>8} {each:>10} {stacks:>8} {wakes:>6}"
            );
        }
    }
}

/// Runs the measured process.
fn case(url: &str, ca: &str, one_thread: bool, informers: usize, seconds: u64) {
    let mut config = Config::new(url);
    if !ca.is_empty() {
        config = config.ca_pem(ca);
    }
    let client = Client::new(config).unwrap();
    let mut options = k8s_informer::reflector::ReflectorOptions::default();
    options.watch_list = false;
    // Read once before the baseline, so that the growth does not include the memory that a reading
    // allocates.
    smaps("Anonymous:", |_| true);
    let before = (smaps("Anonymous:", |_| true), tasks().count());
    let factory = SharedInformerFactory::with_options(
        client,
        FactoryOptions::new()
            .reflector(options)
            .one_thread(one_thread),
    );
    let informers: Vec<SharedIndexInformer<PartialObjectMetadata>> = (0..informers)
        .map(|n| {
            let scope = InformerScope::all().namespace(format!("team-{n}"));
            let informer = factory.informer_for(
                Source::metadata(GroupVersionResource::new("", "v1", "pods")).scope(scope.clone()),
            );
            informer
                .add_event_handler(|handler| handler.on_add(|_, _| {}))
                .unwrap();
            informer
        })
        .collect();
    let stop = Stopper::new();
    factory.start(&stop).unwrap();
    factory.wait_for_cache_sync(None, &stop).unwrap();
    while informers
        .iter()
        .any(|informer| informer.status().watches == 0)
    {
        thread::yield_now();
    }
    // Wait until the response heads have arrived.
    thread::sleep(Duration::from_millis(500));
    let memory = smaps("Anonymous:", |_| true) - before.0;
    let stacks = smaps("Anonymous:", |size| [2048, 4096].contains(&(size & !15)));
    let woken = wakes();
    thread::sleep(Duration::from_secs(seconds));
    let woken = wakes() - woken;
    println!("{} {memory} {stacks} {woken}", tasks().count() - before.1);
    factory.shut_down(None).unwrap();
}

/// Returns the sum of a field over the memory mappings of this process. `of_size` selects the
/// mappings by their size in kB.
fn smaps(field: &str, of_size: impl Fn(usize) -> bool) -> usize {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let number = |line: &str| -> usize { line.split_whitespace().nth(1).unwrap().parse().unwrap() };
    let (mut sum, mut counts) = (0, false);
    for line in smaps.lines() {
        if line.starts_with("Size:") {
            counts = of_size(number(line));
        } else if counts && line.starts_with(field) {
            sum += number(line);
        }
    }
    sum
}

fn tasks() -> impl Iterator<Item = std::path::PathBuf> {
    std::fs::read_dir("/proc/self/task")
        .unwrap()
        .map(|task| task.unwrap().path())
}

/// Returns how many times the other threads have started to wait.
fn wakes() -> usize {
    let this = format!("/{}", std::process::id());
    let others = tasks().filter(|task| !task.to_string_lossy().ends_with(&this));
    let waits = |task: std::path::PathBuf| -> usize {
        let status = std::fs::read_to_string(task.join("status")).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.unwrap().trim().parse().unwrap()
    };
    others.map(waits).sum()
}
