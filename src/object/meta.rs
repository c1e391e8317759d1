use serde::{Deserialize, Serialize};

use super::{Object, StringMap};
use crate::json::null_is_default;

/// The metadata that a cache needs, for custom structs.
///
/// It omits annotations, owner references, managed fields and the rest: fields that are not decoded
/// use no memory. If you need more fields, use [`FullObjectMeta`](crate::object::FullObjectMeta) or
/// a custom metadata type that implements [`Object`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct ObjectMeta {
    /// The name, unique among the objects of the same resource and namespace.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    /// The namespace, empty for a cluster-scoped object.
    #[serde(
        deserialize_with = "null_is_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub namespace: String,
    /// The unique ID. It changes when an object is deleted and created again under the same name.
    #[serde(
        deserialize_with = "null_is_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub uid: String,
    /// The resource version, which changes with every change of the object.
    #[serde(
        deserialize_with = "null_is_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub resource_version: String,
    /// The labels, which selectors match.
    #[serde(skip_serializing_if = "StringMap::is_empty")]
    pub labels: StringMap,
}

/// Implements [`Object`] for a metadata type with these fields.
macro_rules! impl_object_for_metadata {
    ($type:ty) => {
        impl Object for $type {
            fn name(&self) -> &str {
                &self.name
            }

            fn namespace(&self) -> &str {
                &self.namespace
            }

            fn uid(&self) -> &str {
                &self.uid
            }

            fn resource_version(&self) -> &str {
                &self.resource_version
            }

            fn label(&self, key: &str) -> Option<&str> {
                self.labels.get(key)
            }
        }
    };
}

pub(super) use impl_object_for_metadata;

impl_object_for_metadata!(ObjectMeta);

