//! Checks the table of `DEVIATIONS.md`. The replay of client-go traces also reads that table.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const COLUMNS: usize = 5;

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

#[test]
fn each_row_has_a_unique_rule_and_existing_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut tests = BTreeSet::new();
    for folder in ["tests", "src", "crates"] {
        functions(&root.join(folder), &mut tests);
    }
    let document = fs::read_to_string(root.join("DEVIATIONS.md")).unwrap();
    let mut rules = BTreeSet::new();
    for row in document
        .lines()
        .filter_map(|line| line.strip_prefix("| "))
        .skip(2)
    {
        let columns: Vec<&str> = row.trim_end_matches(" |").split(" | ").collect();
        assert_eq!(columns.len(), COLUMNS, "{row}");
        assert!(rules.insert(columns[0]), "{} has two rows", columns[0]);
        let named: Vec<&str> = columns[4].split('`').skip(1).step_by(2).collect();
        assert!(!named.is_empty(), "{row}");
        for name in named {
            assert!(tests.contains(name), "{}: no test named {name}", columns[0]);
        }
    }
    assert!(rules.len() > 40, "only {} rows", rules.len());
}
