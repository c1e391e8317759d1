use serde::de::{Error as _, IgnoredAny};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::limits::max_skipped;
use super::{Piece, SplitError};
use crate::json::{Scanner, null_is_default};

/// Splits the body of a LIST into items while it arrives, so that it buffers at most one item.
///
/// The splitter parses only the JSON around the items. Inside an item, it only looks for the end.
/// Whether an item is valid JSON is checked when the item is decoded. An item that is completely in
/// the input is returned in place.
#[derive(Debug)]
pub(crate) struct ListSplitter {
    state: State,
    /// Scans the JSON around the items.
    around: Scanner,
    /// Finds the end of an item.
    scanner: Scanner,
    /// Whether the key `items` has occurred.
    has_items: bool,
    /// Everything but the items: a small JSON document with an empty `items`.
    rest: Vec<u8>,
    /// The beginning of an item whose end has not arrived, up to the limit.
    partial: Vec<u8>,
    /// The number of bytes of the item after `partial`, which have been dropped.
    skipped: usize,
    /// Whether `partial` holds the item that was returned last.
    returned_partial: bool,
    /// The position in `rest` at which the last string of the outermost object begins, as long as
    /// this string may be the key `"items"`.
    key: Option<usize>,
    /// The metadata that the list sent before its items.
    head: ListMeta,
    limit: usize,
    offset: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// Outside the items.
    Around,
    /// After the key `items`, before its value.
    BeforeItems,
    /// In the array, before the first item.
    FirstItem,
    /// In the array, after an item.
    AfterItem,
    /// In the array, after a comma.
    AfterComma,
    /// In an item that is an object, as expected, or an array.
    Item,
    /// In an item that is neither an object nor an array. Decoding rejects it.
    Scalar,
}

/// The metadata of a list.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ListMeta {
    #[serde(deserialize_with = "null_is_default")]
    api_version: String,
    #[serde(deserialize_with = "null_is_default")]
    kind: String,
    #[serde(deserialize_with = "object_or_null")]
    metadata: Metadata,
}

/// The fields of an empty list that is sent without `items`. Any other response with such a kind has
/// more fields: an object of a kind like `AllowList`, or a list of discovery.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WithoutItems {
    #[serde(rename = "apiVersion")]
    _api_version: Option<IgnoredAny>,
    #[serde(rename = "kind")]
    _kind: Option<IgnoredAny>,
    #[serde(rename = "metadata")]
    _metadata: Option<IgnoredAny>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    /// Only objects have a name.
    name: Option<IgnoredAny>,
    resource_version: Option<String>,
    #[serde(rename = "continue")]
    continue_token: Option<String>,
    /// On a page of a shard, kube-apiserver subtracts the page limit from the number of objects of
    /// all shards. It reads objects in portions that may be larger than the page, so the count may
    /// be negative.
    remaining_item_count: Option<i128>,
    #[serde(rename = "shardInfo", deserialize_with = "selector_or_none")]
    shard_selector: Option<String>,
}

/// Returns the selector in the shard information, or `None` if that cannot be read. An error is not
/// needed: the information only reports how the server selected the items.
fn selector_or_none<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<String>, D::Error> {
    #[derive(Deserialize)]
    struct ShardInfo {
        selector: String,
    }
    let info = <Box<RawValue>>::deserialize(deserializer)?;
    Ok(serde_json::from_str(info.get())
        .ok()
        .map(|ShardInfo { selector }| selector))
}

/// Deserializes an object or `null`. Rejects an array, which serde would accept for the struct,
/// field by field.
fn object_or_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Metadata, D::Error> {
    let metadata = <Option<Box<RawValue>>>::deserialize(deserializer)?;
    match metadata.as_deref().map(RawValue::get) {
        None => Ok(Metadata::default()),
        Some(object) if object.starts_with('{') => {
            serde_json::from_str(object).map_err(D::Error::custom)
        }
        Some(_) => Err(D::Error::custom("not an object")),
    }
}

impl ListMeta {
    /// Returns `metadata.resourceVersion`, or an empty string if it is missing.
    pub(crate) fn resource_version(&self) -> &str {
        self.metadata
            .resource_version
            .as_deref()
            .unwrap_or_default()
    }

    /// Returns `apiVersion` and `kind`.
    pub(crate) fn api_version_and_kind(&self) -> (&str, &str) {
        (&self.api_version, &self.kind)
    }

