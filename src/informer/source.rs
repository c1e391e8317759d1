use std::marker::PhantomData;

use serde::de::DeserializeOwned;

use super::scope::InformerScope;
use crate::base::derive::{clone_fields, debug_fields};
use crate::object::{
    DynamicObject, GroupVersionKind, GroupVersionResource, Object, PartialObjectMetadata, Resource,
    Scope,
};

/// Selects the objects of an informer: a resource, the Rust type to decode them into, and a scope.
///
/// Requests for an informer with equal sources share one informer.
/// [`SharedInformerFactory::informer`] is the short form for the most common source.
///
/// | source | decodes into |
/// |---|---|
/// | [`Source::of::<T>()`](Source::of) | a type that defines its resource: k8s-openapi's types, your own structs |
/// | [`Source::dynamic`] | [`DynamicObject`] |
/// | [`Source::dynamic_as::<T>`](Source::dynamic_as) | any type that has the fields, for example a custom struct |
/// | [`Source::metadata`] | [`PartialObjectMetadata`]; the server sends only the metadata |
///
/// ```
/// use k8s_informer::informer::{InformerScope, Source};
/// use k8s_informer::object::{Compact, GroupVersionResource};
/// use k8s_informer::{Client, Config, Object, SharedInformerFactory, Stop};
/// use k8s_informer_testing::ApiServer;
/// use k8s_openapi::api::core::v1::Secret;
/// use serde_json::json;
///
/// let server = ApiServer::start()?;
/// for namespace in ["blue", "green"] {
///     let secret = json!({"metadata": {"name": "a"}, "stringData": {"password": "x"}});
///     server.create(&format!("/api/v1/namespaces/{namespace}/secrets"), secret)?;
/// }
/// let factory = SharedInformerFactory::new(Client::new(Config::new(server.url()))?);
/// let secrets = GroupVersionResource::new("", "v1", "secrets");
/// let typed = factory.informer_for(Source::of::<Secret>().scope(InformerScope::all().namespace("blue")));
/// let compact = factory.informer_for(Source::dynamic_as::<Compact<Secret>>(secrets.clone()));
/// let names = factory.informer_for(Source::metadata(secrets));
///
/// let stop = Stop::never();
/// factory.start(&stop)?;
/// factory.wait_for_cache_sync(None, &stop)?;
/// assert_eq!(typed.lister().list().len(), 1);
/// assert_eq!(compact.lister().list().len(), 2);
/// assert_eq!(names.lister().list()[0].name(), "a");
/// # factory.shut_down(None)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// [`SharedInformerFactory::informer`]: super::SharedInformerFactory::informer
pub struct Source<T = ()> {
    pub(super) resource: GroupVersionResource,
    /// The expected kind of each object, if the type defines it.
    pub(super) kind: Option<GroupVersionKind>,
    /// Whether the kind is namespaced, if the type defines it.
    pub(super) kind_scope: Option<Scope>,
    pub(super) is_metadata: bool,
    /// `None` for the scope of the factory.
    pub(super) scope: Option<InformerScope>,
    object: PhantomData<fn() -> T>,
}

impl Source {
    /// Selects the objects of a type that defines its resource.
    pub fn of<T: Resource + DeserializeOwned>() -> Source<T> {
        let kind = Some(T::group_version_kind());
        Source {
            kind_scope: Some(T::scope()),
            ..Source::new(T::group_version_resource(), kind, false)
        }
    }

    /// Selects the objects of a resource chosen at run time. To look up a resource by a name that
    /// kubectl accepts, use [`SharedInformerFactory::find_resource`].
    ///
    /// [`SharedInformerFactory::find_resource`]: super::SharedInformerFactory::find_resource
    pub fn dynamic(resource: GroupVersionResource) -> Source<DynamicObject> {
        Self::dynamic_as(resource)
    }

    /// Selects the objects of a resource chosen at run time and decodes them into `T`. The kind of
    /// the objects is not checked.
    pub fn dynamic_as<T: Object + DeserializeOwned>(resource: GroupVersionResource) -> Source<T> {
        Source::new(resource, None, false)
    }

    /// Selects the metadata of a resource's objects. The server omits everything else. client-go's
    /// `metadatainformer`.
    pub fn metadata(resource: GroupVersionResource) -> Source<PartialObjectMetadata> {
        Source::new(resource, None, true)
    }
}

impl<T> Source<T> {
    fn new(
        resource: GroupVersionResource,
        kind: Option<GroupVersionKind>,
        is_metadata: bool,
    ) -> Self {
        Self {
            resource,
            kind,
            kind_scope: None,
            is_metadata,
            scope: None,
            object: PhantomData,
        }
    }

    /// Sets the scope. If you do not set it, the scope of the factory applies. By default this is
    /// all namespaces.
    #[must_use]
    pub fn scope(mut self, scope: InformerScope) -> Self {
        self.scope = Some(scope);
        self
    }

    /// Returns the resource.
    ///
    /// ```
    /// use k8s_informer::informer::Source;
    /// use k8s_informer::object::Scope;
    /// use k8s_openapi::api::core::v1::Node;
    ///
    /// let nodes = Source::of::<Node>();
    /// assert_eq!(nodes.resource().to_string(), "nodes.v1");
    /// assert_eq!(nodes.kind().unwrap().kind, "Node");
    /// assert_eq!(nodes.kind_scope(), Some(Scope::Cluster));
    /// ```
    pub fn resource(&self) -> &GroupVersionResource {
        &self.resource
    }

    /// Returns the kind, if the type defines it.
    pub fn kind(&self) -> Option<&GroupVersionKind> {
        self.kind.as_ref()
    }

    /// Returns whether the kind is namespaced, if the type defines it.
    pub fn kind_scope(&self) -> Option<Scope> {
        self.kind_scope
    }

    /// Returns the scope, if it is set. [`SharedInformerFactory::effective_scope`] returns the one
    /// that applies in a factory.
    ///
    /// [`SharedInformerFactory::effective_scope`]: super::SharedInformerFactory::effective_scope
    pub fn own_scope(&self) -> Option<&InformerScope> {
        self.scope.as_ref()
    }
}

clone_fields!(Source<T>: resource, kind, kind_scope, is_metadata, scope, object);

debug_fields!(Source<T>, this,
    resource: this.resource,
    type: std::any::type_name::<T>(),
    is_metadata: this.is_metadata,
    scope: this.scope
);
