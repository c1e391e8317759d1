//! Label selectors, parsed as Kubernetes parses them and matched against cached objects.
//!
//! [`Selector`] is Go's `labels.Selector`. Its page describes the grammar and has an example.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use crate::base::text::Reason;
use crate::base::text::{EscapedName, EscapedText};
use crate::error::debug_as_display;
use crate::object::Object;

/// A label selector. Go's `labels.Selector`.
///
/// The grammar is that of `kubectl -l`. A selector is a list of requirements, separated by commas,
/// and an object must satisfy all of them. The requirements are `key`, `!key`, `key=value`,
/// `key==value`, `key!=value`, `key in (a,b)` and `key notin (a,b)`, and for integers `key>1` and
/// `key<9`. A missing label satisfies only `!key`, `!=` and `notin`.
///
/// ```
/// use k8s_informer::Selector;
///
/// let selector: Selector = "tier in (web, db), app=shop,!canary".parse()?;
/// assert_eq!(selector.to_string(), "app=shop,!canary,tier in (db,web)");
/// let labels = |key: &str| match key {
///     "app" => Some("shop"),
///     "tier" => Some("db"),
///     _ => None,
/// };
/// assert!(selector.matches_labels(labels));
/// assert!(!"app!=shop".parse::<Selector>()?.matches_labels(labels));
/// # Ok::<(), k8s_informer::selector::SelectorError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Selector {
    /// Sorted by key. `None` selects no object.
    requirements: Option<Vec<Requirement>>,
}

impl Selector {
    /// Returns the empty selector, which selects every object.
    pub fn everything() -> Self {
        Self {
            requirements: Some(Vec::new()),
        }
    }

    /// Returns a selector that selects no object. It has no text form: as in Go, it displays like
    /// [`everything`](Self::everything). Do not send it to a server.
    pub fn nothing() -> Self {
        Self { requirements: None }
    }

    /// Returns a selector of the objects that have this label with this value. Unlike a selector that
    /// is formatted and parsed, it has one requirement whatever the texts contain. Go's
    /// `SelectorFromSet`.
    ///
    /// ```
    /// use k8s_informer::Selector;
    ///
    /// let web = Selector::equals("app", "web")?.and(Selector::equals("tier", "")?);
    /// assert_eq!(web.to_string(), "app=web,tier=");
    /// let error = Selector::equals("app", "web,tier!=db").unwrap_err();
    /// assert!(error.to_string().contains("a valid label must be"), "{error}");
    /// # Ok::<(), k8s_informer::selector::SelectorError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if `key` is not a [qualified name](is_qualified_name) or `value` is not valid for a label.
    #[doc(alias = "SelectorFromSet")]
    pub fn equals(key: &str, value: &str) -> Result<Self, SelectorError> {
        let checked = check_key(key).map_err(|reason| (1, reason)).and_then(|()| {
            let is_valid = value.is_empty() || is_name(value);
            // The value is after the key and the operator.
            let at = key.chars().count() + 2;
            is_valid
                .then_some(())
                .ok_or_else(|| (at, invalid(value, NO_VALUE)))
        });
        checked.map_err(|(character, reason)| SelectorError {
            selector: format!("{key}={value}"),
            character: Some(character),
            reason,
        })?;
        Ok(Self {
            requirements: Some(vec![Requirement {
                key: key.to_owned(),
                test: Test::Equals("=", value.to_owned()),
            }]),
        })
    }

    /// Returns a selector of the objects that both selectors select. Go's `Selector.Add`.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let both = self.requirements.zip(other.requirements);
        Self {
            requirements: both.map(|(mut requirements, more)| {
                requirements.extend(more);
                requirements.sort_by(|a, b| a.key.cmp(&b.key));
                requirements
            }),
        }
    }

    /// Whether the selector has no requirements and so selects every object.
    pub fn is_empty(&self) -> bool {
        self.requirements.as_ref().is_some_and(Vec::is_empty)
    }

    /// Whether the selector selects `object`.
    pub fn matches<T: Object + ?Sized>(&self, object: &T) -> bool {
        self.matches_labels(|key| object.label(key))
    }

    /// Returns the labels for which only a few values match, with these values.
    pub(crate) fn wanted(&self) -> impl Iterator<Item = (&str, Vec<&str>)> {
        let requirements = self.requirements.iter().flatten();
        requirements.filter_map(|one| match &one.test {
            Test::Equals(_, value) => Some((&*one.key, vec![&**value])),
            Test::In(values) => Some((&*one.key, values.iter().map(|value| &**value).collect())),
            _ => None,
        })
    }

    /// Whether the selector selects an object with these labels. `label` returns the value of a
    /// key.
    pub fn matches_labels<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        match &self.requirements {
            None => false,
            Some(requirements) => requirements.iter().all(|one| one.matches(label(&one.key))),
        }
    }
}

