//! Label selectors. Any text is a selector or an error. The text form of a selector parses to an
//! equal selector with the same text form. A selector of generated requirements selects the same
//! labels as an evaluation of each requirement.

use std::collections::{BTreeMap, BTreeSet};

use arbitrary::{Arbitrary, Result as Read, Unstructured};
use k8s_informer::Selector;

use super::item::few;

#[derive(Arbitrary, Debug)]
struct Input {
    #[arbitrary(with = few)]
    labels: Vec<Label>,
    #[arbitrary(with = few)]
    requirements: Vec<Requirement>,
    /// The spaces between the tokens. After the last entry, the first is used again.
    #[arbitrary(with = few)]
    spaces: Vec<Space>,
}

#[derive(Arbitrary, Debug)]
struct Label {
    #[arbitrary(with = key)]
    key: &'static str,
    #[arbitrary(with = value)]
    value: &'static str,
}

#[derive(Arbitrary, Clone, Debug)]
struct Requirement {
    #[arbitrary(with = key)]
    key: &'static str,
    test: Test,
}

#[derive(Arbitrary, Clone, Debug)]
enum Test {
    Exists,
    Absent,
    Equals(#[arbitrary(with = value)] &'static str),
    DoubleEquals(#[arbitrary(with = value)] &'static str),
    NotEquals(#[arbitrary(with = value)] &'static str),
    In(#[arbitrary(with = values)] Vec<&'static str>),
    NotIn(#[arbitrary(with = values)] Vec<&'static str>),
    Greater(#[arbitrary(with = value)] &'static str),
    Less(#[arbitrary(with = value)] &'static str),
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Space {
    None,
    Blank,
    Wide,
}

const KEYS: [&str; 8] = [
    "a", "b", "A.b_c-9", "in", "notin", "x.io/y", "10", "x-1.y/in",
];
const BAD_KEYS: [&str; 6] = ["-a", "a/b/c", "X/y", "a.", "/a", "ä"];
const VALUES: [&str; 12] = [
    "9",
    "10",
    "a",
    "",
    "b",
    "A.b_c-9",
    "in",
    "notin",
    "0",
    "007",
    "9223372036854775807",
    "9223372036854775808",
];
const BAD_VALUES: [&str; 6] = ["-1", "+1", "a/b", "a.", "_", "ä"];

/// Chooses mostly valid words, and often one of the first three, so that labels and requirements
/// match.
fn one_of(
    bytes: &mut Unstructured,
    good: &[&'static str],
    bad: &[&'static str],
) -> Read<&'static str> {
    let words = match bytes.int_in_range(0..=15_u8)? {
        1 => bad,
        2..=8 => &good[..3],
        _ => good,
    };
    bytes.choose(words).copied()
}

fn key(bytes: &mut Unstructured) -> Read<&'static str> {
    one_of(bytes, &KEYS, &BAD_KEYS)
}

fn value(bytes: &mut Unstructured) -> Read<&'static str> {
    one_of(bytes, &VALUES, &BAD_VALUES)
}

fn values(bytes: &mut Unstructured) -> Read<Vec<&'static str>> {
    (0..bytes.int_in_range(0..=3_u8)?)
        .map(|_| value(bytes))
        .collect()
}

impl Test {
    /// Returns the operator between key and values.
    fn operator(&self) -> &'static str {
        match self {
            Self::Exists | Self::Absent => "",
            Self::Equals(_) => "=",
            Self::DoubleEquals(_) => "==",
            Self::NotEquals(_) => "!=",
            Self::In(_) => "in",
            Self::NotIn(_) => "notin",
            Self::Greater(_) => ">",
            Self::Less(_) => "<",
        }
    }

    fn values(&self) -> Vec<&'static str> {
        match self {
            Self::Exists | Self::Absent => Vec::new(),
            Self::In(values) | Self::NotIn(values) if values.is_empty() => vec![""],
            Self::In(values) | Self::NotIn(values) => values.clone(),
            Self::Equals(value)
            | Self::DoubleEquals(value)
            | Self::NotEquals(value)
            | Self::Greater(value)
            | Self::Less(value) => vec![value],
        }
    }

    fn is_valid(&self) -> bool {
        let is_number = match self {
            Self::Greater(value) | Self::Less(value) => value.parse::<i64>().is_ok(),
            _ => true,
        };
        is_number && self.values().iter().all(|value| VALUES.contains(value))
    }

    fn selects(&self, label: Option<&str>) -> bool {
        let number = |text: &str| text.parse::<i64>().ok();
        let compared = |limit: &str| {
            label
                .and_then(number)
                .zip(number(limit))
                .map(|(label, limit)| label.cmp(&limit))
        };
        match self {
            Self::Exists => label.is_some(),
            Self::Absent => label.is_none(),
            Self::Equals(value) | Self::DoubleEquals(value) => label == Some(value),
            Self::NotEquals(value) => label != Some(value),
            Self::In(_) => label.is_some_and(|label| self.values().contains(&label)),
            Self::NotIn(_) => !label.is_some_and(|label| self.values().contains(&label)),
            Self::Greater(limit) => compared(limit).is_some_and(|order| order.is_gt()),
            Self::Less(limit) => compared(limit).is_some_and(|order| order.is_lt()),
        }
    }
}

impl Requirement {
    fn tokens(&self) -> Vec<String> {
        let mut tokens = Vec::new();
        let mut add = |token: &str| tokens.push(token.to_owned());
        if matches!(self.test, Test::Absent) {
            add("!");
        }
        add(self.key);
        add(self.test.operator());
        match &self.test {
            Test::In(values) | Test::NotIn(values) => {
                add("(");
                for (at, value) in values.iter().enumerate() {
                    if at > 0 {
                        add(",");
                    }
                    add(value);
                }
                add(")");
            }
            test => test.values().iter().for_each(|value| add(value)),
        }
        tokens.retain(|token| !token.is_empty());
        tokens
    }

    /// Returns the canonical text form.
    fn canonical(&self) -> String {
        let values: Vec<&str> = self
            .test
            .values()
            .into_iter()
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        let (key, operator, values) = (self.key, self.test.operator(), values.join(","));
        match self.test {
            Test::Absent => format!("!{key}"),
            Test::In(_) | Test::NotIn(_) => format!("{key} {operator} ({values})"),
            _ => format!("{key}{operator}{values}"),
        }
    }
}

pub fn run(input: &[u8]) {
    text(&String::from_utf8_lossy(input));
    if let Ok(input) = Unstructured::new(input).arbitrary() {
        made(&input);
    }
}

fn text(text: &str) {
    let Ok(selector) = text.parse::<Selector>() else {
        return;
    };
    let canonical = selector.to_string();
    let again: Selector = canonical
        .parse()
        .expect("the text of a selector can be parsed");
    assert_eq!(again, selector);
    assert_eq!(again.to_string(), canonical);
    for labels in [&[][..], &[("a", "b")], &[("a", "1"), ("x/y", "")]] {
        let label = |key: &str| {
            labels
                .iter()
                .find(|(name, _)| *name == key)
                .map(|(_, value)| *value)
        };
        assert_eq!(
            selector.matches_labels(label),
            again.matches_labels(label),
            "{text:?} {canonical:?}"
        );
    }
}

fn made(input: &Input) {
    let text = written(input);
    let parsed = text.parse::<Selector>();
    let valid = input
        .requirements
        .iter()
        .all(|one| KEYS.contains(&one.key) && one.test.is_valid());
    assert_eq!(parsed.is_ok(), valid, "{text:?}: {parsed:?}");
    let Ok(selector) = parsed else { return };
    let mut sorted = input.requirements.clone();
    sorted.sort_by_key(|one| one.key);
    let canonical: Vec<String> = sorted.iter().map(Requirement::canonical).collect();
    assert_eq!(selector.to_string(), canonical.join(","), "{text:?}");
    assert_eq!(selector.is_empty(), input.requirements.is_empty());
    let labels: BTreeMap<&str, &str> = input
        .labels
        .iter()
        .map(|label| (label.key, label.value))
        .collect();
    let label = |key: &str| labels.get(key).copied();
    let selects = input
        .requirements
        .iter()
        .all(|one| one.test.selects(label(one.key)));
    assert_eq!(
        selector.matches_labels(label),
        selects,
        "{text:?} {labels:?}"
    );
}

/// Writes the requirements with spaces in the places that allow them.
fn written(input: &Input) -> String {
    let mut spaces = input.spaces.iter().cycle();
    let mut text = String::new();
    for (at, requirement) in input.requirements.iter().enumerate() {
        let comma = (at > 0).then(|| ",".to_owned());
        for token in comma.into_iter().chain(requirement.tokens()) {
            let is_mark = |c: char| "=!(),<>".contains(c);
            let needed =
                !text.is_empty() && !text.ends_with(is_mark) && !token.starts_with(is_mark);
            match spaces.next() {
                Some(Space::Wide) => text.push_str("\t \r\n"),
                Some(Space::Blank) => text.push(' '),
                _ if needed => text.push(' '),
                _ => {}
            }
            text.push_str(&token);
        }
    }
    text
}
