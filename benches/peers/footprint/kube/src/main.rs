//! A minimal agent with an informer. It prints the changes of the ConfigMaps of a namespace. Compare
//! `../ours`.
//!
//! ```text
//! kube [URL]    URL of a server without TLS; default: the cluster of the Pod
//! ```

use std::error::Error;
use std::pin::pin;

use futures::StreamExt;
use kube::runtime::watcher::{Config as WatchConfig, Event};
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, Client, Config, ResourceExt};
use tokio::runtime::Builder;

#[cfg(not(feature = "openapi"))]
use custom::ConfigMap;
#[cfg(feature = "openapi")]
use k8s_openapi::api::core::v1::ConfigMap;

fn main() -> Result<(), Box<dyn Error>> {
    Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(run())
}

async fn run() -> Result<(), Box<dyn Error>> {
    let config = match std::env::args().nth(1) {
        Some(url) => Config::new(url.parse()?),
        #[cfg(feature = "kubeconfig")]
        None => Config::infer().await?,
        #[cfg(not(feature = "kubeconfig"))]
        None => Config::incluster()?,
    };
    let api = Api::<ConfigMap>::namespaced(Client::try_from(config)?, "default");
    let (reader, writer) = reflector::store();
    let events = watcher(api, WatchConfig::default()).default_backoff();
    let mut stream = pin!(events.reflect(writer));
    while let Some(event) = stream.next().await {
        match event {
            Ok(Event::InitApply(map)) => println!("+ {} {}", map.name_any(), keys(&map)),
            Ok(Event::Apply(map)) => println!("~ {} {}", map.name_any(), keys(&map)),
            Ok(Event::Delete(map)) => println!("- {}", map.name_any()),
            Ok(Event::InitDone) => println!("synced {}", reader.len()),
            Ok(Event::Init) => {}
            Err(error) => eprintln!("{error}"),
        }
    }
    Ok(())
}

fn keys(map: &ConfigMap) -> usize {
    map.data.as_ref().map_or(0, |data| data.len())
}

#[cfg(not(feature = "openapi"))]
mod custom {
    use std::borrow::Cow;
    use std::collections::BTreeMap;

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use kube::Resource;
    use kube::core::NamespaceResourceScope;
    use serde::{Deserialize, Deserializer};

    #[derive(Clone, Debug, Deserialize)]
    pub(crate) struct ConfigMap {
        #[serde(deserialize_with = "same_fields")]
        metadata: ObjectMeta,
        pub(crate) data: Option<BTreeMap<String, String>>,
    }

    impl Resource for ConfigMap {
        type DynamicType = ();
        type Scope = NamespaceResourceScope;

        fn kind(_: &()) -> Cow<'_, str> {
            "ConfigMap".into()
        }

        fn group(_: &()) -> Cow<'_, str> {
            "".into()
        }

        fn version(_: &()) -> Cow<'_, str> {
            "v1".into()
        }

        fn plural(_: &()) -> Cow<'_, str> {
            "configmaps".into()
        }

        fn meta(&self) -> &ObjectMeta {
            &self.metadata
        }

        fn meta_mut(&mut self) -> &mut ObjectMeta {
            &mut self.metadata
        }
    }

    /// The fields of our `ObjectMeta`.
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        name: Option<String>,
        namespace: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        labels: Option<BTreeMap<String, String>>,
    }

    fn same_fields<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
        let metadata = Metadata::deserialize(deserializer)?;
        Ok(ObjectMeta {
            name: metadata.name,
            namespace: metadata.namespace,
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            labels: metadata.labels,
            ..ObjectMeta::default()
        })
    }
}
