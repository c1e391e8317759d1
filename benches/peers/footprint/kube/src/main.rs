//! Says what happens to Pods: the least that a program with an informer is. Compare `../ours`.

use std::error::Error;

use futures::{StreamExt, pin_mut};
use kube::runtime::watcher::{Config, Event};
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, Client, ResourceExt};

#[cfg(feature = "openapi")]
use k8s_openapi::api::core::v1::Pod;
#[cfg(not(feature = "openapi"))]
use own::Pod;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let api = api(Client::try_default().await?);
    let (reader, writer) = writer();
    let stream = watcher(api, Config::default()).default_backoff().reflect(writer);
    pin_mut!(stream);
    while let Some(event) = stream.next().await {
        match event {
            Ok(Event::InitApply(pod)) => println!("+ {} {}", pod.name_any(), node(&pod)),
            Ok(Event::Apply(pod)) => println!("~ {} {}", pod.name_any(), node(&pod)),
            Ok(Event::Delete(pod)) => println!("- {}", pod.name_any()),
            Ok(Event::InitDone) => println!("{} Pods", reader.len()),
            Ok(Event::Init) => {}
            Err(error) => eprintln!("{error}"),
        }
    }
    Ok(())
}

#[cfg(feature = "openapi")]
fn api(client: Client) -> Api<Pod> {
    Api::all(client)
}

#[cfg(feature = "openapi")]
fn writer() -> (reflector::Store<Pod>, reflector::store::Writer<Pod>) {
    reflector::store()
}

#[cfg(feature = "openapi")]
fn node(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

#[cfg(not(feature = "openapi"))]
use own::{api, node, writer};

/// As kube-rs has it for a struct of one's own: an object of a type that is named at run time.
#[cfg(not(feature = "openapi"))]
mod own {
    use kube::core::{ApiResource, NotUsed, Object};
    use kube::runtime::reflector::{Store, store::Writer};
    use kube::{Api, Client};
    use serde::Deserialize;

    pub(crate) type Pod = Object<Spec, NotUsed>;

    #[derive(Clone, Debug, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub(crate) struct Spec {
        pub(crate) node_name: Option<String>,
    }

    fn pods() -> ApiResource {
        ApiResource::erase::<k8s_openapi::api::core::v1::Pod>(&())
    }

    pub(crate) fn api(client: Client) -> Api<Pod> {
        Api::all_with(client, &pods())
    }

    pub(crate) fn writer() -> (Store<Pod>, Writer<Pod>) {
        let writer = Writer::new(pods());
        (writer.as_reader(), writer)
    }

    pub(crate) fn node(pod: &Pod) -> &str {
        pod.spec.node_name.as_deref().unwrap_or_default()
    }
}
