//! Digests of the JSON of objects.

use std::hash::{BuildHasher, Hasher};
use std::num::NonZeroU64;
use std::sync::LazyLock;

#[cfg(simulation)]
use super::hash::RandomState;
#[cfg(not(simulation))]
use foldhash::quality::RandomState;

/// Keyed at random for each process, so that no object can be made to have the digest of another.
static HASH: LazyLock<RandomState> = LazyLock::new(RandomState::default);

/// A digest of the JSON from which an object was decoded, or none. Two objects of one resource with
/// the same digest are equal.
///
/// It covers what the object was decoded from, so not the fields that the decoder skips: some API
/// servers leave out `managedFields` in some responses. It also leaves out `apiVersion` and `kind`,
/// which API servers write in watch events, but often not in list items. The other members have the
/// same bytes in both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Digest(Option<NonZeroU64>);

impl Digest {
    /// The digest of an object that was not decoded from JSON. It equals no other.
    pub(crate) const NONE: Self = Self(None);

    /// Returns the digest of the JSON of an object, from which the skipped fields have been cut.
    pub(crate) fn of(object: &[u8]) -> Self {
        let mut hasher = HASH.build_hasher();
        hasher.write(without_type_meta(object));
        Self(Some(
            NonZeroU64::new(hasher.finish()).unwrap_or(NonZeroU64::MAX),
        ))
    }

    /// Whether both are digests of the same JSON.
    pub(crate) fn is_same(self, other: Self) -> bool {
        self.0.is_some() && self == other
    }

    /// Whether both are digests, and of different JSON.
    pub(crate) fn differs(self, other: Self) -> bool {
        !self.is_none() && !other.is_none() && self != other
    }

    pub(crate) fn is_none(self) -> bool {
        self.0.is_none()
    }
}

/// Returns the JSON of an object from its first member other than `apiVersion` and `kind`, if it
/// begins with these two as API servers write them.
fn without_type_meta(object: &[u8]) -> &[u8] {
    let object = object.trim_ascii();
    let Some(mut rest) = object.strip_prefix(b"{") else {
        return object;
    };
    for _ in 0..2 {
        let value = [&br#""apiVersion":""#[..], br#""kind":""#]
            .into_iter()
            .find_map(|key| rest.strip_prefix(key));
        let Some(value) = value else { break };
        let Some(end) = value.iter().position(|byte| matches!(byte, b'"' | b'\\')) else {
            break;
        };
        match value[end..].strip_prefix(br#"","#) {
            Some(after) => rest = after,
            None => break,
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_meta_at_the_beginning_does_not_count() {
        let members = r#""metadata":{"name":"a"},"kind":"last"}"#;
        let digest = |head: &str| Digest::of(format!("{head}{members}\n").as_bytes());
        let plain = digest("{");
        for head in [
            r#"{"kind":"Pod","apiVersion":"v1","#,
            r#"{"apiVersion":"example.com/v1","kind":"Widget","#,
            r#"{"kind":"Pod","#,
        ] {
            assert!(digest(head).is_same(plain), "{head}");
        }
        for other in [
            r#"{"kind":"a\"b","#,
            r#"{"data":{},"kind":"Pod","#,
            r#"{"kind":"a","kind":"b","kind":"c","#,
            r#"{"kind": "Pod","#,
        ] {
            assert!(!digest(other).is_same(plain), "{other}");
        }
    }

    #[test]
    fn no_digest_is_the_same_as_none() {
        assert!(!Digest::NONE.is_same(Digest::NONE));
        assert!(!Digest::NONE.differs(Digest::NONE) && !Digest::NONE.differs(Digest::of(b"{}")));
        assert!(Digest::of(b"{}").differs(Digest::of(b"[]")));
        assert!(
            !Digest::of(b"{}").is_same(Digest::NONE) && Digest::of(b"").is_same(Digest::of(b""))
        );
    }
}
