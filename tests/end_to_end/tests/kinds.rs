//! Objects of any kind have their `apiVersion` and `kind`, however they arrive.

use k8s_informer::informer::{FactoryOptions, Source};
use k8s_informer::object::{Compact, GroupVersionResource};
use k8s_informer::{
    DynamicObject, Object, SharedIndexInformer, SharedInformerFactory, Stop, Stopper,
};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use crate::cluster::{BOTH, LIST, on_every_cluster};
use crate::interceptor::Interceptor;
use crate::support::{shut_down, synced};

fn configmaps() -> GroupVersionResource {
    GroupVersionResource::new("", "v1", "configmaps")
}

#[track_caller]
fn assert_maps(informer: &SharedIndexInformer<DynamicObject>, expected: usize) {
    let maps = informer.lister().list();
    assert_eq!(maps.len(), expected);
    for map in maps {
        assert_eq!((map.api_version(), map.kind()), ("v1", "ConfigMap"));
    }
}

#[test]
fn dynamic_object_has_kind_from_list_watch_list_and_watch() {
    on_every_cluster(BOTH, |cluster| {
        let namespace = cluster.namespace("kinds");
        for name in ["a", "b", "c"] {
            namespace.create(name, json!({}));
        }
        let interceptor = Interceptor::expiring(cluster.client());
        let mut options = cluster.options();
        options.page_size = Some(2);
        let factory = SharedInformerFactory::with_options(
            interceptor,
            FactoryOptions::new()
                .namespace(&namespace.name)
                .reflector(options),
        );
        let maps = factory.informer_for(Source::dynamic(configmaps()));
        let follower = synced(&factory, &maps);
        assert_maps(&maps, follower.known().initial);
        namespace.create("d", json!({}));
        follower.wait("the watch", |known| known.events.contains(&"+d".to_owned()));
        namespace.create("trigger", json!({}));
        follower.wait("the relist", |known| {
            known.events.contains(&"+trigger".to_owned())
        });
        namespace.patch("a", &json!({ "data": { "round": "1" } }));
        follower.wait("what follows", |known| {
            known.events.contains(&"~a".to_owned())
        });
        assert_maps(&maps, follower.known().versions.len());
        assert_eq!(follower.known().problems, [""; 0]);
        shut_down(&factory, "of objects of any kind");
    });
}

#[test]
fn api_and_informer_return_equal_objects() {
    on_every_cluster(LIST, |cluster| {
        let namespace = cluster.namespace("kinds");
        namespace.create("a", json!({}));
        let factory = cluster.factory_with(|options| options.namespace(&namespace.name));
        let maps = factory.informer_for(Source::dynamic(configmaps()));
        synced(&factory, &maps);
        let api = cluster
            .client()
            .dynamic_api(&configmaps(), Some(&namespace.name));
        let read = api.get("a", &Stop::never()).unwrap();
        assert_eq!(*maps.lister().get(&namespace.name, "a").unwrap(), *read);
        assert!(
            api.list(&Default::default(), &Stop::never())
                .unwrap()
                .items
                .contains(&read)
        );
        shut_down(&factory, "of objects of any kind");
    });
}

#[test]
fn compact_objects_equal_dynamic_ones_when_listed_and_watched() {
    on_every_cluster(BOTH, |cluster| {
        let namespace = cluster.namespace("kinds");
        namespace.create("a", json!({"app": "web"}));
        let factory = cluster.factory_with(|options| options.namespace(&namespace.name));
        let dynamic = factory.informer_for(Source::dynamic(configmaps()));
        let typed = factory.informer::<Compact<ConfigMap>>();
        let (follower, typed_follower) = (synced(&factory, &dynamic), synced(&factory, &typed));
        namespace.patch("a", &json!({ "data": { "round": "1" } }));
        namespace.create("b", json!({}));
        for follower in [&follower, &typed_follower] {
            follower.wait("the patch", |known| known.events.contains(&"~a".to_owned()));
            follower.wait("the other", |known| known.events.contains(&"+b".to_owned()));
        }
        let stop = Stopper::new();
        let api = cluster
            .client()
            .dynamic_api(&configmaps(), Some(&namespace.name));
        for name in ["a", "b"] {
            let read = api.get(name, &stop).unwrap();
            let map = dynamic.lister().get(&namespace.name, name).unwrap();
            assert_eq!(
                (map.api_version(), map.kind(), map.uid()),
                ("v1", "ConfigMap", read.uid())
            );
            assert_eq!(*map, *read);
            let typed = typed.lister().get(&namespace.name, name).unwrap();
            assert_eq!(typed.decode().unwrap(), read.decode::<ConfigMap>().unwrap());
            assert_eq!(typed.label("app"), read.label("app"));
        }
        let api = cluster
            .client()
            .api::<Compact<ConfigMap>>(Some(&namespace.name));
        let read = api.get("a", &stop).unwrap();
        assert_eq!(read.read::<&str>("/data/round").unwrap(), Some("1"));
        let cached = dynamic.lister().get(&namespace.name, "a").unwrap();
        assert_eq!(**read, *cached);
        // `modify` replaces the whole object. A compact object has every field, so none is lost.
        let change = |map: &mut Compact<ConfigMap>| {
            let mut whole = map.decode().unwrap();
            whole.data = Some([("colour".to_owned(), "blue".to_owned())].into());
            *map = Compact::new(&whole).unwrap();
        };
        let written = api.modify("a", change, &stop).unwrap();
        assert_eq!(written.read::<&str>("/data/colour").unwrap(), Some("blue"));
        assert_eq!(written.read::<&str>("/data/round").unwrap(), None);
        shut_down(&factory, "of compact objects");
    });
}
