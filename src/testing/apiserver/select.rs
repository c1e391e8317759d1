//! Label and field selectors, as far as the server needs them: parse and match.

use serde_json::{Map, Value};

use super::resources::ApiResource;
use super::status::StatusError;

/// What a list, watch or delete-collection is limited to. The empty one matches everything.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    labels: Vec<Requirement>,
    fields: Vec<FieldRequirement>,
}

#[derive(Clone, Debug, PartialEq)]
enum Requirement {
    Exists(String),
    Absent(String),
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Greater(String, i64),
    Less(String, i64),
}

#[derive(Clone, Debug, PartialEq)]
struct FieldRequirement {
    path: String,
    value: String,
    equal: bool,
}

impl Selection {
    pub(crate) fn parse(labels: &str, fields: &str, resource: &ApiResource) -> Result<Self, StatusError> {
        Ok(Self {
            labels: parse_labels(labels).map_err(StatusError::bad_request)?,
            fields: parse_fields(fields, resource).map_err(StatusError::bad_request)?,
        })
    }

    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn matches(&self, object: &Map<String, Value>) -> bool {
        let labels = || object.get("metadata")?.get("labels")?.as_object();
        let label = |key: &String| labels()?.get(key)?.as_str();
        self.labels.iter().all(|requirement| match requirement {
            Requirement::Exists(key) => label(key).is_some(),
            Requirement::Absent(key) => label(key).is_none(),
            Requirement::In(key, values) => label(key).is_some_and(|v| values.iter().any(|w| w == v)),
            Requirement::NotIn(key, values) => !label(key).is_some_and(|v| values.iter().any(|w| w == v)),
            Requirement::Greater(key, bound) => number(label(key)).is_some_and(|v| v > *bound),
            Requirement::Less(key, bound) => number(label(key)).is_some_and(|v| v < *bound),
        }) && self.fields.iter().all(|field| (field_value(object, &field.path) == field.value) == field.equal)
    }
}

fn number(label: Option<&str>) -> Option<i64> {
    label?.parse().ok()
}

/// The field as a selector sees it: a string as it is, anything else as JSON, absent as empty.
fn field_value(object: &Map<String, Value>, path: &str) -> String {
    let mut keys = path.split('.');
    let first = keys.next().and_then(|key| object.get(key));
    match keys.fold(first, |value, key| value?.get(key)) {
        None | Some(Value::Null) if path == "spec.unschedulable" || path == "spec.hostNetwork" => {
            "false".to_owned()
        }
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

fn parse_fields(text: &str, resource: &ApiResource) -> Result<Vec<FieldRequirement>, String> {
    let mut requirements = Vec::new();
    for term in split_terms(text) {
        let (path, value, equal) = if let Some((path, value)) = term.split_once("!=") {
            (path, value, false)
        } else if let Some((path, value)) = term.split_once("==") {
            (path, value, true)
        } else if let Some((path, value)) = term.split_once('=') {
            (path, value, true)
        } else {
            return Err(format!("invalid selector: '{text}'; can't understand '{term}'"));
        };
        let known = path == "metadata.name"
            || path == "metadata.namespace" && resource.namespaced
            || resource.fields.iter().any(|field| field == path);
        if !known {
            return Err(if resource.fields.is_empty() {
                format!(
                    "\"{path}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
                )
            } else {
                format!("field label not supported: {path}")
            });
        }
        requirements.push(FieldRequirement { path: path.to_owned(), value: unescape(value), equal });
    }
    Ok(requirements)
}

/// Splits at commas that no backslash protects; empty terms count for nothing.
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

fn unescape(value: &str) -> String {
    let mut plain = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        plain.extend(if c == '\\' { chars.next() } else { Some(c) });
    }
    plain
}

/// The words of a label selector: `!`, `=`, `==`, `!=`, `<`, `>`, `(`, `)`, `,` and everything between them.
fn words(text: &str) -> Vec<&str> {
    const SPECIAL: &[char] = &['!', '=', '<', '>', '(', ')', ','];
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("==") || rest.starts_with("!=") {
            2
        } else if SPECIAL.contains(&first) {
            1
        } else {
            rest.find(|c: char| c.is_whitespace() || SPECIAL.contains(&c)).unwrap_or(rest.len())
        };
        let (word, after) = rest.split_at(length);
        words.push(word);
        rest = after.trim_start();
    }
    words
}

fn is_identifier(word: &str) -> bool {
    !word.is_empty() && !word.starts_with(['!', '=', '<', '>', '(', ')', ','])
}

