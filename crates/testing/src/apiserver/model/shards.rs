//! Shard selectors, as in kube-apiserver 1.36: ranges of the hash of a field.

use std::fmt;

use super::object::{Content, meta_str};

/// The fields that a selector may hash.
const FIELDS: [(&str, &str); 2] = [
    ("object.metadata.uid", "uid"),
    ("object.metadata.namespace", "namespace"),
];

/// A shard selector such as `shardRange(object.metadata.uid, '0x0000000000000000',
/// '0x8000000000000000')`, or several of these for one field, joined by `||`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Shards {
    /// An entry of [`FIELDS`].
    field: (&'static str, &'static str),
    /// The first hash of each range, and the first one after it.
    ranges: Vec<(u128, u128)>,
}

impl Shards {
    /// Parses a selector. Returns `None` if it is invalid.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let calls: Option<Vec<_>> = text.split("||").map(parse_call).collect();
        let calls = calls?;
        let (field, _) = *calls.first()?;
        let is_same = calls.iter().all(|(other, _)| *other == field);
        is_same.then(|| Self {
            field,
            ranges: calls.into_iter().map(|(_, range)| range).collect(),
        })
    }

    pub(crate) fn contain(&self, object: &Content) -> bool {
        let hash = u128::from(fnv1a(meta_str(object, self.field.1)));
        self.ranges
            .iter()
            .any(|&(start, end)| (start..end).contains(&hash))
    }
}

type Call = ((&'static str, &'static str), (u128, u128));

fn parse_call(call: &str) -> Option<Call> {
    let (function, arguments) = call.trim().strip_suffix(')')?.split_once('(')?;
    let mut arguments = arguments.split(',').map(str::trim);
    let (path, start, end) = (arguments.next()?, arguments.next()?, arguments.next()?);
    let field = FIELDS.into_iter().find(|field| field.0 == path)?;
    let range = (parse_bound(start)?, parse_bound(end)?);
    let is_valid =
        function.trim() == "shardRange" && arguments.next().is_none() && range.0 < range.1;
    is_valid.then_some((field, range))
}

/// Parses a quoted number of 16 hexadecimal digits, or 2^64.
fn parse_bound(literal: &str) -> Option<u128> {
    let text = ['\'', '"']
        .into_iter()
        .find_map(|quote| literal.strip_prefix(quote)?.strip_suffix(quote))?;
    let digits = text.strip_prefix("0x")?;
    let is_lower = digits
        .bytes()
        .all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let bound = u128::from_str_radix(digits, 16).ok()?;
    let is_valid = is_lower && (digits.len() == 16 || digits.len() == 17 && bound == 1 << 64);
    is_valid.then_some(bound)
}

/// Formats the selector in the canonical form of kube-apiserver.
impl fmt::Display for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.field.0;
        for (index, (start, end)) in self.ranges.iter().enumerate() {
            let or = if index > 0 { " || " } else { "" };
            write!(
                f,
                "{or}shardRange({path}, '0x{start:016x}', '0x{end:016x}')"
            )?;
        }
        Ok(())
    }
}

/// Returns the 64-bit FNV-1a hash.
fn fnv1a(text: &str) -> u64 {
    const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    text.bytes().fold(OFFSET_BASIS, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(PRIME)
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::json;

    const LOWER: &str =
        "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')";
    const UPPER: &str =
        "shardRange(object.metadata.uid, '0x8000000000000000', '0x10000000000000000')";

    #[test]
    fn sh1_shard_selectors_print_in_normal_form() {
        for text in [
            LOWER,
            UPPER,
            &format!("{UPPER} || {LOWER}"),
            &LOWER.replace("uid", "namespace"),
        ] {
            assert_eq!(Shards::parse(text).unwrap().to_string(), *text);
        }
        let loose = UPPER
            .replace(", ", ",")
            .replace('\'', "\"")
            .replace('(', " ( ")
            + "||"
            + LOWER;
        assert_eq!(
            Shards::parse(&loose).unwrap().to_string(),
            format!("{UPPER} || {LOWER}")
        );
    }

    #[test]
    fn sh2_field_hash_selects_the_shard() {
        // The hash of "abc" begins with e7, the hash of "ab" with 08, and the hash of "" with cb.
        for (metadata, upper) in [
            (json!({ "uid": "abc" }), true),
            (json!({ "uid": "ab" }), false),
            (json!({}), true),
        ] {
            let object = json!({ "metadata": metadata });
            let object = object.as_object().unwrap();
            assert_eq!(
                Shards::parse(UPPER).unwrap().contain(object),
                upper,
                "{metadata}"
            );
            assert_eq!(
                Shards::parse(LOWER).unwrap().contain(object),
                !upper,
                "{metadata}"
            );
            assert!(
                Shards::parse(&format!("{LOWER}||{UPPER}"))
                    .unwrap()
                    .contain(object),
                "{metadata}"
            );
            assert!(
                !Shards::parse(&LOWER.replace("uid", "namespace"))
                    .unwrap()
                    .contain(object)
            );
        }
    }

    #[test]
    fn sh5_invalid_shard_selectors_are_rejected() {
        let range =
            |from: &str, to: &str| format!("shardRange(object.metadata.uid, '{from}', '{to}')");
        let zero = "0x0000000000000000";
        for bad in [
            "",
            " ",
            "x",
            "shardRange(",
            "shardRange",
            "||",
            "ä(",
            "()",
            "other(1)",
            "shardRange(object.metadata.uid, 0, 1)",
            "shardRange(object.metadata.uid, '0x0')",
            &LOWER.replace("uid", "name"),
            &LOWER.replace("'0x8", "'0xG"),
            &LOWER.replace(')', ", 1)"),
            &range("0x0", zero),
            &range("8", zero),
            &range(zero, zero),
            &range(zero, "0x20000000000000000"),
            &format!("{LOWER} || {}", UPPER.replace("uid", "namespace")),
        ] {
            assert_eq!(Shards::parse(bad), None, "{bad}");
        }
    }
}
