//! Implements `Object`, `FullMetadata` and `Resource` for every top-level type of k8s-openapi.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{ClusterResourceScope, Metadata, NamespaceResourceScope};

use super::{FullObjectMeta, GroupVersionKind, OwnerReference, Resource, Scope, StringMap};

crate::impl_object!(@openapi Metadata::metadata, T, [T] where T: Metadata<Ty = ObjectMeta> + Send + Sync + 'static);

/// Everything that `impl_object!` needs of a type with kube's trait `Resource`.
#[allow(missing_docs)]
pub struct Derived<T> {
    pub metadata: fn(&T) -> &ObjectMeta,
    pub group_version_kind: fn() -> GroupVersionKind,
    pub plural: fn() -> Cow<'static, str>,
    pub scope: Scope,
}

impl From<&ObjectMeta> for FullObjectMeta {
    fn from(metadata: &ObjectMeta) -> Self {
        fn text(text: &Option<String>) -> String {
            text.clone().unwrap_or_default()
        }
        fn map(map: &Option<BTreeMap<String, String>>) -> StringMap {
            map.clone().unwrap_or_default().into_iter().collect()
        }
        let owners = metadata.owner_references.iter().flatten();
        Self {
            name: text(&metadata.name),
            generate_name: text(&metadata.generate_name),
            namespace: text(&metadata.namespace),
            uid: text(&metadata.uid),
            resource_version: text(&metadata.resource_version),
            generation: metadata.generation.unwrap_or_default(),
            creation_timestamp: metadata
                .creation_timestamp
                .as_ref()
                .map(|time| time.0.to_string()),
            deletion_timestamp: metadata
                .deletion_timestamp
                .as_ref()
                .map(|time| time.0.to_string()),
            deletion_grace_period_seconds: metadata.deletion_grace_period_seconds,
            labels: map(&metadata.labels),
            annotations: map(&metadata.annotations),
            owner_references: owners
                .map(|owner| OwnerReference {
                    api_version: owner.api_version.clone(),
                    kind: owner.kind.clone(),
                    name: owner.name.clone(),
                    uid: owner.uid.clone(),
                    controller: owner.controller.unwrap_or_default(),
                    block_owner_deletion: owner.block_owner_deletion.unwrap_or_default(),
                })
                .collect(),
            finalizers: metadata.finalizers.clone().unwrap_or_default(),
        }
    }
}

#[diagnostic::do_not_recommend]
impl<T> Resource for T
where
    T: k8s_openapi::Resource<Scope: ScopeOf> + Metadata<Ty = ObjectMeta> + Send + Sync + 'static,
{
    fn group_version_kind() -> GroupVersionKind {
        GroupVersionKind::new(T::GROUP, T::VERSION, T::KIND)
    }

    fn plural() -> Cow<'static, str> {
        T::URL_PATH_SEGMENT.into()
    }

    fn scope() -> Scope {
        <T::Scope as ScopeOf>::SCOPE
    }
}

/// Converts the scopes of k8s-openapi, which are types, to values. The scope of subresources does
/// not implement this trait, because subresources are not resources in this crate.
pub trait ScopeOf {
    /// The scope.
    const SCOPE: Scope;
}

impl ScopeOf for ClusterResourceScope {
    const SCOPE: Scope = Scope::Cluster;
}

impl ScopeOf for NamespaceResourceScope {
    const SCOPE: Scope = Scope::Namespaced;
}
