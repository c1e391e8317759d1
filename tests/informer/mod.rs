//! Tests of the informer's rules, against a server that the test controls and with a fake clock.
//! The tests of the suite run on each of the three queues.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

mod current;
mod drivers;
mod first_sync;
mod label_index;
mod observe;
mod one_thread;
mod suite;
pub(crate) mod support;
mod versions;
mod waits;

/// Collects the names of the tests in `folder` and its subfolders.
fn tests(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            tests(&path, found);
        } else {
            found.extend(tests_of(&path));
        }
    }
}

fn tests_of(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap();
    let tests = text.split("#[test]").skip(1);
    tests
        .filter_map(|rest| Some(rest.split("fn ").nth(1)?.split('(').next()?.to_owned()))
        .collect()
}

/// Asserts that a test name contains the id of each rule. A rule without such a test must have a
/// row in `tests/data/deviations.tsv`.
#[test]
fn each_rule_is_named_by_a_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut names = Vec::new();
    tests(&root.join("tests/informer"), &mut names);
    tests(&root.join("src/informer"), &mut names);
    // The tests of metrics are in a separate file, because they register informer names, which are
    // unique in a process.
    names.extend(tests_of(&root.join("tests/metrics.rs")));
    let parts: BTreeSet<_> = names.iter().flat_map(|name| name.split('_')).collect();
    let deviations = fs::read_to_string(root.join("tests/data/deviations.tsv")).unwrap();
    let rules = [
        ("P", 12),
        ("C", 11),
        ("I", 21),
        ("SP", 16),
        ("H", 4),
        ("T", 4),
        ("WT", 3),
        ("FA", 10),
        ("FS", 5),
        ("ID", 3),
    ];
    let all = rules
        .iter()
        .flat_map(|(letters, last)| (1..=*last).map(move |n| format!("{letters}{n}")));
    let missing: Vec<_> = all
        .filter(|rule| !parts.contains(rule.to_lowercase().as_str()))
        .filter(|rule| !deviations.contains(&format!("\n{rule}\t")))
        .collect();
    assert!(missing.is_empty(), "rules without a test: {missing:?}");
}
