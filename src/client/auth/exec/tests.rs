//! Tests with shell scripts as plugins. The scripts are passed to `sh`: a file that was just
//! written can't be executed while another test starts a process ("text file busy").

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use serde_json::{Value, json};

use super::*;

/// An upper bound for everything that must happen eventually.
const SOON: Duration = Duration::from_secs(20);

/// A bound for the reaction to a stop, which usually takes far less than a millisecond. It is
/// generous because the machine may be loaded.
const AT_ONCE: Duration = Duration::from_secs(2);

const TOKEN: &str = r#"echo '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{"token":"s3cret"}}'"#;

/// A temporary directory, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("k8s-informer-exec-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// The number of times the script has executed `echo >> runs`.
    fn runs(&self) -> usize {
        fs::read_to_string(self.0.join("runs"))
            .unwrap_or_default()
            .lines()
            .count()
    }

    /// Creates a named pipe. A script that opens it for writing blocks until the test reads it.
    fn pipe(&self, name: &str) {
        assert!(
            Command::new("mkfifo")
                .arg(self.0.join(name))
                .status()
                .unwrap()
                .success()
        );
    }

    /// Reads what the script writes to the pipe.
    fn read(&self, name: &str) -> String {
        let (sender, read) = channel();
        let path = self.0.join(name);
        thread::spawn(move || sender.send(fs::read_to_string(path).unwrap()));
        read.recv_timeout(SOON)
            .expect("the script wrote nothing to the pipe")
            .trim()
            .to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A plugin that runs a script in the directory.
fn script(folder: &Folder, text: &str) -> ExecConfig {
    let text = format!("cd '{}'; {text}", folder.0.display());
    ExecConfig::new("sh")
        .args(["-c", &text])
        .interactive_mode(InteractiveMode::Never)
}

fn plugin(config: &ExecConfig) -> Plugin {
    Plugin::new(config, ClusterInfo::default(), None).unwrap()
}

fn token(plugin: &Plugin) -> Result<String, String> {
    let credential = plugin
        .credential(&Stop::never())
        .map_err(|error| error.to_string())?;
    Ok(credential.token.as_ref().unwrap().0.clone())
}

/// The error message of a failing script.
fn failure(script: &ExecConfig) -> String {
    let error = plugin(script).credential(&Stop::never()).unwrap_err();
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains("s3cret"), "{shown}");
    error.to_string()
}

fn wait_until(condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < SOON, "the condition was not met in time");
        thread::yield_now();
    }
}

/// Waits until the process is gone. A zombie still has an entry in `/proc`.
#[cfg(target_os = "linux")]
fn wait_until_gone(pid: &str) {
    wait_until(|| !PathBuf::from("/proc").join(pid).exists());
}

#[test]
fn plugin_runs_once_while_token_is_valid() {
    let folder = Folder::new("once");
    let plugin = plugin(&script(&folder, &format!("echo >> runs; {TOKEN}")));
    assert_eq!(folder.runs(), 0, "the plugin ran before the first use");
    for _ in 0..3 {
        assert_eq!(token(&plugin).unwrap(), "s3cret");
    }
    assert_eq!(folder.runs(), 1);
    let shown = format!("{:?}", plugin.credential(&Stop::never()));
    assert!(!shown.contains("s3cret"), "{shown}");
}

#[test]
fn expired_token_reruns_plugin() {
    let folder = Folder::new("expired");
    let config = script(
        &folder,
        r#"echo >> runs; echo "{\"apiVersion\":\"client.authentication.k8s.io/v1\",
            \"status\":{\"token\":\"$(wc -l < runs | tr -d ' ')\",\"expirationTimestamp\":\"1970-01-01T01:00:0$(wc -l < runs | tr -d ' ')Z\"}}""#,
    );
    let now = Arc::new(Mutex::new(UNIX_EPOCH));
    let clock = now.clone();
    let host = Host {
        now: Box::new(move || *clock.lock()),
        is_terminal: || false,
    };
    let plugin = Plugin::with_host(host, &config, ClusterInfo::default(), None).unwrap();
    let at = |seconds| {
        *now.lock() = UNIX_EPOCH + Duration::from_secs(3600) + Duration::from_millis(seconds);
    };
    assert_eq!(token(&plugin).unwrap(), "1");
    at(1000);
    assert_eq!(
        token(&plugin).unwrap(),
        "1",
        "the token is valid up to its expiry"
    );
    at(1001);
    assert_eq!(token(&plugin).unwrap(), "2");
    at(9000);
    // A credential that is already expired is returned to its caller, but not used again.
    assert_eq!(token(&plugin).unwrap(), "3");
    assert_eq!(token(&plugin).unwrap(), "4");
}

