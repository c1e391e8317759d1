//! The kube-rs code of the guide page `coming_from.md`. The main crate does not
//! depend on kube-rs, so the code is compiled here. It never runs.
//!
//! A snippet starts with the line `// kube` and ends before the line `// end`. The test checks that
//! the page shows exactly these snippets, in this order:
//!
//! ```text
//! cargo test --manifest-path benches/peers/Cargo.toml --test guide
//! ```

#![allow(dead_code, unused_variables)]

use std::error::Error as StdError;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{Controller, WatchStreamExt, reflector, watcher};
use kube::{Api, Client, Error};

async fn reflector_and_store(api: Api<Pod>) -> Result<(), Box<dyn StdError>> {
    // kube
    let (reader, writer) = reflector::store();
    let pods = watcher(api, watcher::Config::default().labels("app=web"))
        .default_backoff()
        .reflect(writer)
        .touched_objects();
    tokio::spawn(pods.for_each(|_| ready(())));
    reader.wait_until_ready().await?;
    let pod = reader.get(&ObjectRef::new("web-0").within("default"));
    let is_there = |pod: &Pod| pod.spec.as_ref().unwrap().node_name.as_deref() == Some("worker-1");
    let on_node = reader.state_filter(is_there);
    // end
    Ok(())
}

struct Context;

async fn controller(client: Client, context: Arc<Context>) {
    // kube
    async fn reconcile(map: Arc<ConfigMap>, context: Arc<Context>) -> Result<Action, Error> {
        // ...
        Ok(Action::requeue(Duration::from_secs(300)))
    }
    fn error_policy(map: Arc<ConfigMap>, error: &Error, context: Arc<Context>) -> Action {
        Action::requeue(Duration::from_secs(5))
    }
    let maps = Api::<ConfigMap>::all(client.clone());
    Controller::new(maps, watcher::Config::default())
        .owns(Api::<Secret>::all(client), watcher::Config::default())
        .run(reconcile, error_policy, context)
        .for_each(|result| async move { println!("{result:?}") })
        .await;
    // end
}

const PAGE: &str = include_str!("../../../crates/controller/docs/guide/coming_from.md");

#[test]
fn page_shows_exactly_the_compiled_snippets() {
    let shown = snippets(PAGE, "```");
    let compiled = snippets(include_str!("guide.rs"), "// end");
    for (shown, compiled) in shown.iter().zip(&compiled) {
        assert!(
            shown == compiled,
            "The page shows:\n{shown}\nThis file has:\n{compiled}"
        );
    }
    assert_eq!(shown.len(), compiled.len(), "number of snippets");
}

/// Asserts that each block with a language has the language `rs` and starts with `// kube`. Without
/// `// kube`, the other test would not check the block. GitHub highlights `rs` as Rust, but rustdoc
/// does not know this name, so it does not compile the block.
#[test]
fn each_block_with_a_language_is_kube() {
    let (_, kube) = PAGE.split_once("\n## From kube-rs\n").unwrap();
    let mut lines = kube.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("```") && line != "```" {
            assert_eq!(line, "```rs");
            assert_eq!(lines.next(), Some("// kube"));
        }
    }
}

/// Returns the lines between each `// kube` and the next `end`, without the indentation of the
/// first of these two.
fn snippets(text: &str, end: &str) -> Vec<String> {
    let mut lines = text.lines();
    let mut snippets = Vec::new();
    while let Some(first) = lines.find(|line| line.trim_start() == "// kube") {
        let indentation = &first[..first.len() - first.trim_start().len()];
        snippets.push(
            lines
                .by_ref()
                .take_while(|line| line.trim_start() != end)
                .map(|line| line.strip_prefix(indentation).unwrap_or(line).to_owned() + "\n")
                .collect(),
        );
    }
    snippets
}
