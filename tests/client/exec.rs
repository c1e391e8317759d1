//! Requests that wait for an exec plugin, and errors of plugins. For their credentials, see
//! `plugin`.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use k8s_informer::client::{ExecConfig, InteractiveMode, Request};
use k8s_informer::{Client, Config, Error, Stop, Stopper};

use super::folder::Folder;
use super::server::{SOON, Server};

/// The longest time that something immediate may take. This is generous for a loaded machine; it
/// usually takes far less than a millisecond.
const IMMEDIATE: Duration = Duration::from_secs(2);

const TOKEN: &str =
    r#"echo '{"apiVersion":"client.authentication.k8s.io/v1","status":{"token":"s3cret"}}'"#;

/// Returns a plugin that runs a script in the folder. The shell gets the script as text: a file
/// that was just written may be busy and cannot be executed then.
fn script(folder: &Folder, text: &str) -> ExecConfig {
    let text = format!("cd '{}'; {text}", folder.0.display());
    ExecConfig::new("sh")
        .args(["-c", &text])
        .interactive_mode(InteractiveMode::Never)
}

/// Creates a named pipe, and returns its path.
fn make_pipe(folder: &Folder, name: &str) -> PathBuf {
    let path = folder.0.join(name);
    let made = Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    path
}

/// Lets a script that reads a line from the pipe go on, now or later. The pipe is also opened for
/// reading, because opening it for writing blocks until the script reads. The line is lost with the
/// returned file.
fn open_gate(path: &Path) -> fs::File {
    let mut pipe = fs::OpenOptions::new();
    let mut pipe = pipe.read(true).write(true).open(path).unwrap();
    pipe.write_all(b"\n").unwrap();
    pipe
}

/// Creates a named pipe. The returned function waits for the first data in it.
fn named_pipe(folder: &Folder, name: &str) -> impl FnOnce() + use<> {
    let path = make_pipe(folder, name);
    let (sender, written) = channel();
    thread::spawn(move || sender.send(fs::read(path)));
    move || {
        drop(
            written
                .recv_timeout(SOON)
                .expect("the plugin did not start")
                .unwrap(),
        );
    }
}

fn get(client: &Client, stop: &Stop) -> Result<Vec<u8>, Error> {
    client.request(&Request::get("/version"), stop)?.bytes()
}

/// The number of times that a script has executed `echo >> runs`.
fn runs(folder: &Folder) -> usize {
    let runs = fs::read_to_string(folder.0.join("runs")).unwrap_or_default();
    runs.lines().count()
}

#[test]
fn stop_of_a_request_leaves_the_plugin_to_others() {
    let folder = Folder::new("exec-stop");
    let wait_for_start = named_pipe(&folder, "begun");
    let server = Server::answering("{}");
    let slow = format!("echo >> runs; echo > begun; read x < go; {TOKEN}");
    let gate = make_pipe(&folder, "go");
    let client = Client::new(Config::new(server.url()).exec(script(&folder, &slow))).unwrap();
    let stop = Stopper::new();
    thread::scope(|scope| {
        let stopped = scope.spawn(|| get(&client, &stop));
        wait_for_start();
        let other = scope.spawn(|| get(&client, &Stop::never()));
        let begun = Instant::now();
        stop.stop();
        let error = stopped.join().unwrap().unwrap_err();
        assert!(begun.elapsed() < IMMEDIATE, "{:?}", begun.elapsed());
        assert!(error.is_stopped(), "{error}");
        let _open = open_gate(&gate);
        other.join().unwrap().unwrap();
    });
    get(&client, &Stop::never()).unwrap();
    assert_eq!(runs(&folder), 1);
}

/// An elector ends each request after half the renew deadline, and clients have timeouts. A plugin
/// that takes longer must not start again and again.
#[test]
fn plugin_that_outlasts_each_request_runs_once() {
    let folder = Folder::new("exec-slow");
    let wait_for_start = named_pipe(&folder, "begun");
    let gate = make_pipe(&folder, "go");
    let server = Server::answering("{}");
    let slow = format!("echo >> runs; echo > begun; read x < go; {TOKEN}");
    let client = Client::new(Config::new(server.url()).exec(script(&folder, &slow))).unwrap();
    let mut wait_for_start = Some(wait_for_start);
    for _ in 0..3 {
        let stop = Stopper::new();
        thread::scope(|scope| {
            let request = scope.spawn(|| get(&client, &stop));
            if let Some(wait) = wait_for_start.take() {
                wait();
            }
            stop.stop();
            assert!(request.join().unwrap().unwrap_err().is_stopped());
        });
    }
    let _open = open_gate(&gate);
    get(&client, &Stop::never()).unwrap();
    assert_eq!(runs(&folder), 1);
}

#[cfg(target_os = "linux")]
#[test]
fn last_client_ends_the_run_of_its_plugin() {
    let folder = Folder::new("exec-last-client");
    let wait_for_start = named_pipe(&folder, "begun");
    let hangs = "echo $$ > pid; echo > begun; exec sleep 60";
    let config = Config::new("http://127.0.0.1:1").exec(script(&folder, hangs).time_limit(None));
    let client = Client::new(config).unwrap();
    let stop = Stopper::new();
    thread::scope(|scope| {
        let request = scope.spawn(|| get(&client, &stop));
        wait_for_start();
        stop.stop();
        assert!(request.join().unwrap().unwrap_err().is_stopped());
    });
    let pid = fs::read_to_string(folder.0.join("pid")).unwrap();
    // A zombie still has an entry.
    let process = PathBuf::from("/proc").join(pid.trim());
    let clone = client.clone();
    drop(client);
    assert!(process.exists());
    drop(clone);
    wait_until("the plugin still runs", || !process.exists());
}

