//! Decodes YAML as kubectl does. Its package sigs.k8s.io/yaml reads the scalars of YAML 1.1 and then
//! converts the document to JSON.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::iter;
use std::rc::Rc;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use granit_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Tag, options};
use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{DeserializeOwned, Deserializer, Expected, IntoDeserializer, Unexpected, Visitor};
use serde::forward_to_deserialize_any;

/// The maximum number of values, of which aliases repeat some, and the maximum nesting.
const MAX_VALUES: usize = 250_000;
const MAX_DEPTH: usize = 128;

/// The maximum size of the text that aliases repeat, in values and in keys. Decoding copies it once
/// for each alias. As much again as a kubeconfig can have.
const MAX_REPEATED_TEXT: usize = 8 << 20;

/// The reason why a text cannot be decoded. It never contains a part of the text, which can be a
/// secret.
#[derive(Debug)]
pub(super) struct Problem {
    what: String,
    at: Option<Position>,
}

/// A line and a column, counted from 1.
type Position = (usize, usize);

impl Problem {
    fn new(what: impl Into<String>, at: Position) -> Self {
        Self {
            what: what.into(),
            at: Some(at),
        }
    }

    /// The position, for messages: ` at line 1, column 2`.
    pub(super) fn place(&self) -> String {
        let place = |(line, column)| format!(" at line {line}, column {column}");
        self.at.map(place).unwrap_or_default()
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.what, self.place())
    }
}

impl std::error::Error for Problem {}

impl serde::de::Error for Problem {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self {
            what: "an unexpected value".to_owned(),
            at: None,
        }
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        use Unexpected::{Bool, Float, Signed, Unsigned};
        let expected = expected.to_string();
        let what = match found {
            Bool(_) | Signed(_) | Unsigned(_) | Float(_) if expected == "a string" => {
                "a number or boolean where a string is expected: quote it".to_owned()
            }
            _ => format!("expected {expected}"),
        };
        Self { what, at: None }
    }
}

impl From<ScanError> for Problem {
    fn from(error: ScanError) -> Self {
        Self::new("not valid YAML", position(error.marker()))
    }
}

/// Decodes the only document of the text. A text without a document is `null`.
pub(super) fn decode<T: DeserializeOwned>(text: &str) -> Result<T, Problem> {
    T::deserialize(&*read(text)?)
}

/// Decodes base64. Like Go's decoder, it ignores line breaks and the unused bits of the last
/// character.
pub(super) fn decode_base64(text: &str) -> Option<Vec<u8>> {
    const BASE64: GeneralPurpose = GeneralPurpose::new(
        &STANDARD,
        GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
    );
    BASE64.decode(text.replace(['\r', '\n'], "")).ok()
}

/// A value with its position.
struct Node {
    at: Position,
    content: Content,
    /// The number of values in it, with itself and with those of aliases.
    size: usize,
    /// The bytes of its keys and texts, with those of aliases.
    text: usize,
    depth: usize,
}

enum Content {
    Scalar(Scalar),
    List(Vec<Rc<Node>>),
    Map(BTreeMap<Rc<str>, Entry>),
}

#[derive(PartialEq)]
enum Scalar {
    Null,
    Bool(bool),
    Int(i64),
    Large(u64),
    Float(f64),
    /// Shared with the keys that an alias makes of it.
    Text(Rc<str>),
}

/// The entry of a map.
struct Entry {
    value: Rc<Node>,
    /// Whether it comes from a map that was merged with `<<`.
    is_merged: bool,
}

/// A list or map that has not ended.
struct Open {
    node: Node,
    anchor: usize,
    /// The key of the next value in a map.
    key: Option<Key>,
}

/// A key, and its position.
enum Key {
    Text(Rc<str>, Position),
    /// `<<`
    Merge,
}

fn position(marker: &Marker) -> Position {
    (marker.line(), marker.col() + 1)
}

