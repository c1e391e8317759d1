//! The fields of Leases and Events, decoded and encoded as in Go. Other kinds have no schema.

use serde_json::{Map, Value};

use super::object::Content;
use super::resources::ApiResource;
use super::validate::type_name;
use crate::time::{UnixTime, rfc3339};

use Type::{Int32, MicroTime, Struct, Text, Time};
use Zero::{Disabled, Omitted, Pointer, Shown};

/// The fields of a kind besides `metadata`.
pub(crate) struct Schema {
    kind: &'static str,
    fields: &'static [Field],
    /// The fields of the stored form, in the same order.
    stored: &'static [Field],
}

/// A field: its name, its type, and what becomes of its zero value.
struct Field(&'static str, Type, Zero);

enum Type {
    Text,
    Int32,
    /// `metav1.Time`: seconds.
    Time,
    /// `metav1.MicroTime`: exactly six digits after the point.
    MicroTime,
    /// The Go type and its fields.
    Struct(&'static str, &'static [Field]),
}

#[derive(Clone, Copy, PartialEq)]
enum Zero {
    /// Without `omitempty`.
    Shown,
    /// With `omitempty`.
    Omitted,
    /// A pointer: an absent value differs from a zero value.
    Pointer,
    /// The server drops any value, because the feature gate of the field is off by default.
    Disabled,
}

static LEASE: Schema = Schema {
    kind: "Lease",
    fields: LEASE_FIELDS,
    stored: LEASE_FIELDS,
};

static CORE_EVENT: Schema = Schema {
    kind: "Event",
    fields: CORE_EVENT_FIELDS,
    stored: CORE_EVENT_FIELDS,
};

/// `events.k8s.io/v1`. Both APIs share the stored form, which is that of the core API.
static EVENT: Schema = Schema {
    kind: "Event",
    fields: EVENT_FIELDS,
    stored: CORE_EVENT_FIELDS,
};

const LEASE_FIELDS: &[Field] = &[Field("spec", LEASE_SPEC, Shown)];

const LEASE_SPEC: Type = Struct(
    "LeaseSpec",
    &[
        Field("holderIdentity", Text, Pointer),
        Field("leaseDurationSeconds", Int32, Pointer),
        Field("acquireTime", MicroTime, Pointer),
        Field("renewTime", MicroTime, Pointer),
        Field("leaseTransitions", Int32, Pointer),
        // The gate CoordinatedLeaderElection.
        Field("strategy", Text, Disabled),
        Field("preferredHolder", Text, Disabled),
    ],
);

const CORE_EVENT_FIELDS: &[Field] = &[
    Field("involvedObject", REFERENCE, Shown),
    Field("reason", Text, Omitted),
    Field("message", Text, Omitted),
    Field("source", SOURCE, Shown),
    Field("firstTimestamp", Time, Shown),
    Field("lastTimestamp", Time, Shown),
    Field("count", Int32, Omitted),
    Field("type", Text, Omitted),
    Field("eventTime", MicroTime, Shown),
    Field("series", CORE_SERIES, Pointer),
    Field("action", Text, Omitted),
    Field("related", REFERENCE, Pointer),
    Field("reportingComponent", Text, Shown),
    Field("reportingInstance", Text, Shown),
];

/// The same fields in the same order.
const EVENT_FIELDS: &[Field] = &[
    Field("regarding", REFERENCE, Shown),
    Field("reason", Text, Omitted),
    Field("note", Text, Omitted),
    Field("deprecatedSource", SOURCE, Shown),
    Field("deprecatedFirstTimestamp", Time, Shown),
    Field("deprecatedLastTimestamp", Time, Shown),
    Field("deprecatedCount", Int32, Omitted),
    Field("type", Text, Omitted),
    Field("eventTime", MicroTime, Shown),
    Field("series", SERIES, Pointer),
    Field("action", Text, Omitted),
    Field("related", REFERENCE, Pointer),
    Field("reportingController", Text, Omitted),
    Field("reportingInstance", Text, Omitted),
];

/// The fields of an `ObjectReference`, in the order in which Go prints them.
const REFERENCE: Type = Struct(
    "ObjectReference",
    &[
        Field("kind", Text, Omitted),
        Field("namespace", Text, Omitted),
        Field("name", Text, Omitted),
        Field("uid", Text, Omitted),
        Field("apiVersion", Text, Omitted),
        Field("resourceVersion", Text, Omitted),
        Field("fieldPath", Text, Omitted),
    ],
);

const SOURCE: Type = Struct(
    "EventSource",
    &[
        Field("component", Text, Omitted),
        Field("host", Text, Omitted),
    ],
);

const CORE_SERIES: Type = Struct(
    "EventSeries",
    &[
        Field("count", Int32, Omitted),
        Field("lastObservedTime", MicroTime, Shown),
    ],
);

const SERIES: Type = Struct(
    "EventSeries",
    &[
        Field("count", Int32, Shown),
        Field("lastObservedTime", MicroTime, Shown),
    ],
);

impl Schema {
    /// Returns the schema of a resource, if it has one.
    pub(crate) fn of(resource: &ApiResource) -> Option<&'static Self> {
        match (&*resource.group, &*resource.plural) {
            _ if resource.custom => None,
            ("", "events") => Some(&CORE_EVENT),
            ("events.k8s.io", "events") => Some(&EVENT),
            ("coordination.k8s.io", "leases") => Some(&LEASE),
            _ => None,
        }
    }

    /// Returns an object in its stored form, without unknown fields. An error is the reason why a
    /// value does not have the type of its field.
    pub(crate) fn decode(&self, mut object: Content) -> Result<Content, String> {
        let mut stored = Content::new();
        stored.extend(object.remove_entry("metadata"));
        for (field, to) in self.fields.iter().zip(self.stored) {
            let value = field.decode(object.remove(field.0), self.kind, field.0)?;
            to.put(value, &mut stored);
        }
        Ok(stored)
    }

    /// Whether the stored form differs from the form that clients see.
    pub(crate) fn is_converted(&self) -> bool {
        !std::ptr::eq(self.fields, self.stored)
    }

    /// Returns a stored object in the form that clients see.
    pub(crate) fn encode(&self, stored: &Content) -> Content {
        let mut object = Content::new();
        if let Some(metadata) = stored.get("metadata") {
            object.insert("metadata".to_owned(), metadata.clone());
        }
        for (field, from) in self.fields.iter().zip(self.stored) {
            field.put(stored.get(from.0).cloned(), &mut object);
        }
        object
    }

    /// Returns the path of a field in the stored form.
    pub(crate) fn stored_path(&self, path: &str) -> String {
        let (first, rest) = path.split_at(path.find('.').unwrap_or(path.len()));
        let mut fields = self.fields.iter().zip(self.stored);
        let stored = fields.find(|(field, _)| field.0 == first);
        format!("{}{rest}", stored.map_or(first, |(_, stored)| stored.0))
    }

    /// Returns the value of a stored field as Go prints it in an error.
    pub(crate) fn shown(&self, name: &str, value: Option<&Value>) -> String {
        let field = self.stored.iter().find(|field| field.0 == name);
        match (field.map(|field| &field.1), value) {
            (Some(Struct(_, fields)), Some(Value::Object(value))) => {
                let each = fields.iter().map(|Field(name, ..)| {
                    let value = value.get(*name).and_then(Value::as_str).unwrap_or_default();
                    format!("\"{}\":{}", go_name(name), Value::from(value))
                });
                format!("{{{}}}", each.collect::<Vec<_>>().join(","))
            }
            (Some(Text), None) => "\"\"".to_owned(),
            (Some(Int32), None) => "0".to_owned(),
            (_, value) => value.unwrap_or(&Value::Null).to_string(),
        }
    }

    /// Whether the kind has this field.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.fields.iter().any(|field| field.0 == name)
    }

    /// Removes unknown fields within the fields of the kind, and adds their paths to `unknown`.
    pub(crate) fn take_unknown(&self, object: &mut Content, unknown: &mut Vec<String>) {
        for Field(name, of, _) in self.fields {
            if let (Struct(_, known), Some(Value::Object(inner))) = (of, object.get_mut(*name)) {
                inner.retain(|field, value| {
                    let is_known = known.iter().any(|known| known.0 == field);
                    if !is_known && !value.is_null() {
                        unknown.push(format!("{name}.{field}"));
                    }
                    is_known
                });
            }
        }
    }
}

