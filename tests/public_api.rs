//! The rules of CONTRIBUTING, "Public API", on the lists of public items in `docs`. CI compares the
//! lists with the code.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

const PACKAGES: [&str; 3] = [
    "k8s-informer",
    "k8s-informer-controller",
    "k8s-informer-testing",
];

/// An item of a list.
struct Item {
    package: &'static str,
    /// `informer struct.Driver`.
    header: String,
    kind: String,
    name: String,
    /// Its declaration, methods and implementations.
    lines: Vec<String>,
}

fn items() -> Vec<Item> {
    let mut items = Vec::new();
    for package in PACKAGES {
        let list = format!("docs/public-api-{package}.txt");
        let list = Path::new(env!("CARGO_MANIFEST_DIR")).join(list);
        let list = fs::read_to_string(list).unwrap();
        for paragraph in list.split("\n\n") {
            let mut lines = paragraph.trim_matches('\n').lines();
            let header = lines.next().unwrap_or_default();
            let page = header.rsplit(' ').next().unwrap_or_default();
            let Some((kind, name)) = page.split_once('.') else {
                continue;
            };
            items.push(Item {
                package,
                header: header.to_owned(),
                kind: kind.to_owned(),
                name: name.to_owned(),
                lines: lines.map(|line| line.trim().to_owned()).collect(),
            });
        }
    }
    assert!(items.len() > 200, "the lists have {} items", items.len());
    items
}

/// Splits a text at commas that are in no bracket.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start, mut before) = (Vec::new(), 0, 0, ' ');
    for (at, character) in text.char_indices() {
        match character {
            '(' | '[' | '<' | '{' => depth += 1,
            '>' if before == '-' => {}
            ')' | ']' | '>' | '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
        before = character;
    }
    parts.push(text[start..].trim());
    parts.retain(|part| !part.is_empty());
    parts
}

/// Returns the name and the parameters of a function.
fn function(line: &str) -> Option<(&str, Vec<&str>)> {
    let (_, rest) = line.split_once("fn ")?;
    let name = rest.split(['(', '<']).next()?;
    // The first parenthesis that is not in the generic parameters.
    let (mut depth, mut before) = (0, ' ');
    let open = rest.char_indices().find_map(|(at, character)| {
        let is_arrow = character == '>' && before == '-';
        before = character;
        match character {
            '<' => depth += 1,
            '>' if !is_arrow => depth -= 1,
            '(' if depth == 0 => return Some(at),
            _ => {}
        }
        None
    })?;
    let (mut depth, mut close) = (0, rest.len());
    for (at, character) in rest[open..].char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            close = open + at;
            break;
        }
    }
    Some((name, split(&rest[open + 1..close])))
}

