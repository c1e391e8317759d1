//! A minimal agent with an informer. It prints the changes of the ConfigMaps of a namespace. Compare
//! `../kube` and `../go`.
//!
//! ```text
//! ours [--one-thread] [URL]    URL of a server without TLS; default: the cluster of the Pod
//! ```

use std::error::Error;

use k8s_informer::informer::{InformerScope, Source};
use k8s_informer::{Client, Config, Object, SharedInformerFactory, Stop};

#[cfg(not(feature = "openapi"))]
use custom::ConfigMap;
#[cfg(feature = "openapi")]
use k8s_openapi::api::core::v1::ConfigMap;

fn main() -> Result<(), Box<dyn Error>> {
    let (one_thread, urls): (Vec<_>, Vec<_>) =
        std::env::args().skip(1).partition(|a| a == "--one-thread");
    let config = match urls.first() {
        Some(url) => Config::new(url),
        None => Config::try_default()?,
    };
    #[cfg(feature = "signals")]
    let stop = Stop::on_signals()?;
    #[cfg(not(feature = "signals"))]
    let stop = Stop::never();

    let scope = InformerScope::all().namespace("default");
    let factory = SharedInformerFactory::new(Client::new(config)?);
    let maps = factory
        .observe(Source::of::<ConfigMap>().scope(scope))
        .on_added(|map| println!("+ {} {}", map.name(), keys(map)))
        .on_modified(|_, map| println!("~ {} {}", map.name(), keys(map)))
        .on_deleted(|map| println!("- {}", map.name()))
        .one_thread(!one_thread.is_empty())
        .start()?;
    maps.wait_for_sync(None, &stop)?;
    println!("synced {}", maps.lister().list().len());
    stop.wait();
    Ok(())
}

fn keys(map: &ConfigMap) -> usize {
    map.data.as_ref().map_or(0, |data| data.len())
}

#[cfg(not(feature = "openapi"))]
mod custom {
    use std::collections::BTreeMap;

    use k8s_informer::{ObjectMeta, impl_object};
    use serde::Deserialize;

    #[derive(Deserialize)]
    pub(crate) struct ConfigMap {
        metadata: ObjectMeta,
        pub(crate) data: Option<BTreeMap<String, String>>,
    }

    impl_object!(ConfigMap, "v1", "ConfigMap", "configmaps", Namespaced);
}