fn read(text: &str) -> Result<Rc<Node>, Problem> {
    let mut open = Vec::<Open>::new();
    let mut anchors = HashMap::<usize, Rc<Node>>::new();
    let mut root = None;
    let mut totals = Totals::default();
    let options = options! { block_scalar_eof_without_line_feed: true };
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) = event?;
        let mut at = position(&span.start);
        let node = |content| Node::new(at, content);
        let mut is_merge = false;
        let (done, anchor) = match event {
            Event::SequenceStart(_, anchor, _) | Event::MappingStart(_, anchor, _) => {
                let content = match event {
                    Event::SequenceStart(..) => Content::List(Vec::new()),
                    _ => Content::Map(BTreeMap::new()),
                };
                let node = node(content);
                totals.add(&node, at)?;
                open.push(Open {
                    node,
                    anchor,
                    key: None,
                });
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                Some(closed) => {
                    at = closed.node.at;
                    (Rc::new(closed.node), closed.anchor)
                }
                None => continue,
            },
            Event::Scalar(value, style, anchor, tag) => {
                let is_plain = style == ScalarStyle::Plain;
                let may_merge = tag.as_ref().map_or(is_plain, |tag| tag.suffix() == "merge");
                is_merge = value == "<<" && may_merge;
                let scalar = scalar(&value, style, tag.as_deref());
                let scalar = scalar.map_err(|what| Problem::new(what, at))?;
                let node = node(Content::Scalar(scalar));
                totals.add(&node, at)?;
                (Rc::new(node), anchor)
            }
            Event::Alias(anchor) => match anchors.get(&anchor) {
                Some(node) => {
                    totals.add(node, at)?;
                    totals.add_repeated(node, at)?;
                    (node.clone(), 0)
                }
                None => return Err(Problem::new("an alias within its own value", at)),
            },
            _ => continue,
        };
        anchors.insert(anchor, done.clone());
        match open.last_mut() {
            Some(open) => open.add(done, at, is_merge)?,
            None if root.is_none() => root = Some(done),
            // A separator at the end of the text.
            None if done.is_null() => {}
            None => return Err(Problem::new("more than one YAML document", at)),
        }
    }
    let nothing = || Rc::new(Node::new((1, 1), Content::Scalar(Scalar::Null)));
    Ok(root.unwrap_or_else(nothing))
}

const TOO_MUCH: &str = "too much nesting, or too many aliases or values for a kubeconfig";

/// What the text so far has in total. Lists and maps that have not ended yet are included, so that
/// the limits hold at any time, and not only for a list or map as a whole.
#[derive(Default)]
struct Totals {
    /// The number of values, with those of aliases.
    values: usize,
    /// The bytes of the keys and texts that aliases repeat.
    repeated_text: usize,
}

impl Totals {
    fn add(&mut self, node: &Node, at: Position) -> Result<(), Problem> {
        self.values += node.size;
        match self.values {
            0..=MAX_VALUES => Ok(()),
            _ => Err(Problem::new(TOO_MUCH, at)),
        }
    }

    /// Adds the text of an alias. Keys that are merged with `<<` are in it, because only an alias
    /// can merge a map more than once.
    fn add_repeated(&mut self, node: &Node, at: Position) -> Result<(), Problem> {
        self.repeated_text += node.text;
        match self.repeated_text {
            0..=MAX_REPEATED_TEXT => Ok(()),
            _ => {
                let what = "aliases repeat too much text for a kubeconfig";
                Err(Problem::new(what, at))
            }
        }
    }
}

impl Open {
    /// Adds an item of a list, or the next key or value of a map.
    fn add(&mut self, child: Rc<Node>, at: Position, is_merge: bool) -> Result<(), Problem> {
        self.node.size += child.size;
        self.node.text += child.text;
        self.node.depth = self.node.depth.max(child.depth + 1);
        if self.node.depth > MAX_DEPTH {
            return Err(Problem::new(TOO_MUCH, at));
        }
        let is_key = matches!(self.node.content, Content::Map(_)) && self.key.is_none();
        if let Content::Scalar(Scalar::Float(number)) = child.content
            && !number.is_finite()
            && !is_key
        {
            return Err(Problem::new("a number that JSON does not have", at));
        }
        let map = match &mut self.node.content {
            Content::Map(map) => map,
            Content::List(items) => {
                items.push(child);
                return Ok(());
            }
            Content::Scalar(_) => return Ok(()),
        };
        match self.key.take() {
            None => {
                let text = || child.key().map(|text| Key::Text(text, at));
                let key = if is_merge { Some(Key::Merge) } else { text() };
                let what = "a key that is not a string, a number or a boolean";
                self.key = Some(key.ok_or_else(|| Problem::new(what, at))?);
            }
            Some(Key::Text(key, at)) => {
                let entry = Entry {
                    value: child,
                    is_merged: false,
                };
                if map.insert(key, entry).is_some_and(|old| !old.is_merged) {
                    return Err(Problem::new("duplicate key", at));
                }
            }
            Some(Key::Merge) => {
                let several = match &child.content {
                    Content::List(items) => &items[..],
                    _ => std::slice::from_ref(&child),
                };
                // The first of several maps has precedence.
                for one in several.iter().rev() {
                    let Content::Map(merged) = &one.content else {
                        return Err(Problem::new("expected a map to merge", at));
                    };
                    map.extend(merged.iter().map(|(key, entry)| {
                        let entry = Entry {
                            value: entry.value.clone(),
                            is_merged: true,
                        };
                        (key.clone(), entry)
                    }));
                }
            }
        }
        Ok(())
    }
}

