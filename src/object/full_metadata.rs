use std::borrow::Cow;

use serde::de::IgnoredAny;

use super::{Compact, DynamicObject, FullObjectMeta, Object};

/// An object with all of its metadata: owners, finalizers, annotations, generation and deletion.
///
/// Controllers require it where they need more than [`Object`] has. The types of k8s-openapi,
/// [`DynamicObject`], [`Compact`] and [`PartialObjectMetadata`](super::PartialObjectMetadata) implement it. A custom struct
/// implements it with [`impl_full_metadata!`](crate::impl_full_metadata), if its metadata is a
/// [`FullObjectMeta`]. With the smaller [`ObjectMeta`](crate::ObjectMeta), this is a compiler
/// error, because absent owners would look like no owners.
///
/// It corresponds to the part of Go's `metav1.Object` that `tools/cache` does not use.
///
/// ```
/// use k8s_informer::DynamicObject;
/// use k8s_informer::object::FullMetadata;
///
/// let team: DynamicObject = serde_json::from_str(
///     r#"{"metadata": {"name": "a", "generation": 3, "finalizers": ["example.com/team"]}}"#,
/// )?;
/// assert_eq!(team.full_metadata()?.finalizers, ["example.com/team"]);
/// assert_eq!((team.generation(), team.is_being_deleted()), (3, false));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not have all metadata: it does not implement `k8s_informer::object::FullMetadata`",
    label = "owners, finalizers, annotations and generation are unknown",
    note = "for a custom struct, use the type `FullObjectMeta` for the field `metadata`, and `impl_full_metadata!`",
    note = "for a type of k8s-openapi, enable the feature `k8s-openapi` of k8s-informer and depend on the same version of k8s-openapi"
)]
pub trait FullMetadata: Object {
    /// Returns the metadata.
    ///
    /// It is borrowed from types that contain a [`FullObjectMeta`]. Other types decode or
    /// convert it in each call. The types of k8s-openapi write timestamps in UTC, as an API
    /// server does.
    ///
    /// # Errors
    ///
    /// Returns an error if a field has the wrong type. Only [`DynamicObject`] and [`Compact`]
    /// return errors, because they stay JSON and check these fields only here. Other types check
    /// them when they are decoded. An API server never sends such metadata.
    ///
    /// ```
    /// use k8s_informer::DynamicObject;
    /// use k8s_informer::object::FullMetadata;
    ///
    /// let object: DynamicObject = serde_json::from_str(r#"{"metadata": {"ownerReferences": "x"}}"#)?;
    /// let error = object.full_metadata().unwrap_err().to_string();
    /// assert!(error.starts_with("/metadata: ownerReferences: invalid type"), "{error}");
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    fn full_metadata(&self) -> Result<Cow<'_, FullObjectMeta>, serde_json::Error>;

    /// Returns whether the deletion of the object has been requested: it has a
    /// `metadata.deletionTimestamp` of any type.
    ///
    /// Types that convert their metadata should override the default implementation, which calls
    /// [`full_metadata`](Self::full_metadata) and returns `false` after an error.
    ///
    /// ```
    /// use k8s_informer::object::{FullMetadata, PartialObjectMetadata};
    ///
    /// let json = r#"{"metadata": {"deletionTimestamp": "2026-11-20T11:50:33Z"}}"#;
    /// assert!(serde_json::from_str::<PartialObjectMetadata>(json)?.is_being_deleted());
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    fn is_being_deleted(&self) -> bool {
        self.full_metadata()
            .is_ok_and(|metadata| metadata.is_being_deleted())
    }

    /// Returns `metadata.generation`. It is 0 for kinds without generations, and if it is not an
    /// integer.
    ///
    /// Types that convert their metadata should override the default implementation, which calls
    /// [`full_metadata`](Self::full_metadata) and returns 0 after an error.
    ///
    /// ```
    /// use k8s_informer::object::{FullMetadata, PartialObjectMetadata};
    ///
    /// let json = r#"{"metadata": {"generation": 2}}"#;
    /// assert_eq!(serde_json::from_str::<PartialObjectMetadata>(json)?.generation(), 2);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    fn generation(&self) -> i64 {
        self.full_metadata()
            .map_or(0, |metadata| metadata.generation)
    }
}

