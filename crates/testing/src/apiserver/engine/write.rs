//! Create, update, patch, apply and delete, with the rules of kube-apiserver.

use std::sync::Arc;

use serde_json::{Value, json};

use super::list::{Options, Page, list};
use super::store::Store;
use crate::apiserver::model::apply::Apply;
use crate::apiserver::model::definitions;
use crate::apiserver::model::delete_options::{DeleteOptions, Propagation};
use crate::apiserver::model::garbage::finalizers_for_deletion;
use crate::apiserver::model::managers::{self, Authorship, Managers, changes_between, keyed_lists};
use crate::apiserver::model::names::{name_suffix, uuid};
use crate::apiserver::model::object::{
    Content, Key, Object, finalizers, meta, meta_str, remove_empty_meta, remove_meta, set_list,
    set_meta, take_meta,
};
use crate::apiserver::model::object_rules::{
    bump_generation, is_held, is_namespace, is_new_generation, set_defaults,
};
use crate::apiserver::model::patch::Patch;
use crate::apiserver::model::resources::{ApiResource, Target};
use crate::apiserver::model::schema;
use crate::apiserver::model::select::Selection;
use crate::apiserver::model::status::{Cause, StatusError};
use crate::apiserver::model::strategy;
use crate::apiserver::model::validate::{check_object, not_decodable, wrong_type};

/// One write. It is atomic, because the caller holds the lock on the store.
pub(crate) struct Writer<'a> {
    pub(crate) store: &'a mut Store,
    pub(crate) author: Author<'a>,
    /// Whether to do everything except storing the result.
    pub(crate) dry_run: bool,
}

/// Who writes.
#[derive(Clone, Copy)]
pub(crate) enum Author<'a> {
    /// A client, which may not set system fields. The name is that of its field manager.
    Client(&'a str),
    /// The cluster: a test that acts as kubelet and controllers.
    Cluster,
}

impl Author<'_> {
    fn is_client(self) -> bool {
        matches!(self, Self::Client(_))
    }

    fn manager(&self) -> &str {
        match self {
            Self::Client(manager) => manager,
            Self::Cluster => managers::TEST,
        }
    }
}

/// Which managers own the fields of a written object.
#[derive(Clone, Copy)]
enum Owners<'a> {
    /// The author owns what it changes through this subresource, which is empty for the object.
    Author { subresource: &'a str },
    /// The object has its managers already: those after an apply.
    Known,
}

/// The result of a deletion.
pub(crate) struct Deleted {
    pub(crate) object: Arc<Object>,
    /// Whether the object was removed. `false` if finalizers still hold it.
    pub(crate) gone: bool,
}

pub(crate) fn now() -> String {
    format!("{:.0}", jiff::Timestamp::now())
}