impl Node {
    /// A scalar, or an empty list or map.
    fn new(at: Position, content: Content) -> Self {
        let text = match &content {
            Content::Scalar(Scalar::Text(text)) => text.len(),
            _ => 0,
        };
        Self {
            at,
            content,
            size: 1,
            text,
            depth: 0,
        }
    }

    fn is_null(&self) -> bool {
        matches!(self.content, Content::Scalar(Scalar::Null))
    }

    /// The text of a scalar as a key. `None` if it cannot be a key.
    fn key(&self) -> Option<Rc<str>> {
        let Content::Scalar(scalar) = &self.content else {
            return None;
        };
        Some(match scalar {
            Scalar::Null | Scalar::Large(_) => return None,
            Scalar::Bool(flag) => flag.to_string().into(),
            Scalar::Int(number) => number.to_string().into(),
            Scalar::Float(number) => go_float(*number).into(),
            Scalar::Text(text) => text.clone(),
        })
    }
}

/// Formats a number as Go's `FormatFloat(number, 'g', -1, 32)`.
fn go_float(number: f64) -> String {
    #[expect(clippy::cast_possible_truncation, reason = "Go rounds to 32 bits")]
    let number = number as f32;
    let scientific = format!("{number:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else {
        let sign = if number < 0.0 { "-" } else { "" };
        let name = if number.is_nan() { "nan" } else { "inf" };
        return format!("{sign}.{name}");
    };
    match exponent.parse() {
        Ok(exponent @ (..=-5 | 6_i32..)) => format!("{mantissa}e{exponent:+03}"),
        _ => number.to_string(),
    }
}

/// Reads a scalar as go-yaml v2 does (`resolve` and `decoder.scalar`).
fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Scalar, &'static str> {
    const WRONG_TAG: &str = "a value that does not match its tag";
    let tag = tag.map(|tag| format!("{}{}", tag.handle(), tag.suffix()));
    let tag = tag
        .as_deref()
        .map(|tag| tag.strip_prefix("tag:yaml.org,2002:"));
    Ok(match tag {
        None if style == ScalarStyle::Plain => plain(text),
        Some(Some("binary")) => {
            let text = decode_base64(text).and_then(|bytes| String::from_utf8(bytes).ok());
            Scalar::Text(text.ok_or(WRONG_TAG)?.into())
        }
        Some(Some(tag @ ("bool" | "int" | "float" | "null"))) => match (tag, plain(text)) {
            ("float", Scalar::Int(number)) => Scalar::Float(number as f64),
            ("bool", flag @ Scalar::Bool(_)) => flag,
            ("int", number @ (Scalar::Int(_) | Scalar::Large(_))) => number,
            ("float", number @ Scalar::Float(_)) => number,
            ("null", Scalar::Null) => Scalar::Null,
            _ => return Err(WRONG_TAG),
        },
        _ => Scalar::Text(text.into()),
    })
}

/// Reads a scalar without quotes and without a tag. Dates stay texts.
fn plain(text: &str) -> Scalar {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Scalar::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Scalar::Bool(true);
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Scalar::Bool(false);
        }
        ".nan" | ".NaN" | ".NAN" => return Scalar::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => {
            return Scalar::Float(f64::INFINITY);
        }
        "-.inf" | "-.Inf" | "-.INF" => return Scalar::Float(f64::NEG_INFINITY),
        _ => {}
    }
    number(text).unwrap_or_else(|| Scalar::Text(text.into()))
}

