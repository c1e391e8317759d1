//! From what somebody calls a resource to the resource: the rules of kubectl, which are those of client-go's
//! shortcut expander and priority mapper.

use super::document::{DiscoveredResource, Discovery, DiscoveryFailure};
use crate::error::{Error, ErrorKind};
use crate::object::GroupVersionKind;

/// How many that are near are told, and how many that could not be asked.
const TOLD: usize = 5;

/// Beyond this nothing is near: no name is so long.
const LONGEST: usize = 63;

/// What is asked for, taken apart.
#[derive(Clone, Copy)]
struct Name<'a> {
    /// `deployments`, `deployment`, `deploy`, `Deployment`.
    name: &'a str,
    version: Option<&'a str>,
    /// Empty for any.
    group: &'a str,
}

impl Discovery {
    /// The resource that kubectl would take for this name: `deployments`, `deployment`, `deploy`,
    /// `deployments.apps`, `deployments.v1.apps`, `Deployment`, `Deployment.apps`, `Deployment.v1.apps`.
    ///
    /// Plural and singular names and kinds may be written in any case, short names may not. A group may be
    /// cut short (`ingresses.networking`). Of several groups that have it the first one is meant, which
    /// is the core group where that has it, and of several versions the preferred one. For an object that
    /// has an apiVersion and a kind there is [`by_kind`](Self::by_kind). What
    /// [`GroupVersionResource`](crate::object::GroupVersionResource) displays is found, too.
    ///
    /// ```
    /// use k8s_informer::testing::ApiServer;
    /// use k8s_informer::{Client, Config, Stop};
    ///
    /// let server = ApiServer::start()?;
    /// let discovery = Client::new(Config::new(server.url()))?.discovery(&Stop::new())?;
    /// for name in ["deploy", "deployment", "Deployment.apps", "deployments.v1.apps"] {
    ///     assert_eq!(discovery.find(name)?.resource.to_string(), "deployments.v1.apps");
    /// }
    /// let error = discovery.find("deploymnet").unwrap_err();
    /// assert!(error.is_no_match());
    /// assert!(error.to_string().contains("deployments.apps"), "{error}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`is_no_match`](Error::is_no_match) if there is none: the message tells what is near, and which groups
    /// could not be asked. Why a group could not be asked, if it is just the one that is asked for.
    pub fn find(&self, name: &str) -> Result<&DiscoveredResource, Error> {
        let mut parts = name.splitn(3, '.');
        let full = match (parts.next(), parts.next(), parts.next()) {
            (Some(name), Some(version), Some(group)) => Some(Name {
                name,
                version: Some(version),
                group,
            }),
            _ => None,
        };
        let (first, rest) = name.split_once('.').unwrap_or((name, ""));
        let short = Name {
            name: first,
            version: None,
            group: rest,
        };
        // A resource's name has no capital letters, so a whole kind can be nothing else.
        let found = full
            .and_then(|full| self.of_kind(full, true))
            .or_else(|| full.and_then(|full| self.of_resource(full)))
            .or_else(|| self.of_resource(short))
            .or_else(|| full.and_then(|full| self.of_kind(full, false)))
            .or_else(|| self.of_kind(short, false))
            .or_else(|| self.of_core(first, rest));
        if let Some(found) = found {
            return Ok(found);
        }
        let asked = [full.map_or("", |full| full.group), short.group];
        let failed = self
            .failures()
            .iter()
            .find(|failure| !failure.group.is_empty() && asked.contains(&&*failure.group));
        Err(match failed {
            Some(failure) => failure
                .error
                .clone()
                .context(format!("resource {}: its group", quoted(name))),
            None => Error::new(ErrorKind::NoMatch(self.nothing("resource", name, first))),
        })
    }

    /// As [`by_kind`](Self::by_kind); why not, if there is none.
    pub(super) fn of_this_kind(
        &self,
        kind: &GroupVersionKind,
    ) -> Result<&DiscoveredResource, Error> {
        if let Some(found) = self.by_kind(kind) {
            return Ok(found);
        }
        let mut failures = self.failures().iter();
        let is_its_own = |failure: &&DiscoveryFailure| {
            !failure.group.is_empty()
                && failure.group == kind.group
                && [&*kind.version, ""].contains(&&*failure.version)
        };
        Err(match failures.find(is_its_own) {
            Some(failure) => {
                let name = quoted(&kind.to_string());
                failure
                    .error
                    .clone()
                    .context(format!("the kind {name}: its group"))
            }
            None => {
                let text = self.nothing("kind", &kind.to_string(), &kind.kind);
                Error::new(ErrorKind::NoMatch(text))
            }
        })
    }

    /// By plural, singular or short name.
    fn of_resource(&self, asked: Name<'_>) -> Option<&DiscoveredResource> {
        let Name {
            name,
            version,
            group,
        } = asked;
        if name.is_empty() {
            return None;
        }
        let own = |found: &&DiscoveredResource| group.is_empty() || found.group() == group;
        let is_whole = self
            .resources()
            .iter()
            .filter(own)
            .any(|found| found.plural() == name || found.singular == name);
        let has_short =
            |found: &&DiscoveredResource| found.short_names.iter().any(|short| short == name);
        let expanded = if is_whole {
            None
        } else {
            let below = |found: &&DiscoveredResource| found.group().starts_with(group);
            let mut short = self.resources().iter().filter(has_short);
            short.clone().find(own).or_else(|| short.find(below))
        };
        if let Some(expanded) = expanded {
            // The version that is asked for, of what the short name stands for.
            let same = |found: &&DiscoveredResource| {
                found.group() == expanded.group() && found.plural() == expanded.plural()
            };
            let mut all = self.resources().iter().filter(same);
            return all.find(|found| version.is_none_or(|version| found.version() == version));
        }
        let name = name.to_lowercase();
        let candidates = self
            .resources()
            .iter()
            .filter(|found| match (version, group) {
                (None, group) => found.group().starts_with(group),
                (Some(version), "") => found.version() == version,
                (Some(version), group) => found.version() == version && found.group() == group,
            });
        let mut named = candidates.filter(|found| found.plural() == name || found.singular == name);
        let first = named.next()?;
        // Of two in one version the one that is called so itself.
        let beside = |found: &&DiscoveredResource| {
            (found.group(), found.version()) == (first.group(), first.version())
                && found.plural() == name
        };
        Some(if first.plural() == name {
            first
        } else {
            named.find(beside).unwrap_or(first)
        })
    }

