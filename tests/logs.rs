//! The log lines of an informer: their levels, their contents, and the absence of secrets.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use k8s_informer::handler::{HandlerFuncs, HandlerOptions};
use k8s_informer::informer::{FactoryOptions, InformerScope, Source};
use k8s_informer::object::GroupVersionResource;
use k8s_informer::reflector::ReflectorOptions;
use k8s_informer::time::Backoff;
use k8s_informer::{Client, Config, DynamicObject, Object, SharedInformerFactory, Stopper};
use k8s_informer_testing::{ApiServer, Fault};
use serde_json::json;

use crate::{log_capture, own_process};

/// The longest wait of a test.
const SOON: Duration = Duration::from_secs(20);

const TOKEN: &str = "secret-bearer-token";
const CONTENT: &str = "secret-password-value";

#[test]
fn log_lines_name_the_informer_and_hide_secrets() {
    if !own_process::is_alone(
        module_path!(),
        "log_lines_name_the_informer_and_hide_secrets",
    ) {
        return;
    }
    log_capture::start();
    let server = ApiServer::builder().token(TOKEN).start().unwrap();
    let secrets = "/api/v1/namespaces/default/secrets";
    let secret =
        |name: &str| json!({"metadata": {"name": name}, "stringData": {"password": CONTENT}});
    server.create(secrets, secret("a")).unwrap();
    server.fail_next(Fault::status(403).times(3));
    let client = Client::new(Config::new(server.url()).token(TOKEN)).unwrap();
    let mut options = ReflectorOptions::default();
    options.watch_list = false;
    options.backoff = Backoff::new(Duration::ZERO);
    let factory =
        SharedInformerFactory::with_options(client, FactoryOptions::new().reflector(options));
    let resource = GroupVersionResource::new("", "v1", "secrets");
    let informer = factory
        .informer_for(Source::dynamic(resource).scope(InformerScope::all().namespace("default")));
    let mut options = HandlerOptions::default();
    options.name = Some("broken".to_owned());
    let broken = |object: &Arc<DynamicObject>, _| panic!("not {}", object.name());
    let handler = HandlerFuncs::new().on_add(broken);
    let handler = informer.add_handler_with_options(handler, options).unwrap();
    let stop = Stopper::new();
    factory.start(&stop).unwrap();
    factory.wait_for_cache_sync(SOON, &stop).unwrap();
    assert!(handler.synced().wait_timeout(SOON));
    server.create(secrets, secret("b")).unwrap();
    let name = informer.name();
    logged(&format!("INFO {name}: recovered after 3 × "));
    informer.remove_event_handler(&handler);
    factory.shut_down(None).unwrap();

    logged(&format!("DEBUG {name}: starting"));
    logged(&format!("INFO {name}: synced; objects in the cache: "));
    logged(&format!(
        "ERROR {name}: handler \"broken\" panicked: not a; continuing with the next event"
    ));
    logged(&format!("DEBUG {name}: stopped"));
    let lines = log_capture::lines_with(&[]);
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
    let targets: Vec<String> = log_capture::targets().into_iter().collect();
    assert_eq!(
        targets,
        ["k8s_informer::informer", "k8s_informer::reflector"]
    );
    for line in &lines {
        assert!(line.contains(name), "{line}");
        assert!(!line.contains(CONTENT) && !line.contains(TOKEN), "{line}");
    }
}

/// Waits for a line that contains `line`.
fn logged(line: &str) {
    log_capture::wait_for(&[line]);
}

/// A file that logs imports the macros of `src/log.rs`, which cut its path to a top-level module.
#[test]
fn each_log_target_is_a_public_module() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let library = fs::read_to_string(source.join("lib.rs")).unwrap();
    let mut with_logs = 0;
    for file in files(&source) {
        let text = fs::read_to_string(&file).unwrap();
        let is_log_call = |line: &str| {
            let levels = ["error", "warn", "info", "debug", "trace", "log"];
            let mut calls = levels.iter().map(|level| format!("log::{level}!("));
            !line.trim_start().starts_with("//") && calls.any(|call| line.contains(&call))
        };
        let file = file.strip_prefix(&source).unwrap();
        if file == Path::new("log.rs") || !text.lines().any(is_log_call) {
            continue;
        }
        with_logs += 1;
        let module = file.iter().next().unwrap().to_str().unwrap();
        let module = format!("pub mod {};", module.trim_end_matches(".rs"));
        let is_public = library.contains(&module) && text.contains("use crate::log;");
        let is_explicit = text.contains("target: \"k8s_informer\"");
        assert!(
            is_public || is_explicit,
            "{}: import crate::log",
            file.display()
        );
    }
    assert!(with_logs > 20, "{with_logs} files");
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let files = |path: PathBuf| match path.is_dir() {
        true => files(&path),
        false => vec![path],
    };
    entries.flat_map(files).collect()
}
