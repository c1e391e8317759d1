//! A minimal program with an informer. It prints the changes of Pods. Compare `../kube`.

use std::error::Error;

use k8s_informer::{Client, Object, SharedInformerFactory, Stop};

#[cfg(feature = "openapi")]
use k8s_openapi::api::core::v1::Pod;
#[cfg(not(feature = "openapi"))]
use custom::Pod;

fn main() -> Result<(), Box<dyn Error>> {
    let factory = SharedInformerFactory::builder(Client::try_default()?).build();
    let pods = factory.informer::<Pod>();
    pods.add_event_handler(|handler| {
        handler
            .on_add(|pod, _| println!("+ {} {}", pod.name(), node(pod)))
            .on_update(|_, pod| println!("~ {} {}", pod.name(), node(pod)))
            .on_delete(|pod| println!("- {}", pod.name()))
    })?;
    let stop = Stop::new();
    factory.start(&stop)?;
    factory.wait_for_cache_sync(&stop)?;
    println!("{} Pods", pods.lister().list().len());
    stop.wait();
    Ok(())
}

fn node(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

#[cfg(not(feature = "openapi"))]
mod custom {
    use k8s_informer::{ObjectMeta, impl_object};
    use serde::Deserialize;

    #[derive(Deserialize)]
    pub(crate) struct Pod {
        metadata: ObjectMeta,
        pub(crate) spec: Option<Spec>,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub(crate) struct Spec {
        pub(crate) node_name: Option<String>,
    }

    impl_object!(Pod, "v1", "Pod", "pods", Namespaced);
}