/// Parses a selector like Go's `labels.Parse`.
impl FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        let tokens = scan(text);
        let mut parser = Parser {
            tokens: &tokens,
            at: 0,
        };
        let mut requirements = parser.selector().map_err(|reason| {
            // The fault is the last token that was taken, or the end.
            let begin = tokens.get(parser.at - 1).map(|(begin, _)| *begin);
            SelectorError {
                selector: text.to_owned(),
                character: begin.map(|begin| text[..begin].chars().count() + 1),
                reason,
            }
        })?;
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(Self {
            requirements: Some(requirements),
        })
    }
}

/// Writes the canonical form: sorted by key, without spaces, with operators as they were written.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, requirement) in self.requirements.iter().flatten().enumerate() {
            if at > 0 {
                f.write_str(",")?;
            }
            requirement.fmt(f)?;
        }
        Ok(())
    }
}

/// The error of an invalid label selector. The message contains the selector, the position of the
/// fault, and what is expected there. The wording can change.
#[derive(Clone, PartialEq, Eq)]
pub struct SelectorError {
    selector: String,
    /// The position of the fault, starting at 1. `None` for the end.
    character: Option<usize>,
    reason: Reason,
}

impl fmt::Display for SelectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the label selector \"{}\" is invalid at ",
            EscapedName(&self.selector)
        )?;
        match self.character {
            Some(character) => write!(f, "character {character}")?,
            None => f.write_str("its end")?,
        }
        write!(f, ": {}", EscapedText(&self.reason.to_string()))
    }
}

impl std::error::Error for SelectorError {}

debug_as_display!(SelectorError);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Test {
    Exists,
    Absent,
    /// The operator as it was written, `=` or `==`, and the value.
    Equals(&'static str, String),
    NotEquals(String),
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    /// The number, and its text as it was written.
    Greater(i64, String),
    Less(i64, String),
}

impl Requirement {
    fn matches(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match &self.test {
            Test::Exists => value.is_some(),
            Test::Absent => value.is_none(),
            Test::Equals(_, wanted) => value == Some(wanted),
            Test::NotEquals(unwanted) => value != Some(unwanted),
            Test::In(wanted) => value.is_some_and(|value| wanted.contains(value)),
            Test::NotIn(unwanted) => value.is_none_or(|value| !unwanted.contains(value)),
            Test::Greater(limit, _) => number().is_some_and(|number| number > *limit),
            Test::Less(limit, _) => number().is_some_and(|number| number < *limit),
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        let list = |values: &BTreeSet<String>| {
            values
                .iter()
                .map(String::as_str)
                .collect::<Vec<_>>()
                .join(",")
        };
        match &self.test {
            Test::Exists => f.write_str(key),
            Test::Absent => write!(f, "!{key}"),
            Test::Equals(operator, value) => write!(f, "{key}{operator}{value}"),
            Test::NotEquals(value) => write!(f, "{key}!={value}"),
            Test::In(values) => write!(f, "{key} in ({})", list(values)),
            Test::NotIn(values) => write!(f, "{key} notin ({})", list(values)),
            Test::Greater(_, value) => write!(f, "{key}>{value}"),
            Test::Less(_, value) => write!(f, "{key}<{value}"),
        }
    }
}

const SPACE: [char; 4] = [' ', '\t', '\r', '\n'];
const SPECIAL: [char; 7] = ['=', '!', '(', ')', ',', '>', '<'];

/// Splits a selector into words and operators, with their positions. The longest matching operator
/// wins.
fn scan(text: &str) -> Vec<(usize, &str)> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start_matches(SPACE);
    while !rest.is_empty() {
        let length = if rest.starts_with("==") || rest.starts_with("!=") {
            2
        } else if rest.starts_with(SPECIAL) {
            1
        } else {
            rest.find(|c| SPACE.contains(&c) || SPECIAL.contains(&c))
                .unwrap_or(rest.len())
        };
        let (token, after) = rest.split_at(length);
        tokens.push((text.len() - rest.len(), token));
        rest = after.trim_start_matches(SPACE);
    }
    tokens
}

/// A recursive descent parser that makes the same decisions as Go's. `in` and `notin` are operators
/// only directly after a key. Elsewhere they are ordinary words.
struct Parser<'a> {
    tokens: &'a [(usize, &'a str)],
    /// The number of tokens that were taken.
    at: usize,
}

