//! How the cost of an informer grows with its objects, and the cost of a client with its informers.
//! Each case runs in its own process. It runs only on Linux, because it reads `/proc`.
//!
//! ```text
//! cargo bench --bench scale                       # up to 1,000,000 objects and 1,000 informers; three minutes
//! cargo bench --bench scale -- objects informers  # one part, or both
//! cargo bench --bench scale -- --max-objects 100000      # fewer objects
//! ```
//!
//! The objects are custom structs, listed from a generator in the same process. *Source* is the
//! time of the generator alone, which is part of the other figures.
#![allow(clippy::unwrap_used, reason = "the included test server uses unwrap")]

#[path = "../examples/measure/src/meter.rs"]
#[allow(dead_code)]
mod meter;
#[allow(dead_code)]
#[path = "../tests/client/server.rs"]
mod server;
#[path = "common/silent.rs"]
mod silent;

use std::io::{self, Read, Write};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use k8s_informer::handler::HandlerFuncs;
use k8s_informer::informer::{FactoryOptions, InformerScope, SharedIndexInformerOptions, Source};
use k8s_informer::object::{GroupVersionResource, PartialObjectMetadata};
use k8s_informer::reflector::{Body, ListOptions, ListWatch, ReflectorOptions};
use k8s_informer::{
    Client, Config, ObjectMeta, SharedIndexInformer, SharedInformerFactory, Stop, Stopper,
    impl_object,
};
use meter::Reading;
use serde::Deserialize;
use server::Server;

const MIB: f64 = 1024.0 * 1024.0;

fn main() {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
        .collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["--objects", count] => return objects(count.parse().unwrap()),
        ["--informers", url, count, one_thread] => {
            return informers(url, count.parse().unwrap(), one_thread.parse().unwrap());
        }
        _ => {}
    }
    let test = words.contains(&"--test");
    let is_selected =
        |part: &str| words.contains(&part) || !words.iter().any(|word| PARTS.contains(word));
    let max_objects = words
        .iter()
        .skip_while(|word| **word != "--max-objects")
        .nth(1);
    let max_objects: usize = max_objects
        .map_or(if test { 100 } else { 1_000_000 }, |max_objects| {
            max_objects.parse().unwrap()
        });
    if is_selected(PARTS[0]) {
        println!(
            "Custom structs. Figures in us (microseconds) and bytes are per object; peak MiB is the peak memory of the process."
        );
        println!(
            "{:>9} {:>10} {:>8} {:>8} {:>8} {:>10} {:>8} {:>8} {:>8} {:>9} {:>9}",
            "objects",
            "source us",
            "list s",
            "us",
            "bytes",
            "peak MiB",
            "relist s",
            "us",
            "peak MiB",
            "stop ms",
            "drop ms"
        );
        for count in [max_objects / 100, max_objects / 10, max_objects] {
            child(&["--objects", &count.to_string()]);
        }
    }
    if is_selected(PARTS[1]) {
        let server = Server::start(silent::serve);
        println!(
            "\nInformers of one client. Each watches a namespace without objects and has one handler."
        );
        println!(
            "{:>9} {:>8} {:>12} {:>9} {:>8} {:>9} {:>9}",
            "informers", "threads", "connections", "kB each", "sync s", "CPU ms each", "stop ms"
        );
        let counts = if test { &[2][..] } else { &[1, 10, 100, 1000] };
        for one_thread in ["false", "true"] {
            for count in counts {
                child(&["--informers", &server.url(), &count.to_string(), one_thread]);
            }
        }
    }
}

const PARTS: [&str; 2] = ["objects", "informers"];

/// Runs a case in its own process, which prints one line.
fn child(arguments: &[&str]) {
    let program = std::env::current_exe().unwrap();
    let status = Command::new(program).args(arguments).status().unwrap();
    assert!(status.success(), "{arguments:?} failed");
}

#[derive(Deserialize)]
#[allow(dead_code)] // A cache only holds the fields.
struct Pod {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(dead_code)]
struct Spec {
    node_name: Option<String>,
}

impl_object!(Pod, "v1", "Pod", "pods", Namespaced);

/// A list of `count` Pods, rendered while it is read. In versions after the first, every hundredth
/// Pod has changed.
struct List {
    next: usize,
    count: usize,
    version: usize,
    rendered: Vec<u8>,
    read: usize,
}

impl List {
    fn new(count: usize, version: usize) -> Self {
        let head = format!(
            r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"{version}"}},"items":["#
        );
        Self {
            next: 0,
            count,
            version,
            rendered: head.into_bytes(),
            read: 0,
        }
    }

    fn render(&mut self) {
        self.rendered.clear();
        self.read = 0;
        let end = (self.next + 100).min(self.count);
        for n in self.next..end {
            let comma = if n == 0 { "" } else { "," };
            let version = if n % 100 == 0 { self.version } else { 1 };
            write!(
                self.rendered,
                r#"{comma}{{"metadata":{{"name":"app-{n:07}-5d8f9c7b6d","namespace":"team-{}","uid":"1f0c4a3e-0000-4000-8000-{n:012}","resourceVersion":"{version}","labels":{{"app":"app-{}","pod-template-hash":"5d8f9c7b6d"}}}},"spec":{{"nodeName":"node-{}","containers":[{{"name":"app","image":"registry.example.com/app:1.2.3"}}]}}}}"#,
                n % 100,
                n % 1000,
                n % 5000,
            )
            .unwrap();
        }
        if end == self.count && self.next <= self.count {
            self.rendered.extend_from_slice(b"]}");
            self.next = self.count + 1;
        } else {
            self.next = end;
        }
    }
}