    /// Returns the `apiVersion` and `kind` for the items that have none. It follows client-go's
    /// rule for an `UnstructuredList`.
    pub(crate) fn type_meta_of_items(&self) -> Option<(&str, &str)> {
        let kind = self.kind.strip_suffix("List").unwrap_or(&self.kind);
        (!kind.is_empty()).then_some((&self.api_version, kind))
    }

    /// Returns the token that requests the next page, if there is one.
    pub(crate) fn continue_token(&self) -> Option<&str> {
        let token = self.metadata.continue_token.as_deref();
        token.filter(|token| !token.is_empty())
    }

    /// Returns the number of items on later pages, if the server sends it.
    pub(crate) fn remaining_item_count(&self) -> Option<u64> {
        self.metadata.remaining_item_count?.try_into().ok()
    }

    /// Whether this is the last page and its remaining item count is negative. Only earlier pages
    /// may have a negative count.
    fn has_invalid_count(&self) -> bool {
        let count = self.metadata.remaining_item_count;
        count.is_some_and(i128::is_negative) && self.continue_token().is_none()
    }

    /// Returns the shard selector that the server applied to the items, if any (SH3).
    pub(crate) fn shard_selector(&self) -> Option<&str> {
        self.metadata.shard_selector.as_deref()
    }
}

