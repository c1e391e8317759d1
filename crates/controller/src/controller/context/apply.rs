//! Server-side apply that sends only what differs.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::controller::call::calls::Call;
use crate::controller::call::core::Core;
use crate::controller::call::outcome::Failure;
use crate::controller::objects::managed_fields::{migration, names_manager};
use crate::controller::objects::owner::{Named, is_same_object};
use crate::controller::sources::source::{AnySource, Coverage, InformerSource};
use crate::controller::writes::applied::{Answer, AppliedObjects, FIGHT, FIGHT_PERIOD};
use crate::controller::writes::record::ObjectId;
use crate::log;
use k8s_informer::client::api::{Api, Fetched, Patch};
use k8s_informer::object::{
    DynamicObject, FullMetadata, GroupVersionKind, Object, ObjectName, OwnerReference,
};
use k8s_informer::stop::Stop;

/// How often an apply moves updated fields to the applied ones while other programs write the
/// object at the same time. After that, the key is retried.
const MIGRATIONS: usize = 5;

/// What [`Context::apply`](crate::Context::apply) did.
///
/// ```
/// use k8s_informer::informer::Source;
/// use k8s_informer_controller::{Applied, ApplyOptions, Next};
/// use k8s_informer_testing::ControllerTest;
/// use k8s_openapi::api::apps::v1::Deployment;
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use serde_json::json;
/// use std::sync::mpsc;
///
/// let (sender, results) = mpsc::channel();
/// let mut test = ControllerTest::new(Source::of::<Deployment>(), move |builder| {
///     let sender = sender.clone();
///     builder.owns(Source::of::<ConfigMap>()).by(move |cx, _| {
///         let map = json!({"metadata": {"name": cx.name()}, "data": {"size": "3"}});
///         sender.send(cx.apply_with::<ConfigMap>(map, ApplyOptions::new().force(true))?)?;
///         Ok(Next::Done)
///     })
/// })?;
/// test.server().create("/apis/apps/v1/namespaces/default/deployments", json!({"metadata": {"name": "web"}}))?;
/// test.run_until_idle()?;
/// test.server().patch("/api/v1/namespaces/default/configmaps/web", json!({"data": {"size": "9"}}))?;
/// test.run_until_idle()?;
/// test.restart()?;
/// test.run_until_idle()?;
/// let results: Vec<Applied> = results.try_iter().filter(|result| *result != Applied::NotSent).collect();
/// assert_eq!(results, [Applied::Created, Applied::Changed, Applied::Unchanged]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Applied {
    /// The object did not exist.
    Created,
    /// The object has another content than the cached one, or another version if the type of the
    /// source drops fields.
    Changed,
    /// The object has the content of the cached one. This is usual for the first apply after a
    /// restart.
    Unchanged,
    /// Nothing was sent: the last apply was the same, and the object is the one that the server
    /// answered.
    NotSent,
}

/// Options of [`Context::apply_with`](crate::Context::apply_with).
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
pub struct ApplyOptions {
    force: bool,
    adopt: bool,
}

impl ApplyOptions {
    /// Returns the options of [`Context::apply`](crate::Context::apply): neither `force` nor
    /// `adopt`.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes over the applied fields that other managers own with other values.
    ///
    /// Without it, such a field is a conflict, and nothing is written. With it, the field gets your
    /// value, and the other manager does not own it any more. If the other manager applies it
    /// again, it gets the conflict. If it updates, patches or forces it, both overwrite each other.
    /// The log has a warning if that happens ten times in a minute. Fields that you do not apply
    /// keep their values and their managers. Use it for objects for which only your controller is
    /// responsible. Leave out a field that another program manages, such as the `replicas` of an
    /// autoscaler.
    ///
    /// ```
    /// use k8s_informer::informer::Source;
    /// use k8s_informer_controller::{ApplyOptions, Next};
    /// use k8s_informer_testing::ControllerTest;
    /// use k8s_openapi::api::apps::v1::Deployment;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use serde_json::json;
    ///
    /// let mut test = ControllerTest::new(Source::of::<Deployment>(), |builder| {
    ///     builder.owns(Source::of::<ConfigMap>()).by(|cx, _| {
    ///         let map = json!({"metadata": {"name": cx.name()}, "data": {"size": "3"}});
    ///         cx.apply_with::<ConfigMap>(map, ApplyOptions::new().force(true).adopt(true))?;
    ///         Ok(Next::Done)
    ///     })
    /// })?;
    /// // This map has no controller.
    /// let path = "/api/v1/namespaces/default/configmaps";
    /// test.server().create(path, json!({"metadata": {"name": "web"}, "data": {"size": "9"}}))?;
    /// test.server().create("/apis/apps/v1/namespaces/default/deployments", json!({"metadata": {"name": "web"}}))?;
    /// test.run_until_idle()?;
    /// let map = test.server().get(&format!("{path}/web"))?;
    /// assert_eq!((&map["data"]["size"], &map["metadata"]["ownerReferences"][0]["kind"]), (&json!("3"), &json!("Deployment")));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn force(mut self, force: bool) -> Self {
        self.force = force;
        self
    }

    /// Takes over an object that has no controller. The garbage collector then deletes it after the
    /// object of the call. An object of another controller remains an error.
    pub fn adopt(mut self, adopt: bool) -> Self {
        self.adopt = adopt;
        self
    }
}

