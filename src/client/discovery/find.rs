//! Finds a resource by the names that kubectl accepts. The rules are those of client-go's shortcut
//! expander and priority mapper.

use super::document::{DiscoveredResource, Discovery, DiscoveryFailure};
use crate::base::text::{EscapedName, listed};
use crate::error::{Error, ErrorKind};
use crate::object::{GroupVersionKind, GroupVersionResource, Scope};

/// The maximum number of similar names, and of failures, in a message.
const MAX_LISTED: usize = 5;

/// The parts of a name: its first part, the version if the name contains one, and the group, which
/// can be abbreviated or empty.
type Name<'a> = (&'a str, Option<&'a str>, &'a str);

impl Discovery {
    /// Finds the resource that kubectl would use for a name. These names are equivalent:
    /// `deployments`, `deployment`, `deploy`, `deployments.apps`, `deployments.v1.apps`,
    /// `Deployment`, `Deployment.apps` and `Deployment.v1.apps`.
    ///
    /// - Plural and singular names match in any case. Kinds match as written or in lower case.
    ///   Short names match exactly.
    /// - After plural, singular and short names without a version, a prefix of the group is
    ///   sufficient: `ingresses.networking`.
    /// - If several groups match, the first one is used; the core group is always the first. If
    ///   several versions match, the preferred one is used.
    /// - The display form of [`GroupVersionResource`](crate::object::GroupVersionResource) is
    ///   accepted as well.
    ///
    /// For an object with `apiVersion` and `kind`, use [`by_kind`](Self::by_kind) instead.
    ///
    /// ```
    /// use k8s_informer::{Client, Config, Stop};
    /// use k8s_informer_testing::ApiServer;
    ///
    /// let server = ApiServer::start()?;
    /// let discovery = Client::new(Config::new(server.url()))?.discovery(&Stop::never())?;
    /// for name in ["deploy", "deployment", "Deployment.apps", "deployments.v1.apps"] {
    ///     assert_eq!(discovery.find(name)?.resource.to_string(), "deployments.v1.apps");
    /// }
    /// let error = discovery.find("deployments.extensions").unwrap_err();
    /// assert!(error.is_no_match());
    /// assert!(error.to_string().contains("deployments.apps"), "{error}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an [`is_no_match`](Error::is_no_match) error if there is no such resource. The
    /// message contains names in other groups and longer names, and the groups that could not be
    /// read. If the name contains such a group, returns the error of that group instead.
    pub fn find(&self, name: &str) -> Result<&DiscoveredResource, Error> {
        let mut parts = name.splitn(3, '.');
        let full = match (parts.next(), parts.next(), parts.next()) {
            (Some(name), Some(version), Some(group)) => Some((name, Some(version), group)),
            _ => None,
        };
        let (first, rest) = name.split_once('.').unwrap_or((name, ""));
        let short = (first, None, rest);
        // Resource names contain no capital letters, so a full kind is unambiguous and comes first.
        let found = full
            .and_then(|full| self.find_by_kind(full, true))
            .or_else(|| full.and_then(|full| self.find_by_resource(full)))
            .or_else(|| self.find_by_resource(short))
            .or_else(|| full.and_then(|full| self.find_by_kind(full, false)))
            .or_else(|| self.find_by_kind(short, false))
            .or_else(|| self.find_in_core(first, rest));
        if let Some(found) = found {
            return Ok(found);
        }
        let requested = [full.map_or("", |(_, _, group)| group), rest];
        Err(self.missing("resource", name, first, |failure| {
            requested.contains(&&*failure.group)
        }))
    }

    /// Like [`by_kind`](Self::by_kind), but returns an error if there is no such kind.
    pub(super) fn find_exact_kind(
        &self,
        kind: &GroupVersionKind,
    ) -> Result<&DiscoveredResource, Error> {
        if let Some(found) = self.by_kind(kind) {
            return Ok(found);
        }
        Err(
            self.missing("kind", &kind.to_string(), &kind.kind, |failure| {
                failure.group == kind.group && [&*kind.version, ""].contains(&&*failure.version)
            }),
        )
    }

    /// Returns the error for a name without a match: the failure of its group, if there is one.
    fn missing(
        &self,
        what: &str,
        requested: &str,
        name: &str,
        is_of_group: impl Fn(&DiscoveryFailure) -> bool,
    ) -> Error {
        let mut failures = self.failures().iter();
        match failures.find(|failure| !failure.group.is_empty() && is_of_group(failure)) {
            Some(failure) => failure.error.clone().context(format!(
                "the {what} {}: discovery of its group failed",
                quoted(requested)
            )),
            None => Error::new(ErrorKind::NoMatch(self.no_match(what, requested, name))),
        }
    }

