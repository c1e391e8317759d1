//! A stop is quick in every phase, and leaves no thread behind. These tests count the threads of
//! the process, so they have their own binary and run one after the other.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use k8s_informer::handler::{ChannelHandler, HandlerFuncs, HandlerOptions, HandlerRegistration};
use k8s_informer::informer::{
    Controller, ControllerConfig, Driver, FactoryOptions, InformerError, InformerScope, Progress,
    SharedIndexInformerOptions, Source, StackSizes, step_all,
};
use k8s_informer::object::{Accessor, GroupVersionResource};
use k8s_informer::queue::DeltaFifo;
use k8s_informer::reflector::{
    ListerWatcher, ListerWatcherSource, ReflectorOptions, ReflectorState,
};
use k8s_informer::time::Backoff;
use k8s_informer::{
    Client, Config, DynamicObject, Error, Object, SharedIndexInformer, SharedInformerFactory, Stop,
    Stopper,
};
use k8s_informer_testing::{Answer, ApiServer, FakeClock, ScriptedListerWatcher};
use k8s_openapi::api::core::v1::Pod;
use parking_lot::{Mutex, MutexGuard};
use serde_json::json;

const SOON: Duration = Duration::from_secs(60);
const STOP_LIMIT: Duration = Duration::from_secs(2);

type Informer = SharedIndexInformer<DynamicObject>;

/// Returns the thread names of the process.
fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.unwrap().path().join("comm"))
    };
    // A thread that has just ended has no name.
    let mut names: Vec<_> = tasks
        .filter_map(|task| name(task).ok())
        .map(|name| name.trim().to_owned())
        .collect();
    names.sort();
    names
}

/// Exclusive use of the process. Dropping this value asserts that no new thread is left.
struct ExclusiveProcess {
    before: Vec<String>,
    _guard: MutexGuard<'static, ()>,
}

impl ExclusiveProcess {
    fn new() -> Self {
        static LOCK: Mutex<()> = Mutex::new(());
        let guard = LOCK.lock();
        Self {
            before: threads(),
            _guard: guard,
        }
    }

    /// Returns the threads started since [`ExclusiveProcess::new`], except those of tests that wait
    /// for their turn.
    fn new_threads(&self) -> Vec<String> {
        let mut before = self.before.clone();
        // The harness starts the thread of a test, which has the name of the harness at first.
        let is_test =
            |name: &str| name == HARNESS || TESTS.iter().any(|test| test.starts_with(name));
        let mut names = threads();
        names.retain(|name| match before.iter().position(|old| old == name) {
            Some(at) => {
                before.remove(at);
                false
            }
            None => !is_test(name),
        });
        names
    }

    /// Waits until the new threads are as expected. A new thread has the name of its parent at first,
    /// here that of a test.
    fn wait_until(&self, is_expected: impl Fn(&[String]) -> bool) {
        let deadline = Instant::now() + SOON;
        loop {
            let threads = self.new_threads();
            if is_expected(&threads) {
                return;
            }
            assert!(Instant::now() < deadline, "{threads:?}");
            thread::yield_now();
        }
    }
}

/// The main thread of the process, cut to 15 characters. No thread of an informer has this name,
/// because tests start informers on threads of their own.
const HARNESS: &str = "informer_thread";

/// The tests of this file. Each test runs on a thread of the test harness with the name of the
/// test, cut to 15 characters.
const TESTS: &[&str] = &[
    "informer_leaves_no_thread_behind",
    "late_or_removed_handler_leaves_no_thread_behind",
    "unstarted_informer_has_no_threads",
    "driven_informer_has_no_threads",
    "several_namespaces_have_documented_threads_and_end",
    "one_thread_for_each_namespace_does_everything",
    "stop_ends_informer_promptly_in_each_phase",
    "factory_with_client_leaves_no_thread_behind",
    "controller_leaves_no_thread_behind",
    "idle_informer_has_documented_threads",
    "failed_thread_start_is_an_error",
    "names_with_nul_do_not_panic",
    "impossible_stack_size_is_an_error",
    "stack_size_has_a_minimum",
];