impl ListSplitter {
    /// Creates a splitter for items of at most `limit` bytes. Larger ones are skipped.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            state: State::Around,
            around: Scanner::default(),
            scanner: Scanner::default(),
            has_items: false,
            rest: Vec::new(),
            partial: Vec::new(),
            skipped: 0,
            returned_partial: false,
            key: None,
            head: ListMeta::default(),
            limit,
            offset: 0,
        }
    }

    /// Returns the number of consumed bytes and the next item. Without an item, all input has been
    /// consumed and more is needed.
    pub(crate) fn next(&mut self, input: &[u8]) -> Result<(usize, Option<Piece>), SplitError> {
        if std::mem::take(&mut self.returned_partial) {
            match std::mem::take(&mut self.skipped) {
                0 => self.partial.clear(),
                // Frees the buffer, which has the size of the limit.
                _ => self.partial = Vec::new(),
            }
        }
        let mut at = 0;
        while at < input.len() {
            match self.state {
                State::Around => at = self.around(input, at)?,
                State::BeforeItems | State::FirstItem | State::AfterItem | State::AfterComma => {
                    match self.between(input[at]) {
                        Some(length) => at += length,
                        None => return Err(self.malformed(at)),
                    }
                }
                State::Item | State::Scalar => {
                    let start = at;
                    let length = match self.state {
                        State::Item => self.scanner.end(&input[at..]),
                        _ => self.scanner.scalar_end(&input[at..]),
                    };
                    at = length.map_or(input.len(), |length| start + length);
                    let bytes = &input[start..at];
                    let size = self.partial.len() + self.skipped + bytes.len();
                    if size > max_skipped(self.limit) {
                        return Err(SplitError::TooLarge {
                            what: "a list item",
                            limit: max_skipped(self.limit),
                        });
                    }
                    let (is_partial, is_large) = (!self.partial.is_empty(), size > self.limit);
                    if is_partial || is_large || length.is_none() {
                        // Of a larger item, only the beginning is kept.
                        let kept = bytes.len().min(self.limit - self.partial.len());
                        self.partial.extend_from_slice(&bytes[..kept]);
                        self.skipped += bytes.len() - kept;
                    }
                    if length.is_some() {
                        self.state = State::AfterItem;
                        self.offset += at as u64;
                        self.returned_partial = is_partial || is_large;
                        let piece = if is_large {
                            Piece::Head
                        } else if is_partial {
                            Piece::Buffer
                        } else {
                            Piece::Input(start, at)
                        };
                        return Ok((at, Some(piece)));
                    }
                }
            }
        }
        self.offset += at as u64;
        Ok((at, None))
    }

    /// Returns the bytes of a piece that [`next`](Self::next) returned for this input.
    pub(crate) fn piece<'a>(&'a self, input: &'a [u8], piece: Piece) -> &'a [u8] {
        match piece {
            Piece::Input(start, end) => &input[start..end],
            Piece::Line(..) | Piece::Buffer | Piece::Head => &self.partial,
        }
    }

    /// Calls `item` with each complete item. Stops at the first error, or at an item above the
    /// limit.
    #[cfg(any(test, feature = "client"))]
    pub(crate) fn feed<E: From<SplitError>>(
        &mut self,
        mut input: &[u8],
        mut item: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        loop {
            let (consumed, piece) = self.next(input)?;
            let Some(piece) = piece else {
                return Ok(());
            };
            if let Piece::Head = piece {
                return Err(E::from(SplitError::TooLarge {
                    what: "a list item",
                    limit: self.limit,
                }));
            }
            item(self.piece(input, piece))?;
            input = &input[consumed..];
        }
    }

    /// Returns the metadata that the list sent before its items.
    pub(crate) fn head(&self) -> &ListMeta {
        &self.head
    }

    /// Returns the metadata of the list. Call it after the whole body has arrived.
    pub(crate) fn finish(&self) -> Result<ListMeta, SplitError> {
        let malformed = self.malformed(0);
        match self.rest.trim_ascii_start() {
            [b'<', ..] => return Err(SplitError::Markup),
            [b'{', ..] => {}
            // Reject anything else, because serde would accept an array for the struct.
            _ => return Err(malformed),
        }
        let meta = serde_json::from_slice(&self.rest).ok();
        let meta: ListMeta = meta
            .filter(|meta: &ListMeta| !meta.has_invalid_count())
            .ok_or(malformed)?;
        // No other response with status 200 may be mistaken for an empty list (L15).
        let is_list = match self.has_items {
            true => !matches!(meta.kind.as_str(), "" | "Status" | "Table"),
            false => self.is_list_without_items(&meta),
        };
        match is_list {
            true => Ok(meta),
            false => Err(SplitError::NoList { kind: meta.kind }),
        }
    }

    /// Whether this is an empty list. Go omits an empty slice, or writes it as `null`.
    fn is_list_without_items(&self, meta: &ListMeta) -> bool {
        meta.kind.ends_with("List")
            && meta.metadata.name.is_none()
            && serde_json::from_slice::<WithoutItems>(&self.rest).is_ok()
    }

    #[cfg(test)]
    fn rest(&self) -> &[u8] {
        &self.rest
    }

    /// Consumes bytes around the items, beginning at `from`. Returns the position after them.
    fn around(&mut self, bytes: &[u8], from: usize) -> Result<usize, SplitError> {
        for (at, &byte) in bytes.iter().enumerate().skip(from) {
            if self.rest.len() == self.limit {
                return Err(SplitError::TooLarge {
                    what: "a list without its items",
                    limit: self.limit,
                });
            }
            self.rest.push(byte);
            let is_in_string = self.around.is_in_string();
            self.around.step(byte);
            match byte {
                b'"' if !is_in_string => {
                    self.key = (self.around.depth() == 1).then(|| self.rest.len() - 1);
                }
                b':' if !is_in_string && self.around.depth() == 1 => {
                    if let Some(start) = self.key.take()
                        && self.rest[start..self.rest.len() - 1].trim_ascii_end() == b"\"items\""
                    {
                        if std::mem::replace(&mut self.has_items, true) {
                            return Err(self.malformed(at));
                        }
                        self.state = State::BeforeItems;
                        return Ok(at + 1);
                    }
                }
                _ => {}
            }
        }
        Ok(bytes.len())
    }

    /// Handles a byte before or between the items. Returns the number of bytes to consume, or
    /// `None` if the byte is not allowed there. The check is strict, because bytes that are skipped
    /// here could belong to objects.
    fn between(&mut self, byte: u8) -> Option<usize> {
        match (self.state, byte) {
            (_, byte) if byte.is_ascii_whitespace() => return Some(1),
            (State::BeforeItems, b'[') => {
                self.rest.push(byte);
                self.state = State::FirstItem;
                self.head = self.head_so_far();
                return Some(1);
            }
            // The value must be `null`. Anything else fails when `rest` is parsed.
            (State::BeforeItems, b'n') => self.state = State::Around,
            (State::BeforeItems, _) => return None,
            (State::FirstItem | State::AfterItem, b']') => {
                self.rest.push(byte);
                self.state = State::Around;
                return Some(1);
            }
            (State::AfterItem, b',') => {
                self.state = State::AfterComma;
                return Some(1);
            }
            (State::AfterItem, _) | (_, b',' | b']') => return None,
            (_, b'{' | b'[') => self.state = State::Item,
            _ => self.state = State::Scalar,
        }
        Some(0)
    }

    /// Parses the metadata before the items. `rest` must end with the opening bracket of the items.
    fn head_so_far(&self) -> ListMeta {
        serde_json::from_slice(&[&self.rest[..], b"]}"].concat()).unwrap_or_default()
    }

    /// Returns the error for the byte `at` of the current input.
    fn malformed(&self, at: usize) -> SplitError {
        SplitError::Malformed {
            what: "the list",
            offset: self.offset + at as u64,
        }
    }
}

#[cfg(test)]
mod tests;