impl Read for List {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.read == self.rendered.len() {
            if self.next > self.count {
                return Ok(0);
            }
            self.render();
        }
        let length = buffer.len().min(self.rendered.len() - self.read);
        buffer[..length].copy_from_slice(&self.rendered[self.read..][..length]);
        self.read += length;
        Ok(length)
    }
}

/// A watch that reports an expired version when `expire` is stopped, and ends with `stop`.
struct Watch {
    expire: Stopper,
    stop: Stop,
}

impl Read for Watch {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        const EXPIRED: &[u8] = br#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old","reason":"Expired","code":410}}
"#;
        while !self.stop.is_stopped() {
            if self.expire.wait_timeout(Duration::from_millis(1)) {
                self.expire = Stopper::new();
                buffer[..EXPIRED.len()].copy_from_slice(EXPIRED);
                return Ok(EXPIRED.len());
            }
        }
        Ok(0)
    }
}

fn objects(count: usize) {
    let start = Instant::now();
    io::copy(&mut List::new(count, 1), &mut io::sink()).unwrap();
    let source = start.elapsed().as_secs_f64();

    let (expire, lists) = (Stopper::new(), Arc::new(AtomicUsize::new(0)));
    let expired = expire.clone();
    let lister_watcher = ListWatch::new(
        move |_: &ListOptions, _: &Stop| {
            let version = lists.fetch_add(1, Ordering::Relaxed) + 1;
            Ok(Body::new(List::new(count, version)))
        },
        move |_: &ListOptions, stop: &Stop| {
            Ok(Body::new(Watch {
                expire: expired.clone(),
                stop: stop.clone(),
            }))
        },
    );
    let mut options = SharedIndexInformerOptions::<Pod>::default();
    options.reflector.watch_list = false;
    let before = Reading::now();
    let informer = SharedIndexInformer::new(Arc::new(lister_watcher), options);
    let notified = Arc::new(AtomicUsize::new(0));
    let (added, updated) = (Arc::clone(&notified), Arc::clone(&notified));
    let handler = HandlerFuncs::new()
        .on_add(move |_: &Arc<Pod>, _| _ = added.fetch_add(1, Ordering::Relaxed))
        .on_update(move |_, _| _ = updated.fetch_add(1, Ordering::Relaxed));
    let registration = informer.add_handler(handler).unwrap();
    let stop = Stopper::new();
    let (run, until) = (informer.clone(), stop.clone());
    let runner = thread::spawn(move || run.run(&until).unwrap());
    registration.synced().wait();
    let synced = Reading::now();
    assert_eq!(notified.load(Ordering::Relaxed), count);

    // The wait before the relist is not measured.
    expire.stop();
    while informer.status().lists == 1 {
        thread::sleep(Duration::from_millis(1));
    }
    let relist = Instant::now();
    while notified.load(Ordering::Relaxed) < 2 * count {
        thread::sleep(Duration::from_millis(1));
    }
    let relisted = Reading::now();
    let relist = relisted.at - relist;
    let stopping = Instant::now();
    stop.stop();
    runner.join().unwrap();
    let stopped = stopping.elapsed();
    let dropping = Instant::now();
    drop((informer, registration));
    let dropped = dropping.elapsed();

    let (list, each) = ((synced.at - before.at).as_secs_f64(), count as f64);
    let grown = (synced.resident - before.resident) as f64;
    println!(
        "{count:>9} {:>10.2} {list:>8.2} {:>8.2} {:>8.0} {:>10.0} {:>8.2} {:>8.2} {:>8.0} {:>9.2} {:>9.2}",
        source * 1e6 / each,
        list * 1e6 / each,
        grown / each,
        synced.peak as f64 / MIB,
        relist.as_secs_f64(),
        relist.as_secs_f64() * 1e6 / each,
        relisted.peak as f64 / MIB,
        stopped.as_secs_f64() * 1e3,
        dropped.as_secs_f64() * 1e3,
    );
}

fn informers(url: &str, count: usize, one_thread: bool) {
    let client = Client::new(Config::new(url)).unwrap();
    let mut options = ReflectorOptions::default();
    options.watch_list = false;
    let before = Reading::now();
    let factory = SharedInformerFactory::with_options(
        client,
        FactoryOptions::new()
            .reflector(options)
            .one_thread(one_thread),
    );
    let informers: Vec<SharedIndexInformer<PartialObjectMetadata>> = (0..count)
        .map(|n| {
            let pods = GroupVersionResource::new("", "v1", "pods");
            let scope = InformerScope::all().namespace(format!("team-{n}"));
            let informer = factory.informer_for(Source::metadata(pods).scope(scope));
            informer.add_handler(HandlerFuncs::new()).unwrap();
            informer
        })
        .collect();
    let stop = Stopper::new();
    factory.start(&stop).unwrap();
    factory.wait_for_cache_sync(None, &stop).unwrap();
    let synced = Instant::now();
    let is_watching = |informer: &SharedIndexInformer<_>| informer.status().watches > 0;
    while !informers.iter().all(is_watching) {
        thread::sleep(Duration::from_millis(1));
    }
    let watching = Reading::now();
    let files = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let connections = files.filter(|file| {
        let link = std::fs::read_link(file.path());
        link.is_ok_and(|link| link.to_string_lossy().starts_with("socket"))
    });
    let connections = connections.count();
    let stopping = Instant::now();
    factory.shut_down(None).unwrap();
    println!(
        "{count:>9} {:>8} {connections:>12} {:>9.0} {:>8.3} {:>9.2} {:>9.2}",
        watching.threads - before.threads,
        (watching.resident - before.resident) as f64 / 1e3 / count as f64,
        (synced - before.at).as_secs_f64(),
        (watching.cpu - before.cpu).as_secs_f64() * 1e3 / count as f64,
        stopping.elapsed().as_secs_f64() * 1e3,
    );
}
