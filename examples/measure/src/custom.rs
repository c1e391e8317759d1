//! A custom struct with only the needed fields of a Pod. This is the cheapest cache.

use std::fmt;

use k8s_informer::{Object, ObjectMeta, impl_object};
use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{DeserializeSeed, Error, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::latency::parse;

/// Metadata, node and phase of a Pod.
#[derive(Deserialize)]
#[allow(dead_code, reason = "a cache only holds the fields")]
pub(crate) struct Pod {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(dead_code, reason = "a cache only holds the fields")]
struct Spec {
    node_name: Option<String>,
}

#[derive(Default, Deserialize)]
#[allow(dead_code, reason = "a cache only holds the fields")]
struct Status {
    phase: Option<String>,
}

impl_object!(Pod, "v1", "Pod", "pods", Namespaced);

impl Pod {
    /// Returns the send time, or 0 if unknown.
    pub(crate) fn sent_at(&self) -> u64 {
        self.metadata.sent_at
    }
}

/// The metadata of the crate and the send time. No other annotation is allocated.
struct Metadata {
    meta: ObjectMeta,
    sent_at: u64,
}

impl Object for Metadata {
    fn name(&self) -> &str {
        self.meta.name()
    }

    fn namespace(&self) -> &str {
        self.meta.namespace()
    }

    fn uid(&self) -> &str {
        self.meta.uid()
    }

    fn resource_version(&self) -> &str {
        self.meta.resource_version()
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.meta.label(key)
    }
}

/// `ObjectMeta` reads the map without the annotations. The annotations are read separately, in the
/// same pass.
impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MetadataVisitor;
        impl<'de> Visitor<'de> for MetadataVisitor {
            type Value = Metadata;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("metadata")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Metadata, A::Error> {
                let mut sent_at = 0;
                let others = WithoutAnnotations {
                    map,
                    sent_at: &mut sent_at,
                };
                let meta = ObjectMeta::deserialize(MapAccessDeserializer::new(others))?;
                Ok(Metadata { meta, sent_at })
            }
        }
        deserializer.deserialize_map(MetadataVisitor)
    }
}

struct WithoutAnnotations<'a, A> {
    map: A,
    sent_at: &'a mut u64,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for WithoutAnnotations<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        let mut seed = Some(seed);
        loop {
            match self.map.next_key_seed(NextKey { seed: &mut seed })? {
                None => return Ok(None),
                Some(Key::Other(key)) => return Ok(Some(key)),
                Some(Key::Annotations) => {
                    let annotations: Option<Annotations> = self.map.next_value()?;
                    *self.sent_at = annotations.map_or(0, |annotations| annotations.sent_at);
                }
            }
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}

/// Reads the next key: recognizes `annotations`, and passes any other key to `seed`.
struct NextKey<'a, K> {
    /// `Some` until another key consumes it.
    seed: &'a mut Option<K>,
}

enum Key<V> {
    Annotations,
    Other(V),
}

impl<'de, K: DeserializeSeed<'de>> DeserializeSeed<'de> for NextKey<'_, K> {
    type Value = Key<K::Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl<'de, K: DeserializeSeed<'de>> Visitor<'de> for NextKey<'_, K> {
    type Value = Key<K::Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<Self::Value, E> {
        if key == "annotations" {
            return Ok(Key::Annotations);
        }
        let seed = self
            .seed
            .take()
            .ok_or_else(|| E::custom("the seed of a key was already used"))?;
        let key: StrDeserializer<'_, E> = key.into_deserializer();
        seed.deserialize(key).map(Key::Other)
    }
}

#[derive(Deserialize)]
pub(crate) struct Annotations {
    #[serde(rename = "example.com/sent-at", default, deserialize_with = "time")]
    pub(crate) sent_at: u64,
}

/// Parses a time from text without copying it.
fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    struct TextVisitor;
    impl Visitor<'_> for TextVisitor {
        type Value = u64;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("nanoseconds since 1970, as text")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
            Ok(parse(text))
        }
    }
    deserializer.deserialize_str(TextVisitor)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(metadata: &str) -> Pod {
        serde_json::from_str(&format!(
            r#"{{"kind": "Pod", "metadata": {metadata}, "spec": {{"nodeName": "n", "containers": []}}}}"#
        ))
        .unwrap()
    }

    #[test]
    fn metadata_matches_object_meta_for_any_annotations() {
        let others = r#""name": "a", "namespace": "b", "uid": "c", "resourceVersion": "7", "finalizers": ["x"],
            "labels": {"app": "web"}"#;
        let annotated = [
            (format!("{{{others}}}"), 0),
            (format!(r#"{{"annotations": null, {others}}}"#), 0),
            (format!(r#"{{"annotations": {{"x": "y"}}, {others}}}"#), 0),
            (
                format!(
                    r#"{{{others}, "annotations": {{"x": "y", "example.com/sent-at": "0042", "z": "0"}}}}"#
                ),
                42,
            ),
            (
                format!(r#"{{{others}, "annotations": {{"example.com/sent\u002dat": "0042"}}}}"#),
                42,
            ),
        ];
        for (metadata, sent_at) in annotated {
            let pod = pod(&metadata);
            let Pod {
                metadata,
                spec,
                status,
            } = &pod;
            let expected: ObjectMeta = serde_json::from_str(&format!("{{{others}}}")).unwrap();
            assert_eq!((&metadata.meta, pod.sent_at()), (&expected, sent_at));
            assert_eq!(
                (spec.node_name.as_deref(), status.phase.as_deref()),
                (Some("n"), None)
            );
            assert_eq!((pod.name(), pod.namespace(), pod.uid()), ("a", "b", "c"));
            assert_eq!(
                (pod.resource_version(), pod.label("app")),
                ("7", Some("web"))
            );
        }
    }
}
