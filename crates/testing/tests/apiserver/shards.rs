//! Lists and watches of one shard (SH1–SH5).

use std::collections::BTreeSet;

use k8s_informer::reflector::{ListOptions, Shard};
use k8s_informer_testing::{ApiResource, ApiServer};
use serde_json::{Value, json};

use crate::apiserver::CONFIGMAPS;
use crate::apiserver::client::Client;

const COUNT: usize = 30;

fn server(gate: bool) -> ApiServer {
    let server = ApiServer::builder()
        .sharded_list_and_watch(gate)
        .seed(7)
        .start()
        .unwrap();
    for number in 0..COUNT {
        let label = if number % 2 == 0 { "even" } else { "odd" };
        let meta = json!({ "name": format!("m-{number:02}"), "labels": { "is": label } });
        server
            .create(CONFIGMAPS, json!({ "metadata": meta }))
            .unwrap();
    }
    server
}

fn shard(index: u32) -> Shard {
    Shard::new(index, 3).unwrap()
}

/// The query of a request for this shard. It begins with `more`.
fn shard_query(shard: &Shard, more: &str) -> String {
    let mut options = ListOptions::default();
    options.shard_selector = shard.selector();
    format!("?{more}{}", options.to_query())
}

fn names_in(list: &Value, shard: &Shard) -> Vec<String> {
    let items = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| &item["metadata"]);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    items
        .filter(|meta| shard.contains(&text(&meta["uid"])))
        .map(|meta| text(&meta["name"]))
        .collect()
}

#[test]
fn sh1_sh3_object_is_in_one_shard_and_pages_name_the_shard() {
    let server = server(true);
    let mut client = Client::connect(&server);
    let all = client.get(CONFIGMAPS).json();
    assert_eq!(all["metadata"].get("shardInfo"), None);
    let mut seen = BTreeSet::new();
    for index in 0..3 {
        let shard = shard(index);
        let expected = names_in(&all, &shard);
        assert!(!expected.is_empty() && expected.len() < COUNT);
        for more in ["", "resourceVersion=0&"] {
            let list = client.get(&format!("{CONFIGMAPS}{}", shard_query(&shard, more)));
            assert_eq!(
                list.json()["metadata"]["shardInfo"],
                json!({ "selector": shard.selector().unwrap() })
            );
            assert_eq!(list.names(), expected);
        }
        assert!(expected.iter().all(|name| seen.insert(name.clone())));

        let (mut token, mut paged) = (String::new(), Vec::new());
        loop {
            let page = client.get(&format!(
                "{CONFIGMAPS}{}{token}",
                shard_query(&shard, "limit=3&")
            ));
            let metadata = page.json()["metadata"].clone();
            assert_eq!(metadata["shardInfo"]["selector"], shard.selector().unwrap());
            paged.extend(page.names());
            let Some(next) = metadata["continue"].as_str() else {
                break;
            };
            if token.is_empty() {
                assert_eq!(
                    metadata["remainingItemCount"],
                    COUNT - 3,
                    "the remaining count covers all shards, as in kube-apiserver"
                );
            }
            token = format!("&continue={next}");
        }
        assert_eq!(paged, expected);

        let labelled = client.get(&format!(
            "{CONFIGMAPS}{}",
            shard_query(&shard, "labelSelector=is%3Deven&")
        ));
        let even = |name: &&String| name.ends_with(['0', '2', '4', '6', '8']);
        assert_eq!(
            labelled.names(),
            expected.iter().filter(even).cloned().collect::<Vec<_>>()
        );
    }
    assert_eq!(seen.len(), COUNT);
}

#[test]
fn sh3_metadata_and_custom_resources_name_no_shard() {
    let server = ApiServer::builder()
        .sharded_list_and_watch(true)
        .resource(ApiResource::new("example.com", "v1", "gizmos", "Gizmo"))
        .start()
        .unwrap();
    let gizmos = "/apis/example.com/v1/namespaces/default/gizmos";
    for number in 0..COUNT {
        let object = json!({ "metadata": { "name": format!("m-{number:02}") } });
        server.create(CONFIGMAPS, object.clone()).unwrap();
        server.create(gizmos, object).unwrap();
    }
    let mut client = Client::connect(&server);
    let metadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    for (path, accept) in [
        (CONFIGMAPS, metadata),
        (gizmos, metadata),
        (gizmos, "application/json"),
    ] {
        let all = client.get(path).json();
        let query = shard_query(&shard(0), "");
        let header = ("Accept".to_owned(), accept.to_owned());
        client.send("GET", &format!("{path}{query}"), &[header], "");
        let list = client.response();
        assert_eq!(list.names(), names_in(&all, &shard(0)), "{path} {accept}");
        assert!(list.names().len() < COUNT);
        assert_eq!(list.json()["metadata"].get("shardInfo"), None);
    }
}

