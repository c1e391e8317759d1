//! Connections to the server through a tunnel of a proxy.

use k8s_informer::reflector::ReflectorState;
use k8s_informer::{Client, Config, SharedInformerFactory};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use crate::cluster::{BOTH, on_every_cluster};
use crate::proxy::{Protocol, Proxy};
use crate::support::{free_port, shut_down, synced, wait_until};

#[test]
fn informer_survives_loss_of_tunnels_and_proxy() {
    on_every_cluster(BOTH, |cluster| {
        for protocol in [Protocol::Connect, Protocol::Socks] {
            let namespace = cluster.namespace("tunnel");
            for n in 0..5 {
                namespace.create(&format!("map-{n}"), json!({}));
            }
            let port = free_port();
            let url = format!("{}://127.0.0.1:{port}", protocol.scheme());
            let proxy = Proxy::with_protocol(protocol, port);
            let config = Config::from_kubeconfig(&cluster.kubeconfigs()[0], None).unwrap();
            let factory = SharedInformerFactory::with_options(
                Client::new(config.proxy_url(&url)).unwrap(),
                cluster.factory_options().namespace(&namespace.name),
            );
            let maps = factory.informer::<ConfigMap>();
            let follower = synced(&factory, &maps);
            let wait_until_equal = || {
                let truth = cluster.versions(&namespace);
                follower.wait("the follower equals the state of the server", |known| {
                    known.versions == truth
                });
                assert_eq!(follower.known().problems, [""; 0]);
            };
            namespace.patch("map-0", &json!({ "data": { "round": "1" } }));
            wait_until_equal();
            assert!(
                (1..=2).contains(&proxy.connections()),
                "{} tunnels",
                proxy.connections()
            );

            proxy.cut();
            namespace.create("after-a-cut", json!({}));
            wait_until_equal();
            proxy.reset();
            namespace.create("after-a-reset", json!({}));
            wait_until_equal();

            drop(proxy);
            let error = wait_until("the status has the refused connection", || {
                maps.status()
                    .last_error
                    .filter(|error| error.is_connection_refused())
            });
            assert!(
                error
                    .to_string()
                    .contains(&format!("the proxy {url}: connect to ")),
                "{error}"
            );
            namespace.delete("map-1");
            namespace.create("while-it-was-away", json!({}));
            let proxy = Proxy::with_protocol(protocol, port);
            wait_until_equal();
            wait_until("the informer watches", || {
                (maps.status().state == ReflectorState::Watching).then_some(())
            });
            shut_down(&factory, "with a watch in a tunnel");
            drop(proxy);
        }
    });
}