fn report(problems: &[String]) {
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn names_are_unique() {
    // `informer::Controller` is client-go's, the other one is what users write.
    const TWICE: [&str; 1] = ["Controller"];
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for item in items() {
        let place = format!("{} {}", item.package, item.header);
        places.entry(item.name).or_default().push(place);
    }
    let twice = places.into_iter().filter(|(name, places)| {
        let limit = 1 + usize::from(TWICE.contains(&name.as_str()));
        places.len() > limit
    });
    let problems: Vec<_> = twice
        .map(|(name, places)| format!("{name}: {places:?}"))
        .collect();
    report(&problems);
}

#[test]
fn no_flag_beside_another_parameter() {
    const EXEMPT: [&str; 1] = ["on_add"];
    let mut problems = Vec::new();
    for item in items() {
        for line in &item.lines {
            let Some((name, parameters)) = function(line) else {
                continue;
            };
            let others = parameters.iter().filter(|one| !one.ends_with("self"));
            let flags = others
                .clone()
                .filter(|one| one.ends_with(": bool") || one.contains(", bool)"));
            let is_beside = flags.clone().any(|one| one.contains(", bool)")) || others.count() > 1;
            if flags.count() > 0 && is_beside && !EXEMPT.contains(&name) {
                problems.push(format!("{}: {line}", item.header));
            }
        }
    }
    report(&problems);
}

#[test]
fn resource_versions_have_their_type() {
    // These mirror what Kubernetes sends: the accessors of `Object`, functions that return such a
    // field, metadata, references, and the preconditions of a deletion, where an empty version
    // matches nothing.
    const EXEMPT: [&str; 13] = [
        "Object",
        "Accessor",
        "ThreadSafeStore",
        "ObjectMeta",
        "FullObjectMeta",
        "ObjectReference",
        "DeleteOptions",
        "Lease",
        "Backup",
        "ApiServer",
        "FakeControllerSource",
        "InformerMetrics",
        "ResourceVersion",
    ];
    let mut problems = Vec::new();
    for item in items() {
        if EXEMPT.contains(&item.name.as_str()) {
            continue;
        }
        for line in &item.lines {
            for text in ["String", "&str", "u64"] {
                let field = format!("resource_version: {text}");
                let optional = format!("resource_version: Option<{text}");
                let returned = line.contains("resource_version(&self)")
                    && (line.ends_with(&format!("-> {text}"))
                        || line.ends_with(&format!("-> Option<{text}>")));
                if line.contains(&field) || line.contains(&optional) || returned {
                    problems.push(format!("{}: {line}", item.header));
                }
            }
        }
    }
    report(&problems);
}

/// The types of other crates that signatures may have. README, "Dependencies", says what a major
/// version of each means.
const FOREIGN: [&str; 12] = [
    // crossbeam_channel
    "Receiver",
    // serde
    "Deserialize",
    "DeserializeOwned",
    "Deserializer",
    "Serialize",
    "Serializer",
    // serde_json
    "Map",
    "Value",
    // k8s_openapi
    "Metadata",
    "ObjectMeta",
    "Time",
    // schemars
    "JsonSchema",
];

/// The types and traits of the standard library.
const STANDARD: &str = "Arc Box Vec Option Result String Duration Instant SystemTime Path PathBuf SocketAddr Ordering \
    BTreeMap BTreeSet HashMap Cow Iterator IntoIterator IntoIter FusedIterator ExactSizeIterator DoubleEndedIterator Iter Item Read \
    Write Clone Copy Debug Default Display Eq PartialEq Ord PartialOrd Hash Hasher Deref DerefMut Drop Error From Into \
    FromStr FromIterator AsRef Borrow Index IndexMut Not Fn FnMut FnOnce Send Sync Sized UnwindSafe RefUnwindSafe Any Self \
    Output Target Err Some None Ok Formatter RangeInclusive PhantomData Termination";

/// Private traits that seal a public one, and a word of rustdoc.
const PRIVATE: [&str; 3] = ["Sealed", "ErrorType", "Show"];

#[test]
fn signatures_have_only_listed_foreign_types() {
    let items = items();
    let own: BTreeSet<&str> = items.iter().map(|item| item.name.as_str()).collect();
    let standard: BTreeSet<&str> = STANDARD.split_whitespace().collect();
    let mut problems = BTreeSet::new();
    for item in &items {
        for line in &item.lines {
            // Without comments, and without the variants of enums and associated constants.
            let code = line
                .split("//")
                .next()
                .unwrap()
                .replace("where ", " where ");
            if item.kind == "enum" || item.kind == "macro" {
                continue;
            }
            for word in
                code.split(|character: char| !character.is_alphanumeric() && character != '_')
            {
                let is_type = word.starts_with(|first: char| first.is_ascii_uppercase())
                    && word.contains(|character: char| character.is_ascii_lowercase());
                let is_known = own.contains(word)
                    || standard.contains(word)
                    || FOREIGN.contains(&word)
                    || PRIVATE.contains(&word);
                if is_type && !is_known {
                    problems.insert(format!("{word} in {}: {line}", item.header));
                }
            }
        }
    }
    report(&problems.into_iter().collect::<Vec<_>>());
}

#[test]
fn enums_that_may_grow_are_non_exhaustive() {
    // Complete by construction; CONTRIBUTING has the rule.
    const COMPLETE: [&str; 9] = [
        "Notification",
        "Deleted",
        "Change",
        "FunctionError",
        "Origin",
        "ConditionStatus",
        "EventType",
        "ShardBy",
        "Ended",
    ];
    let mut problems = Vec::new();
    for item in items().iter().filter(|item| item.kind == "enum") {
        let is_open = item.lines[0].starts_with("#[non_exhaustive]");
        if is_open == COMPLETE.contains(&item.name.as_str()) {
            problems.push(format!("{}: {}", item.header, item.lines[0]));
        }
    }
    report(&problems);
}

#[test]
fn options_are_non_exhaustive_and_have_setters() {
    let mut problems = Vec::new();
    for item in items() {
        let is_options = item.kind == "struct" && item.name.ends_with("Options");
        let declaration = item.lines.first().cloned().unwrap_or_default();
        let is_closed = declaration.contains("pub ")
            && declaration.contains("{ pub ")
            && !declaration.starts_with("#[non_exhaustive]");
        let has_setters = item
            .lines
            .iter()
            .any(|line| line.contains("(self, ") || line.contains("(mut self"));
        if is_options && (is_closed || !has_setters) {
            problems.push(format!("{}: {declaration}", item.header));
        }
    }
    report(&problems);
}

#[test]
fn no_blanket_from_and_no_alias_of_functions() {
    // Both take any error, as a function that uses `?` needs it.
    const ERRORS: [&str; 2] = ["Failure", "ProcessError"];
    let mut problems = Vec::new();
    for item in items() {
        for line in &item.lines {
            let Some((parameters, implemented)) = line.strip_prefix("impl<").and_then(|rest| {
                let (parameters, implemented) = rest.split_once(" From<")?;
                Some((parameters, implemented))
            }) else {
                continue;
            };
            let source = implemented.split('>').next().unwrap_or_default();
            let is_blanket = parameters
                .split([',', ':', '>'])
                .any(|one| one.trim() == source);
            if is_blanket && !ERRORS.contains(&item.name.as_str()) {
                problems.push(format!("{}: {line}", item.header));
            }
        }
        if item.kind == "type" && item.lines.iter().any(|line| line.contains("dyn Fn")) {
            problems.push(item.header);
        }
    }
    report(&problems);
}

#[test]
fn results_of_ends_and_waits_are_no_flags() {
    const PREFIXES: [&str; 5] = ["wait_for", "shut_down", "stop", "flush", "shutdown"];
    let mut problems = Vec::new();
    for item in items() {
        for line in &item.lines {
            let is_end = function(line)
                .is_some_and(|(name, _)| PREFIXES.iter().any(|prefix| name.starts_with(prefix)));
            if is_end && line.ends_with("-> bool") {
                problems.push(format!("{}: {line}", item.header));
            }
        }
    }
    report(&problems);
}