impl Field {
    /// Returns the value in its canonical form, or `None` for null. `owner` is the Go type that has
    /// the field, `path` the path of the field in the object.
    fn decode(
        &self,
        value: Option<Value>,
        owner: &str,
        path: &str,
    ) -> Result<Option<Value>, String> {
        let mismatch = |value: &Value, wanted: &str| {
            let found = match value {
                Value::Number(number) if wanted == "int32" => format!("number {number}"),
                other => type_name(other).to_owned(),
            };
            Err(format!(
                "json: cannot unmarshal {found} into Go struct field {owner}.{path} of type {wanted}"
            ))
        };
        let value = match (&self.1, value) {
            (_, None | Some(Value::Null)) => return Ok(None),
            (Text, Some(text @ Value::String(_))) => text,
            (Time, Some(Value::String(text))) => match parse_time(&text, false)? {
                Some(time) => rfc3339::seconds(time.seconds).into(),
                None => return Ok(None),
            },
            (MicroTime, Some(Value::String(text))) => match parse_time(&text, true)? {
                Some(time) => rfc3339::microseconds(time.seconds, time.nanoseconds).into(),
                None => return Ok(None),
            },
            (Text | Time | MicroTime, Some(other)) => return mismatch(&other, "string"),
            (Int32, Some(value)) => match value.as_i64().map(i32::try_from) {
                Some(Ok(number)) => number.into(),
                _ => return mismatch(&value, "int32"),
            },
            (Struct(go_type, fields), Some(Value::Object(mut inner))) => {
                let mut canonical = Map::new();
                for field in *fields {
                    let path = format!("{path}.{}", field.0);
                    if let Some(value) = field.decode(inner.remove(field.0), go_type, &path)? {
                        canonical.insert(field.0.to_owned(), value);
                    }
                }
                canonical.into()
            }
            (Struct(go_type, _), Some(other)) => return mismatch(&other, &format!("v1.{go_type}")),
        };
        Ok(Some(value))
    }