impl<'a> Parser<'a> {
    /// Returns the next token, or an empty string at the end.
    fn peek(&self) -> &'a str {
        self.tokens.get(self.at).map_or("", |(_, token)| token)
    }

    fn next(&mut self) -> &'a str {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn selector(&mut self) -> Result<Vec<Requirement>, Reason> {
        let mut requirements = Vec::new();
        if self.peek().is_empty() {
            return Ok(requirements);
        }
        loop {
            requirements.push(self.requirement(requirements.is_empty())?);
            match self.next() {
                "" => return Ok(requirements),
                "," => {}
                other => {
                    return Err(format!("found '{other}', expected: ',' or 'end of string'").into());
                }
            }
        }
    }

    fn requirement(&mut self, first: bool) -> Result<Requirement, Reason> {
        let absent = self.peek() == "!";
        if absent {
            self.next();
        }
        let key = self.next();
        if !is_word(key) {
            let expected = if first || absent {
                "!, identifier, or 'end of string'"
            } else {
                "identifier after ','"
            };
            return Err(format!("found '{key}', expected: {expected}").into());
        }
        check_key(key)?;
        let test = if absent {
            Test::Absent
        } else if matches!(self.peek(), "" | ",") {
            Test::Exists
        } else {
            self.test()?
        };
        Ok(Requirement {
            key: key.to_owned(),
            test,
        })
    }

    fn test(&mut self) -> Result<Test, Reason> {
        Ok(match self.next() {
            "=" => Test::Equals("=", self.value()?),
            "==" => Test::Equals("==", self.value()?),
            "!=" => Test::NotEquals(self.value()?),
            ">" => {
                let (number, text) = self.number()?;
                Test::Greater(number, text)
            }
            "<" => {
                let (number, text) = self.number()?;
                Test::Less(number, text)
            }
            "in" => Test::In(self.values()?),
            "notin" => Test::NotIn(self.values()?),
            other => {
                let expected = "in, notin, =, ==, !=, gt, lt";
                return Err(format!("found '{other}', expected: {expected}").into());
            }
        })
    }

    fn value(&mut self) -> Result<String, Reason> {
        if matches!(self.peek(), "" | ",") {
            return Ok(String::new());
        }
        match self.next() {
            word if is_name(word) => Ok(word.to_owned()),
            word if is_word(word) => Err(invalid(word, NO_VALUE)),
            other => Err(format!("found '{other}', expected: identifier").into()),
        }
    }

    fn number(&mut self) -> Result<(i64, String), Reason> {
        let text = self.value()?;
        if let Ok(number) = text.parse() {
            return Ok((number, text));
        }
        if text.is_empty() {
            self.next();
        }
        let why = "for 'Gt', 'Lt' operators, the value must be an integer";
        Err(invalid(&text, why))
    }

    /// Parses `(a,b)`. A missing item between commas or parentheses is the empty value.
    fn values(&mut self) -> Result<BTreeSet<String>, Reason> {
        let open = self.next();
        if open != "(" {
            return Err(format!("found '{open}' expected: '('").into());
        }
        let mut values = BTreeSet::new();
        loop {
            match self.peek() {
                "," | ")" => drop(values.insert(String::new())),
                _ => drop(values.insert(self.value()?)),
            }
            match self.next() {
                "," => {}
                ")" => return Ok(values),
                other => {
                    return Err(format!("found '{other}', expected: ',', or ')'").into());
                }
            }
        }
    }
}

