//! What an informer logs in its life, at which level, and what it never does.

#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::{Duration, Instant};

use k8s_informer::testing::{ApiServer, Fault};
use k8s_informer::{
    Backoff, Client, Config, DynamicObject, GroupVersionResource, HandlerFuncs, HandlerOptions,
    InformerScope, Object, ReflectorOptions, SharedInformerFactory, Stop,
};
use serde_json::json;

/// No test waits longer.
const SOON: Duration = Duration::from_secs(20);

const TOKEN: &str = "a-token-that-nobody-may-see";
const CONTENT: &str = "content-that-nobody-may-see";

#[test]
fn each_line_says_whose_it_is_once_and_nothing_of_what_is_secret() {
    log();
    let server = ApiServer::builder().token(TOKEN).start().unwrap();
    let secrets = "/api/v1/namespaces/default/secrets";
    let secret =
        |name: &str| json!({"metadata": {"name": name}, "stringData": {"password": CONTENT}});
    server.create(secrets, secret("a")).unwrap();
    server.fail_next(Fault::status(403).times(3));
    let client = Client::new(Config::new(server.url()).token(TOKEN)).unwrap();
    let mut options = ReflectorOptions::default();
    options.watch_list = false;
    options.backoff = Backoff::new(Duration::ZERO, 1.0, Duration::ZERO, 0.0);
    let factory = SharedInformerFactory::builder(client)
        .reflector_options(options)
        .build();
    let resource = GroupVersionResource::new("", "v1", "secrets");
    let informer = factory.dynamic_in(resource, &InformerScope::all().namespace("default"));
    let mut options = HandlerOptions::default();
    options.name = "broken".to_owned();
    let broken = |object: &Arc<DynamicObject>, _| panic!("not {}", object.name());
    let handler = HandlerFuncs::new().on_add(broken);
    let handler = informer.add_handler_with_options(handler, options).unwrap();
    let stop = Stop::new();
    factory.start(&stop).unwrap();
    factory.wait_for_cache_sync_timeout(&stop, SOON).unwrap();
    assert!(handler.synced().wait_timeout(SOON));
    server.create(secrets, secret("b")).unwrap();
    let name = informer.name();
    logged(&format!("INFO {name}: well again after 3 × "));
    informer.remove_event_handler(&handler);
    factory.shutdown();

    logged(&format!("DEBUG {name}: starting"));
    logged(&format!("DEBUG {name}: cache populated"));
    logged(&format!(
        "ERROR {name}: handler \"broken\" panicked: not a; the next event follows"
    ));
    logged(&format!("DEBUG {name}: stopped"));
    let lines = log().lines.lock().unwrap().clone();
    let warnings: Vec<_> = lines
        .iter()
        .filter(|line| line.starts_with("WARN "))
        .collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0].starts_with(&format!("WARN list {name}: ")),
        "{warnings:?}"
    );
    assert_eq!(warnings[0].matches(name).count(), 1, "{warnings:?}");
    let repeats = lines
        .iter()
        .filter(|line| line.starts_with(&format!("DEBUG list {name}: ")));
    assert_eq!(repeats.count(), 2, "{lines:#?}");
    for line in &lines {
        assert!(line.contains(name), "{line}");
        assert!(!line.contains(CONTENT) && !line.contains(TOKEN), "{line}");
    }
}

#[derive(Default)]
struct Log {
    lines: Mutex<Vec<String>>,
    changed: Condvar,
}

impl log::Log for Log {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.target().starts_with("k8s_informer")
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            self.lines
                .lock()
                .unwrap()
                .push(format!("{} {}", record.level(), record.args()));
            self.changed.notify_all();
        }
    }

    fn flush(&self) {}
}

fn log() -> &'static Log {
    static LOG: OnceLock<&'static Log> = OnceLock::new();
    LOG.get_or_init(|| {
        let log: &'static Log = Box::leak(Box::default());
        log::set_logger(log).unwrap();
        log::set_max_level(log::LevelFilter::Trace);
        log
    })
}

/// Waits for a line that begins so.
fn logged(line: &str) {
    let deadline = Instant::now() + SOON;
    let log = log();
    let mut lines = log.lines.lock().unwrap();
    while !lines.iter().any(|one| one.starts_with(line)) {
        let left = deadline.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "no {line:?} in {lines:#?}");
        lines = log.changed.wait_timeout(lines, left).unwrap().0;
    }
}
