//! Parsing and matching of label and field selectors.

use serde_json::{Map, Value};

use super::resources::ApiResource;
use super::schema::stored_path;
use super::shards::Shards;
use super::status::StatusError;
use k8s_informer::selector::{Selector, SelectorError};

/// The selectors of a list, watch or delete-collection. An empty selection matches everything.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    labels: Selector,
    fields: Vec<FieldRequirement>,
    shards: Option<Shards>,
}

#[derive(Clone, Debug, PartialEq)]
struct FieldRequirement {
    /// The paths in the stored form. The first value that is not empty counts.
    paths: Vec<String>,
    /// The value of an absent field.
    absent: &'static str,
    value: String,
    equal: bool,
}

impl Selection {
    pub(crate) fn parse(
        labels: &str,
        fields: &str,
        resource: &ApiResource,
    ) -> Result<Self, StatusError> {
        Ok(Self {
            labels: labels
                .parse()
                .map_err(|error: SelectorError| StatusError::bad_request(error.to_string()))?,
            fields: parse_fields(fields, resource)?,
            shards: None,
        })
    }

    /// Restricts the selection to these shards.
    pub(crate) fn of_shards(self, selector: &str) -> Result<Self, StatusError> {
        let shards = Shards::parse(selector);
        let invalid = || StatusError::internal(format!("invalid shard selector: {selector}"));
        Ok(Self {
            shards: Some(shards.ok_or_else(invalid)?),
            ..self
        })
    }