    /// Describes what a request for this resource should be like instead. `None` if nothing is
    /// known to be wrong with it, and if this is not a server with discovery.
    pub(super) fn difference(
        &self,
        resource: &GroupVersionResource,
        namespace: Option<&str>,
        all_namespaces: bool,
    ) -> Option<String> {
        let Some(found) = self.by_resource(resource) else {
            if self.resources().is_empty() {
                return None;
            }
            let same = |found: &&DiscoveredResource| {
                (found.group(), found.plural()) == (&resource.group, &resource.resource)
            };
            let versions = self.resources().iter().filter(same);
            let versions: Vec<&str> = versions.map(|found| found.version()).collect();
            return Some(match &versions[..] {
                [] => self.no_match("resource", &resource.to_string(), &resource.resource),
                versions => format!(
                    "the server has {} only in the version {}",
                    quoted(&resource.resource),
                    versions.join(", ")
                ),
            });
        };
        let kind = &found.kind.kind;
        match (found.scope, namespace) {
            (Scope::Cluster, Some(_)) => {
                Some(format!("{kind} is cluster-scoped: use no namespace"))
            }
            (Scope::Namespaced, None) if !all_namespaces => Some(format!(
                "{kind} is namespaced: use a namespace, and `Namespaced` as the scope of the type"
            )),
            _ => None,
        }
    }

    /// Finds a resource by its plural, singular or short name.
    fn find_by_resource(&self, (name, version, group): Name<'_>) -> Option<&DiscoveredResource> {
        if name.is_empty() {
            return None;
        }
        let in_group = |found: &&DiscoveredResource| group.is_empty() || found.group() == group;
        let is_whole = self
            .resources()
            .iter()
            .filter(in_group)
            .any(|found| found.plural() == name || found.singular == name);
        let has_short =
            |found: &&DiscoveredResource| found.short_names.iter().any(|short| short == name);
        let expanded = if is_whole {
            None
        } else {
            let group_has_prefix = |found: &&DiscoveredResource| found.group().starts_with(group);
            let mut short = self.resources().iter().filter(has_short);
            short
                .clone()
                .find(in_group)
                .or_else(|| short.find(group_has_prefix))
        };
        if let Some(expanded) = expanded {
            // The short name determines the group and the plural name; the requested version is
            // selected here.
            let same_resource = |found: &&DiscoveredResource| {
                found.group() == expanded.group() && found.plural() == expanded.plural()
            };
            let mut all = self.resources().iter().filter(same_resource);
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
        // If a plural name and a singular name match in the same version, the plural name wins.
        let plural_in_version = |found: &&DiscoveredResource| {
            (found.group(), found.version()) == (first.group(), first.version())
                && found.plural() == name
        };
        Some(if first.plural() == name {
            first
        } else {
            named.find(plural_in_version).unwrap_or(first)
        })
    }

    /// Finds a resource by its kind. With `exact`, the kind must match in case, and an
    /// empty group means the core group.
    fn find_by_kind(
        &self,
        (name, version, group): Name<'_>,
        exact: bool,
    ) -> Option<&DiscoveredResource> {
        let any_group = group.is_empty() && !exact;
        self.resources().iter().find(|found| {
            (found.kind.kind == name || !exact && found.kind.kind.to_lowercase() == name)
                && (any_group || found.group() == group)
                && version.is_none_or(|version| found.version() == version)
        })
    }

    /// Finds `pods.v1`, the display form of a resource in the core group.
    fn find_in_core(&self, name: &str, version: &str) -> Option<&DiscoveredResource> {
        let mut core = self
            .resources()
            .iter()
            .filter(|found| found.group().is_empty());
        core.find(|found| found.version() == version && found.plural() == name)
    }

    /// Returns the message for a name without a match.
    fn no_match(&self, what: &str, requested: &str, name: &str) -> String {
        let mut text = format!("the server has no {what} {}", quoted(requested));
        let similar = self.similar_names(name);
        if !similar.is_empty() {
            text.push_str(&format!("; similar names: {}", similar.join(", ")));
        }
        let failures = self.failures().iter();
        let failures = failures.map(|failure| format!("{} ({})", failure.place(), failure.error));
        if failures.len() > 0 {
            text.push_str("; discovery failed for ");
            text.push_str(&listed(failures, MAX_LISTED));
        }
        text
    }

    /// Returns the resources with this name in any group, and those whose plural name begins with it.
    fn similar_names(&self, requested: &str) -> Vec<String> {
        let start = requested.to_lowercase();
        let is_similar = |found: &&DiscoveredResource| {
            let names = [&found.singular, &found.kind.kind].into_iter();
            let mut names = names.chain(&found.short_names);
            let begins = start.len() > 2 && found.plural().starts_with(&start);
            found.is_preferred && (begins || names.any(|name| name.eq_ignore_ascii_case(requested)))
        };
        let similar = self.resources().iter().filter(is_similar).take(MAX_LISTED);
        let name = |found: &DiscoveredResource| match found.group() {
            "" => found.plural().to_owned(),
            group => format!("{}.{group}", found.plural()),
        };
        similar.map(name).collect()
    }
}

/// Quotes and shortens a name for a message. The name can contain any characters.
fn quoted(name: &str) -> String {
    format!("\"{}\"", EscapedName(name))
}