/// Returns the source of a child, which gets the kind of a typed source.
pub(crate) fn source_of<'a, C: Object + DeserializeOwned>(
    call: &Call,
    sources: &[(usize, &'a InformerSource<C>)],
    child: &mut Value,
) -> Result<(usize, &'a InformerSource<C>), Failure> {
    for kind in sources
        .iter()
        .filter_map(|(_, source)| source.kind.as_ref())
    {
        for (field, value) in [
            ("apiVersion", kind.api_version()),
            ("kind", kind.kind.clone()),
        ] {
            if child[field].is_null() {
                child[field] = value.into();
            }
        }
    }
    let kind = GroupVersionKind::of(text(child, "apiVersion"), text(child, "kind"));
    let namespace = text(&child["metadata"], "namespace");
    let mut found = of_kind(call, sources, &kind)?;
    // After the kind: an optional kind that is missing covers nothing, and its children go nowhere.
    found.retain(|(_, source)| source.covers_namespace(namespace));
    found.first().copied().ok_or_else(|| {
        let of = std::any::type_name::<C>();
        Failure::terminal(format!(
            "no source of `owns` with the type {of} has objects of \"{kind}\" in namespace {namespace:?}: set apiVersion and \
             kind of the child, or own them"
        ))
    })
}

/// Returns the sources of a kind, which have the same resource.
fn of_kind<'a, C: Object + DeserializeOwned>(
    call: &Call,
    sources: &[(usize, &'a InformerSource<C>)],
    kind: &GroupVersionKind,
) -> Result<Vec<(usize, &'a InformerSource<C>)>, Failure> {
    let mut found: Vec<_> = sources.to_vec();
    found.retain(|(_, source)| {
        let resource = &source.resource;
        (&resource.group, &resource.version) == (&kind.group, &kind.version)
            && !kind.kind.is_empty()
    });
    let is_known = |source: &InformerSource<C>| source.kind.as_ref() == Some(kind);
    if found.iter().any(|(_, source)| is_known(source)) {
        found.retain(|(_, source)| is_known(source));
        return Ok(found);
    }
    found.retain(|(_, source)| source.kind.is_none());
    if other_resource(&found).is_none() {
        return Ok(found);
    }
    // Only the server knows which of several dynamic resources has the kind. The plural name of a
    // resource does not tell: it need not begin like the kind.
    let (client, stop) = (&call.core().client, &call.stop);
    match client.discover_kind(kind, stop) {
        Err(error) if !error.is_no_match() => return Err(error.into()),
        _ => {}
    }
    let discovery = client.discovery(stop)?;
    found.retain(|(_, source)| {
        let served = discovery.by_resource(&source.resource);
        served.is_some_and(|served| served.kind == *kind)
    });
    match other_resource(&found) {
        Some(pair) => Err(Failure::terminal(ambiguous(&kind.to_string(), pair))),
        None => Ok(found),
    }
}

/// Returns two sources with different resources. Several sources can select objects of one.
fn other_resource<'a, C: Object + DeserializeOwned>(
    sources: &[(usize, &'a InformerSource<C>)],
) -> Option<[&'a dyn AnySource; 2]> {
    let (_, first) = sources.first()?;
    let mut others = sources.iter();
    let (_, other) = others.find(|(_, source)| source.resource != first.resource)?;
    Some([*first, *other])
}

/// Describes two sources between which an apply could not choose.
fn ambiguous(kind: &str, sources: [&dyn AnySource; 2]) -> String {
    let [one, other] = sources.map(AnySource::resource);
    format!(
        "{one} and {other} of `owns` have the same type and the same kind {kind}, so an apply can't tell them apart: give each \
         a custom struct with `Source::dynamic_as`"
    )
}

/// Two dynamic resources of `owns` that an apply can't tell apart.
pub(crate) struct AmbiguousKinds(String);

impl fmt::Display for AmbiguousKinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Checks that an apply can tell the dynamic resources of `owns` apart. What discovery does not tell
/// now, for example because a kind is missing, is asked again by each apply.
pub(crate) fn check_kinds(core: &Core, stop: &Stop) -> Result<(), AmbiguousKinds> {
    let unknown = core
        .sources
        .iter()
        .filter(|source| source.is_of_unknown_kind());
    let unknown: Vec<_> = unknown.collect();
    let group = |source: &dyn AnySource| {
        let resource = source.resource();
        let type_id = source.as_any().type_id();
        (type_id, resource.group.clone(), resource.version.clone())
    };
    let mut pairs = Vec::new();
    for (at, one) in unknown.iter().enumerate() {
        let others = unknown[at + 1..].iter().filter(|other| {
            group(&***one) == group(&****other) && one.resource() != other.resource()
        });
        pairs.extend(others.map(|other| [&***one, &***other]));
    }
    if pairs.is_empty() {
        return Ok(());
    }
    let Ok(discovery) = core.client.discovery(stop) else {
        return Ok(());
    };
    for pair in pairs {
        let [one, other] = pair.map(|source| discovery.by_resource(source.resource()));
        if let Some(one) = one
            && other.is_some_and(|other| other.kind == one.kind)
        {
            return Err(AmbiguousKinds(ambiguous(&one.kind.to_string(), pair)));
        }
    }
    Ok(())
}

/// Returns the namespace and the name of a child. Rejects an object of the server: an apply of all
/// its fields would take them over.
pub(crate) fn target_of(child: &Value) -> Result<ObjectName, Failure> {
    let metadata = &child["metadata"];
    let target = ObjectName::new(text(metadata, "namespace"), text(metadata, "name"));
    let problem = if target.name.is_empty() {
        "the child has no metadata.name: an apply needs one, so use `create` for a generated name"
    } else if !metadata["resourceVersion"].is_null() {
        "the child has a metadata.resourceVersion, so it was read from the server: apply only the fields that you want"
    } else {
        return Ok(target);
    };
    Err(Failure::terminal(problem))
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object[field].as_str().unwrap_or_default()
}

/// An apply of one object, and what decides whether it is sent.
pub(crate) struct Apply<'a> {
    pub(crate) call: &'a Call,
    /// The object of the call.
    pub(crate) owner: &'a OwnerReference,
    pub(crate) target: ObjectName,
    pub(crate) id: ObjectId,
    pub(crate) source: &'a dyn AnySource,
    pub(crate) applied: &'a AppliedObjects,
    pub(crate) api: Api<DynamicObject>,
    pub(crate) options: ApplyOptions,
}

impl Apply<'_> {
    /// Applies `child`. If the cache has no object, the server is asked for it.
    pub(crate) fn run(
        &self,
        child: Value,
        cached: Option<Arc<impl FullMetadata + Serialize>>,
    ) -> Result<Applied, Failure> {
        if let Some(cached) = cached {
            return self.send(child, Some(&*cached));
        }
        match self.api.get(&self.target.name, &self.call.stop) {
            Ok(found) => self.send(child, Some(&*found)),
            Err(error) if error.is_not_found() => self.send(child, None::<&DynamicObject>),
            Err(error) => Err(error.into()),
        }
    }

    fn send(
        &self,
        mut child: Value,
        current: Option<&(impl FullMetadata + Serialize)>,
    ) -> Result<Applied, Failure> {
        let (core, id) = (&self.call.core(), &self.id);
        let (applied, manager) = (self.applied, &*core.field_manager);
        let sent = applied.sent(&child, manager, self.options.force);
        let is_current = |answer: &Answer| {
            current.is_some_and(|current| {
                current.resource_version() == answer.version
                    || applied.is_same(current, answer.digests)
            })
        };
        let mut last = None;
        if let Some(current) = current {
            self.check_owner(current)?;
            last = applied.get(id, current.uid());
            // Another object of this name is not changed.
            child["metadata"]["uid"] = current.uid().into();
        }
        let repeated = last.as_ref().filter(|last| last.sent == sent);
        if repeated.is_some_and(is_current) {
            return Ok(Applied::NotSent);
        }
        let (answered, is_created) = self.apply(child, last.is_none())?;
        let (uid, version) = (answered.uid(), answered.resource_version());
        let mut answer = Answer {
            sent,
            uid: uid.to_owned(),
            version: version.to_owned(),
            digests: applied.digests(serde_json::to_value(&*answered).unwrap_or_default()),
            fight: last.as_ref().map(|last| last.fight).unwrap_or_default(),
        };
        let result = match is_current(&answer) {
            _ if is_created => Applied::Created,
            true => Applied::Unchanged,
            false => Applied::Changed,
        };
        if repeated.is_some() && result == Applied::Changed && answer.fight.count(core.clock.now())
        {
            self.report_fight(managers(&current), &managers(&*answered));
        }
        // Nothing would report the deletion of an object outside the scope of the source. Only the
        // server knows that scope if it has a field selector: then the cache has to have the object.
        let is_reported = match self.source.coverage(&*answered) {
            Coverage::Yes => true,
            Coverage::No => false,
            Coverage::Unknown => self.source.cached(&id.1).is_some(),
        };
        if is_reported {
            applied.set(id, answer);
        }
        // It may have been reported already.
        if self.source.has_processed(&self.target.namespace, version)
            && self.source.cached(&id.1).is_none()
        {
            applied.forget(id, uid);
        }
        Ok(result)
    }

    /// Sends the apply. Returns the answer, and whether the object was created.
    ///
    /// This manager may have created, updated or patched the object before. Its applies then
    /// conflict with itself, or leave a field that they drop. So the answer to the first apply in
    /// this run, and such a conflict, lead to a migration, and the apply is sent once more.
    fn apply(
        &self,
        mut child: Value,
        is_first: bool,
    ) -> Result<(Fetched<DynamicObject>, bool), Failure> {
        let (manager, stop) = (&*self.call.core().field_manager, &self.call.stop);
        let name = &self.target.name;
        let (mut is_created, mut is_migrated, mut attempts) = (false, false, 0);
        loop {
            let mut patch = Patch::apply(manager, &child);
            if self.options.force {
                patch = patch.force(true);
            }
            let sent = self.api.patch(name, &patch, stop);
            is_created |= sent.as_ref().is_ok_and(Fetched::is_created);
            // The answer has the managed fields, whatever the type of the source decodes.
            let migration = match &sent {
                _ if is_migrated => None,
                Ok(answered) if is_first => migration(&**answered, manager),
                Err(error) if names_manager(error, manager) => {
                    let found = self.api.get(name, stop)?;
                    // It can be another object than the one that was cached.
                    self.check_owner(&*found)?;
                    child["metadata"]["uid"] = found.uid().into();
                    migration(&*found, manager)
                }
                _ => None,
            };
            let Some(migration) = migration else {
                return Ok((sent?, is_created));
            };
            match self.api.patch(name, &migration, stop) {
                Ok(_) => is_migrated = true,
                // Another program has written the object meanwhile, so its managers can be others.
                Err(error) if error.is_conflict() && attempts < MIGRATIONS => attempts += 1,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Rejects an object that the object of the call does not control.
    fn check_owner(&self, current: &impl FullMetadata) -> Result<(), Failure> {
        let metadata = current.full_metadata()?;
        let (resource, key) = (self.source.resource(), &*self.id.1);
        let problem = match metadata.controller() {
            Some(of) if of.uid == self.owner.uid => return Ok(()),
            None if self.options.adopt => return Ok(()),
            // `Context::owned` has the same rule. The collector deletes the child of an owner that
            // is gone, and its deletion causes the next call.
            Some(of) if is_same_object(of, self.owner) => {
                return Err(Failure::new(format!(
                    "{resource} {key:?} is controlled by an earlier {}: waiting until the garbage collector has deleted it",
                    Named(of)
                )));
            }
            Some(of) => format!("is controlled by {}: give the child another name", Named(of)),
            None => "has no controller: give the child another name, or take it over with `ApplyOptions::adopt`".to_owned(),
        };
        Err(Failure::terminal(format!(
            "{resource} {key:?} exists and {problem}"
        )))
    }

    /// Reports that others change an object again and again. They are the managers that the last
    /// apply has taken fields from.
    fn report_fight(&self, mut before: Vec<Value>, after: &[Value]) {
        let manager = &*self.call.core().field_manager;
        before.retain(|entry| entry["manager"] != manager && !after.contains(entry));
        let others: BTreeSet<_> = before
            .iter()
            .map(|entry| entry["manager"].to_string())
            .collect();
        let others = match others.into_iter().collect::<Vec<_>>().join(", ") {
            others if others.is_empty() => "no known manager, so it may be a webhook".to_owned(),
            others => others,
        };
        let (call, resource, key) = (self.call, self.source.resource(), &*self.id.1);
        log::warn!(
            "{call}: {resource} {key:?} has changed after each of {FIGHT} applies within {FIGHT_PERIOD:?}; its fields were taken from: {others}"
        );
    }
}

/// Returns the `managedFields` of an object.
fn managers(object: &impl Serialize) -> Vec<Value> {
    let object = serde_json::to_value(object).unwrap_or_default();
    let managers = object["metadata"]["managedFields"].as_array();
    managers.cloned().unwrap_or_default()
}
