use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::iter::FusedIterator;
use std::ops::{Index, Range};

use serde::de::{DeserializeSeed, Error, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Labels, annotations, a node selector: what Go has as `map[string]string`, sorted by key.
///
/// It costs little more than the bytes that it holds, where a `BTreeMap<String, String>` has a node of half a
/// kilobyte and an allocation for each key and value: all of it is in a single one, and an empty one has
/// none. It is read from the beginning, so [`get`](Self::get) takes as long as there are entries: nothing for
/// the ten or fifty that labels and annotations have, but it is no table for thousands. What changes it
/// writes all of it anew: to change more than a few entries, make another one from an iterator.
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
    /// Key, value, key, value: sorted by key, none twice, each with its length before it ([`push`]).
    text: Box<str>,
}

impl StringMap {
    /// One without entries. It allocates nothing.
    ///
    /// ```
    /// assert!(k8s_informer::object::StringMap::new().is_empty());
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// The value of a key.
    ///
    /// ```
    /// let labels = k8s_informer::object::StringMap::from([("app", "web")]);
    /// assert_eq!((labels.get("app"), labels.get("tier")), (Some("web"), None));
    /// ```
    pub fn get(&self, key: &str) -> Option<&str> {
        self.iter()
            .find_map(|(other, value)| (other == key).then_some(value))
    }

    /// How many entries there are: it counts them.
    ///
    /// ```
    /// assert_eq!(k8s_informer::object::StringMap::from([("app", "web"), ("tier", "1")]).len(), 2);
    /// ```
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Whether there are none.
    ///
    /// ```
    /// assert!(!k8s_informer::object::StringMap::from([("app", "")]).is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Keys and values, sorted by key.
    ///
    /// ```
    /// let labels = k8s_informer::object::StringMap::from([("tier", "1"), ("app", "web")]);
    /// let selector: Vec<_> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    /// assert_eq!(selector.join(","), "app=web,tier=1");
    /// ```
    pub fn iter(&self) -> StringMapIter<'_> {
        StringMapIter { rest: &self.text }
    }

    /// Sets the value of a key, and gives the one that it had. All of the map is written anew.
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

    /// Removes a key, and gives its value. All of the map is written anew, if the key is there.
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

/// Shows a map.
impl fmt::Debug for StringMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self).finish()
    }
}

/// As of a `BTreeMap`: the first entry that differs decides.
impl Ord for StringMap {
    fn cmp(&self, other: &Self) -> Ordering {
        self.iter().cmp(other)
    }
}

impl PartialOrd for StringMap {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Panics if there is no such key; [`get`](StringMap::get) doesn't.
impl Index<&str> for StringMap {
    type Output = str;

    fn index(&self, key: &str) -> &str {
        self.get(key).expect("no entry found for key")
    }
}

/// Of a key that comes more than once the last value stays.
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

/// All of them in one step. Of a key that is there already the new value counts.
impl<K: AsRef<str>, V: AsRef<str>> Extend<(K, V)> for StringMap {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        let mut all = BTreeMap::from(std::mem::take(self));
        all.extend(
            entries
                .into_iter()
                .map(|(key, value)| (key.as_ref().to_owned(), value.as_ref().to_owned())),
        );
        *self = all.into();
    }
}

impl IntoIterator for StringMap {
    type Item = (String, String);
    type IntoIter = std::collections::btree_map::IntoIter<String, String>;

    fn into_iter(self) -> Self::IntoIter {
        BTreeMap::from(self).into_iter()
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

/// Keys and values of a [`StringMap`], sorted by key: what [`StringMap::iter`] gives.
///
/// ```
/// let labels = k8s_informer::object::StringMap::from([("app", "web")]);
/// let mut entries = labels.iter();
/// assert_eq!((entries.next(), entries.next()), (Some(("app", "web")), None));
/// ```
#[derive(Clone)]
pub struct StringMapIter<'a> {
    rest: &'a str,
}

impl fmt::Debug for StringMapIter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.clone()).finish()
    }
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

impl FusedIterator for StringMapIter<'_> {}

/// Appends a string behind its length, and says where it is.
///
/// The length is ASCII, so that the text stays one: six bits a byte, the lowest first, the seventh says that
/// more follow. A label's takes a byte, an annotation's up to 4 kB two.
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

/// The first string, and what stands behind it.
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

/// The entries as they come. API servers send them sorted.
#[derive(Default)]
struct Builder {
    text: String,
    /// The last key.
    last: Option<Range<usize>>,
    /// Whether a key did not come behind the one before it.
    unsorted: bool,
}

impl Builder {
    /// A key has been appended, and its value follows.
    fn key(&mut self, key: Range<usize>) {
        let last = self.last.replace(key.clone());
        self.unsorted |= last.is_some_and(|last| self.text[last] >= self.text[key]);
    }

    fn finish(self) -> StringMap {
        let mut text = self.text;
        if self.unsorted {
            let mut entries: Vec<_> = StringMapIter { rest: &text }.collect();
            // Stable: of those with the same key, the last one stays the last.
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

/// Of a key that comes more than once the last value stays, as everywhere in JSON.
impl<'de> Deserialize<'de> for StringMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = StringMap;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<StringMap, A::Error> {
                // Most labels fit, and don't grow; what is left over goes back.
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
        deserializer.deserialize_map(Entries)
    }
}

/// Reads a string to the end of a text, and says where it is: it is never allocated by itself.
struct Append<'a>(&'a mut String);

impl<'de> DeserializeSeed<'de> for Append<'_> {
    type Value = Range<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Range<usize>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Append<'_> {
    type Value = Range<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: Error>(self, string: &str) -> Result<Range<usize>, E> {
        Ok(push(self.0, string))
    }
}

#[cfg(test)]
mod tests;
