//! The metrics of the program.

use std::sync::Arc;

use super::series::{Family, Kind, Series, SeriesMap};
use k8s_informer::error::Error;

/// The metrics of this crate start with one of these.
const PREFIXES: [&str; 5] = [
    "controller_runtime_",
    "workqueue_",
    "informer_",
    "leader_election_",
    "rest_client_",
];

/// Returns the series of the program with these labels.
pub(super) fn series(
    map: &SeriesMap,
    family: &Family,
    labels: &[(&str, &str)],
) -> Result<Arc<Series>, Error> {
    let name = family.name;
    let refuse = |problem: String| Err(Error::invalid(format!("the metric {name:?}: {problem}")));
    if !is_name(name, true) {
        return refuse(
            "a name consists of letters, digits, \"_\" and \":\", and does not start with a digit"
                .into(),
        );
    }
    if let Some(prefix) = PREFIXES.iter().find(|prefix| name.starts_with(*prefix)) {
        return refuse(format!(
            "names that start with {prefix:?} belong to k8s-informer; use another one"
        ));
    }
    for (at, (label, _)) in labels.iter().enumerate() {
        if !is_name(label, false) || label.starts_with("__") {
            return refuse(format!(
                "invalid label {label:?}: it consists of letters, digits and \"_\", and does not start with a digit or \"__\""
            ));
        }
        if labels[..at].iter().any(|(other, _)| other == label) {
            return refuse(format!("the label {label:?} occurs twice"));
        }
    }
    if let Kind::Histogram(bounds) = family.kind {
        if labels.iter().any(|(label, _)| *label == "le") {
            return refuse("a histogram has the label \"le\" itself; use another name".into());
        }
        let increases = bounds.is_sorted_by(|a, b| a < b);
        if !increases || bounds.iter().any(|bound| !bound.is_finite()) {
            return refuse(
                "the bounds of its buckets must be finite, and each greater than the one before"
                    .into(),
            );
        }
    }
    match map.get_if_same_kind(family, labels) {
        Some(series) => Ok(series),
        None => refuse("it exists with another type or other buckets".into()),
    }
}

fn is_name(name: &str, has_colons: bool) -> bool {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || c == '_' || has_colons && c == ':';
    !name.is_empty()
        && name.chars().all(is_valid)
        && !name.starts_with(|c: char| c.is_ascii_digit())
}
