//! Runs a test in its own process. The test needs no binary of its own.

use std::process::Command;

/// The environment variable that names the test of a child process.
const CHILD: &str = "TEST_IN_OWN_PROCESS";

/// Returns `true` in a child process that runs only this test. In the main test process, runs the
/// test in a child process, panics if it fails, and returns `false`.
///
/// `module` is the test's `module_path!()`.
#[track_caller]
pub(crate) fn is_alone(module: &str, test: &str) -> bool {
    let (_, module) = module.split_once("::").unwrap();
    let test = format!("{module}::{test}");
    if std::env::var(CHILD).is_ok_and(|child| child == test) {
        return true;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", &test, "--nocapture"])
        .env(CHILD, &test);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    false
}
