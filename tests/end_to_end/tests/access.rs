//! Access to the server with the credentials of each kubeconfig.

use k8s_informer::informer::FactoryOptions;
use k8s_informer::reflector::ReflectorState;
use k8s_informer::{Client, Config, SharedInformerFactory, Stopper};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use crate::cluster::{BOTH, ListMethod, on_every_cluster};
use crate::support::{shut_down, wait_until};

#[test]
fn informer_syncs_with_each_kubeconfig_of_the_cluster() {
    on_every_cluster(BOTH, |cluster| {
        let namespace = cluster.namespace("access");
        namespace.create("here", json!({}));
        for path in cluster.kubeconfigs() {
            let client = Client::new(Config::from_kubeconfig(&path, None).unwrap()).unwrap();
            let factory = SharedInformerFactory::with_options(
                client,
                FactoryOptions::new().namespace(&namespace.name),
            );
            let maps = factory.informer::<ConfigMap>();
            let stop = Stopper::new();
            factory.start(&stop).unwrap();
            factory
                .wait_for_cache_sync(None, &stop)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            assert!(
                maps.lister().get(&namespace.name, "here").is_some(),
                "{}",
                path.display()
            );
            shut_down(&factory, &path.file_name().unwrap().to_string_lossy());
        }
    });
}

#[test]
fn forbidden_informer_reports_the_error_and_retries() {
    on_every_cluster(BOTH, |cluster| {
        let Some(path) = cluster.unprivileged_kubeconfig() else {
            return println!("skipped: there is no kubeconfig-nobody");
        };
        let client = Client::new(Config::from_kubeconfig(path, None).unwrap()).unwrap();
        let factory = SharedInformerFactory::with_options(
            client,
            cluster.factory_options().namespace("default"),
        );
        let maps = factory.informer::<ConfigMap>();
        let stop = Stopper::new();
        factory.start(&stop).unwrap();
        let error = wait_until("the informer has retried", || {
            let status = maps.status();
            status
                .last_error
                .filter(|_| status.lists >= 4 && status.state == ReflectorState::BackingOff)
        });
        assert!(error.is_forbidden() && !error.is_retryable(), "{error:?}");
        let path = format!("{}/api/v1/namespaces/default/configmaps", cluster.url());
        assert_eq!(
            error.to_string(),
            format!(
                "list configmaps in namespace \"default\": GET {path}: configmaps is forbidden: User \"token-nobody\" cannot \
                 list resource \"configmaps\" in API group \"\" in the namespace \"default\" (403 Forbidden)"
            )
        );
        let status = maps.status();
        assert!(
            !maps.has_synced() && !status.listed && status.resource_version.is_none(),
            "{status:?}"
        );
        // If a watch-list is forbidden, the cycle also tries a LIST, because a server without
        // watch-lists may answer "forbidden".
        assert_eq!(
            status.watches == 0,
            cluster.list_method == ListMethod::List,
            "{status:?}"
        );
        assert!(maps.lister().list().is_empty());

        // The error of `wait_for_cache_sync` names the informer that has not synced, and the
        // reason.
        let unsynced = std::thread::scope(|scope| {
            let waiter = scope.spawn(|| factory.wait_for_cache_sync(None, &stop));
            wait_until("the informer backs off", || {
                (maps.status().state == ReflectorState::BackingOff).then_some(())
            });
            stop.stop();
            waiter.join().unwrap().unwrap_err()
        });
        assert_eq!(
            unsynced.to_string(),
            format!("stopped before syncing: configmaps in namespace \"default\" ({error})")
        );
        shut_down(&factory, "after forbidden requests");
    });
}