impl Writer<'_> {
    pub(crate) fn create(
        &mut self,
        target: &Target,
        body: Value,
    ) -> Result<Arc<Object>, StatusError> {
        self.create_owned(target, body, Owners::Author { subresource: "" })
    }

    fn create_owned(
        &mut self,
        target: &Target,
        body: Value,
        owners: Owners<'_>,
    ) -> Result<Arc<Object>, StatusError> {
        let resource = &*target.resource;
        if target.name.is_some() || target.namespace.is_none() && resource.namespaced {
            return Err(StatusError::method_not_allowed());
        }
        let mut content = decode(resource, check_object(resource, target, body)?)?;
        if self.author.is_client() && !meta_str(&content, "resourceVersion").is_empty() {
            return Err(StatusError::internal(
                "resourceVersion should not be set on objects to be created",
            ));
        }
        if meta_str(&content, "name").is_empty() && !meta_str(&content, "generateName").is_empty() {
            let name = self.generated_name(target, meta_str(&content, "generateName"));
            set_meta(&mut content, "name", name);
        }
        let name = meta_str(&content, "name").to_owned();
        if let Some(namespace) = &target.namespace {
            set_meta(&mut content, "namespace", namespace.as_str());
        }
        remove_empty_meta(&mut content);
        strategy::check(resource, &name, &content, None)?;
        if let Some(namespace) = &target.namespace {
            self.check_not_terminating(resource, namespace, &name)?;
        }
        let key = resource.key(target.namespace.as_deref(), &name);
        if self.store.get(&key).is_some() {
            return Err(StatusError::already_exists(
                &name,
                &resource.group,
                &resource.plural,
            ));
        }

        let client = self.author.is_client();
        let given = |content: &Content, field: &str| !client && meta(content, field).is_some();
        if !given(&content, "uid") {
            let uid = uuid(self.store.random(), self.store.random());
            set_meta(&mut content, "uid", uid);
        }
        if !given(&content, "creationTimestamp") {
            set_meta(&mut content, "creationTimestamp", now());
        }
        if client {
            for field in [
                "deletionTimestamp",
                "deletionGracePeriodSeconds",
                "generation",
                "selfLink",
            ] {
                remove_meta(&mut content, field);
            }
            if resource.status {
                content.remove("status");
            }
        }
        if resource.generation && meta(&content, "generation").is_none() {
            set_meta(&mut content, "generation", 1);
        }
        // The author owns the defaults of the fields, but not those of the status.
        let has_status = content.contains_key("status");
        set_defaults(resource, &name, &mut content);
        let status = match has_status {
            true => None,
            false => content.remove("status"),
        };
        if let Owners::Author { subresource } = owners {
            let given = take_meta(&mut content, "managedFields");
            self.set_managers(resource, None, &mut content, subresource, given);
        }
        content.extend(status.map(|status| ("status".to_owned(), status)));
        Ok(self.store(key, content))
    }

    pub(crate) fn update(
        &mut self,
        target: &Target,
        body: Value,
    ) -> Result<Arc<Object>, StatusError> {
        self.update_through(target, body, target.subresource())
    }

    /// Updates an object through a subresource, which appears in the entry of the manager.
    pub(crate) fn update_through(
        &mut self,
        target: &Target,
        body: Value,
        subresource: &str,
    ) -> Result<Arc<Object>, StatusError> {
        let resource = &*target.resource;
        let (key, name) = target.key()?;
        let content = decode(resource, check_object(resource, target, body)?)?;
        check_name(&content, name)?;
        let old = self.stored(&key, name, resource)?;
        let version = meta_str(&content, "resourceVersion");
        if version.is_empty() && resource.versioned_updates && self.author.is_client() {
            let why = "must be specified for an update";
            let cause = Cause::invalid("metadata.resourceVersion", why);
            return Err(invalid(resource, name, cause));
        }
        let (uid, old_uid) = (meta_str(&content, "uid"), meta_str(old.content(), "uid"));
        if !uid.is_empty() && uid != old_uid {
            let why = format!(
                "Precondition failed: UID in precondition: {uid}, UID in object meta: {old_uid}"
            );
            return Err(conflict(resource, name, &why));
        }
        let owners = Owners::Author { subresource };
        self.replace(target, key, name, &old, content, owners)
    }

    pub(crate) fn patch(
        &mut self,
        target: &Target,
        patch: Patch,
    ) -> Result<Arc<Object>, StatusError> {
        let resource = &*target.resource;
        let (key, name) = target.key()?;
        let old = self.stored(&key, name, resource)?;
        let patched = patch.apply(old.to_value(resource))?;
        let content = decode(resource, check_object(resource, target, patched)?)?;
        check_name(&content, name)?;
        check_uid(resource, name, &old, &content)?;
        let subresource = target.subresource();
        let owners = Owners::Author { subresource };
        self.replace(target, key, name, &old, content, owners)
    }

    /// Applies a configuration. Returns the object, and whether it was created.
    pub(crate) fn apply(
        &mut self,
        target: &Target,
        apply: Apply,
    ) -> Result<(Arc<Object>, bool), StatusError> {
        let resource = &*target.resource;
        let (key, name) = target.key()?;
        apply.check(resource)?;
        check_name(apply.wanted(), name)?;
        let Some(old) = self.store.get(&key).cloned() else {
            if target.status {
                return Err(resource.not_found(name));
            }
            let uid = meta_str(apply.wanted(), "uid");
            if !uid.is_empty() {
                let why = format!(
                    "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                );
                return Err(conflict(resource, name, &why));
            }
            let mut object = apply.apply(Content::new(), target, resource, now())?;
            if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
                metadata.remove("resourceVersion");
            }
            let collection = Target {
                name: None,
                ..target.clone()
            };
            let created = self.create_owned(&collection, object, Owners::Known)?;
            return Ok((created, true));
        };
        let content = check_object(
            resource,
            target,
            apply.apply(old.content_of(resource), target, resource, now())?,
        )?;
        let content = decode(resource, content)?;
        check_uid(resource, name, &old, &content)?;
        let replaced = self.replace(target, key, name, &old, content, Owners::Known)?;
        Ok((replaced, false))
    }

    /// Sets the managers of a new object, or of a new state of `before`. `given` are those in the
    /// request.
    fn set_managers(
        &self,
        resource: &ApiResource,
        before: Option<&Content>,
        content: &mut Content,
        subresource: &str,
        given: Option<Value>,
    ) {
        let live = before.and_then(|before| meta(before, "managedFields"));
        // Only a write to the object itself can change its managers. The cluster sets them.
        let given = given.filter(|given| subresource.is_empty() && Some(given) != live);
        if let Some(given) = given.as_ref().filter(|_| !self.author.is_client()) {
            return set_meta(content, "managedFields", given.clone());
        }
        let is_new = before.is_none();
        let changes = changes_between(before, content, &keyed_lists(resource), resource);
        let mut managers = Managers::for_update(live, given.as_ref());
        // An object that has lost its managers has none until its next apply.
        if given.is_none() && (changes.is_none() || managers.is_empty() && !is_new) {
            return match live {
                Some(live) => set_meta(content, "managedFields", live.clone()),
                None => remove_meta(content, "managedFields"),
            };
        }
        if let Some(mut changes) = changes.filter(|_| is_new || !managers.is_empty()) {
            let now = &now();
            let by = |subresource| Authorship {
                manager: self.author.manager(),
                subresource,
                resource,
                now,
            };
            // The cluster can write the status together with the object.
            if subresource.is_empty() && resource.status {
                managers.update(&changes.take("f:status"), &by("status"));
            }
            managers.update(&changes, &by(subresource));
        }
        set_list(content, "managedFields", managers.encode());
    }

    /// Replaces `old` with `content`, limited to the changes that the path and the writer permit.
    fn replace(
        &mut self,
        target: &Target,
        key: Key,
        name: &str,
        old: &Arc<Object>,
        mut content: Content,
        owners: Owners<'_>,
    ) -> Result<Arc<Object>, StatusError> {
        let (resource, client) = (&*target.resource, self.author.is_client());
        let before = old.content();
        let version = meta_str(&content, "resourceVersion");
        if !version.is_empty() && version != meta_str(before, "resourceVersion") {
            let why = "the object has been modified; please apply your changes to the latest version and try again";
            return Err(conflict(resource, name, why));
        }
        let given = match owners {
            Owners::Author { .. } => take_meta(&mut content, "managedFields"),
            Owners::Known => None,
        };
        if target.status {
            let status = content.remove("status");
            let managers = meta(&content, "managedFields").cloned();
            let metadata = content.remove("metadata");
            content.clone_from(before);
            // A write to `/status` changes only the status of a custom resource. For a built-in
            // resource it changes the metadata as well.
            if let (Some(metadata), false) = (metadata, resource.custom) {
                content.insert("metadata".to_owned(), metadata);
            }
            set_or_remove(&mut content, "status", status);
            if let Some(managers) = managers {
                set_meta(&mut content, "managedFields", managers);
            }
        } else if client && resource.status {
            set_or_remove(&mut content, "status", before.get("status").cloned());
        }
        let mut kept = vec![
            "uid",
            "creationTimestamp",
            "resourceVersion",
            "generation",
            "namespace",
            "generateName",
        ];
        if client || meta(&content, "deletionTimestamp").is_none() {
            kept.extend(["deletionTimestamp", "deletionGracePeriodSeconds"]);
        }
        for field in kept {
            match meta(before, field) {
                Some(value) => set_meta(&mut content, field, value.clone()),
                None => remove_meta(&mut content, field),
            }
        }
        remove_empty_meta(&mut content);
        if definitions::is_definition(resource) {
            definitions::add_stored_versions(&mut content);
        }
        strategy::check(resource, name, &content, Some(before))?;
        if let Owners::Author { subresource } = owners {
            self.set_managers(resource, Some(before), &mut content, subresource, given);
        }
        // Each apply has the time of its entry. Without another change it is not stored.
        let is_applied = matches!(owners, Owners::Known);
        if content == *before || is_applied && is_same_but_times(before, &content) {
            return Ok(old.clone());
        }
        if resource.generation && !target.status && is_new_generation(resource, before, &content) {
            bump_generation(&mut content);
        }
        if meta(&content, "deletionTimestamp").is_some() && !is_held(resource, &content) {
            // The last finalizer is gone, so this update is the deletion. The event shows the
            // object as it was stored before.
            if !self.dry_run {
                self.store.remove(&key);
            }
            return Ok(Arc::new(Object::new(content)));
        }
        Ok(self.store(key, content))
    }

    pub(crate) fn delete(
        &mut self,
        target: &Target,
        options: &DeleteOptions,
    ) -> Result<Deleted, StatusError> {
        let resource = &*target.resource;
        let (key, name) = target.key()?;
        let old = self.stored(&key, name, resource)?;
        for (wanted, field) in [
            (&options.uid, "uid"),
            (&options.resource_version, "resourceVersion"),
        ] {
            let found = meta_str(old.content(), field);
            if let Some(wanted) = wanted.as_deref().filter(|&wanted| wanted != found) {
                let why = format!(
                    "the {field} in the precondition ({wanted}) does not match that of the object ({found})"
                );
                return Err(conflict(resource, name, &why));
            }
        }
        Ok(self.delete_object(resource, key, &old, options.propagation))
    }

    /// Removes an object whatever holds it.
    pub(crate) fn vanish(&mut self, target: &Target) -> Result<Arc<Object>, StatusError> {
        let (key, name) = target.key()?;
        let last = self.store.remove(&key);
        last.ok_or_else(|| target.resource.not_found(name))
    }

    /// Deletes the objects of a list with these options. Returns the list as it was before the
    /// deletion.
    pub(crate) fn delete_collection(
        &mut self,
        target: &Target,
        selection: &Selection,
        options: &Options,
        propagation: Option<Propagation>,
    ) -> Result<Page, StatusError> {
        let page = list(self.store, &target.prefix(), selection, options)?;
        for listed in page.items() {
            let namespace =
                Some(meta_str(listed.content(), "namespace")).filter(|it| !it.is_empty());
            let name = meta_str(listed.content(), "name");
            let key = target.resource.key(namespace, name);
            // A page may show older state, so the object may be gone.
            if let Some(object) = self.store.get(&key).cloned() {
                self.delete_object(&target.resource, key, &object, propagation);
            }
        }
        Ok(page)
    }

    /// Removes an object, or sets its deletionTimestamp if finalizers hold it.
    pub(super) fn delete_object(
        &mut self,
        resource: &ApiResource,
        key: Key,
        old: &Arc<Object>,
        propagation: Option<Propagation>,
    ) -> Deleted {
        let mut content = old.content().clone();
        let is_deleted = meta(&content, "deletionTimestamp").is_some();
        let held_by = finalizers_for_deletion(resource, &content, propagation);
        let is_other_policy = held_by != finalizers(&content);
        set_list(
            &mut content,
            "finalizers",
            held_by.into_iter().map(Into::into).collect(),
        );
        let is_definition = definitions::is_definition(resource) && !is_deleted;
        if !is_definition && !is_held(resource, &content) {
            let last = if self.dry_run {
                None
            } else {
                self.store.remove(&key)
            };
            return Deleted {
                object: last.unwrap_or_else(|| old.clone()),
                gone: true,
            };
        }
        if is_deleted && !is_other_policy {
            return Deleted {
                object: old.clone(),
                gone: false,
            };
        }
        if !is_deleted {
            set_meta(&mut content, "deletionTimestamp", now());
            if is_definition {
                definitions::hold(&mut content);
            }
            if resource.generation {
                bump_generation(&mut content);
            }
            if is_namespace(resource) {
                content.insert("status".to_owned(), json!({ "phase": "Terminating" }));
            } else {
                set_meta(&mut content, "deletionGracePeriodSeconds", 0);
            }
        }
        Deleted {
            object: self.store(key, content),
            gone: false,
        }
    }

    fn store(&mut self, key: Key, mut content: Content) -> Arc<Object> {
        if self.dry_run {
            let version = self
                .store
                .get(&key)
                .map(|old| meta_str(old.content(), "resourceVersion").to_owned());
            match version {
                Some(version) => set_meta(&mut content, "resourceVersion", version),
                None => remove_meta(&mut content, "resourceVersion"),
            }
            return Arc::new(Object::new(content));
        }
        self.store.put(key, content)
    }

    fn stored(
        &self,
        key: &Key,
        name: &str,
        resource: &ApiResource,
    ) -> Result<Arc<Object>, StatusError> {
        let found = self.store.get(key).cloned();
        found.ok_or_else(|| resource.not_found(name))
    }

    fn check_not_terminating(
        &self,
        resource: &ApiResource,
        namespace: &str,
        name: &str,
    ) -> Result<(), StatusError> {
        let found = self.store.get(&format!("/namespaces/{namespace}"));
        if found.is_some_and(|found| meta(found.content(), "deletionTimestamp").is_some()) {
            let (group, plural) = (&resource.group, &resource.plural);
            return Err(StatusError::namespace_terminating(
                name, group, plural, namespace,
            ));
        }
        Ok(())
    }

    /// Generates an unused name. After eight collisions it returns a used one, and the create fails
    /// as in kube-apiserver.
    fn generated_name(&mut self, target: &Target, prefix: &str) -> String {
        // With the suffix of five characters, the name has at most 63 characters, the limit of a
        // label.
        let prefix: String = prefix.chars().take(58).collect();
        let mut name = String::new();
        for _ in 0..8 {
            name = format!("{prefix}{}", name_suffix(self.store.random()));
            let key = target.resource.key(target.namespace.as_deref(), &name);
            if self.store.get(&key).is_none() {
                break;
            }
        }
        name
    }
}

