//! A minimal program with an informer. It prints the changes of Pods. Compare `../ours`.

use std::error::Error;

use futures::{StreamExt, pin_mut};
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher::{Config, Event};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};

#[cfg(feature = "openapi")]
use k8s_openapi::api::core::v1::Pod;
#[cfg(not(feature = "openapi"))]
use custom::Pod;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    #[cfg(feature = "openapi")]
    let r#type = ();
    #[cfg(not(feature = "openapi"))]
    let r#type = kube::core::ApiResource::erase::<k8s_openapi::api::core::v1::Pod>(&());
    let api = Api::<Pod>::all_with(Client::try_default().await?, &r#type);
    let writer = Writer::new(r#type);
    let reader = writer.as_reader();
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

fn node(pod: &Pod) -> &str {
    #[cfg(feature = "openapi")]
    let spec = pod.spec.as_ref();
    #[cfg(not(feature = "openapi"))]
    let spec = Some(&pod.spec);
    spec.and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

/// The kube-rs form of a custom struct: an object of a type that is named at run time.
#[cfg(not(feature = "openapi"))]
mod custom {
    use kube::core::{NotUsed, Object};
    use serde::Deserialize;

    pub(crate) type Pod = Object<Spec, NotUsed>;

    #[derive(Clone, Debug, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub(crate) struct Spec {
        pub(crate) node_name: Option<String>,
    }
}