#[test]
fn concurrent_requests_share_one_plugin_run() {
    let folder = Folder::new("exec-once");
    let server = Server::answering("{}");
    let plugin = script(&folder, &format!("echo >> runs; {TOKEN}"));
    let client = Client::new(Config::new(server.url()).exec(plugin)).unwrap();
    thread::scope(|scope| {
        let requests: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| get(&client, &Stop::never())))
            .collect();
        requests
            .into_iter()
            .for_each(|request| drop(request.join().unwrap().unwrap()));
    });
    assert_eq!(runs(&folder), 1);
}

#[test]
fn plugin_failure_is_reported_without_its_output() {
    let folder = Folder::new("exec-failures");
    let plugin = |text| script(&folder, text).env("TOKEN", "s3cret");
    for (plugin, expected) in [
        (
            ExecConfig::new("k8s-informer-no-such-plugin").install_hint("brew install it"),
            r#"exec plugin "k8s-informer-no-such-plugin": there is no executable of this name in PATH; brew install it"#,
        ),
        (
            plugin("echo s3cret; exit 73"),
            r#"exec plugin "sh" failed with exit code 73"#,
        ),
        (
            plugin("echo '{s3cret'"),
            r#"exec plugin "sh" returned invalid JSON at line 1, column 2"#,
        ),
        (
            plugin(
                r#"echo '{"apiVersion":"client.authentication.k8s.io/v1beta1","status":{"token":"s3cret"}}'"#,
            ),
            "exec plugin \"sh\" is configured to use apiVersion client.authentication.k8s.io/v1, \
             but returned client.authentication.k8s.io/v1beta1",
        ),
        (
            plugin("exec sleep 60").time_limit(Duration::from_millis(100)),
            r#"exec plugin "sh" did not exit in time and was killed: the limit is 100ms"#,
        ),
    ] {
        let client = Client::new(Config::new("http://127.0.0.1:1").exec(plugin)).unwrap();
        let error = get(&client, &Stop::never()).unwrap_err();
        assert!(error.is_credentials() || error.is_timeout(), "{error:?}");
        assert!(
            error
                .to_string()
                .starts_with("GET http://127.0.0.1:1/version: "),
            "{error}"
        );
        assert!(error.to_string().ends_with(expected), "{error}");
        assert!(
            !format!("{error} {error:?} {client:?}").contains("s3cret"),
            "{error:?}"
        );
    }
    let config = Config::new("http://127.0.0.1:1").exec(plugin("s3cret"));
    assert!(!format!("{config:?}").contains("s3cret"), "{config:?}");
    let error =
        Client::new(config.exec(ExecConfig::new("aws").api_version("v1alpha1"))).unwrap_err();
    assert!(
        error.is_config() && error.to_string().contains(r#"the apiVersion "v1alpha1""#),
        "{error}"
    );
}

/// The pipe and the thread of a run are released soon after the run fails or is stopped.
#[cfg(target_os = "linux")]
#[test]
fn plugin_with_child_holding_its_output_leaks_nothing() {
    let folder = Folder::new("exec-leak");
    let plugin = "exec 3>&1; readlink /proc/$$/fd/3 >> pipes; sleep 60 & echo $! >> pids";
    let plugin = script(&folder, plugin).time_limit(Duration::from_secs(1));
    let client = Client::new(Config::new("http://127.0.0.1:1").exec(plugin)).unwrap();
    for _ in 0..3 {
        let error = get(&client, &Stop::never()).unwrap_err();
        assert!(
            error.is_timeout() && error.to_string().contains("still holds its output"),
            "{error}"
        );
    }
    // Nor does a run whose client is dropped.
    let (stop, runs) = (Stopper::new(), || {
        fs::read_to_string(folder.0.join("pids")).unwrap_or_default()
    });
    thread::scope(|scope| {
        let stopped = scope.spawn(|| get(&client, &stop));
        wait_until("the plugin did not start", || runs().lines().count() == 4);
        stop.stop();
        assert!(stopped.join().unwrap().unwrap_err().is_stopped());
    });
    drop(client);
    let pipes = fs::read_to_string(folder.0.join("pipes")).unwrap();
    assert!(
        pipes.lines().count() == 4 && pipes.lines().all(|pipe| pipe.starts_with("pipe:")),
        "{pipes}"
    );
    wait_until("a descriptor leaked", || {
        let files = fs::read_dir("/proc/self/fd")
            .unwrap()
            .filter_map(|file| fs::read_link(file.ok()?.path()).ok());
        files
            .filter(|file| pipes.lines().any(|pipe| file.as_os_str() == pipe))
            .count()
            == 0
    });
    // Poll, because other tests may have plugin threads. Those threads end soon.
    wait_until("a thread leaked", || {
        let tasks = fs::read_dir("/proc/self/task").unwrap();
        let mut names =
            tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
        !names.any(|name| name.starts_with("k8s-informer ex"))
    });
    for pid in fs::read_to_string(folder.0.join("pids")).unwrap().lines() {
        Command::new("kill").arg(pid).status().unwrap();
    }
}

#[test]
fn plugin_may_write_to_dev_stdout() {
    let folder = Folder::new("exec-by-name");
    let server = Server::answering("{}");
    let plugin = script(&folder, &format!("{{ {TOKEN}; }} > /dev/stdout"));
    get(
        &Client::new(Config::new(server.url()).exec(plugin)).unwrap(),
        &Stop::never(),
    )
    .unwrap();
    assert!(
        server
            .request()
            .to_ascii_lowercase()
            .contains("authorization: bearer s3cret")
    );
}

fn wait_until(problem: &str, happened: impl Fn() -> bool) {
    let deadline = Instant::now() + SOON;
    while !happened() {
        assert!(Instant::now() < deadline, "{problem}");
        thread::yield_now();
    }
}