    /// By kind.
    fn of_kind(&self, asked: Name<'_>, only_of_group: bool) -> Option<&DiscoveredResource> {
        let Name {
            name,
            version,
            group,
        } = asked;
        let any_group = group.is_empty() && !only_of_group;
        self.resources().iter().find(|found| {
            (found.kind.kind == name || !only_of_group && found.kind.kind.to_lowercase() == name)
                && (any_group || found.group() == group)
                && version.is_none_or(|version| found.version() == version)
        })
    }

    /// `pods.v1`, as a resource of the core group is displayed.
    fn of_core(&self, name: &str, version: &str) -> Option<&DiscoveredResource> {
        let mut core = self
            .resources()
            .iter()
            .filter(|found| found.group().is_empty());
        core.find(|found| found.version() == version && found.plural() == name)
    }

    /// What to say of a name that is nobody's.
    fn nothing(&self, what: &str, asked: &str, name: &str) -> String {
        let mut text = format!("the server has no {what} {}", quoted(asked));
        let near = self.near(name);
        if !near.is_empty() {
            text.push_str(&format!("; near it: {}", near.join(", ")));
        }
        let failures = self.failures();
        for (index, failure) in failures.iter().take(TOLD).enumerate() {
            let group = if failure.group.is_empty() {
                "a group"
            } else {
                &failure.group
            };
            let slash = if failure.version.is_empty() { "" } else { "/" };
            let start = if index == 0 { "; not asked: " } else { ", " };
            text.push_str(&format!(
                "{start}{group}{slash}{} ({})",
                failure.version, failure.error
            ));
        }
        if failures.len() > TOLD {
            text.push_str(&format!(" and {} more", failures.len() - TOLD));
        }
        text
    }

    /// `deployments.apps`, for a name that is like it.
    fn near(&self, asked: &str) -> Vec<String> {
        let asked = asked.to_lowercase();
        // Of a short name, one letter off is another one.
        let allowed = match asked.chars().count() {
            0..=3 => 1,
            4..=7 => 2,
            8..=LONGEST => 3,
            _ => return Vec::new(),
        };
        let mut near = Vec::<(usize, String)>::new();
        for found in self.resources().iter().filter(|found| found.is_preferred) {
            let kind = found.kind.kind.to_lowercase();
            let long = [found.plural(), &*found.singular, &*kind];
            let distances = long
                .into_iter()
                .filter_map(|name| distance(&asked, name, allowed));
            let short = found
                .short_names
                .iter()
                .filter(|short| short.to_lowercase() == asked)
                .map(|_| 0);
            // What begins so is near, too: the rest is still to be written.
            let begins = (asked.len() > 2 && found.plural().starts_with(&asked)).then_some(1);
            let Some(distance) = distances.chain(short).chain(begins).min() else {
                continue;
            };
            let dot = if found.group().is_empty() { "" } else { "." };
            near.push((
                distance,
                format!("{}{dot}{}", found.plural(), found.group()),
            ));
        }
        // The nearest first; of equals, in the order of the server.
        near.sort_by_key(|(distance, _)| *distance);
        near.into_iter().take(TOLD).map(|(_, name)| name).collect()
    }
}

/// A name that came from anywhere, for a message.
fn quoted(name: &str) -> String {
    let mut short: String = name.chars().take(LONGEST).collect();
    if short.len() < name.len() {
        short.push('…');
    }
    format!("{short:?}")
}

/// How many letters have to be put in, left out or changed, if they are no more than `limit`; two that have
/// changed places are one.
fn distance(one: &str, other: &str, limit: usize) -> Option<usize> {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    if one.len().abs_diff(other.len()) > limit {
        return None;
    }
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.iter().enumerate() {
        let mut line = vec![i + 1];
        for (j, b) in other.iter().enumerate() {
            let changed = last[j] + usize::from(a != b);
            let mut best = changed.min(last[j + 1] + 1).min(line[j] + 1);
            if i > 0 && j > 0 && *a == other[j - 1] && one[i - 1] == *b {
                best = best.min(before[j - 1] + 1);
            }
            line.push(best);
        }
        before = std::mem::replace(&mut last, line);
    }
    last.last().copied().filter(|distance| *distance <= limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_far_names_are_from_each_other() {
        for (one, other, expected) in [
            ("pods", "pods", Some(0)),
            ("pdos", "pods", Some(1)),
            ("deploymnets", "deployments", Some(1)),
            ("", "po", Some(2)),
            ("ingres", "ingresses", Some(3)),
            ("pods", "nodes", Some(2)),
            ("services", "pods", None),
            ("ä", "a", Some(1)),
        ] {
            assert_eq!(distance(one, other, 3), expected, "{one} {other}");
            assert_eq!(distance(other, one, 3), expected, "{other} {one}");
        }
    }
}