impl Drop for ExclusiveProcess {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.wait_until(<[_]>::is_empty);
        }
    }
}

fn list(names: &[&str]) -> Answer {
    list_in("", names)
}

fn list_in(namespace: &str, names: &[&str]) -> Answer {
    let item = |name: &&str| json!({ "metadata": { "namespace": namespace, "name": name, "resourceVersion": "1" } });
    let items: Vec<_> = names.iter().map(item).collect();
    Answer::body(
        json!({ "kind": "List", "metadata": { "resourceVersion": "10" }, "items": items })
            .to_string(),
    )
}

fn informer(script: &ScriptedListerWatcher, resync: Duration, clock: &FakeClock) -> Informer {
    informer_with(script, resync, clock, false)
}

fn informer_with(
    script: &ScriptedListerWatcher,
    resync: Duration,
    clock: &FakeClock,
    one_thread: bool,
) -> Informer {
    let mut options = SharedIndexInformerOptions::default();
    options.reflector.name = Some("pods".to_owned());
    options.reflector.clock = Arc::new(clock.clone());
    options.reflector.backoff = Backoff::new(Duration::from_secs(3600));
    options.reflector.resync_period = resync;
    options.one_thread = one_thread;
    Informer::new(Arc::new(script.clone()), options)
}

fn handler(informer: &Informer) -> HandlerRegistration {
    informer
        .add_event_handler(|handler| handler.on_add(|_, _| {}))
        .unwrap()
}

/// Runs the informer until `stop` is signalled. The returned channel receives the result of `run`.
fn run(informer: &Informer, stop: &Stop) -> mpsc::Receiver<Result<(), InformerError>> {
    let (end, ended) = mpsc::channel();
    let (informer, stop) = (informer.clone(), stop.clone());
    thread::Builder::new()
        .name("runs".to_owned())
        .spawn(move || end.send(informer.run(&stop)).unwrap())
        .unwrap();
    ended
}

#[test]
fn informer_leaves_no_thread_behind() {
    let _process = ExclusiveProcess::new();
    let script = ScriptedListerWatcher::new([list(&["a", "b"])]);
    let informer = informer(&script, Duration::from_secs(60), &FakeClock::new());
    for _ in 0..5 {
        handler(&informer);
    }
    let stop = Stopper::new();
    let ended = run(&informer, &stop);
    assert!(informer.synced().wait_timeout(SOON));
    stop.stop();
    ended.recv_timeout(STOP_LIMIT).unwrap().unwrap();
}

#[test]
fn late_or_removed_handler_leaves_no_thread_behind() {
    let process = ExclusiveProcess::new();
    let script = ScriptedListerWatcher::new([list(&["a", "b"])]);
    let informer = informer(&script, Duration::ZERO, &FakeClock::new());
    let stop = Stopper::new();
    let ended = run(&informer, &stop);
    assert!(informer.synced().wait_timeout(SOON));
    let handlers: Vec<_> = (0..10).map(|_| handler(&informer)).collect();
    process.wait_until(|threads| threads.len() >= 20);
    for handler in &handlers[1..] {
        informer.remove_event_handler(handler);
    }
    // Four threads remain: `runs`, the reflector, and two threads of the remaining handler.
    process.wait_until(|threads| threads.len() <= 4);
    stop.stop();
    ended.recv_timeout(STOP_LIMIT).unwrap().unwrap();
}

#[test]
fn unstarted_informer_has_no_threads() {
    let process = ExclusiveProcess::new();
    let script = ScriptedListerWatcher::new([]);
    let informer = informer(&script, Duration::from_secs(60), &FakeClock::new());
    let registration = handler(&informer);
    handler(&informer);
    informer.remove_event_handler(&registration);
    assert!(process.new_threads().is_empty());
    drop(informer);
}

