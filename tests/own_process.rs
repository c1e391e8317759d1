//! Tests that need a process to themselves, without a binary to themselves.

use std::process::Command;

/// The test that a child process runs.
const CHILD: &str = "TEST_IN_OWN_PROCESS";

/// Returns `true` in a process that runs only this test. In the process of all tests, runs the test in such a
/// process, panics if it fails, and returns `false`.
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