#[test]
fn sh1_namespace_belongs_to_one_shard() {
    let server = server(true);
    server
        .create(
            "/api/v1/namespaces/kube-system/configmaps",
            json!({ "metadata": { "name": "s" } }),
        )
        .unwrap();
    let mut client = Client::connect(&server);
    for index in 0..3 {
        let shard = shard(index).by_namespace();
        let mut expected = 0;
        for (namespace, count) in [("default", COUNT), ("kube-system", 1)] {
            expected += if shard.contains(namespace) { count } else { 0 };
        }
        let list = client.get(&format!("/api/v1/configmaps{}", shard_query(&shard, "")));
        assert_eq!(list.names().len(), expected, "{index}");
        assert_eq!(
            list.json()["metadata"]["shardInfo"]["selector"],
            shard.selector().unwrap()
        );
    }
}

#[test]
fn sh3_watch_sends_only_its_shard_without_naming_it() {
    let server = server(true);
    let all = Client::connect(&server).get(CONFIGMAPS).json();
    let shard = shard(1);
    let initial = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&";
    let mut watch_list = Client::watch(
        &server,
        &format!("{CONFIGMAPS}{}", shard_query(&shard, initial)),
    );
    let version = server.resource_version();
    for name in names_in(&all, &shard) {
        let event = watch_list.event();
        assert!(event.starts_with(&format!("ADDED {name} ")), "{event}");
    }
    let end = watch_list.event_json();
    assert_eq!(
        end["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"],
        "true"
    );
    assert_eq!(end["object"]["metadata"].get("shardInfo"), None);

    let query = shard_query(&shard, &format!("watch=true&resourceVersion={version}&"));
    let mut watch = Client::watch(&server, &format!("{CONFIGMAPS}{query}"));
    let all_names = names_in(&all, &Shard::new(0, 1).unwrap());
    for name in &all_names {
        server
            .patch(
                &format!("{CONFIGMAPS}/{name}"),
                json!({ "data": { "x": "1" } }),
            )
            .unwrap();
    }
    for name in &all_names {
        server.delete(&format!("{CONFIGMAPS}/{name}")).unwrap();
    }
    for kind in ["MODIFIED", "DELETED"] {
        for name in names_in(&all, &shard) {
            for watch in [&mut watch, &mut watch_list] {
                let event = watch.event();
                assert!(event.starts_with(&format!("{kind} {name} ")), "{event}");
            }
        }
    }
}

#[test]
fn sh4_selector_is_ignored_without_the_gate() {
    let server = server(false);
    let mut client = Client::connect(&server);
    for query in [
        shard_query(&shard(0), ""),
        "?shardSelector=nonsense".to_owned(),
    ] {
        let list = client.get(&format!("{CONFIGMAPS}{query}"));
        assert_eq!(list.names().len(), COUNT);
        assert_eq!(list.json()["metadata"].get("shardInfo"), None);
    }
    let mut watch = Client::watch(
        &server,
        &format!("{CONFIGMAPS}{}", shard_query(&shard(0), "watch=true&")),
    );
    for number in 0..COUNT {
        assert!(watch.event().starts_with(&format!("ADDED m-{number:02} ")));
    }
}

#[test]
fn sh5_malformed_selector_gives_500_without_reason() {
    let server = server(true);
    let mut client = Client::connect(&server);
    let initial = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    for more in ["", "&watch=true", &format!("&watch=true{initial}")] {
        let response = client.get(&format!("{CONFIGMAPS}?shardSelector=nonsense(){more}"));
        assert_eq!(response.status, 500);
        let status = response.json();
        let message = status["message"].as_str().unwrap();
        assert!(message.starts_with("invalid shard selector: "), "{message}");
        assert_eq!((&status["code"], status.get("reason")), (&json!(500), None));
    }
}
