//! The fields of Leases and Events. Both APIs for Events share a stored form, which is that of the
//! core API. Other kinds have no schema.

use serde_json::{Map, Value};

use super::resources::ApiResource;

/// The fields of Events that have another name in the core API: their names in
/// `events.k8s.io/v1`, and in the stored form.
const RENAMED: [(&str, &str); 7] = [
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
    ("reportingController", "reportingComponent"),
];

#[derive(Clone, Copy)]
enum Type {
    Text,
    Int32,
    /// A time with six digits after the point.
    MicroTime,
}

/// The types of fields in the stored form, by the plural of the kind.
const TYPES: [(&str, &str, Type); 8] = [
    ("leases", "spec.holderIdentity", Type::Text),
    ("leases", "spec.leaseDurationSeconds", Type::Int32),
    ("leases", "spec.leaseTransitions", Type::Int32),
    ("leases", "spec.acquireTime", Type::MicroTime),
    ("leases", "spec.renewTime", Type::MicroTime),
    ("events", "eventTime", Type::MicroTime),
    ("events", "series.count", Type::Int32),
    ("events", "series.lastObservedTime", Type::MicroTime),
];

/// Whether the stored form of a resource differs from the form that clients see.
pub(crate) fn is_converted(resource: &ApiResource) -> bool {
    resource.group == "events.k8s.io" && resource.plural == "events" && !resource.custom
}

/// Returns an object in its stored form. An error is the path of a field with a wrong type.
pub(crate) fn decode(
    resource: &ApiResource,
    mut object: Map<String, Value>,
) -> Result<Map<String, Value>, &'static str> {
    if resource.custom || !matches!(&*resource.plural, "events" | "leases") {
        return Ok(object);
    }
    remove_nulls(&mut object);
    if is_converted(resource) {
        object = rename(object, |(name, stored)| (name, stored));
    }
    for (plural, path, type_) in TYPES {
        let mut keys = path.split('.');
        let field = keys.next().and_then(|key| object.get(key));
        let value = keys.fold(field, |value, key| value?.get(key));
        if plural == resource.plural && value.is_some_and(|value| !type_.has(value)) {
            return Err(path);
        }
    }
    Ok(object)
}

/// Returns a stored Event in the form of `events.k8s.io/v1`.
pub(crate) fn encode(stored: &Map<String, Value>) -> Map<String, Value> {
    rename(stored.clone(), |(name, stored)| (stored, name))
}

fn rename(
    mut object: Map<String, Value>,
    direction: impl Fn((&'static str, &'static str)) -> (&'static str, &'static str),
) -> Map<String, Value> {
    for (from, to) in RENAMED.map(direction) {
        if let Some(value) = object.remove(from) {
            object.insert(to.to_owned(), value);
        }
    }
    object
}

/// Removes nulls, also from nested objects.
pub(crate) fn remove_nulls(fields: &mut Map<String, Value>) {
    fields.retain(|_, value| !value.is_null());
    for value in fields.values_mut() {
        if let Value::Object(fields) = value {
            remove_nulls(fields);
        }
    }
}

/// Returns the path of a field in the stored form.
pub(crate) fn stored_path(resource: &ApiResource, path: &str) -> String {
    let (first, rest) = path.split_at(path.find('.').unwrap_or(path.len()));
    let renamed = RENAMED.iter().find(|names| names.0 == first);
    match renamed.filter(|_| is_converted(resource)) {
        Some((_, stored)) => format!("{stored}{rest}"),
        None => path.to_owned(),
    }
}

impl Type {
    fn has(self, value: &Value) -> bool {
        match self {
            Self::Text => value.is_string(),
            Self::Int32 => value.as_i64().is_some_and(|n| i32::try_from(n).is_ok()),
            Self::MicroTime => value.as_str().is_some_and(|text| {
                let shape = text.replace(|c: char| c.is_ascii_digit(), "0");
                let zone = shape.strip_prefix("0000-00-00T00:00:00.000000");
                matches!(zone, Some("Z" | "+00:00" | "-00:00"))
            }),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::json;

    fn resource(group: &str, plural: &str) -> ApiResource {
        ApiResource {
            custom: false,
            ..ApiResource::new(group, "v1", plural, "")
        }
    }

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
        let stored = decode(&resource("events.k8s.io", "events"), event.clone()).unwrap();
        assert_eq!(stored["message"], "N");
        assert_eq!(stored["reportingComponent"], "c");
        assert_eq!(
            decode(&resource("", "events"), stored.clone()).unwrap(),
            stored
        );
        assert_eq!(encode(&stored), event);
    }

    #[test]
    fn lease_times_need_six_digits_of_fraction() {
        let leases = resource("coordination.k8s.io", "leases");
        let with_time = |time: Value| {
            let lease = json!({ "spec": { "renewTime": time } });
            decode(&leases, lease.as_object().unwrap().clone())
        };
        for time in [
            json!("2024-01-02T03:04:05.123456Z"),
            json!("2024-01-02T05:04:05.123456+02:00"),
            json!(null),
        ] {
            assert!(with_time(time.clone()).is_ok(), "{time}");
        }
        for time in [
            json!("2024-01-02T03:04:05Z"),
            json!("2024-01-02T03:04:05.1Z"),
            json!("2024-01-02T03:04:05.1234567Z"),
            json!(""),
            json!(5),
        ] {
            assert_eq!(with_time(time.clone()), Err("spec.renewTime"), "{time}");
        }
    }
}
