//! Runs rustc on small programs against the libraries that were built for the tests.

use std::cmp::Reverse;
use std::env;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Returns the compiler errors of a program with the most recent build of the library that contains
/// what the program uses. Otherwise, the errors are the same with every build.
fn errors(library: &str, program: &str) -> String {
    let test = env::current_exe().unwrap();
    let files = fs::read_dir(test.parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let is_library = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with(&format!("lib{library}-")) && name.ends_with(".rlib")
    };
    let mut libraries: Vec<_> = files.filter(is_library).collect();
    libraries.sort_by_key(|path| Reverse(path.metadata().unwrap().modified().unwrap()));
    let mut all = libraries
        .iter()
        .map(|path| errors_with(library, path, program));
    all.find(|text| !text.contains("could not find `openapi` in `__private`"))
        .unwrap()
}

fn errors_with(library: &str, path: &Path, program: &str) -> String {
    let folder = path.parent().unwrap().display().to_string();
    let mut rustc = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .args([
            "--edition=2024",
            "--crate-type=lib",
            "--emit=metadata",
            "--out-dir",
            env!("CARGO_TARGET_TMPDIR"),
            "-",
        ])
        .arg(format!("--extern={library}={}", path.display()))
        .arg(format!("-Ldependency={folder}"))
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    rustc
        .stdin
        .take()
        .unwrap()
        .write_all(program.as_bytes())
        .unwrap();
    let output = rustc.wait_with_output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{text}");
    text
}

/// Compiles a program that uses `library`. Checks that there is exactly one error, and that it
/// contains all of `expected`.
#[track_caller]
pub(crate) fn assert_one_error(library: &str, program: &str, expected: &[&str]) {
    let errors = errors(library, program);
    assert_eq!(
        errors.matches("\nerror[").count() + usize::from(errors.starts_with("error[")),
        1,
        "{errors}"
    );
    for expected in expected {
        assert!(
            errors.contains(expected),
            "missing {expected:?} in: {errors}"
        );
    }
}
