//! The errors of wrong configurations.

use k8s_informer::reflector::ReflectorState;
use k8s_informer::{Client, Config, Error, SharedInformerFactory, Stop};
use k8s_openapi::api::core::v1::ConfigMap;
use rcgen::{CertificateParams, KeyPair};

use crate::cluster::{BOTH, Cluster, ListMethod, on_every_cluster};
use crate::support::{Folder, free_port, shut_down, wait_until};

/// Runs an informer with this configuration and returns the error in its status while it retries.
fn observed_error(cluster: &Cluster, config: Config) -> Error {
    let factory = SharedInformerFactory::with_options(
        Client::new(config).unwrap(),
        cluster.factory_options().namespace("default"),
    );
    let maps = factory.informer::<ConfigMap>();
    factory.start(&Stop::never()).unwrap();
    let error = wait_until("the informer has retried", || {
        let status = maps.status();
        let tries = status.lists.max(status.watches);
        status
            .last_error
            .filter(|_| tries >= 3 && status.state == ReflectorState::BackingOff)
    });
    println!("  {error}");
    assert!(!maps.has_synced());
    // If the server is unreachable, the reflector retries the watch-list and sends no LIST.
    let is_watch =
        cluster.list_method == ListMethod::WatchList && error.is_connection() && !error.is_tls();
    let verb = if is_watch { "watch" } else { "list" };
    assert!(
        error
            .to_string()
            .starts_with(&format!("{verb} configmaps in namespace \"default\": GET ")),
        "{error}"
    );
    shut_down(&factory, "with a wrong configuration");
    error
}

#[test]
fn untrusted_certificates_are_tls_or_auth_errors() {
    on_every_cluster(BOTH, |cluster| {
        let key = KeyPair::generate().unwrap();
        let stranger = CertificateParams::new(vec!["stranger".to_owned()])
            .unwrap()
            .self_signed(&key)
            .unwrap();
        let config = Config::from_kubeconfig(&cluster.kubeconfigs()[0], None).unwrap();
        let error = match cluster.url().strip_prefix("http://") {
            None => {
                let error = observed_error(cluster, config.ca_pem(stranger.pem()));
                assert!(
                    error
                        .to_string()
                        .contains("not signed by a trusted authority"),
                    "{error}"
                );
                // An unknown client certificate is unauthorized.
                let untrusted_key = KeyPair::generate().unwrap();
                let untrusted = CertificateParams::new(Vec::new())
                    .unwrap()
                    .self_signed(&untrusted_key)
                    .unwrap();
                let config = Config::from_kubeconfig(&cluster.kubeconfigs()[0], None).unwrap();
                let config =
                    config.client_certificate_pem(untrusted.pem(), untrusted_key.serialize_pem());
                let refused = observed_error(cluster, config);
                assert!(refused.is_unauthorized(), "{refused:?}");
                error
            }
            // The embedded server has no TLS, so HTTPS fails before the CA matters.
            Some(address) => observed_error(
                cluster,
                Config::new(format!("https://{address}")).ca_pem(stranger.pem()),
            ),
        };
        assert!(error.is_tls() && error.is_connection(), "{error:?}");
        assert!(
            error
                .to_string()
                .contains(&cluster.url().replace("http:", "https:")),
            "{error}"
        );
    });
}

#[test]
fn unknown_token_is_unauthorized() {
    on_every_cluster(BOTH, |cluster| {
        let path = cluster
            .kubeconfigs()
            .into_iter()
            .find(|path| path.ends_with("kubeconfig-token"));
        let Some(path) = path else {
            return println!("skipped: there is no kubeconfig-token");
        };
        let error = observed_error(
            cluster,
            Config::from_kubeconfig(path, None).unwrap().token("s3cret"),
        );
        assert!(error.is_unauthorized(), "{error:?}");
        assert!(!format!("{error} {error:?}").contains("s3cret"));
    });
}

#[test]
fn refused_connection_names_the_address() {
    on_every_cluster(BOTH, |cluster| {
        let url = format!("http://127.0.0.1:{}", free_port());
        let error = observed_error(cluster, Config::new(&url));
        assert!(
            error.is_connection_refused() && error.to_string().contains(&url),
            "{error:?}"
        );
    });
}

#[test]
fn unreadable_kubeconfigs_are_config_errors() {
    let folder = Folder::new();
    let missing = folder.path().join("missing");
    let cluster =
        "clusters: [{name: a, cluster: {server: 'https://a', certificate-authority-data: '%%%'}}]";
    let context = "contexts: [{name: a, context: {cluster: a, user: a}}]\ncurrent-context: a";
    for (path, expected) in [
        (missing, "there is no such file"),
        (folder.path().to_owned(), "directory"),
        (folder.write("binary", b"\xff\xfe\x00"), "no valid UTF-16"),
        (
            folder.write("garbled", "clusters: [{name: a,\n  s3cret: ]]\n"),
            "line ",
        ),
        (
            folder.write("other-form", "clusters: {s3cret: 7}"),
            "line 1",
        ),
        (
            folder.write("pod", "apiVersion: v1\nkind: Pod"),
            "kind is not Config",
        ),
        (folder.write("empty", ""), "no current-context"),
        (folder.write("no-cluster", context), "cluster"),
        (
            folder.write(
                "no-user",
                format!("clusters: [{{name: a, cluster: {{server: 'https://a'}}}}]\n{context}"),
            ),
            "user",
        ),
        (
            folder.write(
                "base64",
                format!("{cluster}\nusers: [{{name: a, user: {{}}}}]\n{context}"),
            ),
            "certificate-authority-data of cluster \"a\" is not base64",
        ),
    ] {
        let error = Config::from_kubeconfig(&path, None).unwrap_err();
        println!("  {error}");
        let text = error.to_string();
        assert!(error.is_config() && !error.is_retryable(), "{error:?}");
        assert!(
            text.contains(&path.display().to_string()),
            "the error must name the file: {text}"
        );
        assert!(
            text.contains(expected),
            "the error must name the cause: {text}"
        );
        assert!(!text.contains("s3cret"), "{text}");
    }
}
