//! Resource versions and their order.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};

/// The resource version of a state. A decimal number without leading zeros can be compared. Any other
/// text and `0` are only equal to themselves.
///
/// Apimachinery's `CompareResourceVersion` is the comparison with `partial_cmp`. Versions are comparable
/// only within one resource of one server. A version of at most 19 digits
/// needs no allocation, and every version takes 16 bytes, also in an `Option`.
///
/// ```
/// use k8s_informer::object::ResourceVersion;
///
/// let [nine, ten, text] = ["9", "10", "abc"].map(|text| ResourceVersion::new(text).unwrap());
/// assert!(nine < ten);
/// assert_eq!(nine.partial_cmp(&text), None);
/// assert_eq!(text.to_string(), "abc");
/// assert_eq!(ResourceVersion::new(""), None);
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct ResourceVersion(Repr);

/// Numbers have no leading zeros. The texts are behind a pointer, so that an `Option` of a version
/// needs no more space.
#[derive(Clone, PartialEq, Eq)]
enum Repr {
    /// `0`, which stands for any state.
    Any,
    /// A number of at most 19 digits, which always fits into a `u64`.
    Number(u64),
    /// The digits of a longer number.
    LongNumber(Arc<String>),
    Text(Arc<String>),
}

impl ResourceVersion {
    /// Returns the version with this text, or `None` if the text is empty.
    pub fn new(version: &str) -> Option<Self> {
        match version {
            "" => return None,
            "0" => return Some(Self(Repr::Any)),
            _ => {}
        }
        // Every watch event calls this, so the digits of the usual version are read only once.
        let number = match version.starts_with('0') {
            true => None,
            false => version.bytes().try_fold(0_u64, |number, byte| {
                let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
                Some(number.wrapping_mul(10).wrapping_add(digit))
            }),
        };
        Some(Self(match number {
            // Any 19 digits fit.
            Some(number) if version.len() < 20 => Repr::Number(number),
            Some(_) => Repr::LongNumber(Arc::new(version.to_owned())),
            None => Repr::Text(Arc::new(version.to_owned())),
        }))
    }

    /// Returns `0`, which requests any state.
    pub(crate) fn any() -> Self {
        Self(Repr::Any)
    }

    /// Whether this is `0`. A request with it stands for any state, and no state has it.
    pub(crate) fn is_any(&self) -> bool {
        matches!(self.0, Repr::Any)
    }

    /// Compares two versions. Returns `None` if one of them is not comparable, even if they are equal.
    pub(crate) fn compare(&self, other: &Self) -> Option<Ordering> {
        match (&self.0, &other.0) {
            (Repr::Number(a), Repr::Number(b)) => Some(a.cmp(b)),
            (Repr::Number(_), Repr::LongNumber(_)) => Some(Ordering::Less),
            (Repr::LongNumber(_), Repr::Number(_)) => Some(Ordering::Greater),
            (Repr::LongNumber(a), Repr::LongNumber(b)) => {
                Some(a.len().cmp(&b.len()).then_with(|| a.cmp(b)))
            }
            (Repr::Text(_) | Repr::Any, _) | (_, Repr::Text(_) | Repr::Any) => None,
        }
    }

    /// Whether this version is `wanted` or a later one. `false` if they cannot be compared.
    pub(crate) fn is_at_least(&self, wanted: &Self) -> bool {
        self.compare(wanted).is_some_and(Ordering::is_ge)
    }

    /// Whether `last` is a later version. `false` if they cannot be compared.
    pub(crate) fn is_before(&self, last: Option<&Self>) -> bool {
        let order = last.and_then(|last| self.compare(last));
        order == Some(Ordering::Less)
    }

    /// Replaces `last` with this version, unless this one is older. If they cannot be compared, this one
    /// counts as newer.
    pub(crate) fn advance(self, last: &mut Option<Self>) {
        if !self.is_before(last.as_ref()) {
            *last = Some(self);
        }
    }

    /// Returns the lowest version. Returns `None` if one of them is unknown, if there is none, or if
    /// they cannot be compared.
    pub(crate) fn lowest(versions: impl IntoIterator<Item = Option<Self>>) -> Option<Self> {
        let lower = |a: Self, b: Self| match a.compare(&b)? {
            Ordering::Greater => Some(b),
            _ => Some(a),
        };
        let mut versions = versions.into_iter();
        let first = versions.next()??;
        versions.try_fold(first, |lowest, version| lower(lowest, version?))
    }

