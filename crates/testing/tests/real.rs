//! `RealApiServer` without its programs, or with other ones. The end-to-end tests run it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use k8s_informer_testing::RealApiServer;

/// A folder with scripts in place of the programs.
struct Programs(PathBuf);

impl Programs {
    fn new(name: &str, etcd: &str, apiserver: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        for (program, script) in [("etcd", etcd), ("kube-apiserver", apiserver)] {
            let path = folder.join(program);
            fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self(folder)
    }

    /// Returns the error of a start that fails.
    fn start(&self, timeout: Duration) -> String {
        let builder = RealApiServer::builder().assets(&self.0);
        let started = builder.start_timeout(timeout).start();
        started.unwrap_err().to_string()
    }

    /// Returns the text that a script has written into a file of the folder.
    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.0.join(file)).unwrap()
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const LONG: Duration = Duration::from_secs(60);

/// Waits forever, without another process.
const HANG: &str = "echo waiting; exec tail -f /dev/null";

#[test]
fn missing_programs_say_how_to_get_them() {
    let error = RealApiServer::builder()
        .assets("/nowhere")
        .start()
        .unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    assert_eq!(
        error.to_string(),
        "can't start etcd: there is no file /nowhere/etcd; to get it, run \
         `go install sigs.k8s.io/controller-runtime/tools/setup-envtest@latest` and \
         `export KUBEBUILDER_ASSETS=$(setup-envtest use -p path)`"
    );
}

#[test]
fn variables_name_the_programs_as_in_envtest() {
    /// Runs `report_programs` in an environment, and returns its report.
    fn report(variables: &[(&str, &str)]) -> String {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "real::report_programs", "--nocapture"]);
        for name in [
            "KUBEBUILDER_ASSETS",
            "TEST_ASSET_ETCD",
            "TEST_ASSET_KUBE_APISERVER",
        ] {
            command.env_remove(name);
        }
        let output = command
            .env("REPORT_PROGRAMS", "1")
            .envs(variables.iter().copied())
            .output();
        let text = String::from_utf8(output.unwrap().stdout).unwrap();
        let report = text.lines().find_map(|line| line.split_once("report: "));
        report.unwrap().1.to_owned()
    }
    let existing = env!("CARGO_MANIFEST_DIR").to_owned() + "/Cargo.toml";
    let (assets, etcd, apiserver) = (
        "KUBEBUILDER_ASSETS",
        "TEST_ASSET_ETCD",
        "TEST_ASSET_KUBE_APISERVER",
    );
    for (variables, expected) in [
        (
            &[][..],
            "false can't start etcd: neither TEST_ASSET_ETCD nor KUBEBUILDER_ASSETS is set",
        ),
        (
            &[(assets, ""), (etcd, "")],
            "false can't start etcd: neither TEST_ASSET_ETCD nor KUBEBUILDER_ASSETS is set",
        ),
        (
            &[(etcd, &existing)],
            "false can't start kube-apiserver: neither TEST_ASSET_KUBE_APISERVER nor KUBEBUILDER_ASSETS is set",
        ),
        (
            &[(assets, "/a")],
            "true can't start etcd: there is no file /a/etcd",
        ),
        (
            &[(assets, "/a"), (etcd, "/b/e")],
            "true can't start etcd: there is no file /b/e",
        ),
        (
            &[(assets, "/a"), (etcd, &existing)],
            "true can't start kube-apiserver: there is no file /a/kube-apiserver",
        ),
        (
            &[(etcd, "/b/e"), (apiserver, "/b/k")],
            "true can't start etcd: there is no file /b/e",
        ),
    ] {
        assert_eq!(report(variables), expected, "{variables:?}");
    }
}

/// A part of the test above.
#[test]
fn report_programs() {
    if std::env::var_os("REPORT_PROGRAMS").is_some() {
        let error = RealApiServer::start().unwrap_err().to_string();
        let (error, _) = error.split_once("; to get it").unwrap();
        println!("\nreport: {} {error}", RealApiServer::is_configured());
    }
}

#[test]
fn program_that_ends_is_an_error_with_its_log() {
    let lines = "for n in 1 2 3 4 5 6; do echo line $n; done; exit 3";
    let programs = Programs::new("real-ends", HANG, lines);
    assert_eq!(
        programs.start(LONG),
        "kube-apiserver has ended (exit status: 3); the last lines of its log:\
         \nline 2\nline 3\nline 4\nline 5\nline 6"
    );
    let programs = Programs::new("real-silent", "exit 0", HANG);
    assert_eq!(
        programs.start(LONG),
        "etcd has ended (exit status: 0); the last lines of its log:\n"
    );
}

#[test]
fn program_that_can_not_run_is_an_error() {
    let programs = Programs::new("real-no-program", HANG, "");
    let path = programs.0.join("kube-apiserver");
    fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    let error = programs.start(LONG);
    assert!(
        error.starts_with("kube-apiserver has ended (exit status: 126)"),
        "{error}"
    );
    assert!(error.contains("ermission denied"), "{error}");
}

#[test]
fn start_that_hangs_ends_after_its_limit() {
    let here = "pwd > \"${0%/*}/cwd\"; echo $$ > \"${0%/*}/pid\"";
    let programs = Programs::new("real-hangs", HANG, &format!("{here}; {HANG}"));
    assert_eq!(
        programs.start(Duration::from_millis(500)),
        "kube-apiserver is not ready after 500ms; the last lines of its log:\nwaiting"
    );
    let (folder, pid) = (programs.read("cwd"), programs.read("pid"));
    assert!(
        folder.contains("k8s-informer-") && !Path::new(folder.trim()).exists(),
        "{folder}"
    );
    assert!(
        !Path::new("/proc").join(pid.trim()).exists(),
        "the process {pid} is running"
    );
}

#[test]
fn taken_port_is_retried_with_other_ports() {
    let taken =
        "head -c 500 etcd.yaml | tr '\\n' ' ' >> \"${0%/*}/ports\"; echo >> \"${0%/*}/ports\"
        echo listen tcp 127.0.0.1: bind: address already in use; exit 1";
    let programs = Programs::new("real-ports", taken, HANG);
    let error = programs.start(LONG);
    assert!(error.ends_with("bind: address already in use"), "{error}");
    let ports = programs.read("ports");
    let mut configs: Vec<_> = ports.lines().collect();
    assert_eq!(configs.len(), 3, "{ports}");
    configs.sort_unstable();
    configs.dedup();
    assert_eq!(configs.len(), 3, "each start has other ports: {ports}");
}
