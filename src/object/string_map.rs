use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Index, Range};

use serde::de::{DeserializeSeed, Error, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A compact map of strings, sorted by key, for labels, annotations and node selectors.
///
/// It corresponds to Go's `map[string]string`.
///
/// # Performance
///
/// The map uses little more memory than its strings. All entries share one allocation, and an empty
/// map allocates nothing. A `BTreeMap<String, String>` has a node of half a kilobyte, and an
/// allocation for each key and value.
///
/// [`get`](Self::get) scans the entries from the start. This is negligible for the ten to fifty
/// entries of labels and annotations, but too slow for thousands. Each change rewrites the whole
/// map: to change more than a few entries, build another map from an iterator.
///
/// # Examples
///
/// ```
/// use k8s_informer::ObjectMeta;
/// use k8s_informer::object::StringMap;
///
/// let meta: ObjectMeta = serde_json::from_str(r#"{"name": "a", "labels": {"tier": "1", "app": "web"}}"#)?;
/// assert_eq!(meta.labels.get("app"), Some("web"));
/// assert_eq!(&meta.labels["tier"], "1");
/// assert_eq!(meta.labels.iter().collect::<Vec<_>>(), [("app", "web"), ("tier", "1")]);
/// assert_eq!(meta.labels, StringMap::from([("app", "web"), ("tier", "1")]));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct StringMap {
    /// Keys and values in turn, each after its length ([`push`]). Sorted by key, without duplicate
    /// keys.
    text: Box<str>,
}

impl StringMap {
    /// Creates an empty map, without an allocation.
    ///
    /// ```
    /// assert!(k8s_informer::object::StringMap::new().is_empty());
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the value of `key`.
    ///
    /// ```
    /// let labels = k8s_informer::object::StringMap::from([("app", "web")]);
    /// assert_eq!((labels.get("app"), labels.get("tier")), (Some("web"), None));
    /// ```
    pub fn get(&self, key: &str) -> Option<&str> {
        self.iter()
            .find_map(|(other, value)| (other == key).then_some(value))
    }

    /// Returns the number of entries. This takes linear time, because the entries are counted.
    ///
    /// ```
    /// assert_eq!(k8s_informer::object::StringMap::from([("app", "web"), ("tier", "1")]).len(), 2);
    /// ```
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Whether the map has no entries.
    ///
    /// ```
    /// assert!(!k8s_informer::object::StringMap::from([("app", "")]).is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Returns an iterator over keys and values, sorted by key.
    ///
    /// ```
    /// let labels = k8s_informer::object::StringMap::from([("tier", "1"), ("app", "web")]);
    /// let selector: Vec<_> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    /// assert_eq!(selector.join(","), "app=web,tier=1");
    /// ```
    pub fn iter(&self) -> StringMapIter<'_> {
        StringMapIter { rest: &self.text }
    }

    /// Sets the value of `key` and returns the previous value. Rewrites the whole map.
    ///
    /// ```
    /// let mut labels = k8s_informer::object::StringMap::from([("app", "web")]);
    /// assert_eq!(labels.insert("tier", "1"), None);
    /// assert_eq!(labels.insert("app", "shop").as_deref(), Some("web"));
    /// assert_eq!((&labels["app"], &labels["tier"]), ("shop", "1"));
    /// ```
    pub fn insert(&mut self, key: impl AsRef<str>, value: impl AsRef<str>) -> Option<String> {
        let (key, value) = (key.as_ref(), value.as_ref());
        let old = self.get(key).map(str::to_owned);
        *self = self.iter().chain([(key, value)]).collect();
        old
    }

    /// Removes `key` and returns its value. Rewrites the whole map if the key is present.
    ///
    /// ```
    /// let mut labels = k8s_informer::object::StringMap::from([("app", "web")]);
    /// assert_eq!(labels.remove("app").as_deref(), Some("web"));
    /// assert!(labels.is_empty() && labels.remove("app").is_none());
    /// ```
    pub fn remove(&mut self, key: &str) -> Option<String> {
        let old = self.get(key).map(str::to_owned)?;
        *self = self.iter().filter(|(other, _)| *other != key).collect();
        Some(old)
    }
}

impl fmt::Debug for StringMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self).finish()
    }
}

/// Returns the value of `key`. Panics if the key is absent; [`get`](StringMap::get) returns `None`.
impl Index<&str> for StringMap {
    type Output = str;

    fn index(&self, key: &str) -> &str {
        self.get(key).expect("no entry found for key")
    }
}

/// If a key occurs several times, its last value wins.
impl<K: AsRef<str>, V: AsRef<str>> FromIterator<(K, V)> for StringMap {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut builder = Builder::default();
        for (key, value) in entries {
            let key = push(&mut builder.text, key.as_ref());
            builder.key(key);
            push(&mut builder.text, value.as_ref());
        }
        builder.finish()
    }
}

impl<K: AsRef<str>, V: AsRef<str>, const N: usize> From<[(K, V); N]> for StringMap {
    fn from(entries: [(K, V); N]) -> Self {
        entries.into_iter().collect()
    }
}

impl From<BTreeMap<String, String>> for StringMap {
    fn from(map: BTreeMap<String, String>) -> Self {
        map.iter().collect()
    }
}