    /// Whether the selection matches everything, apart from the shards.
    pub(crate) fn is_all_of_its_shards(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Returns the shard selector, if there is one.
    pub(crate) fn shards(&self) -> Option<String> {
        self.shards.as_ref().map(ToString::to_string)
    }

    pub(crate) fn matches(&self, object: &Map<String, Value>) -> bool {
        let labels = || object.get("metadata")?.get("labels")?.as_object();
        self.labels
            .matches_labels(|key| labels()?.get(key)?.as_str())
            && self
                .fields
                .iter()
                .all(|field| (field.value_in(object) == field.value) == field.equal)
            && self
                .shards
                .as_ref()
                .is_none_or(|shards| shards.contain(object))
    }
}

impl FieldRequirement {
    fn value_in(&self, object: &Map<String, Value>) -> String {
        let mut values = self.paths.iter().map(|path| field_value(object, path));
        let value = values.find(|value| !value.is_empty());
        value.unwrap_or_else(|| self.absent.to_owned())
    }
}

/// Returns the paths of a selectable field in the stored form. The source of an Event without a
/// component is its controller.
fn stored_paths(path: &str, resource: &ApiResource) -> Vec<String> {
    let paths = match path {
        _ if resource.custom => vec![path],
        "spec.host" => vec!["spec.nodeName"],
        "status.successful" => vec!["status.succeeded"],
        "source" => vec!["source.component", "reportingComponent"],
        // It is always empty.
        "status.podIPs" => Vec::new(),
        _ => vec![path],
    };
    paths
        .into_iter()
        .map(|path| stored_path(resource, path))
        .collect()
}

/// Returns the field as selectors compare it: a string unchanged, other values as JSON, and an
/// absent field as an empty string.
fn field_value(object: &Map<String, Value>, path: &str) -> String {
    let mut keys = path.split('.');
    let first = keys.next().and_then(|key| object.get(key));
    match keys.fold(first, |value, key| value?.get(key)) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

fn parse_fields(text: &str, resource: &ApiResource) -> Result<Vec<FieldRequirement>, StatusError> {
    let mut requirements = Vec::new();
    for term in split_terms(text) {
        let parsed = split_operator(term)
            .and_then(|(path, value, equal)| Some((path, unescape(value)?, equal)));
        let Some((path, value, equal)) = parsed else {
            let problem = format!("invalid selector: '{text}'; can't understand '{term}'");
            return Err(StatusError::bad_request(problem));
        };
        if path.is_empty() && value.is_empty() {
            continue;
        }
        // Built-in kinds without fields of their own do not distinguish scopes.
        let is_default = !resource.custom && resource.fields.is_empty();
        let known = path == "metadata.name"
            || path == "metadata.namespace" && (resource.namespaced || is_default)
            || resource.fields.iter().any(|field| field == path);
        if !known {
            let problem = format!("field label not supported: {path}");
            return Err(StatusError::bad_request(problem));
        }
        requirements.push(FieldRequirement {
            paths: stored_paths(path, resource),
            absent: match path {
                _ if resource.custom => "",
                "spec.unschedulable" | "spec.hostNetwork" => "false",
                "status.replicas" | "status.successful" => "0",
                _ => "",
            },
            value,
            equal,
        });
    }
    Ok(requirements)
}

/// Splits at commas that are not escaped with a backslash. Empty terms are skipped.
fn split_terms(text: &str) -> Vec<&str> {
    let mut escaped = false;
    text.split(|c| {
        let separator = c == ',' && !escaped;
        escaped = c == '\\' && !escaped;
        separator
    })
    .filter(|term| !term.is_empty())
    .collect()
}

/// Splits at the first operator. Returns the path, the value, and whether they must be equal.
fn split_operator(term: &str) -> Option<(&str, &str, bool)> {
    let (path, value) = term.split_once('=')?;
    Some(match path.strip_suffix('!') {
        Some(path) => (path, value, false),
        None => (path, value.strip_prefix('=').unwrap_or(value), true),
    })
}

/// Removes the backslashes that escape backslashes, commas and equals signs. Returns `None` if one
/// of these is not escaped, or if another character is.
fn unescape(value: &str) -> Option<String> {
    let mut plain = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        let is_special = |c: char| matches!(c, '\\' | ',' | '=');
        plain.push(match c {
            '\\' => chars.next().filter(|&escaped| is_special(escaped))?,
            c => Some(c).filter(|&c| !is_special(c))?,
        });
    }
    Some(plain)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::json;

    fn labels_match(selector: &str, labels: &Value) -> bool {
        let resource = ApiResource::new("", "v1", "things", "Thing");
        let selection = Selection::parse(selector, "", &resource).unwrap();
        let object = json!({ "metadata": { "labels": labels } });
        selection.matches(object.as_object().unwrap())
    }

    #[test]
    fn label_selectors_match_as_in_kubernetes() {
        let labels = json!({ "a": "b", "n": "5", "empty": "", "example.com/x": "y" });
        for yes in [
            "",
            "a=b",
            "a==b",
            " a = b ",
            "a!=c",
            "missing!=c",
            "a in (x, b)",
            "a notin (x,y)",
            "missing notin (x)",
            "a",
            "!missing",
            "a=b,n,!missing",
            "n>4",
            "n<6,a",
            "empty=",
            "empty=,a",
            "empty in ()",
            "empty in (x,)",
            "example.com/x=y",
        ] {
            assert!(labels_match(yes, &labels), "{yes:?}");
        }
        for no in [
            "a=c",
            "a!=b",
            "missing=x",
            "a in (x)",
            "a notin (b)",
            "missing",
            "!a",
            "a=b,n=6",
            "a>1",
            "missing=",
        ] {
            assert!(!labels_match(no, &labels), "{no:?}");
        }
        assert!(!labels_match("a", &Value::Null));
    }

    #[test]
    fn invalid_label_selectors_are_rejected() {
        let resource = ApiResource::new("", "v1", "things", "Thing");
        for bad in [
            "a b c",
            "a in x",
            "a,",
            ",",
            "-a",
            "a=-b",
            "a in (",
            "a in (b",
            "!",
            "!a=b",
            "a>x",
            "a=b c",
            "(",
            "a in (b c)",
            "ä",
        ] {
            let error = Selection::parse(bad, "", &resource).unwrap_err();
            assert_eq!(error.code(), 400, "{bad:?}");
        }
    }

    #[test]
    fn field_selectors_reject_undeclared_fields() {
        let resource = ApiResource::new("", "v1", "things", "Thing").field("spec.node");
        let object =
            json!({ "metadata": { "name": "a,b", "namespace": "n" }, "spec": { "node": 5 } });
        let matches = |text: &str| {
            Selection::parse("", text, &resource).map(|s| s.matches(object.as_object().unwrap()))
        };
        assert_eq!(matches("spec.node=5,metadata.namespace==n"), Ok(true));
        assert_eq!(matches("spec.node!=5"), Ok(false));
        assert_eq!(matches("metadata.name=a\\,b"), Ok(true));
        assert_eq!(
            matches("spec.other=5").unwrap_err().to_string(),
            "field label not supported: spec.other"
        );
        assert_eq!(
            matches("xx").unwrap_err().to_string(),
            "invalid selector: 'xx'; can't understand 'xx'"
        );
        assert_eq!(matches("").map_err(|e| e.code()), Ok(true));
    }
}