    /// Returns the text of a version, as Kubernetes writes it: empty if it is unknown.
    pub(crate) fn text(version: Option<&Self>) -> String {
        version.map(Self::to_string).unwrap_or_default()
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::Any => f.write_str("0"),
            Repr::Number(number) => number.fmt(f),
            Repr::LongNumber(text) | Repr::Text(text) => f.write_str(text),
        }
    }
}

/// Writes the version as a JSON string, as Kubernetes does.
impl Serialize for ResourceVersion {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Debug for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.to_string(), f)
    }
}

/// Compares versions as apimachinery does. A version without an order is only comparable with itself.
impl PartialOrd for ResourceVersion {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        match self == other {
            true => Some(Ordering::Equal),
            false => self.compare(other),
        }
    }
}

/// A version that is a number, so that it has an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparable(ResourceVersion);

impl Comparable {
    /// Returns `None` if the version is not a number.
    pub fn new(version: ResourceVersion) -> Option<Self> {
        match version.0 {
            Repr::Number(_) | Repr::LongNumber(_) => Some(Self(version)),
            Repr::Text(_) | Repr::Any => None,
        }
    }

    /// Returns the version.
    pub fn version(&self) -> &ResourceVersion {
        &self.0
    }
}

impl Ord for Comparable {
    fn cmp(&self, other: &Self) -> Ordering {
        match self.0.compare(&other.0) {
            Some(order) => order,
            None => unreachable!("both are numbers"),
        }
    }
}

impl PartialOrd for Comparable {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Comparable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compare(a: &str, b: &str) -> Option<Ordering> {
        ResourceVersion::new(a)?.compare(&ResourceVersion::new(b)?)
    }

    #[test]
    fn versions_compare_as_in_apimachinery() {
        let long = "9".repeat(40);
        let longer = format!("1{long}");
        let versions = [
            "1",
            "9",
            "10",
            "9999999999999999999",
            "18446744073709551616",
            &long,
            &longer,
        ];
        for (at, a) in versions.into_iter().enumerate() {
            for (other, b) in versions.into_iter().enumerate() {
                assert_eq!(compare(a, b), Some(at.cmp(&other)), "{a} {b}");
                let versions = [a, b].map(|text| Comparable::new(ResourceVersion::new(text)?));
                assert_eq!(
                    versions[0]
                        .as_ref()
                        .unwrap()
                        .cmp(versions[1].as_ref().unwrap()),
                    at.cmp(&other),
                    "{a} {b}"
                );
            }
        }
        for none in ["", "0", "01", "+1", "-1", "1.0", "1 ", "a", "٣"] {
            assert_eq!(compare(none, "1"), None, "{none}");
            assert_eq!(compare("1", none), None, "{none}");
            assert_eq!(compare(none, none), None, "{none}");
            assert_eq!(
                ResourceVersion::new(none).and_then(Comparable::new),
                None,
                "{none}"
            );
        }
    }

    #[test]
    fn only_an_older_version_does_not_advance() {
        let cases = [
            ("20", "5", "20"),
            ("9", "10", "10"),
            ("20", "20", "20"),
            ("", "5", "5"),
            ("0", "5", "5"),
            ("20", "abc", "abc"),
            ("abc", "5", "5"),
            ("20", "020", "020"),
        ];
        for (last, version, expected) in cases {
            let mut reached = ResourceVersion::new(last);
            ResourceVersion::new(version).unwrap().advance(&mut reached);
            assert_eq!(reached, ResourceVersion::new(expected), "{last} {version}");
        }
    }

    #[test]
    fn version_takes_16_bytes_and_keeps_its_text() {
        assert_eq!(size_of::<ResourceVersion>(), 16);
        assert_eq!(size_of::<Option<ResourceVersion>>(), 16);
        for text in [
            "0",
            "7",
            "007",
            "9999999999999999999",
            "18446744073709551616",
            "abc",
        ] {
            assert_eq!(ResourceVersion::new(text).unwrap().to_string(), text);
        }
        assert_eq!(ResourceVersion::new(""), None);
    }
}