/// Implements [`Object`](crate::Object) and [`Resource`](crate::Resource) for a custom struct.
///
/// For a type of kube's derive macros, write `impl_object!(Website as kube::Resource)`. It takes
/// everything from the derive, implements [`FullMetadata`](crate::object::FullMetadata) as well, and
/// needs the feature `k8s-openapi`. [Custom resources](crate::guide::custom_resources) has an
/// example.
///
/// For other structs, the arguments are the type, apiVersion, kind, plural and [`Scope`](crate::object::Scope).
///
/// The struct needs a field `metadata` whose type is an [`Object`](crate::Object):
/// [`ObjectMeta`](crate::ObjectMeta) or a custom type. A struct that decodes only the fields that
/// you keep makes the cheapest cache.
///
/// ```
/// use k8s_informer::{Object, ObjectMeta, Resource, impl_object};
/// use serde::Deserialize;
///
/// #[derive(Deserialize)]
/// struct Deployment {
///     metadata: ObjectMeta,
///     spec: DeploymentSpec,
/// }
/// #[derive(Deserialize)]
/// struct DeploymentSpec {
///     replicas: u32,
/// }
/// impl_object!(Deployment, "apps/v1", "Deployment", "deployments", Namespaced);
///
/// let json = r#"{"metadata": {"name": "web", "namespace": "default"}, "spec": {"replicas": 3, "paused": false}}"#;
/// let web: Deployment = serde_json::from_str(json)?;
/// assert_eq!((web.namespace(), web.name(), web.spec.replicas), ("default", "web", 3));
/// assert_eq!(Deployment::group_version_resource().to_string(), "deployments.v1.apps");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[macro_export]
macro_rules! impl_object {
    (@object $type:ty) => {
        const _: () = {
            // The field is used only here, so that a mistake in it causes one compiler error.
            fn metadata(object: &$type) -> &impl $crate::Object {
                &object.metadata
            }

            impl $crate::Object for $type {
                fn name(&self) -> &str {
                    $crate::Object::name(metadata(self))
                }

                fn namespace(&self) -> &str {
                    $crate::Object::namespace(metadata(self))
                }

                fn uid(&self) -> &str {
                    $crate::Object::uid(metadata(self))
                }

                fn resource_version(&self) -> &str {
                    $crate::Object::resource_version(metadata(self))
                }

                fn label(&self, key: &str) -> ::core::option::Option<&str> {
                    $crate::Object::label(metadata(self), key)
                }
            }
        };
    };
    // For types with the metadata of k8s-openapi. Without `do_not_recommend`, the error for a type
    // outside k8s-openapi would say that `Metadata` is missing.
    (@openapi $metadata:expr, $type:ty, [$($parameter:ident)?] $($where:tt)*) => {
        #[diagnostic::do_not_recommend]
        impl<$($parameter)?> $crate::Object for $type $($where)* {
            fn name(&self) -> &str {
                $metadata(self).name.as_deref().unwrap_or_default()
            }

            fn namespace(&self) -> &str {
                $metadata(self).namespace.as_deref().unwrap_or_default()
            }

            fn uid(&self) -> &str {
                $metadata(self).uid.as_deref().unwrap_or_default()
            }

            fn resource_version(&self) -> &str {
                $metadata(self).resource_version.as_deref().unwrap_or_default()
            }

            fn label(&self, key: &str) -> ::core::option::Option<&str> {
                let labels = $metadata(self).labels.as_ref();
                labels?.get(key).map(|value| value.as_str())
            }
        }

        #[diagnostic::do_not_recommend]
        impl<$($parameter)?> $crate::object::FullMetadata for $type $($where)* {
            fn full_metadata(
                &self,
            ) -> ::core::result::Result<
                ::std::borrow::Cow<'_, $crate::object::FullObjectMeta>,
                $crate::__private::JsonError,
            > {
                let full = <$crate::object::FullObjectMeta as ::core::convert::From<_>>::from($metadata(self));
                ::core::result::Result::Ok(::std::borrow::Cow::Owned(full))
            }

            fn is_being_deleted(&self) -> bool {
                $metadata(self).deletion_timestamp.is_some()
            }

            fn generation(&self) -> i64 {
                $metadata(self).generation.unwrap_or_default()
            }
        }
    };
    ($type:ty as $($resource:tt)+) => {
        const _: () = {
            use $crate::__private::openapi;

            #[diagnostic::on_unimplemented(
                message = "`{Self}` does not implement kube's `Resource`, or not with this version of k8s-openapi",
                label = "not the type of an object",
                note = "name the object and not its spec: if `WebsiteSpec` derives `CustomResource`, write `impl_object!(Website as kube::Resource)`",
                note = "kube and k8s-informer must depend on the same minor version of k8s-openapi"
            )]
            trait DerivedObject: Sized {
                const DERIVED: openapi::Derived<Self>;
            }

            #[diagnostic::do_not_recommend]
            impl<T> DerivedObject for T
            where
                T: $($resource)+<DynamicType = (), Scope: openapi::ScopeOf>,
            {
                const DERIVED: openapi::Derived<Self> = openapi::Derived {
                    metadata: T::meta,
                    group_version_kind: || {
                        $crate::object::GroupVersionKind::new(
                            T::group(&()),
                            T::version(&()),
                            T::kind(&()),
                        )
                    },
                    plural: || T::plural(&()),
                    scope: <T::Scope as openapi::ScopeOf>::SCOPE,
                };
            }

            // The trait is used only here, so that a mistake in the type causes one compiler error.
            const DERIVED: openapi::Derived<$type> = <$type as DerivedObject>::DERIVED;

            $crate::impl_object!(@openapi (DERIVED.metadata), $type, []);

            impl $crate::Resource for $type {
                fn group_version_kind() -> $crate::object::GroupVersionKind {
                    (DERIVED.group_version_kind)()
                }

                fn plural() -> ::std::borrow::Cow<'static, str> {
                    (DERIVED.plural)()
                }

                fn scope() -> $crate::object::Scope {
                    DERIVED.scope
                }
            }
        };
    };
    ($type:ty, $api_version:literal, $kind:literal, $plural:literal, $scope:ident) => {
        $crate::impl_object!(@object $type);

        impl $crate::Resource for $type {
            fn group_version_kind() -> $crate::object::GroupVersionKind {
                $crate::object::GroupVersionKind::of($api_version, $kind)
            }

            fn plural() -> ::std::borrow::Cow<'static, str> {
                $plural.into()
            }

            fn scope() -> $crate::object::Scope {
                $crate::object::Scope::$scope
            }
        }
    };
}