#[test]
fn rejected_credential_reruns_plugin_once() {
    let folder = Folder::new("rejected");
    let plugin = plugin(&script(&folder, &format!("echo >> runs; {TOKEN}")));
    let first = plugin.credential(&Stop::never()).unwrap();
    plugin.reject(&first);
    plugin.reject(&first);
    assert_eq!(folder.runs(), 1, "the plugin ran again before the next use");
    let second = plugin.credential(&Stop::never()).unwrap();
    assert_eq!(folder.runs(), 2);
    plugin.reject(&first);
    assert!(Arc::ptr_eq(
        &second,
        &plugin.credential(&Stop::never()).unwrap()
    ));
    assert_eq!(folder.runs(), 2);
}

#[test]
fn concurrent_callers_share_one_plugin_run() {
    let folder = Folder::new("concurrent");
    folder.pipe("started");
    let plugin = plugin(&script(
        &folder,
        &format!("echo >> runs; echo > started; {TOKEN}"),
    ));
    let credentials: Vec<_> = thread::scope(|scope| {
        let callers: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| plugin.credential(&Stop::never())))
            .collect();
        folder.read("started");
        callers
            .into_iter()
            .map(|caller| caller.join().unwrap().unwrap())
            .collect()
    });
    assert!(
        credentials
            .iter()
            .all(|credential| Arc::ptr_eq(credential, &credentials[0]))
    );
    assert_eq!(folder.runs(), 1);
}

#[test]
fn stop_ends_a_wait_and_later_calls_get_the_credential() {
    let folder = Folder::new("next");
    folder.pipe("started");
    folder.pipe("go");
    let text = format!("echo >> runs; echo > started; read x < go; {TOKEN}");
    let plugin = plugin(&script(&folder, &text));
    let (first, second) = (Stopper::new(), Stopper::new());
    thread::scope(|scope| {
        let starter = scope.spawn(|| plugin.credential(&first));
        folder.read("started");
        let waiter = scope.spawn(|| plugin.credential(&second));
        for (stop, call) in [(&first, starter), (&second, waiter)] {
            let begun = Instant::now();
            stop.stop();
            assert!(call.join().unwrap().unwrap_err().is_stopped());
            assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
        }
        let later = scope.spawn(|| token(&plugin));
        fs::write(folder.0.join("go"), "").unwrap();
        assert_eq!(later.join().unwrap().unwrap(), "s3cret");
    });
    assert!(plugin.credential(&first).is_ok());
    assert_eq!(folder.runs(), 1);
}

