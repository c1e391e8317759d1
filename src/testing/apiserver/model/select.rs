//! Parsing and matching of label and field selectors.

use serde_json::{Map, Value};

use super::resources::ApiResource;
use super::schema::Schema;
use super::shards::Shards;
use super::status::StatusError;
use crate::selector::{Selector, SelectorError};

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
                .map_err(|error: SelectorError| StatusError::bad_request(error.of_kubernetes()))?,
            fields: parse_fields(fields, resource).map_err(StatusError::bad_request)?,
            shards: None,
        })
    }

    /// Restricts the selection to these shards.
    pub(crate) fn of_shards(self, selector: &str) -> Result<Self, StatusError> {
        let shards = Shards::parse(selector)
            .map_err(|why| StatusError::internal(format!("invalid shard selector: {why}")))?;
        Ok(Self {
            shards: Some(shards),
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
    match Schema::of(resource) {
        None if !resource.custom => match path {
            "spec.host" => vec!["spec.nodeName".to_owned()],
            "status.successful" => vec!["status.succeeded".to_owned()],
            // It is always empty.
            "status.podIPs" => Vec::new(),
            _ => vec![path.to_owned()],
        },
        Some(_) if path == "source" => {
            vec![
                "source.component".to_owned(),
                "reportingComponent".to_owned(),
            ]
        }
        Some(schema) => vec![schema.stored_path(path)],
        None => vec![path.to_owned()],
    }
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

fn parse_fields(text: &str, resource: &ApiResource) -> Result<Vec<FieldRequirement>, String> {
    let mut requirements = Vec::new();
    for term in split_terms(text) {
        let Some((path, value, equal)) = split_operator(term) else {
            return Err(format!(
                "invalid selector: '{text}'; can't understand '{term}'"
            ));
        };
        let value = unescape(value).map_err(|why| format!("invalid field selector: {why}"))?;
        if path.is_empty() && value.is_empty() {
            continue;
        }
        // Built-in kinds without fields of their own do not distinguish scopes.
        let is_default = !resource.custom && resource.fields.is_empty();
        let known = path == "metadata.name"
            || path == "metadata.namespace" && (resource.namespaced || is_default)
            || resource.fields.iter().any(|field| field == path);
        if !known {
            return Err(match &*resource.plural {
                _ if is_default => format!(
                    "\"{path}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
                ),
                "jobs" if !resource.custom => {
                    format!("field label \"{path}\" not supported for Job")
                }
                _ => format!("field label not supported: {path}"),
            });
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

fn unescape(value: &str) -> Result<String, String> {
    let mut plain = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(escaped @ ('\\' | ',' | '=')) => plain.push(escaped),
                other => {
                    let other = other.map(String::from).unwrap_or_default();
                    return Err(format!("invalid escape sequence: \\{other}"));
                }
            },
            ',' | '=' => {
                let code = u32::from(c);
                return Err(format!("unescaped character in value: {code}"));
            }
            c => plain.push(c),
        }
    }
    Ok(plain)
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

    fn refusal(selector: &str) -> String {
        let resource = ApiResource::new("", "v1", "things", "Thing");
        Selection::parse(selector, "", &resource)
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn invalid_label_selectors_return_kubernetes_messages() {
        for (bad, message) in [
            (
                "a b c",
                "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
            ),
            (
                "a in x",
                "unable to parse requirement: found 'x' expected: '('",
            ),
            ("a,", "found '', expected: identifier after ','"),
            (
                ",",
                "found ',', expected: !, identifier, or 'end of string'",
            ),
        ] {
            assert_eq!(refusal(bad), message);
        }
        for bad in [
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
            assert!(!refusal(bad).is_empty(), "{bad:?}");
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