impl FullMetadata for FullObjectMeta {
    fn full_metadata(&self) -> Result<Cow<'_, FullObjectMeta>, serde_json::Error> {
        Ok(Cow::Borrowed(self))
    }
}

impl FullMetadata for DynamicObject {
    fn full_metadata(&self) -> Result<Cow<'_, FullObjectMeta>, serde_json::Error> {
        Ok(Cow::Owned(self.read("/metadata")?.unwrap_or_default()))
    }

    fn is_being_deleted(&self) -> bool {
        !matches!(
            self.read::<IgnoredAny>("/metadata/deletionTimestamp"),
            Ok(None)
        )
    }

    fn generation(&self) -> i64 {
        let generation = self.read("/metadata/generation");
        generation.ok().flatten().unwrap_or_default()
    }
}

impl<T: 'static> FullMetadata for Compact<T> {
    fn full_metadata(&self) -> Result<Cow<'_, FullObjectMeta>, serde_json::Error> {
        (**self).full_metadata()
    }

    fn is_being_deleted(&self) -> bool {
        (**self).is_being_deleted()
    }

    fn generation(&self) -> i64 {
        (**self).generation()
    }
}

/// Implements [`FullMetadata`](crate::object::FullMetadata) for a custom struct.
///
/// Use it in addition to [`impl_object!`](crate::impl_object), if a controller needs the owners,
/// finalizers, annotations or generation of the objects. The struct needs a field `metadata` whose
/// type implements [`FullMetadata`](crate::object::FullMetadata):
/// [`FullObjectMeta`](crate::object::FullObjectMeta) or a custom type.
///
/// ```
/// use k8s_informer::object::{FullMetadata, FullObjectMeta};
/// use k8s_informer::{impl_full_metadata, impl_object};
/// use serde::Deserialize;
///
/// #[derive(Deserialize)]
/// struct Team {
///     metadata: FullObjectMeta,
/// }
/// impl_object!(Team, "example.com/v1", "Team", "teams", Namespaced);
/// impl_full_metadata!(Team);
///
/// let team: Team = serde_json::from_str(r#"{"metadata": {"name": "a", "generation": 3}}"#)?;
/// assert_eq!(team.generation(), 3);
/// # Ok::<(), serde_json::Error>(())
/// ```
///
/// [`ObjectMeta`](crate::ObjectMeta) has no owners or finalizers, so it is an error:
///
/// ```compile_fail,E0277
/// use k8s_informer::{ObjectMeta, impl_full_metadata, impl_object};
///
/// struct Team {
///     metadata: ObjectMeta,
/// }
/// impl_object!(Team, "example.com/v1", "Team", "teams", Namespaced);
/// impl_full_metadata!(Team);
/// ```
#[macro_export]
macro_rules! impl_full_metadata {
    ($type:ty) => {
        const _: () = {
            // The field is used only here, so that a mistake in it causes one compiler error.
            fn metadata(object: &$type) -> &impl $crate::object::FullMetadata {
                &object.metadata
            }

            impl $crate::object::FullMetadata for $type {
                fn full_metadata(
                    &self,
                ) -> ::core::result::Result<
                    ::std::borrow::Cow<'_, $crate::object::FullObjectMeta>,
                    $crate::__private::JsonError,
                > {
                    $crate::object::FullMetadata::full_metadata(metadata(self))
                }
            }
        };
    };
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::{Value, json};

    use super::*;
    use crate::object::PartialObjectMetadata;

    #[derive(Deserialize)]
    struct Team {
        metadata: FullObjectMeta,
    }
    crate::impl_object!(Team, "example.com/v1", "Team", "teams", Namespaced);
    crate::impl_full_metadata!(Team);

    /// Decodes the JSON as each object type and returns what the trait returns for it.
    fn each_type(json: &str) -> Vec<(&'static str, FullObjectMeta, bool, i64)> {
        fn of<T: FullMetadata + for<'de> Deserialize<'de>>(
            json: &str,
        ) -> (&'static str, FullObjectMeta, bool, i64) {
            let object: T = serde_json::from_str(json).unwrap();
            let metadata = object.full_metadata().unwrap().into_owned();
            (
                std::any::type_name::<T>(),
                metadata,
                object.is_being_deleted(),
                object.generation(),
            )
        }
        vec![
            of::<PartialObjectMetadata>(json),
            of::<DynamicObject>(json),
            of::<Compact<Team>>(json),
            #[cfg(feature = "k8s-openapi")]
            of::<k8s_openapi::api::core::v1::ConfigMap>(json),
        ]
    }

    #[track_caller]
    fn assert_same_for_each_type(metadata: &Value) {
        let json = json!({"metadata": metadata}).to_string();
        let team: Team = serde_json::from_str(&json).unwrap();
        assert_eq!(*team.full_metadata().unwrap(), team.metadata);
        for (name, full, is_being_deleted, generation) in each_type(&json) {
            assert_eq!(full, team.metadata, "{name}");
            assert_eq!(is_being_deleted, team.is_being_deleted(), "{name}");
            assert_eq!(generation, team.generation(), "{name}");
        }
    }

    #[test]
    fn object_types_return_equal_metadata_for_the_same_json() {
        assert_same_for_each_type(&json!({
            "name": "a", "generateName": "a-", "namespace": "n", "uid": "u", "resourceVersion": "7", "generation": 2,
            "creationTimestamp": "2026-11-20T11:49:33Z", "deletionTimestamp": "2026-11-20T11:50:33.123456Z",
            "deletionGracePeriodSeconds": 0, "labels": {"l": "1", "k": ""}, "finalizers": ["example.com/f", "f"],
            "annotations": {"a": "\"quoted\" \\ \n \u{1} \u{1f980}", "\"\\": "2"},
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "o", "controller": true, "blockOwnerDeletion": true},
                {"apiVersion": "v1", "kind": "Node", "name": "m", "uid": "p", "controller": false},
            ],
            "managedFields": [{
                "manager": "m", "operation": "Apply", "apiVersion": "v1", "time": "2026-11-20T11:49:33Z",
                "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {}},
            }],
            "selfLink": "/api/v1/configmaps/a", "unknown": {"field": [1]},
        }));
    }

    #[test]
    fn null_and_absent_metadata_fields_are_equal() {
        let null_fields = json!({
            "name": "a", "generateName": null, "namespace": null, "uid": null, "resourceVersion": null,
            "generation": null, "creationTimestamp": null, "deletionTimestamp": null, "labels": null,
            "deletionGracePeriodSeconds": null, "annotations": null, "finalizers": null, "managedFields": null,
            "ownerReferences": null,
        });
        assert_same_for_each_type(&null_fields);
        let team: Team = serde_json::from_value(json!({"metadata": null_fields})).unwrap();
        assert_eq!(
            team.metadata,
            serde_json::from_str(r#"{"name": "a"}"#).unwrap()
        );
    }

    #[test]
    fn dynamic_object_without_metadata_has_default_metadata() {
        for json in ["{}", r#"{"metadata": null}"#, r#"{"metadata": {}}"#] {
            let object: DynamicObject = serde_json::from_str(json).unwrap();
            assert_eq!(*object.full_metadata().unwrap(), FullObjectMeta::default());
            assert_eq!((object.is_being_deleted(), object.generation()), (false, 0));
        }
    }

    #[test]
    fn dynamic_object_with_wrong_types_returns_an_error() {
        for (field, wrong) in [
            ("ownerReferences", json!({"uid": "u"})),
            ("ownerReferences", json!([{"uid": 7}])),
            ("finalizers", json!("example.com/hunter2")),
            ("annotations", json!(["hunter2"])),
            ("generation", json!("hunter2")),
            ("deletionTimestamp", json!(7)),
        ] {
            let object = DynamicObject::new(&json!({"metadata": {field: wrong}})).unwrap();
            let error = object.full_metadata().unwrap_err().to_string();
            let expected = format!("/metadata: {field}");
            assert!(error.starts_with(&expected), "{field}: {error}");
            assert!(!error.contains("hunter2"), "{error}");
            assert_eq!(object.generation(), 0);
            assert_eq!(object.is_being_deleted(), field == "deletionTimestamp");
        }
    }
}