#[test]
fn plugin_failure_reaches_all_waiters_and_next_call_reruns() {
    let folder = Folder::new("failure");
    let config = script(&folder, "echo >> runs; echo s3cret; exit 73");
    assert!(
        failure(&config).ends_with(r#"credentials: exec plugin "sh" failed with exit code 73"#)
    );
    let failing = plugin(&config);
    assert!(token(&failing).is_err() && token(&failing).is_err());
    assert_eq!(folder.runs(), 3);

    folder.pipe("go");
    let plugin = plugin(&script(&folder, "echo >> runs; read x < go; exit 1"));
    thread::scope(|scope| {
        let callers: Vec<_> = (0..4).map(|_| scope.spawn(|| token(&plugin))).collect();
        // All four callers share one run: each holds a reference, and so do the plugin and the
        // thread of the run.
        wait_until(|| {
            plugin
                .shared
                .state
                .lock()
                .run
                .as_ref()
                .is_some_and(|run| Arc::strong_count(run) == 6)
        });
        fs::write(folder.0.join("go"), "").unwrap();
        assert!(
            callers
                .into_iter()
                .all(|caller| caller.join().unwrap().is_err())
        );
    });
    assert_eq!(folder.runs(), 4);
}

#[cfg(target_os = "linux")]
#[test]
fn dropped_plugin_kills_its_run_and_leaves_no_zombie() {
    for (name, hang) in [
        ("silent", "exec sleep 60"),
        ("closed", "exec >&-; exec sleep 60"),
    ] {
        let folder = Folder::new(name);
        folder.pipe("pid");
        let plugin = plugin(&script(&folder, &format!("echo $$ > pid; {hang}")).time_limit(None));
        let stop = Stopper::new();
        let pid = thread::scope(|scope| {
            let caller = scope.spawn(|| plugin.credential(&stop));
            let pid = folder.read("pid");
            stop.stop();
            let error = caller.join().unwrap().unwrap_err();
            assert!(error.is_stopped(), "{error}");
            pid
        });
        assert!(plugin.credential(&stop).unwrap_err().is_stopped());
        assert!(PathBuf::from("/proc").join(&pid).exists(), "still running");
        drop(plugin);
        wait_until_gone(&pid);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn hanging_plugin_is_killed_at_time_limit() {
    let limit = Duration::from_millis(200);
    for (name, hang) in [
        ("late-silent", "exec sleep 60"),
        ("late-closed", "exec >&-; exec sleep 60"),
    ] {
        let folder = Folder::new(name);
        let plugin = plugin(&script(&folder, &format!("echo $$ > pid; {hang}")).time_limit(limit));
        let error = plugin.credential(&Stop::never()).unwrap_err();
        assert!(error.is_timeout(), "{error:?}");
        let expected =
            r#"exec plugin "sh" did not exit in time and was killed: the limit is 200ms"#;
        assert_eq!(error.to_string(), expected);
        if let Ok(pid) = fs::read_to_string(folder.0.join("pid")) {
            wait_until_gone(pid.trim());
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn background_process_does_not_extend_time_limit() {
    let folder = Folder::new("grandchild");
    folder.pipe("end");
    // The background process sleeps until this test opens the pipe.
    let config = script(&folder, &format!("{{ read x < end; }} & {TOKEN}"));
    let error = plugin(&config.time_limit(Duration::from_millis(500)))
        .credential(&Stop::never())
        .unwrap_err();
    assert!(error.is_timeout(), "{error}");
    assert!(
        error
            .to_string()
            .contains("a process that it started still holds its output"),
        "{error}"
    );
    drop(
        fs::OpenOptions::new()
            .write(true)
            .open(folder.0.join("end"))
            .unwrap(),
    );
}

#[test]
fn output_above_limit_is_rejected() {
    let folder = Folder::new("huge");
    let endless = script(&folder, "exec yes s3cret");
    assert_eq!(
        failure(&endless),
        r#"credentials: exec plugin "sh" returned more than 1048576 bytes"#
    );
    let most = script(
        &folder,
        &format!("{TOKEN}; head -c 1000000 /dev/zero | tr '\\0' ' '"),
    );
    assert_eq!(token(&plugin(&most)).unwrap(), "s3cret");
}

#[test]
fn unusable_plugin_output_error_names_the_cause() {
    let folder = Folder::new("garbage");
    for (text, expected) in [
        ("true", r#"credentials: exec plugin "sh" returned nothing"#),
        (
            "echo '{ s3cret'",
            r#"credentials: exec plugin "sh" returned invalid JSON at line 1, column 3"#,
        ),
        (
            "kill -9 $$",
            r#"credentials: exec plugin "sh" was terminated by a signal: 9 (SIGKILL)"#,
        ),
    ] {
        assert_eq!(failure(&script(&folder, text)), expected);
    }
    let beta = script(&folder, TOKEN).api_version("client.authentication.k8s.io/v1beta1");
    assert_eq!(
        failure(&beta),
        "credentials: exec plugin \"sh\" is configured to use apiVersion client.authentication.k8s.io/v1beta1, but returned \
         client.authentication.k8s.io/v1"
    );
}

#[test]
fn missing_command_error_contains_install_hint() {
    for command in [
        "k8s-informer-no-such-plugin",
        "/no/such/k8s-informer-plugin",
        "/tmp",
        "/etc/passwd",
    ] {
        let config = ExecConfig::new(command).args(["s3cret"]).env("A", "s3cret");
        let problem = match command.contains('/') {
            true => "there is no executable at this path",
            false => "there is no executable of this name in PATH",
        };
        let expected = format!("credentials: exec plugin {command:?}: {problem}");
        assert_eq!(failure(&config), expected);
        let hinted = config.install_hint("brew install it,\nand \u{1b}[31mlog in\n");
        assert_eq!(
            failure(&hinted),
            format!("{expected}; brew install it, and \\u{{1b}}[31mlog in")
        );
    }
}

#[test]
fn invalid_exec_configs_are_rejected() {
    let refused = |config: ExecConfig| {
        let plugin = Plugin::new(&config, ClusterInfo::default(), None);
        let error = plugin.err().unwrap();
        assert!(error.is_config());
        error.to_string()
    };
    assert_eq!(
        refused(ExecConfig::new("")),
        "configuration: an exec plugin has no command"
    );
    let gone =
        " (Kubernetes has removed v1alpha1: regenerate the kubeconfig with the tool that wrote it)";
    for (version, advice) in [
        ("", ""),
        ("v1", ""),
        ("client.authentication.k8s.io/v1alpha1", gone),
    ] {
        let expected = format!(
            "configuration: exec plugin \"aws\": the apiVersion {version:?} is not supported; \
             use client.authentication.k8s.io/v1 or client.authentication.k8s.io/v1beta1{advice}"
        );
        assert_eq!(
            refused(ExecConfig::new("aws").api_version(version)),
            expected
        );
    }
    let nameless = refused(ExecConfig::new("aws").env("", "s3cret"));
    assert_eq!(
        nameless,
        "configuration: exec plugin \"aws\": an environment variable has no name"
    );
    // The system rejects these commands without a panic.
    for config in [
        ExecConfig::new("sh").env("A\0", "s3cret"),
        ExecConfig::new("sh").args(["s3cret\0"]),
    ] {
        assert!(
            failure(&config).starts_with("credentials: exec plugin \"sh\" can't be run: "),
            "{}",
            failure(&config)
        );
    }
}

/// Runs the plugin and returns the `KUBERNETES_EXEC_INFO` that it received.
fn exec_info(
    folder: &Folder,
    config: ExecConfig,
    is_terminal: fn() -> bool,
) -> Result<Value, String> {
    let host = Host {
        now: Box::new(SystemTime::now),
        is_terminal,
    };
    let cluster = ClusterInfo {
        server: "https://api:6443".to_owned(),
        ..ClusterInfo::default()
    };
    let plugin = Plugin::with_host(host, &config, cluster, None).unwrap();
    token(&plugin)?;
    Ok(serde_json::from_slice(&fs::read(folder.0.join("exec_info")).unwrap()).unwrap())
}

#[test]
fn exec_info_has_cluster_and_interactive_flag() {
    let folder = Folder::new("exec_info");
    let config = script(
        &folder,
        &format!("printf %s \"$KUBERNETES_EXEC_INFO\" > exec_info; {TOKEN}"),
    );
    let plain = |interactive| {
        json!({
            "kind": "ExecCredential",
            "apiVersion": "client.authentication.k8s.io/v1",
            "spec": {"interactive": interactive},
        })
    };
    let terminal: fn() -> bool = || true;
    let no_terminal: fn() -> bool = || false;
    for (mode, is_terminal, interactive) in [
        (InteractiveMode::Never, terminal, false),
        (InteractiveMode::IfAvailable, terminal, true),
        (InteractiveMode::IfAvailable, no_terminal, false),
        (InteractiveMode::Always, terminal, true),
    ] {
        let config = config.clone().interactive_mode(mode);
        assert_eq!(
            exec_info(&folder, config, is_terminal).unwrap(),
            plain(interactive),
            "{mode:?}"
        );
    }
    let error = exec_info(
        &folder,
        config.clone().interactive_mode(InteractiveMode::Always),
        no_terminal,
    );
    assert!(
        error
            .unwrap_err()
            .contains("but standard input is not a terminal")
    );

    let config = config.cluster_config(json!({"audience": "snorlax"}));
    assert_eq!(
        exec_info(&folder, config.clone(), no_terminal).unwrap(),
        plain(false),
        "without provide_cluster_info, no cluster is sent"
    );
    let exec_info = exec_info(&folder, config.provide_cluster_info(true), no_terminal).unwrap();
    let cluster = json!({"server": "https://api:6443", "config": {"audience": "snorlax"}});
    assert_eq!(exec_info["spec"]["cluster"], cluster);
}

#[test]
fn noninteractive_plugin_has_empty_stdin() {
    let folder = Folder::new("input");
    assert_eq!(
        token(&plugin(&script(&folder, &format!("cat && {TOKEN}")))).unwrap(),
        "s3cret"
    );
}

#[test]
fn plugin_environment_is_merged_and_last_value_wins() {
    let folder = Folder::new("environment");
    let text = format!(
        "echo \"$A $B $PATH\" > seen; printf %s \"$KUBERNETES_EXEC_INFO\" | head -c 7 >> seen; {TOKEN}"
    );
    let config = script(&folder, &text)
        .env("A", "1")
        .env("A", "2")
        .env("B", "x=y z")
        .env("KUBERNETES_EXEC_INFO", "ours");
    assert_eq!(token(&plugin(&config)).unwrap(), "s3cret");
    let seen = fs::read_to_string(folder.0.join("seen")).unwrap();
    let path = std::env::var("PATH").unwrap();
    assert_eq!(seen, format!("2 x=y z {path}\n{{\"kind\""));
    // The command is looked up in the `PATH` of this process.
    assert_eq!(
        token(&plugin(&script(&folder, TOKEN).env("PATH", "/nowhere"))).unwrap(),
        "s3cret"
    );
}

#[test]
fn default_time_limit_is_60_s_but_none_if_interactive() {
    assert_eq!(ExecConfig::DEFAULT_TIME_LIMIT, Duration::from_secs(60));
    let limit =
        |config: &ExecConfig, interactive| limit(config, interactive).map(|limit| limit.as_secs());
    let config = ExecConfig::new("aws");
    assert_eq!(
        (limit(&config, false), limit(&config, true)),
        (Some(60), None)
    );
    let config = config.time_limit(Duration::from_secs(5));
    assert_eq!(
        (limit(&config, false), limit(&config, true)),
        (Some(5), Some(5))
    );
    assert_eq!(limit(&config.time_limit(None), false), None);
}
