//! The embedded API server.

use std::time::Duration;

use k8s_informer::reflector::ListOptions;
use k8s_informer::{Client, Config, Stop};
use k8s_informer_testing::ApiServer;
use serde_json::json;

use super::{Item, MAPS, cpu_of};

fn create_maps(server: &ApiServer, count: usize) {
    for n in 0..count {
        let map = json!({"metadata": {"name": format!("map-{n}")}});
        server.create(MAPS, map).unwrap();
    }
}

pub(crate) fn objects(n: usize) -> Duration {
    let server = ApiServer::start().unwrap();
    cpu_of(|| create_maps(&server, n))
}

pub(crate) fn definitions(n: usize) -> Duration {
    const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let server = ApiServer::start().unwrap();
    cpu_of(|| {
        for number in 0..n {
            let schema = json!({"openAPIV3Schema": {"type": "object"}});
            let definition = json!({
                "metadata": {"name": format!("kinds{number}.example.com")},
                "spec": {
                    "group": "example.com", "scope": "Namespaced",
                    "names": {"plural": format!("kinds{number}"), "kind": format!("Kind{number}")},
                    "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
                },
            });
            server.create(DEFINITIONS, definition).unwrap();
        }
    })
}

pub(crate) fn deletions(n: usize) -> Duration {
    let server = ApiServer::builder()
        .garbage_collection(true)
        .start()
        .unwrap();
    create_maps(&server, n);
    cpu_of(|| {
        for number in 0..n {
            server.delete(&format!("{MAPS}/map-{number}")).unwrap();
        }
    })
}

pub(crate) fn pages(n: usize) -> Duration {
    let server = ApiServer::start().unwrap();
    create_maps(&server, n);
    let client = Client::new(Config::new(server.url())).unwrap();
    let mut options = ListOptions::default();
    options.limit = Some(50);
    let pages = client.api::<Item>(None).pages(&options, &Stop::never());
    cpu_of(|| {
        let items: usize = pages.map(|page| page.unwrap().items.len()).sum();
        assert_eq!(items, n);
    })
}