fn parse_labels(text: &str) -> Result<Vec<Requirement>, String> {
    let words = words(text);
    let mut at = 0;
    let mut requirements = Vec::new();
    let mut next = || {
        let word = words.get(at).copied().unwrap_or_default();
        at += 1;
        word
    };
    let mut word = next();
    if word.is_empty() {
        return Ok(requirements);
    }
    loop {
        let negated = word == "!";
        let key = if negated { next() } else { word };
        if !is_identifier(key) {
            return Err(format!("found '{key}', expected: !, identifier, or 'end of string'"));
        }
        check_key(key)?;
        let key = key.to_owned();
        let operator = next();
        // The word after this requirement: nothing, or the comma before the next one.
        let mut after = None;
        let requirement = match operator {
            "" | "," => {
                after = Some(operator);
                if negated { Requirement::Absent(key) } else { Requirement::Exists(key) }
            }
            _ if negated => return Err(format!("found '{operator}', expected: ',' or 'end of string'")),
            "=" | "==" | "!=" => {
                let mut value = next();
                if value.is_empty() || value == "," {
                    after = Some(value);
                    value = "";
                }
                check_value(&key, value)?;
                let values = vec![value.to_owned()];
                if operator == "!=" { Requirement::NotIn(key, values) } else { Requirement::In(key, values) }
            }
            "in" | "notin" => {
                let values = parse_values(&key, &mut next)?;
                if operator == "in" { Requirement::In(key, values) } else { Requirement::NotIn(key, values) }
            }
            "<" | ">" | "gt" | "lt" => {
                let value = next();
                let bound = value.parse().map_err(|_| {
                    format!(
                        "unable to parse requirement: values[0]: Invalid value: \"{value}\": for 'Gt', 'Lt' \
                         operators, the value must be an integer"
                    )
                })?;
                if matches!(operator, ">" | "gt") {
                    Requirement::Greater(key, bound)
                } else {
                    Requirement::Less(key, bound)
                }
            }
            other => {
                return Err(format!(
                    "unable to parse requirement: found '{other}', expected: in, notin, =, ==, !=, gt, lt"
                ));
            }
        };
        requirements.push(requirement);
        match after.unwrap_or_else(&mut next) {
            "" => return Ok(requirements),
            "," => {}
            other => return Err(format!("found '{other}', expected: ',' or 'end of string'")),
        }
        word = next();
        if word != "!" && !is_identifier(word) {
            return Err(format!("found '{word}', expected: identifier after ','"));
        }
    }
}

/// The values after `in`: `(`, values with commas between, `)`. A value left out is the empty one.
fn parse_values<'a>(key: &str, next: &mut impl FnMut() -> &'a str) -> Result<Vec<String>, String> {
    let open = next();
    if open != "(" {
        return Err(format!("unable to parse requirement: found '{open}' expected: '('"));
    }
    let mut values = Vec::new();
    let mut pending = "";
    loop {
        match next() {
            end @ ("," | ")") => {
                check_value(key, pending)?;
                values.push(std::mem::take(&mut pending).to_owned());
                if end == ")" {
                    return Ok(values);
                }
            }
            value if is_identifier(value) && pending.is_empty() => pending = value,
            other => {
                return Err(format!("unable to parse requirement: found '{other}', expected: ',', or ')'"));
            }
        }
    }
}

fn is_name_part(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let bytes = text.as_bytes();
    let ends = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    bytes.len() <= 63 && bytes.iter().all(|&b| inner(b)) && ends(bytes.first()) && ends(bytes.last())
}

fn check_key(key: &str) -> Result<(), String> {
    let name = key.split_once('/').map_or(key, |(_, name)| name);
    if is_name_part(name) {
        return Ok(());
    }
    Err(format!(
        "unable to parse requirement: <nil>: Invalid value: \"{key}\": name part must consist of alphanumeric \
         characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName', or \
         'my.name', or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
    ))
}

fn check_value(key: &str, value: &str) -> Result<(), String> {
    if value.is_empty() || is_name_part(value) {
        return Ok(());
    }
    Err(format!(
        "unable to parse requirement: values[0][{key}]: Invalid value: \"{value}\": a valid label must be an empty \
         string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
         character (e.g. 'MyValue', or 'my_value', or '12345', regex used for validation is \
         '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
    ))
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
    fn label_selectors_match_as_kubernetes_does() {
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
    fn bad_label_selectors_are_refused_in_the_words_of_kubernetes() {
        for (bad, message) in [
            ("a b c", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
            ("a in x", "unable to parse requirement: found 'x' expected: '('"),
            ("a,", "found '', expected: identifier after ','"),
            (",", "found ',', expected: !, identifier, or 'end of string'"),
        ] {
            assert_eq!(parse_labels(bad).unwrap_err(), message);
        }
        for bad in ["-a", "a=-b", "a in (", "a in (b", "!", "!a=b", "a>x", "a=b c", "(", "a in (b c)", "ä"] {
            assert!(parse_labels(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn field_selectors_know_declared_fields_only() {
        let resource = ApiResource::new("", "v1", "things", "Thing").field("spec.node");
        let object = json!({ "metadata": { "name": "a,b", "namespace": "n" }, "spec": { "node": 5 } });
        let matches = |text: &str| {
            Selection::parse("", text, &resource).map(|s| s.matches(object.as_object().unwrap()))
        };
        assert_eq!(matches("spec.node=5,metadata.namespace==n"), Ok(true));
        assert_eq!(matches("spec.node!=5"), Ok(false));
        assert_eq!(matches("metadata.name=a\\,b"), Ok(true));
        assert_eq!(matches("spec.other=5").unwrap_err().message(), "field label not supported: spec.other");
        assert_eq!(matches("xx").unwrap_err().message(), "invalid selector: 'xx'; can't understand 'xx'");
        assert_eq!(matches("").map_err(|e| e.code()), Ok(true));
    }
}