fn number(text: &str) -> Option<Scalar> {
    let first = *text.as_bytes().first()?;
    // After a point, Go accepts an underscore only between digits.
    let is_grouped =
        |part: &str| part.bytes().all(|byte| byte.is_ascii_digit()) && !part.is_empty();
    let digits = match first {
        b'0'..=b'9' | b'+' | b'-' => text.replace('_', ""),
        b'.' if text[1..].split('_').all(is_grouped) => text.replace('_', ""),
        b'.' => text.to_owned(),
        _ => return None,
    };
    if first != b'.'
        && let Some(number) = integer(&digits)
    {
        return Some(number);
    }
    // Rust reads more words as floats.
    let is_float = |byte: u8| byte.is_ascii_digit() || b"+-.eE".contains(&byte);
    let float: f64 = digits
        .bytes()
        .all(is_float)
        .then(|| digits.parse().ok())??;
    float.is_finite().then_some(Scalar::Float(float))
}

/// Reads an integer as Go's `ParseInt` and `ParseUint` with base 0.
fn integer(text: &str) -> Option<Scalar> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (base, digits) = match unsigned.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &unsigned[2..]),
        [b'0', b'o' | b'O', ..] => (8, &unsigned[2..]),
        [b'0', b'b' | b'B', ..] => (2, &unsigned[2..]),
        [b'0', _, ..] => (8, &unsigned[1..]),
        _ => (10, unsigned),
    };
    // Rust accepts a second sign, and go-yaml only here.
    let digits =
        Some(digits).filter(|digits| text.starts_with("0b") || !digits.starts_with(['+', '-']))?;
    let number = i128::from_str_radix(digits, base).ok()?;
    let number = if text.starts_with('-') {
        -number
    } else {
        number
    };
    let large = || u64::try_from(number).ok().filter(|_| unsigned == text);
    let small = i64::try_from(number).ok().map(Scalar::Int);
    small.or_else(|| large().map(Scalar::Large))
}

/// As in Go, `null` is the zero value of every type.
impl<'de> Deserializer<'de> for &'de Node {
    type Error = Problem;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        let decoded = match &self.content {
            Content::List(items) => {
                visitor.visit_seq(SeqDeserializer::new(items.iter().map(|item| &**item)))
            }
            Content::Map(map) => {
                let entries = map.iter().map(|(key, entry)| (&**key, &*entry.value));
                visitor.visit_map(MapDeserializer::new(entries))
            }
            Content::Scalar(scalar) => match scalar {
                Scalar::Null => visitor.visit_unit(),
                Scalar::Bool(flag) => visitor.visit_bool(*flag),
                Scalar::Int(number) => visitor.visit_i64(*number),
                Scalar::Large(number) => visitor.visit_u64(*number),
                #[expect(clippy::cast_possible_truncation, reason = "it is whole and small")]
                Scalar::Float(number) if number.fract() == 0.0 && number.abs() < 1e15 => {
                    visitor.visit_i64(*number as i64)
                }
                Scalar::Float(number) => visitor.visit_f64(*number),
                Scalar::Text(text) => visitor.visit_borrowed_str(text),
            },
        };
        decoded.map_err(|problem| Problem {
            at: problem.at.or(Some(self.at)),
            ..problem
        })
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        if self.is_null() {
            return visitor.visit_none();
        }
        visitor.visit_some(self)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        if self.is_null() {
            return visitor.visit_bool(false);
        }
        self.deserialize_any(visitor)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        if self.is_null() {
            return visitor.visit_borrowed_str("");
        }
        self.deserialize_any(visitor)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        if self.is_null() {
            return visitor.visit_seq(SeqDeserializer::new(iter::empty::<&Node>()));
        }
        self.deserialize_any(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        if self.is_null() {
            return visitor.visit_map(MapDeserializer::new(iter::empty::<(&str, &Node)>()));
        }
        self.deserialize_any(visitor)
    }

    /// Derived structs would also accept a list.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Problem> {
        match self.content {
            Content::Map(_) | Content::Scalar(Scalar::Null) => self.deserialize_map(visitor),
            _ => Err(Problem::new("expected a map", self.at)),
        }
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str bytes byte_buf unit unit_struct newtype_struct
        tuple tuple_struct enum identifier ignored_any
    }
}

impl<'de> IntoDeserializer<'de, Problem> for &'de Node {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}
