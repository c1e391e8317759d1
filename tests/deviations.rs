//! Checks `data/deviations.tsv`: a row for each rule from which this crate differs, with its tests.
//! `docs/client-go-rules.md` describes the differences, and the replay of traces ends before them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Collects the names of all functions in a folder of sources.
fn functions(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            functions(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let names = text
                .lines()
                .filter_map(|line| line.trim().strip_prefix("fn "));
            found.extend(
                names
                    .filter_map(|rest| rest.split(['(', '<']).next())
                    .map(str::to_owned),
            );
        }
    }
}

/// Returns the rules of `docs/client-go-rules.md` that describe a difference.
fn described(document: &str) -> BTreeSet<&str> {
    let rules = document.split("\n- <a id=").skip(1);
    rules
        .filter(|rule| rule.contains("**Here:**") && rule.contains("**Why:**"))
        .filter_map(|rule| rule.split("**").nth(1))
        .collect()
}

#[test]
fn each_deviation_is_described_and_has_existing_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut tests = BTreeSet::new();
    for folder in ["tests", "src", "crates"] {
        functions(&root.join(folder), &mut tests);
    }
    let table = fs::read_to_string(root.join("tests/data/deviations.tsv")).unwrap();
    let mut rules = BTreeSet::new();
    for row in table.lines() {
        let (rule, named) = row.split_once('\t').unwrap();
        assert!(rules.insert(rule), "{rule} has two rows");
        assert!(!named.is_empty(), "{row}");
        for name in named.split(' ') {
            assert!(tests.contains(name), "{rule}: no test named {name}");
        }
    }
    let document = fs::read_to_string(root.join("docs/client-go-rules.md")).unwrap();
    assert_eq!(rules, described(&document));
    assert!(rules.len() > 40, "only {} rows", rules.len());
}