    /// Adds the value to `object` as Go serializes it.
    fn put(&self, value: Option<Value>, object: &mut Content) {
        let Self(name, of, zero) = self;
        let mut value = match (zero, value.filter(|value| !value.is_null())) {
            (Disabled, _) | (Omitted | Pointer, None) => return,
            (Omitted, Some(value)) if value == "" || value == 0 => return,
            (_, Some(value)) => value,
            (Shown, None) => match of {
                Text => "".into(),
                Int32 => 0.into(),
                Time | MicroTime => Value::Null,
                Struct(..) => Map::new().into(),
            },
        };
        if let (Struct(_, fields), Value::Object(inner)) = (of, &mut value) {
            for field in *fields {
                field.put(inner.remove(field.0), inner);
            }
        }
        object.insert((*name).to_owned(), value);
    }
}

fn go_name(name: &str) -> String {
    match name {
        "uid" => "UID".to_owned(),
        "apiVersion" => "APIVersion".to_owned(),
        _ => format!("{}{}", name[..1].to_uppercase(), &name[1..]),
    }
}

/// Parses a time with the error messages of Go's `time.Parse`. Go's zero time is `None`.
fn parse_time(text: &str, micro: bool) -> Result<Option<UnixTime>, String> {
    let mut elements = vec![
        "2006", "-", "01", "-", "02", "T", "15", ":", "04", ":", "05",
    ];
    elements.extend(micro.then_some(".000000"));
    let wrong = |why: String| format!("parsing time {text:?}{why}");
    let unlike = |rest: &str, element: &str| {
        let layout = elements.concat();
        let why = format!(" as \"{layout}Z07:00\": cannot parse {rest:?} as \"{element}\"");
        wrong(why)
    };
    let mut rest = text;
    for element in &elements {
        rest = after(rest, element).ok_or_else(|| unlike(rest, element))?;
    }
    // Go accepts a fraction after the seconds of any layout.
    if let (false, Some(fraction)) = (micro, rest.strip_prefix('.')) {
        rest = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
    }
    let zones = ["Z", "+07:00", "-07:00"];
    match zones.iter().find_map(|zone| after(rest, zone)) {
        None => Err(unlike(rest, "Z07:00")),
        Some("") => UnixTime::parse(text).map_err(|_| wrong(": out of range".to_owned())),
        Some(extra) => Err(wrong(format!(": extra text: {extra:?}"))),
    }
}