/// Whether two states differ at most in the times of their managers.
fn is_same_but_times(before: &Content, after: &Content) -> bool {
    let timeless = |content: &Content| {
        let mut content = content.clone();
        let metadata = content.get_mut("metadata");
        let entries = metadata.and_then(|metadata| metadata.get_mut("managedFields"));
        for entry in entries.and_then(Value::as_array_mut).into_iter().flatten() {
            if let Value::Object(fields) = entry {
                fields.remove("time");
            }
        }
        content
    };
    timeless(before) == timeless(after)
}

/// Returns an object in its stored form.
fn decode(resource: &ApiResource, content: Content) -> Result<Content, StatusError> {
    schema::decode(resource, content).map_err(|field| not_decodable(resource, &wrong_type(field)))
}

fn check_name(content: &Content, name: &str) -> Result<(), StatusError> {
    match meta_str(content, "name") {
        same if same == name => Ok(()),
        other => Err(name_mismatch(other, name)),
    }
}

fn check_uid(
    resource: &ApiResource,
    name: &str,
    old: &Object,
    new: &Content,
) -> Result<(), StatusError> {
    if meta_str(new, "uid") == meta_str(old.content(), "uid") {
        return Ok(());
    }
    let cause = Cause::invalid("metadata.uid", "field is immutable");
    Err(invalid(resource, name, cause))
}

pub(crate) fn name_mismatch(object: &str, url: &str) -> StatusError {
    StatusError::bad_request(format!(
        "the name of the object ({object}) does not match the name on the URL ({url})"
    ))
}

fn invalid(resource: &ApiResource, name: &str, cause: Cause) -> StatusError {
    StatusError::invalid(name, &resource.group, &resource.kind, &[cause])
}

fn conflict(resource: &ApiResource, name: &str, why: &str) -> StatusError {
    StatusError::conflict(name, &resource.group, &resource.plural, why)
}

fn set_or_remove(content: &mut Content, field: &str, value: Option<Value>) {
    match value {
        Some(value) => content.insert(field.to_owned(), value),
        None => content.remove(field),
    };
}