const NO_KEY: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end \
    with an alphanumeric character (e.g. 'MyName', or 'my.name', or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

const NO_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
    and must start and end with an alphanumeric character (e.g. 'MyValue', or 'my_value', or '12345', regex used \
    for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

fn invalid(text: &str, why: &str) -> Reason {
    format!("\"{text}\": {why}").into()
}

fn is_word(token: &str) -> bool {
    !token.is_empty() && !token.starts_with(SPECIAL)
}

fn check_key(key: &str) -> Result<(), Reason> {
    if is_qualified_name(key) {
        Ok(())
    } else {
        Err(invalid(key, NO_KEY))
    }
}

/// Whether the text is a name of at most 63 characters, with an optional DNS subdomain and slash
/// before it, as keys of labels and annotations and names of finalizers must be. apimachinery's
/// `IsQualifiedName`.
///
/// ```
/// use k8s_informer::selector::is_qualified_name;
///
/// assert!(is_qualified_name("example.com/my-finalizer"));
/// assert!(!is_qualified_name("my finalizer"));
/// ```
pub fn is_qualified_name(key: &str) -> bool {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let prefix_fits = prefix
        .is_none_or(|prefix| prefix.len() <= 253 && prefix.split('.').all(is_lowercase_label));
    prefix_fits && is_name(name)
}

/// Whether `label` is a part of a DNS subdomain. Its length is not checked.
pub(crate) fn is_lowercase_label(label: &str) -> bool {
    let is_outer = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    bounded_by(label, is_outer, |byte| byte == b'-')
}

/// Whether `name` is valid after the slash of a key, or as a non-empty value (Go's
/// `IsValidLabelValue`).
fn is_name(name: &str) -> bool {
    name.len() <= 63
        && bounded_by(
            name,
            |byte| byte.is_ascii_alphanumeric(),
            |byte| matches!(byte, b'-' | b'_' | b'.'),
        )
}

/// Whether `text` begins and ends with `outer` bytes, and all bytes are `outer` or `inner` ones.
fn bounded_by(text: &str, outer: impl Fn(u8) -> bool, inner: impl Fn(u8) -> bool) -> bool {
    match text.as_bytes() {
        [] => false,
        [first, .., last] if !(outer(*first) && outer(*last)) => false,
        [one] => outer(*one),
        bytes => bytes.iter().all(|byte| outer(*byte) || inner(*byte)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_selector_value_between_commas_is_empty() {
        let canonical = |text: &str| {
            text.parse::<Selector>()
                .map(|selector| selector.to_string())
                .ok()
        };
        assert_eq!(canonical("a in (,,b)").as_deref(), Some("a in (,b)"));
        assert_eq!(canonical("a in (b,,c)").as_deref(), Some("a in (,b,c)"));
        assert_eq!(canonical("a in (b,,)").as_deref(), Some("a in (,b)"));
        assert_eq!(canonical("a in (,)").as_deref(), Some("a in ()"));
        assert_eq!(canonical("a in (b"), None);
        assert_eq!(canonical("a in ("), None);
    }

    #[test]
    fn equals_makes_one_requirement_of_any_text() {
        let value =
            |value: &str| Selector::equals("app", value).map(|selector| selector.to_string());
        assert_eq!(value("web").as_deref(), Ok("app=web"));
        assert_eq!(value("").as_deref(), Ok("app="));
        for injected in ["web,x=y", "web x", "a in (b)", "!", "web,"] {
            let error = value(injected).unwrap_err().to_string();
            assert!(error.contains("character 5"), "{error}");
        }
        for key in ["", "app,x", "a=b", "!app"] {
            assert!(Selector::equals(key, "web").is_err(), "{key}");
        }
    }

    #[test]
    fn and_selects_what_both_select() {
        let parse = |text: &str| text.parse::<Selector>().unwrap();
        assert_eq!(
            parse("b=2,a=1").and(parse("b!=3")).to_string(),
            "a=1,b=2,b!=3"
        );
        assert_eq!(parse("a").and(Selector::nothing()), Selector::nothing());
        assert_eq!(Selector::everything().and(parse("a")), parse("a"));
    }

    #[test]
    fn selector_error_names_selector_position_and_expectation() {
        let cases = [
            ("a in (b", "its end: found '', expected: ',', or ')'"),
            (
                "a b c",
                "character 3: found 'b', expected: in, notin, =, ==, !=, gt, lt",
            ),
            ("a in x", "character 6: found 'x' expected: '('"),
            ("ä=1,b", "character 1: \"ä\": name part must consist of"),
            ("a=b, c=-1", "character 8: \"-1\": a valid label must be"),
            ("a,", "its end: found '', expected: identifier after ','"),
            (
                ",",
                "character 1: found ',', expected: !, identifier, or 'end of string'",
            ),
            ("!", "its end: found '', expected: !, identifier"),
            ("a>,b", "character 3: \"\": for 'Gt', 'Lt' operators"),
            ("a>", "its end: \"\": for 'Gt', 'Lt' operators"),
            ("a>x", "character 3: \"x\": for 'Gt', 'Lt' operators"),
            ("a=b c", "character 5: found 'c', expected: ',' or"),
            ("a=\u{1b}", "character 3: \"\\u{1b}\": a valid label"),
        ];
        for (selector, fault) in cases {
            let error = selector.parse::<Selector>().unwrap_err().to_string();
            let shown = selector.escape_debug();
            let expected = format!("the label selector \"{shown}\" is invalid at {fault}");
            assert!(error.starts_with(&expected), "{error}");
        }
    }

    #[test]
    fn nothing_selector_matches_none_and_everything_matches_all() {
        assert!(
            Selector::everything().is_empty() && Selector::everything().matches_labels(|_| None)
        );
        assert!(!Selector::nothing().is_empty() && !Selector::nothing().matches_labels(|_| None));
        assert_eq!("".parse(), Ok(Selector::everything()));
    }
}
