//! The types of objects in a cache and how they are compared.

use k8s_informer::informer::{InformerScope, Source};
use k8s_informer::object::{
    FullObjectMeta, GroupVersionResource, PartialObjectMetadata, StringMap,
};
use k8s_informer::{
    DynamicObject, Object, SharedIndexInformer, SharedInformerFactory, impl_object,
};
use k8s_openapi::api::core::v1::Pod;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// An object type that a cache can hold.
pub(crate) trait CacheForm: Object + DeserializeOwned + Clone {
    fn informer(
        factory: &SharedInformerFactory,
        resource: GroupVersionResource,
        scope: &InformerScope,
    ) -> SharedIndexInformer<Self> {
        factory.informer_for(Source::dynamic_as(resource).scope(scope.clone()))
    }

    /// Returns all readable content of the object.
    fn show(&self) -> Value;

    /// Applies the stripping transform.
    fn strip(&mut self) {}

    /// Decodes a state on the server. Returns `None` if it cannot be decoded.
    fn of(state: &Value) -> Option<Self> {
        serde_json::from_str(&state.to_string()).ok()
    }
}

impl CacheForm for DynamicObject {
    fn show(&self) -> Value {
        Value::Object(self.to_map().expect("the state is a JSON object"))
    }

    fn strip(&mut self) {
        let edited = self.edit(|fields| {
            if let Some(Value::Object(metadata)) = fields.get_mut("metadata") {
                metadata.remove("annotations");
            }
        });
        edited.expect("the rest is an object");
    }
}

/// A custom struct with a few fields.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Widget {
    metadata: FullObjectMeta,
    #[serde(default)]
    spec: WidgetSpec,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct WidgetSpec {
    node_name: String,
    priority: i32,
}

impl_object!(Widget, "example.com/v1", "Widget", "widgets", Namespaced);

impl CacheForm for Widget {
    fn informer(
        factory: &SharedInformerFactory,
        _: GroupVersionResource,
        scope: &InformerScope,
    ) -> SharedIndexInformer<Self> {
        factory.informer_for(Source::of().scope(scope.clone()))
    }

    fn show(&self) -> Value {
        serde_json::to_value(self).expect("the object can be serialized")
    }

    fn strip(&mut self) {
        self.metadata.annotations = StringMap::default();
    }
}

impl CacheForm for Pod {
    fn informer(
        factory: &SharedInformerFactory,
        _: GroupVersionResource,
        scope: &InformerScope,
    ) -> SharedIndexInformer<Self> {
        factory.informer_for(Source::of().scope(scope.clone()))
    }

    fn show(&self) -> Value {
        serde_json::to_value(self).expect("the object can be serialized")
    }

    fn strip(&mut self) {
        self.metadata.annotations = None;
    }
}

impl CacheForm for PartialObjectMetadata {
    fn informer(
        factory: &SharedInformerFactory,
        resource: GroupVersionResource,
        scope: &InformerScope,
    ) -> SharedIndexInformer<Self> {
        factory.informer_for(Source::metadata(resource).scope(scope.clone()))
    }

    fn show(&self) -> Value {
        serde_json::to_value(&self.metadata).expect("the object can be serialized")
    }
}
