//! Compares the server with what was written.

use std::collections::{BTreeMap, BTreeSet};

use k8s_informer::object::FullMetadata;
use k8s_informer::{Error, Object};

use super::ledger::Ledger;
use super::site::{Child, SITES, Site, Space, Status};
use super::world::World;

/// A violation, with the UID of the primary object.
pub(crate) type Violation = (String, String);

/// All objects on the server.
pub(crate) struct Found {
    /// By key.
    sites: BTreeMap<String, Site>,
    /// By the UID of the owner.
    children: BTreeMap<String, Vec<Child>>,
    /// The Namespaces of sites.
    spaces: Vec<Space>,
}

impl Found {
    pub(crate) fn list(world: &World) -> Result<Self, Error> {
        let mut sites = BTreeMap::new();
        for item in world.list(&format!("{SITES}/sites"))? {
            let site: Site = serde_json::from_value(item).expect("a site");
            sites.insert(format!("{}/{}", site.namespace(), site.name()), site);
        }
        let mut children: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for item in world.list("/api/v1/configmaps")? {
            let child: Child = serde_json::from_value(item).expect("a ConfigMap");
            if let Some(owner) = child.metadata.controller() {
                children.entry(owner.uid.clone()).or_default().push(child);
            }
        }
        let spaces = world.list("/api/v1/namespaces")?.into_iter();
        let space = |item| serde_json::from_value(item).expect("a Namespace");
        let is_of_site = |space: &Space| space.site().is_some();
        Ok(Self {
            sites,
            children,
            spaces: spaces.map(space).filter(is_of_site).collect(),
        })
    }

    /// The number of Namespaces that sites have wanted, and of those whose deletion was requested.
    pub(crate) fn spaces(&self) -> (usize, usize) {
        let deleted = self.spaces.iter().filter(|space| space.is_being_deleted());
        (self.spaces.len(), deleted.count())
    }

    /// Returns the sites whose Namespaces are missing, and Namespaces that are not wanted any more.
    fn differences_of_spaces(&self) -> Vec<Violation> {
        let wanted = |(key, site): (&String, &Site)| {
            let space = Space::wanted(site.name(), site.uid(), &site.spec.colour)?;
            Some((space, (site.uid().to_owned(), key.clone())))
        };
        let mut wanted: BTreeMap<_, _> = self.sites.iter().filter_map(wanted).collect();
        let mut found = Vec::new();
        for space in &self.spaces {
            let is_wanted = wanted.remove(space.name()).is_some();
            let site = space.site().and_then(|key| self.sites.get(&*key));
            // The controller does not see the rejected ones. A create with an unknown outcome can
            // leave one of a site that is gone.
            if let Some(site) = site.filter(|site| space.name().starts_with(site.uid()))
                && !is_wanted
                && !space.is_being_deleted()
                && !Space::is_rejected(space.name())
            {
                let problem = format!("the Namespace {} should be deleted", space.name());
                found.push((site.uid().to_owned(), problem));
            }
        }
        let missing = wanted.into_iter();
        found.extend(
            missing.map(|(space, (uid, key))| (uid, format!("{key} has no Namespace {space}"))),
        );
        found
    }

    pub(crate) fn sites(&self) -> usize {
        self.sites.len()
    }

    pub(crate) fn children(&self) -> usize {
        self.children.values().map(Vec::len).sum()
    }

    /// Returns the objects that do not have the desired state. The writers must have ended.
    pub(crate) fn differences(&self, world: &World, ledger: &Ledger) -> Vec<Violation> {
        let mut found = self.differences_of_spaces();
        let mut alive = BTreeSet::new();
        for number in 0..world.len() {
            let slot = world.slot(number);
            let key = slot.key();
            let site = self.sites.get(&key);
            let (wanted, site) = match (&slot.site, site) {
                (None, None) => continue,
                (Some(wanted), Some(site)) if site.uid() == wanted.uid => (wanted, site),
                (None, Some(site)) => {
                    let finalizers = &site.metadata.finalizers;
                    let problem = format!("{key} still exists with the finalizers {finalizers:?}");
                    found.push((site.uid().to_owned(), problem));
                    continue;
                }
                (Some(wanted), site) => {
                    let uid = site.map(Object::uid);
                    let problem = format!("{key} should exist, but the server has {uid:?}");
                    found.push((wanted.uid.clone(), problem));
                    continue;
                }
            };
            alive.insert(wanted.uid.clone());
            let children = self
                .children
                .get(&wanted.uid)
                .map_or(&[][..], Vec::as_slice);
            let mut names: Vec<_> = children
                .iter()
                .map(|child| child.name().to_owned())
                .collect();
            names.sort();
            let status = Status {
                names,
                colour: wanted.spec.colour.clone(),
                team: wanted.team.clone(),
            };
            let has_colour = |child: &Child| child.data.colour == wanted.spec.colour;
            if site.spec != wanted.spec
                || site.status != status
                || children.len() != wanted.spec.children
                || !children.iter().all(has_colour)
            {
                let problem = format!("{key}: wanted {wanted:?}, found {site:?}, {children:?}");
                found.push((wanted.uid.clone(), problem));
            }
        }
        for (uid, owner) in &*ledger.owners() {
            let key = &owner.key;
            match alive.contains(uid) {
                true if owner.effects == 0 || owner.is_clean => {
                    found.push((uid.clone(), format!("{key} exists without its effect")));
                }
                false if owner.effects > 0 && !owner.is_clean && !owner.is_forgotten() => {
                    found.push((uid.clone(), format!("the effect of {key} is stranded")));
                }
                _ => {}
            }
        }
        found
    }

    /// Returns children without a reason, and adds those that the proxy has not seen.
    pub(crate) fn excess(&self, ledger: &Ledger) -> Vec<Violation> {
        let mut owners = ledger.owners();
        for (uid, children) in &self.children {
            let owner = owners.entry(uid.clone()).or_default();
            owner
                .children
                .extend(children.iter().map(|child| child.uid().to_owned()));
        }
        let alive: BTreeSet<_> = self.sites.values().map(Object::uid).collect();
        let mut found = Vec::new();
        for (uid, owner) in &*owners {
            let (key, created) = (&owner.key, owner.children.len());
            if owner.duplicates() > 0 {
                let problem = format!(
                    "{key}: {created} children were created, {} are wanted and {} creates had an unknown outcome",
                    owner.wanted, owner.unknown
                );
                found.push((uid.clone(), problem));
            }
            if owner.blind_creates > 0 {
                let problem = format!(
                    "{key}: {} creates by calls that have not seen all known children",
                    owner.blind_creates
                );
                found.push((uid.clone(), problem));
            }
            let orphans = self.children.get(uid).map_or(0, Vec::len);
            let is_gone = !alive.contains(&**uid) && !owner.is_forgotten();
            if is_gone && orphans > owner.unknown {
                let problem = format!("{key} is gone and has left {orphans} children");
                found.push((uid.clone(), problem));
            }
        }
        found
    }

    /// The number of children whose owner is gone.
    pub(crate) fn orphans(&self) -> usize {
        let alive: BTreeSet<_> = self.sites.values().map(Object::uid).collect();
        let orphans = self
            .children
            .iter()
            .filter(|(uid, _)| !alive.contains(&***uid));
        orphans.map(|(_, children)| children.len()).sum()
    }
}
