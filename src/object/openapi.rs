//! Implements `Object` and `Resource` for every top-level type of k8s-openapi.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{ClusterResourceScope, Metadata, NamespaceResourceScope};

use super::{Object, Resource, Scope};

// Without this attribute, the error for a type outside k8s-openapi would say that `Metadata` is
// missing.
#[diagnostic::do_not_recommend]
impl<T> Object for T
where
    T: Metadata<Ty = ObjectMeta> + Send + Sync + 'static,
{
    fn name(&self) -> &str {
        self.metadata().name.as_deref().unwrap_or_default()
    }

    fn namespace(&self) -> &str {
        self.metadata().namespace.as_deref().unwrap_or_default()
    }

    fn uid(&self) -> &str {
        self.metadata().uid.as_deref().unwrap_or_default()
    }

    fn resource_version(&self) -> &str {
        self.metadata()
            .resource_version
            .as_deref()
            .unwrap_or_default()
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.metadata()
            .labels
            .as_ref()?
            .get(key)
            .map(String::as_str)
    }
}

#[diagnostic::do_not_recommend]
impl<T> Resource for T
where
    T: k8s_openapi::Resource<Scope: ScopeOf> + Metadata<Ty = ObjectMeta> + Send + Sync + 'static,
{
    const GROUP: &'static str = T::GROUP;
    const VERSION: &'static str = T::VERSION;
    const KIND: &'static str = T::KIND;
    const PLURAL: &'static str = T::URL_PATH_SEGMENT;
    const SCOPE: Scope = <T::Scope as ScopeOf>::SCOPE;
}

/// Converts the scopes of k8s-openapi, which are types, to values. The scope of subresources does
/// not implement this trait, because subresources are not resources in this crate.
#[expect(
    unnameable_types,
    reason = "sealed: only the scopes of k8s-openapi implement it"
)]
pub trait ScopeOf {
    const SCOPE: Scope;
}

impl ScopeOf for ClusterResourceScope {
    const SCOPE: Scope = Scope::Cluster;
}

impl ScopeOf for NamespaceResourceScope {
    const SCOPE: Scope = Scope::Namespaced;
}
