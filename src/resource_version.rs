//! Resource versions and their order.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// Compares two resource versions as decimal numbers of any length. Returns `None` if one of them
/// is not a decimal number or begins with a zero. apimachinery's `CompareResourceVersion`.
///
/// Versions are comparable only within one resource of one server.
///
/// ```
/// use k8s_informer::object::compare_resource_versions;
/// use std::cmp::Ordering;
///
/// assert_eq!(compare_resource_versions("9", "10"), Some(Ordering::Less));
/// assert_eq!(compare_resource_versions("9", "abc"), None);
/// ```
pub fn compare_resource_versions(a: &str, b: &str) -> Option<Ordering> {
    let comparable = is_comparable(a) && is_comparable(b);
    comparable.then(|| a.len().cmp(&b.len()).then_with(|| a.cmp(b)))
}

/// Whether `version` is `wanted` or a later one. `false` if they cannot be compared.
pub(crate) fn is_at_least(version: &str, wanted: &str) -> bool {
    compare_resource_versions(version, wanted).is_some_and(Ordering::is_ge)
}

/// Replaces `last` with `version`, unless `version` is older. If they cannot be compared, `version`
/// counts as newer.
pub(crate) fn advance(last: &mut String, version: &str) {
    if compare_resource_versions(version, last) != Some(Ordering::Less) {
        version.clone_into(last);
    }
}

/// Whether a resource version is a decimal number without leading zeros.
pub(crate) fn is_comparable(version: &str) -> bool {
    !version.is_empty()
        && !version.starts_with('0')
        && version.bytes().all(|byte| byte.is_ascii_digit())
}

/// A resource version: a decimal number, which can be compared, or another text, which cannot.
///
/// Versions are comparable only within one resource of one server. A version of at most 19 digits
/// needs no allocation, and every version takes 16 bytes, also in an `Option`.
///
/// ```
/// use k8s_informer::object::ResourceVersion;
///
/// let [nine, ten, text] = ["9", "10", "abc"].map(ResourceVersion::from);
/// assert!(nine < ten);
/// assert_eq!(nine.partial_cmp(&text), None);
/// assert_eq!(text.to_string(), "abc");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct ResourceVersion(Repr);

#[derive(Clone, PartialEq, Eq)]
enum Repr {
    /// A comparable version of at most 19 digits, which always fit into a `u64`.
    Number(u64),
    /// Any other version. A pointer to the text, not the text itself, so that an `Option` of a
    /// version needs no more space.
    Text(Arc<String>),
}

impl ResourceVersion {
    /// Whether the version identifies a state. An empty version and "0" do not.
    pub(crate) fn is_known(&self) -> bool {
        !matches!(&self.0, Repr::Text(text) if matches!(text.as_str(), "" | "0"))
    }

    pub(crate) fn is_empty(&self) -> bool {
        matches!(&self.0, Repr::Text(text) if text.is_empty())
    }

    /// Compares two versions. Returns `None` if one of them is not comparable, even if they are equal.
    pub(crate) fn compare(&self, other: &Self) -> Option<Ordering> {
        match (&self.0, &other.0) {
            (Repr::Number(a), Repr::Number(b)) => Some(a.cmp(b)),
            _ => compare_resource_versions(&self.to_string(), &other.to_string()),
        }
    }

    /// Returns the lowest version as text. The text is empty if there is none, or if the versions
    /// cannot be compared.
    pub(crate) fn lowest(mut versions: impl Iterator<Item = Self>) -> String {
        let first = versions.next().unwrap_or_default();
        let lower = |a: Self, b: Self| match a.compare(&b)? {
            Ordering::Greater => Some(b),
            _ => Some(a),
        };
        versions
            .try_fold(first, lower)
            .unwrap_or_default()
            .to_string()
    }

    pub(crate) fn is_comparable(&self) -> bool {
        match &self.0 {
            Repr::Number(_) => true,
            Repr::Text(text) => is_comparable(text),
        }
    }
}

/// The empty version.
impl Default for ResourceVersion {
    fn default() -> Self {
        Self(Repr::Text(Arc::default()))
    }
}

impl From<&str> for ResourceVersion {
    fn from(version: &str) -> Self {
        // Any 19 digits fit into a `u64`. Every watch event calls this, so the digits are read only
        // once.
        let digit = |number: u64, byte: u8| {
            byte.is_ascii_digit()
                .then(|| number * 10 + u64::from(byte - b'0'))
        };
        let is_usual = (1..20).contains(&version.len()) && !version.starts_with('0');
        let number = is_usual.then(|| version.bytes().try_fold(0, digit));
        Self(match number.flatten() {
            Some(number) => Repr::Number(number),
            None => Repr::Text(Arc::new(version.to_owned())),
        })
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::Number(number) => number.fmt(f),
            Repr::Text(text) => f.write_str(text),
        }
    }
}

impl fmt::Debug for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.to_string(), f)
    }
}

/// Compares versions as apimachinery does. Two versions that are not decimal numbers are equal or not
/// comparable.
impl PartialOrd for ResourceVersion {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        match self == other {
            true => Some(Ordering::Equal),
            false => self.compare(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
                assert_eq!(
                    compare_resource_versions(a, b),
                    Some(at.cmp(&other)),
                    "{a} {b}"
                );
                assert_eq!(
                    ResourceVersion::from(a).compare(&b.into()),
                    Some(at.cmp(&other)),
                    "{a} {b}"
                );
            }
        }
        for none in ["", "0", "01", "+1", "-1", "1.0", "1 ", "a", "٣"] {
            assert_eq!(compare_resource_versions(none, "1"), None, "{none}");
            assert_eq!(compare_resource_versions("1", none), None, "{none}");
            assert_eq!(compare_resource_versions(none, none), None, "{none}");
            assert_eq!(
                ResourceVersion::from(none).compare(&none.into()),
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
            let mut reached = last.to_owned();
            advance(&mut reached, version);
            assert_eq!(reached, expected, "{last} {version}");
        }
    }

    #[test]
    fn version_takes_16_bytes_and_keeps_its_text() {
        assert_eq!(size_of::<ResourceVersion>(), 16);
        assert_eq!(size_of::<Option<ResourceVersion>>(), 16);
        for text in [
            "",
            "0",
            "7",
            "007",
            "9999999999999999999",
            "18446744073709551616",
            "abc",
        ] {
            assert_eq!(ResourceVersion::from(text).to_string(), text);
        }
    }
}
