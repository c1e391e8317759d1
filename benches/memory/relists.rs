//! An informer in a process with little memory. Its server makes it list again and again: by an
//! expired watch, a broken connection, and a restart that takes the server back to its first state.
//! Each time, one Pod in a hundred has changed. The limit is a cgroup, and needs the right to create
//! one. The server runs outside the limit.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use k8s_informer::informer::FactoryOptions;
use k8s_informer::reflector::ReflectorOptions;
use k8s_informer::time::Backoff;
use k8s_informer::{Client, Config, SharedInformerFactory, Stopper};

use super::common::custom::Pod;
use super::common::replay::Replay;

/// The argument of the informer process, before the address of the server.
const INFORMER: &str = "--informer";

const PODS: usize = 10_000;
const RELISTS: usize = 100;
const LIMIT: usize = 16 << 20;

/// Runs the relists, or the informer process, if the arguments say so. Returns whether they do.
pub(crate) fn run_if_requested(arguments: &[String]) -> bool {
    match arguments.iter().position(|argument| argument == INFORMER) {
        Some(at) => informer(&arguments[at + 1]),
        None if arguments.iter().any(|argument| argument == "relists") => relist(),
        None => return false,
    }
    true
}

fn relist() {
    let mut server = Replay::spawn(PODS);
    let group = Group::new();
    let program = std::env::current_exe().expect("Linux");
    let mut informer = Command::new("sh")
        .args(["-c", "echo $$ > \"$1\" && exec \"$0\" \"$2\" \"$3\""])
        .arg(program)
        .arg(group.path.join("cgroup.procs"))
        .args([INFORMER, &server.url])
        .stdout(Stdio::piped())
        .spawn()
        .expect("sh can be started");
    let output = informer.stdout.take().expect("stdout is piped");
    let mut states = BufReader::new(output).lines();
    let mut wait = || states.next().and_then(Result::ok);
    let first = wait().expect("the informer syncs");
    println!("{PODS} Pods as a custom struct, limit {} MiB", LIMIT >> 20);
    println!("after the first list: {first}");
    for relist in 1..=RELISTS {
        match relist % 3 {
            0 => server.restart(),
            1 => server.expire(),
            _ => server.cut(),
        }
        let Some(state) = wait() else {
            let status = informer.wait().expect("the process has started");
            panic!("the informer process ended in relist {relist}: {status}");
        };
        if relist % 20 == 0 {
            println!("after {relist} relists: {state}");
        }
    }
    println!("peak of the cgroup: {} kB", group.peak() >> 10);
    informer.kill().expect("the process has started");
    informer.wait().expect("the process has started");
}

/// Runs the informer process. It prints a line after each list.
fn informer(url: &str) {
    let mut options = ReflectorOptions::default();
    // Only the planned disturbances fail. Their back-off must not take minutes.
    let pause = Duration::from_millis(10);
    options.backoff = Backoff::new(pause);
    let client = Client::new(Config::new(url)).expect("a plain URL");
    let factory =
        SharedInformerFactory::with_options(client, FactoryOptions::new().reflector(options));
    let pods = factory.informer::<Pod>();
    let stop = Stopper::new();
    factory.start(&stop).expect("threads");
    factory
        .wait_for_cache_sync(None, &stop)
        .expect("the cache syncs");
    for relists in 0.. {
        while pods.status().relists < relists {
            thread::sleep(Duration::from_millis(1));
        }
        let status = fs::read_to_string("/proc/self/status").expect("Linux");
        let lines = status.lines();
        let memory =
            lines.filter(|line| line.starts_with("RssAnon:") || line.starts_with("VmHWM:"));
        let memory: Vec<&str> = memory.collect();
        let [cached, lists] = [pods.lister().list().len() as u64, pods.status().lists];
        println!(
            "{cached} cached, {lists} LIST requests, {}",
            memory.join(", ").replace('\t', " ")
        );
    }
}

/// A cgroup with a limit of memory. Dropping it removes it.
struct Group {
    path: PathBuf,
    is_v2: bool,
}

impl Group {
    fn new() -> Self {
        let is_v2 = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
        let [root, limit] = match is_v2 {
            true => ["/sys/fs/cgroup", "memory.max"],
            false => ["/sys/fs/cgroup/memory", "memory.limit_in_bytes"],
        };
        let path = Path::new(root).join(format!("k8s-informer-{}", std::process::id()));
        fs::create_dir(&path).expect("the right to create a cgroup");
        fs::write(path.join(limit), LIMIT.to_string()).expect("a cgroup with memory control");
        Self { path, is_v2 }
    }

    fn peak(&self) -> usize {
        let file = match self.is_v2 {
            true => "memory.peak",
            false => "memory.max_usage_in_bytes",
        };
        let peak = fs::read_to_string(self.path.join(file)).expect("the peak of the cgroup");
        peak.trim().parse().expect("a number")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // It has processes if the program panics.
        let _ = fs::remove_dir(&self.path);
    }
}