#[test]
fn driven_informer_has_no_threads() {
    let process = ExclusiveProcess::new();
    let script = ScriptedListerWatcher::new([list(&["a"]), Answer::open("")]);
    let informer = informer(&script, Duration::from_secs(60), &FakeClock::new());
    let early = handler(&informer);
    let stop = Stopper::new();
    let mut drivers = informer.drivers(&stop).unwrap();
    let step = |drivers: &mut [Driver]| step_all(drivers, Duration::from_millis(1));
    while informer.status().state != ReflectorState::Watching {
        step(&mut drivers);
    }
    let late = handler(&informer);
    step(&mut drivers);
    assert!(early.has_synced() && late.has_synced());
    assert!(process.new_threads().is_empty());
    stop.stop();
    assert_eq!(step(&mut drivers), Progress::Ended);
    assert!(informer.ended().is_done());
}

#[test]
fn idle_informer_has_documented_threads() {
    let process = ExclusiveProcess::new();
    let (script, clock) = (ScriptedListerWatcher::new([list(&["a"])]), FakeClock::new());
    let informer = informer(&script, Duration::from_secs(60), &clock);
    handler(&informer);
    let stop = Stopper::new();
    let ended = run(&informer, &stop);
    script.wait_for_requests(2, SOON).unwrap();
    let names = ["handler-1 pop", "handler-1 run", "pods reflector", "runs"];
    process.wait_until(|threads| threads == names);
    stop.stop();
    ended.recv_timeout(STOP_LIMIT).unwrap().unwrap();
}

#[test]
fn several_namespaces_have_documented_threads_and_end() {
    let process = ExclusiveProcess::new();
    let script = |namespace| ScriptedListerWatcher::new([list_in(namespace, &["a", "b"])]);
    let scripts = ["blue", "green"].map(|namespace| (namespace, script(namespace)));
    let mut options = SharedIndexInformerOptions::default();
    options.reflector.name = Some("pods".to_owned());
    let sources = scripts
        .clone()
        .map(|(namespace, script)| (namespace.to_owned(), Arc::new(script) as _));
    let informer = Informer::for_namespaces(sources, options);
    // The channel is never read, so the handler waits for space.
    let (handler, channel) = ChannelHandler::new(1);
    let handler = informer.add_handler(handler).unwrap();
    let stop = Stopper::new();
    let ended = run(&informer, &stop);
    assert!(informer.synced().wait_timeout(SOON));
    for (_, script) in &scripts {
        script.wait_for_requests(2, SOON).unwrap();
    }
    let names = [
        "handler-1 pop",
        "handler-1 run",
        "pods in blue re",
        "pods in green p",
        "pods in green r",
        "runs",
    ];
    process.wait_until(|threads| threads == names && handler.stats().waiting > 0);
    stop.stop();
    ended.recv_timeout(STOP_LIMIT).unwrap().unwrap();
    assert!(
        channel.iter().count() <= 2,
        "the channel delivers its contents, then disconnects"
    );
}

#[test]
fn one_thread_for_each_namespace_does_everything() {
    let process = ExclusiveProcess::new();
    let sources = ["blue", "green"].map(|namespace| {
        let answers = [
            list_in(namespace, &["a"]),
            Answer::open(""),
            Answer::open(""),
        ];
        let script = ScriptedListerWatcher::new(answers);
        (namespace.to_owned(), Arc::new(script) as _)
    });
    let mut options = SharedIndexInformerOptions::default();
    options.reflector.name = Some("pods".to_owned());
    options.reflector.resync_period = Duration::from_secs(3600);
    options.one_thread = true;
    let informer = Informer::for_namespaces(sources, options);
    handler(&informer);
    let stop = Stopper::new();
    let ended = run(&informer, &stop);
    assert!(informer.synced().wait_timeout(SOON));
    let late = handler(&informer);
    assert!(late.synced().wait_timeout(SOON));
    let statuses = || informer.statuses().into_iter();
    let watches = || statuses().all(|(_, status)| status.state == ReflectorState::Watching);
    process.wait_until(|threads| threads == ["pods in green", "runs"] && watches());
    stop.stop();
    ended.recv_timeout(STOP_LIMIT).unwrap().unwrap();
}

