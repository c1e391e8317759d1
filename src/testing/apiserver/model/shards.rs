//! Shard selectors, as in kube-apiserver 1.36: ranges of the hash of a field.

use std::fmt;

use super::object::{Content, meta_str};
use crate::wire::fnv1a;

/// A shard selector such as `shardRange(object.metadata.uid, '0x0000000000000000',
/// '0x8000000000000000')`, or several of these for one field, joined by `||`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Shards {
    field: Field,
    ranges: Vec<Range>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Field {
    Uid,
    Namespace,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Range {
    start: u128,
    end: u128,
}

impl Shards {
    /// Parses a selector. kube-apiserver parses CEL and then checks the result. This parser accepts
    /// only valid selectors, and its messages differ where the CEL parser would report the error.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Err(
                "empty shard selector is not allowed; omit the parameter for unfiltered lists"
                    .to_owned(),
            );
        }
        let mut field = None;
        let mut ranges = Vec::new();
        for call in text.split("||") {
            let (of, range) = parse_call(call.trim())?;
            let first = *field.get_or_insert(of);
            if first != of {
                let (first, of) = (first.path(), of.path());
                return Err(format!(
                    "all shard ranges must use the same field, got \"{first}\" and \"{of}\""
                ));
            }
            ranges.push(range);
        }
        let field = field.unwrap_or(Field::Uid);
        Ok(Self { field, ranges })
    }

    pub(crate) fn contain(&self, object: &Content) -> bool {
        let value = match self.field {
            Field::Uid => meta_str(object, "uid"),
            Field::Namespace => meta_str(object, "namespace"),
        };
        let hash = u128::from(fnv1a(value));
        self.ranges
            .iter()
            .any(|&Range { start, end }| (start..end).contains(&hash))
    }
}

impl Field {
    fn path(self) -> &'static str {
        match self {
            Self::Uid => "object.metadata.uid",
            Self::Namespace => "object.metadata.namespace",
        }
    }
}

fn parse_call(call: &str) -> Result<(Field, Range), String> {
    let syntax = || format!("CEL parse error: no function call: {call}");
    let (function, rest) = call.split_once('(').ok_or_else(syntax)?;
    let arguments = rest.trim_end().strip_suffix(')').ok_or_else(syntax)?;
    if function.trim() != "shardRange" {
        let function = function.trim();
        return Err(format!(
            "unsupported function \"{function}\"; only shardRange() and || are allowed"
        ));
    }
    let arguments: Vec<_> = arguments.split(',').map(str::trim).collect();
    let &[path, start, end] = arguments.as_slice() else {
        return Err(format!(
            "shardRange() requires exactly 3 arguments, got {}",
            arguments.len()
        ));
    };
    let field = [Field::Uid, Field::Namespace]
        .into_iter()
        .find(|field| field.path() == path);
    let field = field.ok_or_else(|| {
        let [uid, namespace] = [Field::Uid, Field::Namespace].map(Field::path);
        format!("unsupported field path \"{path}\"; supported: {uid}, {namespace}")
    })?;
    let range = Range {
        start: parse_bound(start, "hexStart")?,
        end: parse_bound(end, "hexEnd")?,
    };
    if range.start >= range.end {
        let [start, end] = [range.start, range.end].map(|bound| format!("0x{bound:016x}"));
        return Err(format!(
            "shard range start {start} must be less than end {end}"
        ));
    }
    Ok((field, range))
}

fn parse_bound(literal: &str, name: &str) -> Result<u128, String> {
    let text = ['\'', '"']
        .into_iter()
        .find_map(|quote| literal.strip_prefix(quote)?.strip_suffix(quote));
    let text = text.ok_or_else(|| format!("{name} must be a string literal (e.g. '0xff')"))?;
    let digits = text
        .strip_prefix("0x")
        .ok_or_else(|| format!("{name} must have '0x' prefix, got \"{text}\""))?;
    if let Some(other) = digits
        .chars()
        .find(|digit| !matches!(digit, '0'..='9' | 'a'..='f'))
    {
        return Err(format!(
            "{name}: invalid hex character \"{other}\" in \"{text}\""
        ));
    }
    match digits.len() {
        0 => Err(format!("{name}: hex value is required after '0x'")),
        16 => Ok(u128::from_str_radix(digits, 16).unwrap_or_default()),
        17 if digits == "10000000000000000" => Ok(1 << 64),
        17 => Err(format!(
            "{name}: 17-digit hex value must be '0x10000000000000000' (2^64), got \"{text}\""
        )),
        count @ 18.. => Err(format!(
            "{name}: hex value too long ({count} chars, max 17): \"{digits}\""
        )),
        _ => Err(format!(
            "{name} must be a 0x-prefixed 16-digit hex value, got \"{text}\" (did you mean \"0x{digits:0>16}\"?)"
        )),
    }
}

/// Formats the selector in the canonical form of kube-apiserver.
impl fmt::Display for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.field.path();
        for (index, Range { start, end }) in self.ranges.iter().enumerate() {
            let or = if index > 0 { " || " } else { "" };
            write!(
                f,
                "{or}shardRange({path}, '0x{start:016x}', '0x{end:016x}')"
            )?;
        }
        Ok(())
    }
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
    fn sh5_invalid_selectors_return_kubernetes_messages() {
        let of = |arguments: &str| format!("shardRange({arguments})");
        let zero = "'0x0000000000000000'";
        for (bad, message) in [
            (
                " ".to_owned(),
                "empty shard selector is not allowed; omit the parameter for unfiltered lists",
            ),
            (
                "other(1)".to_owned(),
                "unsupported function \"other\"; only shardRange() and || are allowed",
            ),
            (
                of("object.metadata.uid, '0x0'"),
                "shardRange() requires exactly 3 arguments, got 2",
            ),
            (
                LOWER.replace("uid", "name"),
                "unsupported field path \"object.metadata.name\"; supported: object.metadata.uid, object.metadata.namespace",
            ),
            (
                of(&format!("object.metadata.uid, '0x0', {zero}")),
                "hexStart must be a 0x-prefixed 16-digit hex value, got \"0x0\" (did you mean \"0x0000000000000000\"?)",
            ),
            (
                of(&format!("object.metadata.uid, '8', {zero}")),
                "hexStart must have '0x' prefix, got \"8\"",
            ),
            (
                of(&format!("object.metadata.uid, {zero}, {zero}")),
                "shard range start 0x0000000000000000 must be less than end 0x0000000000000000",
            ),
            (
                of(&format!(
                    "object.metadata.uid, {zero}, '0x20000000000000000'"
                )),
                "hexEnd: 17-digit hex value must be '0x10000000000000000' (2^64), got \"0x20000000000000000\"",
            ),
            (
                LOWER.replace("'0x8", "'0xG"),
                "hexEnd: invalid hex character \"G\" in \"0xG000000000000000\"",
            ),
            (
                format!("{LOWER} || {}", UPPER.replace("uid", "namespace")),
                "all shard ranges must use the same field, got \"object.metadata.uid\" and \"object.metadata.namespace\"",
            ),
        ] {
            assert_eq!(Shards::parse(&bad), Err(message.to_owned()), "{bad}");
        }
        for bad in [
            "x",
            "shardRange(",
            "shardRange",
            "||",
            "shardRange(object.metadata.uid, 0, 1)",
            "ä(",
            "()",
        ] {
            assert!(Shards::parse(bad).is_err(), "{bad}");
        }
    }
}