/// Returns what follows an element of a time layout, in which digits stand for any digits.
fn after<'a>(text: &'a str, element: &str) -> Option<&'a str> {
    let (found, rest) = text.split_at_checked(element.len())?;
    let mut pairs = found.bytes().zip(element.bytes());
    pairs
        .all(|(found, wanted)| found == wanted || found.is_ascii_digit() && wanted.is_ascii_digit())
        .then_some(rest)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn events_convert_between_both_apis_without_loss() {
        let reference = json!({ "kind": "Pod", "namespace": "a", "name": "b" });
        let event = json!({
            "metadata": { "name": "e" },
            "regarding": reference, "related": reference, "reason": "R", "note": "N",
            "deprecatedSource": { "component": "c", "host": "h" },
            "deprecatedFirstTimestamp": "2024-01-02T03:04:05Z",
            "deprecatedLastTimestamp": "2024-01-02T03:04:06Z",
            "deprecatedCount": 3, "type": "Normal", "eventTime": "2024-01-02T03:04:05.000006Z",
            "series": { "count": 2, "lastObservedTime": "2024-01-02T03:04:07.000000Z" },
            "action": "A", "reportingController": "c", "reportingInstance": "i",
        });
        let Value::Object(event) = event else {
            unreachable!()
        };
        assert_eq!(event.len(), 1 + EVENT_FIELDS.len(), "all fields are set");
        let stored = EVENT.decode(event.clone()).unwrap();
        assert_eq!(stored["message"], "N");
        assert_eq!(stored["reportingComponent"], "c");
        assert_eq!(CORE_EVENT.decode(stored.clone()).unwrap(), stored);
        assert_eq!(EVENT.encode(&stored), event);
    }

    #[test]
    fn times_parse_with_the_errors_of_go() {
        let parse = |text, micro| {
            let of = if micro { MicroTime } else { Time };
            Field("time", of, Pointer).decode(Some(json!(text)), "", "")
        };
        for (text, micro, expected) in [
            (
                "2024-01-02T05:04:05.123456+02:00",
                true,
                json!("2024-01-02T03:04:05.123456Z"),
            ),
            (
                "2024-01-02T03:04:05.9Z",
                false,
                json!("2024-01-02T03:04:05Z"),
            ),
            (
                "9999-12-31T23:59:59.999999Z",
                true,
                json!("9999-12-31T23:59:59.999999Z"),
            ),
            (
                "1969-12-31T23:59:58.5Z",
                false,
                json!("1969-12-31T23:59:58Z"),
            ),
        ] {
            assert_eq!(parse(text, micro), Ok(Some(expected)), "{text}");
        }
        assert_eq!(parse("0001-01-01T00:00:00Z", false), Ok(None));
        for (text, micro, why) in [
            (
                "2024-01-02T03:04:05Z",
                true,
                r#"cannot parse "Z" as ".000000""#,
            ),
            (
                "2024-01-02T03:04:05.1Z",
                true,
                r#"cannot parse ".1Z" as ".000000""#,
            ),
            (
                "2024-01-02T03:04:05.1234567Z",
                true,
                r#"cannot parse "7Z" as "Z07:00""#,
            ),
            ("2024-01-02", false, r#"cannot parse "" as "T""#),
            ("", false, r#"cannot parse "" as "2006""#),
            ("ä024", false, r#"cannot parse "ä024" as "2006""#),
            ("2024-01-02T03:04:05Zx", false, r#"extra text: "x""#),
            ("2024-13-02T03:04:05Z", false, "out of range"),
            (
                "2024-01-02T03:04:05+x",
                false,
                r#"cannot parse "+x" as "Z07:00""#,
            ),
        ] {
            let error = parse(text, micro).unwrap_err();
            assert!(error.ends_with(why), "{text}: {error}");
        }
    }
}