impl From<StringMap> for BTreeMap<String, String> {
    fn from(map: StringMap) -> Self {
        map.iter()
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect()
    }
}

impl<'a> IntoIterator for &'a StringMap {
    type Item = (&'a str, &'a str);
    type IntoIter = StringMapIter<'a>;

    fn into_iter(self) -> StringMapIter<'a> {
        self.iter()
    }
}

/// An iterator over the keys and values of a [`StringMap`], sorted by key.
///
/// [`StringMap::iter`] returns it.
///
/// ```
/// let labels = k8s_informer::object::StringMap::from([("app", "web")]);
/// let mut entries = labels.iter();
/// assert_eq!((entries.next(), entries.next()), (Some(("app", "web")), None));
/// ```
#[derive(Clone, Debug)]
pub struct StringMapIter<'a> {
    rest: &'a str,
}

impl<'a> Iterator for StringMapIter<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let (key, rest) = split(self.rest);
        let (value, rest) = split(rest);
        self.rest = rest;
        Some((key, value))
    }
}

/// Appends the length of a string and the string itself. Returns the range of the string.
///
/// The length is encoded in ASCII, so that the text remains valid UTF-8. Each byte has six bits of
/// the length, the lowest first. Its seventh bit is set if another byte follows. The length of a
/// label takes one byte, that of an annotation of up to 4 kB takes two.
fn push(text: &mut String, string: &str) -> Range<usize> {
    let mut length = string.len();
    while length >= 64 {
        text.push(char::from(64 | (length % 64) as u8));
        length /= 64;
    }
    text.push(char::from(length as u8));
    let start = text.len();
    text.push_str(string);
    start..text.len()
}

/// Returns the first string and the rest of the text.
fn split(text: &str) -> (&str, &str) {
    let (mut length, mut at) = (0, 0);
    loop {
        let byte = text.as_bytes()[at];
        length |= usize::from(byte % 64) << (6 * at);
        at += 1;
        if byte < 64 {
            return text[at..].split_at(length);
        }
    }
}

/// Collects entries in their original order. API servers send them sorted.
#[derive(Default)]
struct Builder {
    text: String,
    /// The range of the last key.
    last: Option<Range<usize>>,
    /// Whether a key was not greater than the previous one.
    unsorted: bool,
}

impl Builder {
    /// Records a key that was just appended to the text. The caller appends its value next.
    fn key(&mut self, key: Range<usize>) {
        let last = self.last.replace(key.clone());
        self.unsorted |= last.is_some_and(|last| self.text[last] >= self.text[key]);
    }

    fn finish(self) -> StringMap {
        let mut text = self.text;
        if self.unsorted {
            let mut entries: Vec<_> = StringMapIter { rest: &text }.collect();
            // The sort is stable, so the last entry of a key stays behind the others.
            entries.sort_by_key(|(key, _)| *key);
            let mut sorted = String::with_capacity(text.len());
            let mut entries = entries.into_iter().peekable();
            while let Some((key, value)) = entries.next() {
                if entries.peek().is_none_or(|(next, _)| *next != key) {
                    push(&mut sorted, key);
                    push(&mut sorted, value);
                }
            }
            text = sorted;
        }
        StringMap {
            text: text.into_boxed_str(),
        }
    }
}

impl Serialize for StringMap {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.len()))?;
        for (key, value) in self {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

/// If a key occurs several times, its last value wins, as usual in JSON. As in Go, `null` is an empty
/// map, and a value of `null` an empty string.
impl<'de> Deserialize<'de> for StringMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = StringMap;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_none<E: Error>(self) -> Result<StringMap, E> {
                Ok(StringMap::new())
            }

            fn visit_unit<E: Error>(self) -> Result<StringMap, E> {
                self.visit_none()
            }

            fn visit_some<D: Deserializer<'de>>(self, d: D) -> Result<StringMap, D::Error> {
                d.deserialize_map(self)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<StringMap, A::Error> {
                // Most labels fit without growing. `finish` frees the unused capacity.
                let mut builder = Builder {
                    text: String::with_capacity(256),
                    ..Builder::default()
                };
                while let Some(key) = map.next_key_seed(Append(&mut builder.text))? {
                    builder.key(key);
                    map.next_value_seed(Append(&mut builder.text))?;
                }
                Ok(builder.finish())
            }
        }
        deserializer.deserialize_option(Entries)
    }
}

/// Deserializes a string and appends it to a text with [`push`], without a separate allocation.
/// `null` is the empty string. Returns the range of the string.
struct Append<'a>(&'a mut String);

impl<'de> DeserializeSeed<'de> for Append<'_> {
    type Value = Range<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Range<usize>, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for Append<'_> {
    type Value = Range<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_none<E: Error>(self) -> Result<Range<usize>, E> {
        self.visit_str("")
    }

    fn visit_unit<E: Error>(self) -> Result<Range<usize>, E> {
        self.visit_str("")
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Range<usize>, D::Error> {
        deserializer.deserialize_str(self)
    }

    fn visit_str<E: Error>(self, string: &str) -> Result<Range<usize>, E> {
        Ok(push(self.0, string))
    }
}

#[cfg(test)]
mod tests;