#[test]
fn stop_ends_informer_promptly_in_each_phase() {
    let _process = ExclusiveProcess::new();
    type Answers = fn() -> Vec<Answer>;
    let phases: [(&str, Answers, ReflectorState); 5] = [
        (
            "before the head of the list",
            Vec::new,
            ReflectorState::Created,
        ),
        (
            "in the list",
            || vec![Answer::open(r#"{"items": [{"#)],
            ReflectorState::Listing,
        ),
        (
            "before the head of the watch",
            || vec![list(&["a"])],
            ReflectorState::Created,
        ),
        (
            "in the watch",
            || vec![list(&["a"]), Answer::open("")],
            ReflectorState::Watching,
        ),
        (
            "in a back-off",
            || vec![Answer::error(Error::other("no"))],
            ReflectorState::BackingOff,
        ),
    ];
    let runs = phases
        .iter()
        .flat_map(|phase| [(phase, false), (phase, true)]);
    for (&(phase, answers, state), one_thread) in runs {
        let answers = answers();
        let requests = answers.len().max(1);
        let (script, clock) = (ScriptedListerWatcher::new(answers), FakeClock::new());
        let informer = informer_with(&script, Duration::from_secs(60), &clock, one_thread);
        handler(&informer);
        let stop = Stopper::new();
        let ended = run(&informer, &stop);
        script.wait_for_requests(requests, SOON).unwrap();
        let deadline = Instant::now() + SOON;
        while state != ReflectorState::Created && informer.status().state != state {
            assert!(
                Instant::now() < deadline,
                "{phase}: {:?}",
                informer.status()
            );
            thread::yield_now();
        }
        stop.stop();
        ended.recv_timeout(STOP_LIMIT).expect(phase).unwrap();
        assert!(informer.is_stopped());
        assert_eq!(informer.status().state, ReflectorState::Stopped);
        if phase != "in a back-off" {
            assert!(
                informer.status().last_error.is_none(),
                "{phase}: {:?}",
                informer.status()
            );
        }
    }
    // A stop is also quick while many notifications wait for slow handlers.
    let names: Vec<String> = (0..3000).map(|n| format!("o{n}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    for one_thread in [false, true] {
        let script = ScriptedListerWatcher::new([list(&names)]);
        let informer = informer_with(&script, Duration::ZERO, &FakeClock::new(), one_thread);
        let (called, calls) = mpsc::channel();
        for _ in 0..4 {
            let called = called.clone();
            let slow = HandlerFuncs::new().on_add(move |_: &Arc<DynamicObject>, _| {
                let _ = called.send(());
                thread::sleep(Duration::from_millis(5));
            });
            informer.add_handler(slow).unwrap();
        }
        let stop = Stopper::new();
        let ended = run(&informer, &stop);
        calls.recv_timeout(SOON).unwrap();
        stop.stop();
        ended.recv_timeout(STOP_LIMIT).unwrap().unwrap();
    }
}

#[test]
fn controller_leaves_no_thread_behind() {
    let _process = ExclusiveProcess::new();
    let script = ScriptedListerWatcher::new([list(&["a"])]);
    let controller = Controller::new(ControllerConfig::new(
        Arc::new(DeltaFifo::<DynamicObject>::new(Accessor::object())),
        Arc::new(script),
        |_, _| Ok(()),
    ));
    let (stop, controller) = (Stopper::new(), Arc::new(controller));
    let (end, ended) = mpsc::channel();
    thread::spawn({
        let (controller, stop) = (Arc::clone(&controller), stop.clone());
        move || end.send(controller.run(&stop)).unwrap()
    });
    assert!(controller.synced().wait_timeout(SOON));
    stop.stop();
    ended.recv_timeout(STOP_LIMIT).unwrap().unwrap();
}

#[test]
fn factory_with_client_leaves_no_thread_behind() {
    let _process = ExclusiveProcess::new();
    let server = ApiServer::start().unwrap();
    for dropped in [false, true] {
        let client = Client::new(Config::new(server.url())).unwrap();
        let factory = SharedInformerFactory::with_options(
            client,
            FactoryOptions::new().resync_period(Duration::from_secs(60)),
        );
        let maps = factory.informer_for(Source::dynamic(GroupVersionResource::new(
            "",
            "v1",
            "configmaps",
        )));
        handler(&maps);
        handler(
            &factory.informer_for(Source::dynamic(GroupVersionResource::new(
                "", "v1", "secrets",
            ))),
        );
        let stop = Stopper::new();
        factory.start(&stop).unwrap();
        factory.wait_for_cache_sync(None, &stop).unwrap();
        handler(&maps);
        let began = Instant::now();
        if !dropped {
            factory.shut_down(None).unwrap();
            assert!(maps.is_stopped());
        }
        drop(factory);
        assert!(began.elapsed() < STOP_LIMIT, "{:?}", began.elapsed());
    }
}

#[test]
fn names_with_nul_do_not_panic() {
    let _process = ExclusiveProcess::new();
    let script = ScriptedListerWatcher::new([list(&["a"]), Answer::open("")]);
    let mut options = SharedIndexInformerOptions::default();
    options.reflector.name = Some("po\0ds".to_owned());
    options.reflector.resync_period = Duration::from_secs(60);
    let informer = Informer::new(Arc::new(script), options);
    let mut named = HandlerOptions::default();
    named.name = Some("a\0b".to_owned());
    let registration = informer
        .add_handler_with_options(HandlerFuncs::new(), named)
        .unwrap();
    let stop = Stopper::new();
    let ended = run(&informer, &stop);
    assert!(registration.synced().wait_timeout(SOON));
    stop.stop();
    ended.recv_timeout(STOP_LIMIT).unwrap().unwrap();
}

/// A source that returns the same script for every resource.
struct OneScript(ScriptedListerWatcher);

impl ListerWatcherSource for OneScript {
    fn lister_watcher(&self, _: &GroupVersionResource, _: Option<&str>) -> Arc<dyn ListerWatcher> {
        Arc::new(self.0.clone())
    }
}

/// Asserts that starts fail cleanly. Runs in a child process that cannot start threads, because
/// their stacks exceed the address space.
fn run_without_threads() {
    let script = ScriptedListerWatcher::new([]);
    for handlers in [0, 2] {
        let informer = informer(&script, Duration::ZERO, &FakeClock::new());
        for _ in 0..handlers {
            handler(&informer);
        }
        let error = informer.run(&Stop::never()).unwrap_err();
        assert!(matches!(error, InformerError::Thread { .. }), "{error}");
        assert!(informer.is_stopped() && informer.status().state == ReflectorState::Created);
        assert!(matches!(
            informer.run(&Stop::never()),
            Err(InformerError::AlreadyStarted { .. })
        ));
        assert!(informer.add_handler(HandlerFuncs::new()).is_err());
    }
    let server: Arc<dyn ListerWatcher> = Arc::new(script.clone());
    let sources = ["blue", "green"].map(|namespace| (namespace.to_owned(), Arc::clone(&server)));
    let informer = Informer::for_namespaces(sources, SharedIndexInformerOptions::default());
    assert!(matches!(
        informer.run(&Stop::never()),
        Err(InformerError::Thread { .. })
    ));
    drop(informer);
    assert_eq!(
        Arc::strong_count(&server),
        1,
        "the failed start keeps no reference"
    );
    let factory = SharedInformerFactory::new(OneScript(script.clone()));
    factory.informer_for(Source::dynamic(GroupVersionResource::new("", "v1", "pods")));
    let error = factory.start(&Stop::never()).unwrap_err();
    assert!(matches!(error, InformerError::Thread { .. }), "{error}");
    let error = factory
        .wait_for_cache_sync(None, &Stop::never())
        .unwrap_err();
    assert!(error.to_string().contains("not started"), "{error}");
    factory.shut_down(None).unwrap();
    let controller = Controller::new(ControllerConfig::new(
        Arc::new(DeltaFifo::<DynamicObject>::new(Accessor::object())),
        Arc::new(script),
        |_, _| Ok(()),
    ));
    assert!(matches!(
        controller.run(&Stop::never()),
        Err(InformerError::Thread { .. })
    ));
    println!("all thread starts failed cleanly");
}

#[test]
fn failed_thread_start_is_an_error() {
    // The child process runs this test alone.
    const CHILD: &str = "K8S_INFORMER_TEST_CHILD";
    if std::env::var_os(CHILD).is_some() {
        return run_without_threads();
    }
    let _process = ExclusiveProcess::new();
    let output = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "failed_thread_start_is_an_error",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(CHILD, "1")
        .env("RUST_MIN_STACK", (1_u64 << 50).to_string())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("all thread starts failed cleanly"),
        "{output:?}"
    );
}

#[test]
fn impossible_stack_size_is_an_error() {
    let _process = ExclusiveProcess::new();
    let kinds: [fn(&mut StackSizes) -> &mut Option<usize>; 3] = [
        |sizes| &mut sizes.reflector,
        |sizes| &mut sizes.handlers,
        |sizes| &mut sizes.others,
    ];
    for kind in kinds {
        for absurd in [usize::MAX, usize::MAX / 2, 1 << 50] {
            let mut options = SharedIndexInformerOptions::default();
            *kind(&mut options.reflector.stack_sizes) = Some(absurd);
            let script = ScriptedListerWatcher::new([]);
            let informer = Informer::new(Arc::new(script), options);
            let handler = informer.add_event_handler(|handler| handler).unwrap();
            let error = informer.run(&Stop::never()).unwrap_err();
            assert!(matches!(error, InformerError::Thread { .. }), "{error}");
            assert!(informer.is_stopped() && handler.ended().is_done());
        }
    }
    let mut sizes = StackSizes::default();
    sizes.others = Some(usize::MAX);
    let mut reflector = ReflectorOptions::default();
    reflector.stack_sizes = sizes;
    let server = ApiServer::start().unwrap();
    let client = Client::new(Config::new(server.url())).unwrap();
    let factory =
        SharedInformerFactory::with_options(client, FactoryOptions::new().reflector(reflector));
    factory.informer_for(Source::dynamic(GroupVersionResource::new("", "v1", "pods")));
    let error = factory.start(&Stop::never()).unwrap_err();
    assert!(matches!(error, InformerError::Thread { .. }), "{error}");
    factory.shut_down(None).unwrap();
}

#[test]
fn stack_size_has_a_minimum() {
    let _process = ExclusiveProcess::new();
    let server = ApiServer::start().unwrap();
    let path = |name: &str| format!("/api/v1/namespaces/{name}/pods");
    let pod = json!({"metadata": {"name": "web"}, "spec": {"containers": [{"name": "web", "image": "i"}]}});
    for namespace in ["a", "b"] {
        server.create(&path(namespace), pod.clone()).unwrap();
    }
    for size in [0, 16, 16 << 10] {
        let mut reflector = ReflectorOptions::default();
        reflector.stack_sizes.reflector = Some(size);
        reflector.stack_sizes.handlers = Some(size);
        reflector.stack_sizes.others = Some(size);
        let client = Client::new(Config::new(server.url())).unwrap();
        let factory = SharedInformerFactory::with_options(
            client,
            FactoryOptions::new()
                .scope(InformerScope::all().namespace("a").namespace("b"))
                .reflector(reflector),
        );
        let pods = factory.informer::<Pod>();
        let by_name = |pod: &Pod| vec![pod.name().to_owned()];
        pods.add_index("name", by_name).unwrap();
        let handler = pods
            .add_event_handler(|handler| handler.on_add(|pod, _| log::info!("{pod:?}")))
            .unwrap();
        factory.start(&Stop::never()).unwrap();
        assert!(handler.synced().wait_timeout(SOON));
        let patch = json!({"metadata": {"labels": {"size": size.to_string()}}});
        let patched = server.patch(&format!("{}/web", path("a")), patch).unwrap();
        let version = patched["metadata"]["resourceVersion"].as_str().unwrap();
        let patched: Pod = serde_json::from_value(patched.clone()).unwrap();
        assert_eq!(patched.resource_version(), version);
        pods.wait_for_object(&patched, SOON, &Stop::never())
            .unwrap();
        factory.shut_down(None).unwrap();
    }
}
