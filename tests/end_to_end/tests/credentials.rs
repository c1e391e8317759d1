//! Credentials that change while informers run.

use std::fs;

use k8s_informer::client::Impersonation;
use k8s_informer::reflector::ReflectorState;
use k8s_informer::{Client, Config, SharedIndexInformer, SharedInformerFactory, Stopper};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};

use crate::account::Account;
use crate::cluster::{BOTH, Cluster, on_every_cluster};
#[cfg(unix)]
use crate::script::{FUTURE, PAST, Plugin};
use crate::support::{Folder, shut_down, synced, wait_until};

/// Creates an informer of the ConfigMaps in a namespace. Does not start it.
fn informer(
    cluster: &Cluster,
    client: &Client,
    namespace: &str,
) -> (SharedInformerFactory, SharedIndexInformer<ConfigMap>) {
    let options = cluster.factory_options().namespace(namespace);
    let factory = SharedInformerFactory::with_options(client.clone(), options);
    let maps = factory.informer();
    (factory, maps)
}

#[test]
fn token_file_rotation_does_not_break_a_watch() {
    on_every_cluster(BOTH, |cluster| {
        let namespace = cluster.namespace("token-file");
        let Some(account) = Account::new(cluster, &namespace) else {
            return println!("skipped: there is no kubeconfig-nobody");
        };
        let (folder, stop) = (Folder::new(), Stopper::new());
        let first = account.token();
        let file = folder.write("token", &first.text);
        let client = Client::new(account.config().token_file(&file)).unwrap();
        let (factory, maps) = informer(cluster, &client, &namespace.name);
        let follower = synced(&factory, &maps);
        namespace.create("one", json!({}));
        follower.wait_for_events(&["+one"]);

        // The new token exists before the old one expires, as with a kubelet.
        let second = account.token();
        fs::write(&file, &second.text).unwrap();
        account.revoke(&first);
        let api = client.api::<ConfigMap>(Some(&namespace.name));
        api.get("one", &stop).unwrap();
        // The watch continues.
        namespace.create("two", json!({}));
        follower.wait_for_events(&["+one", "+two"]);
        assert_eq!(maps.status().failures, 0);

        // If the new token comes too late, requests fail until it exists.
        account.revoke(&second);
        let error = wait_until("the server rejects the revoked token", || {
            api.get("one", &stop).err()
        });
        assert!(error.is_unauthorized(), "{error}");
        assert!(!error.to_string().contains(&second.text));
        fs::write(&file, account.token().text).unwrap();
        api.get("one", &stop).unwrap();
        namespace.create("three", json!({}));
        follower.wait_for_events(&["+one", "+two", "+three"]);
        shut_down(&factory, "with its third token");
    });
}

/// Returns the data at `pointer` of the admin's kubeconfig, inline or from a file.
fn data(cluster: &Cluster, pointer: &str) -> Option<Vec<u8>> {
    let path = &cluster.kubeconfigs()[0];
    let kubeconfig: Value = serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    if let Some(data) = kubeconfig.pointer(&format!("{pointer}-data")) {
        let ByteString(bytes) = serde_json::from_value(data.clone()).unwrap();
        return Some(bytes);
    }
    Some(fs::read(path.with_file_name(kubeconfig.pointer(pointer)?.as_str()?)).unwrap())
}

#[test]
fn ca_file_rotation_does_not_break_a_watch() {
    on_every_cluster(BOTH, |cluster| {
        if cluster.url().starts_with("http://") {
            return println!("skipped: {} has no TLS", cluster.url());
        }
        // The client reads its CA from a file that this test replaces. `ca` is the server's real
        // CA.
        let ca = data(cluster, "/clusters/0/cluster/certificate-authority").unwrap();
        let key = KeyPair::generate().unwrap();
        let stranger = CertificateParams::new(vec!["stranger".to_owned()])
            .unwrap()
            .self_signed(&key)
            .unwrap();

        let (folder, stop) = (Folder::new(), Stopper::new());
        let file = folder.write("ca.crt", stranger.pem());
        let config = Config::from_kubeconfig(&cluster.kubeconfigs()[0], None)
            .unwrap()
            .ca_file(&file);
        let client = Client::new(config).unwrap();
        let namespace = cluster.namespace("ca-file");
        let (factory, maps) = informer(cluster, &client, &namespace.name);
        factory.start(&stop).unwrap();
        let error = wait_until("the informer rejects the certificate of the server", || {
            maps.status()
                .last_error
                .filter(|_| maps.status().state == ReflectorState::BackingOff)
        });
        assert!(error.is_tls(), "{error}");
        fs::write(&file, &ca).unwrap();
        let follower = synced(&factory, &maps);
        // The event shows that the watch is open.
        namespace.create("zero", json!({}));
        follower.wait_for_events(&["+zero"]);

        // Open connections stay open. New connections use the new CA.
        fs::write(&file, stranger.pem()).unwrap();
        let api = client.api::<ConfigMap>(Some(&namespace.name));
        assert!(api.get("one", &stop).unwrap_err().is_tls());
        namespace.create("one", json!({}));
        follower.wait_for_events(&["+zero", "+one"]);
        // An incomplete file is ignored. The previous CA stays in use.
        fs::write(&file, &ca).unwrap();
        api.get("one", &stop).unwrap();
        fs::write(&file, &ca[..ca.len() / 2]).unwrap();
        api.get("one", &stop).unwrap();
        shut_down(&factory, "with its third CA file");
    });
}

#[test]
fn impersonated_user_rights_apply_and_errors_name_the_user() {
    on_every_cluster(BOTH, |cluster| {
        let stop = Stopper::new();
        let config = || Config::from_kubeconfig(&cluster.kubeconfigs()[0], None).unwrap();
        let jane = Impersonation::user("jane")
            .uid("42")
            .group("developers")
            .extra("example.com/team", "sky");
        let client = Client::new(config().impersonate(jane)).unwrap();
        let error = client
            .api::<ConfigMap>(Some("default"))
            .get("settings", &stop)
            .unwrap_err();
        assert!(error.is_forbidden(), "{error}");
        assert_eq!(
            error.to_string(),
            format!(
                "get configmaps \"settings\" in namespace \"default\": GET {}/api/v1/namespaces/default/configmaps/settings: \
                 configmaps \"settings\" is forbidden: User \"jane\" cannot get resource \"configmaps\" in API group \"\" \
                 in the namespace \"default\" (403 Forbidden)",
                cluster.url()
            )
        );
        // The informer reports the same error.
        let (factory, maps) = informer(cluster, &client, "default");
        factory.start(&stop).unwrap();
        let error = wait_until("the request is rejected", || maps.status().last_error);
        assert!(
            error.to_string().contains("User \"jane\" cannot "),
            "{error}"
        );
        shut_down(&factory, "after forbidden requests");

        let root = Impersonation::user("root-for-a-day").group("system:masters");
        let client = Client::new(config().impersonate(root)).unwrap();
        let error = client
            .api::<ConfigMap>(Some("default"))
            .get("nothing-of-this-name", &stop)
            .unwrap_err();
        assert!(error.is_not_found(), "{error}");
    });
}

#[cfg(unix)]
#[test]
fn plugin_token_expiry_does_not_break_a_watch() {
    on_every_cluster(BOTH, |cluster| {
        let namespace = cluster.namespace("exec-token");
        let Some(account) = Account::new(cluster, &namespace) else {
            return println!("skipped: there is no kubeconfig-nobody");
        };
        let (plugin, stop) = (Plugin::new("e2e-exec-token"), Stopper::new());
        let first = account.token();
        plugin.set_credential(&json!({"token": first.text, "expirationTimestamp": PAST}));
        let client = Client::new(account.config().exec(plugin.config())).unwrap();
        let (factory, maps) = informer(cluster, &client, &namespace.name);
        let follower = synced(&factory, &maps);
        // The first token is already expired when the plugin returns it, so the client runs the
        // plugin again for the next request.
        let second = account.token();
        plugin.set_credential(&json!({"token": second.text, "expirationTimestamp": FUTURE}));
        account.revoke(&first);
        let api = client.api::<ConfigMap>(Some(&namespace.name));
        namespace.create("one", json!({}));
        follower.wait_for_events(&["+one"]);
        api.get("one", &stop).unwrap();
        let runs = plugin.runs();
        api.get("one", &stop).unwrap();
        assert_eq!(
            plugin.runs(),
            runs,
            "a token with a later expiry must be cached"
        );

        // The server revokes the second token before it expires. The client runs the plugin again,
        // and the informer sees no failure.
        let third = account.token();
        plugin.set_credential(&json!({"token": third.text, "expirationTimestamp": FUTURE}));
        account.revoke(&second);
        wait_until("the plugin runs again after a 401", || {
            api.get("one", &stop).unwrap();
            (plugin.runs() > runs).then_some(())
        });
        assert_eq!(plugin.runs(), runs + 1);
        namespace.create("two", json!({}));
        follower.wait_for_events(&["+one", "+two"]);
        assert_eq!(maps.status().failures, 0);
        shut_down(&factory, "with the third token of a plugin");
    });
}

#[cfg(unix)]
#[test]
fn failing_plugin_is_reported_and_informer_recovers() {
    on_every_cluster(BOTH, |cluster| {
        let namespace = cluster.namespace("exec-fails");
        let Some(account) = Account::new(cluster, &namespace) else {
            return println!("skipped: there is no kubeconfig-nobody");
        };
        // The plugin has no credential yet.
        let (plugin, stop) = (Plugin::new("e2e-exec-fails"), Stopper::new());
        let client = Client::new(account.config().exec(plugin.config())).unwrap();
        let (factory, maps) = informer(cluster, &client, &namespace.name);
        factory.start(&stop).unwrap();
        let error = wait_until("the informer has retried", || {
            maps.status()
                .last_error
                .filter(|_| plugin.runs() >= 3 && !maps.has_synced())
        });
        assert!(
            error.is_credentials() && error.to_string().ends_with("failed with exit code 1"),
            "{error}"
        );

        let token = account.token();
        plugin.set_credential(&json!({"token": token.text, "expirationTimestamp": PAST}));
        let follower = synced(&factory, &maps);
        namespace.create("one", json!({}));
        follower.wait_for_events(&["+one"]);
        // The open watch continues, although its credential has expired and the plugin fails again.
        fs::remove_file(plugin.credential_file()).unwrap();
        namespace.create("two", json!({}));
        follower.wait_for_events(&["+one", "+two"]);
        shut_down(&factory, "with a plugin that fails");
    });
}

#[cfg(unix)]
#[test]
fn plugin_certificate_renewal_does_not_break_a_watch() {
    on_every_cluster(BOTH, |cluster| {
        let part = |name: &str| data(cluster, &format!("/users/0/user/{name}"));
        let (Some(chain), Some(key)) = (part("client-certificate"), part("client-key")) else {
            return println!("skipped: the kubeconfig has no client certificate");
        };
        let namespace = cluster.namespace("exec-certificate");
        let Some(account) = Account::new(cluster, &namespace) else {
            return println!("skipped: there is no kubeconfig-nobody");
        };
        let (plugin, stop) = (Plugin::new("e2e-exec-certificate"), Stopper::new());
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let (chain, key) = (text(chain), text(key));
        let identity = |chain: &str, expires: &str| json!({"clientCertificateData": chain, "clientKeyData": key, "expirationTimestamp": expires});
        plugin.set_credential(&identity(&chain, PAST));
        let client = Client::new(account.config().exec(plugin.config())).unwrap();
        let (factory, maps) = informer(cluster, &client, &namespace.name);
        let follower = synced(&factory, &maps);
        // The same certificate with different bytes causes a new connection.
        plugin.set_credential(&identity(&format!("{chain}\n"), FUTURE));
        let api = client.api::<ConfigMap>(Some(&namespace.name));
        namespace.create("one", json!({}));
        follower.wait_for_events(&["+one"]);
        api.get("one", &stop).unwrap();
        let runs = plugin.runs();
        api.get("one", &stop).unwrap();
        assert_eq!(plugin.runs(), runs);
        // The server rejects a certificate from an unknown CA.
        let key = KeyPair::generate().unwrap();
        let stranger = CertificateParams::new(Vec::new())
            .unwrap()
            .self_signed(&key)
            .unwrap();
        plugin.set_credential(
            &json!({"clientCertificateData": stranger.pem(), "clientKeyData": key.serialize_pem()}),
        );
        let client = Client::new(account.config().exec(plugin.config())).unwrap();
        let error = client
            .api::<ConfigMap>(Some(&namespace.name))
            .get("one", &stop)
            .unwrap_err();
        assert!(error.is_unauthorized(), "{error}");
        plugin.set_credential(&identity(&chain, FUTURE));
        client
            .api::<ConfigMap>(Some(&namespace.name))
            .get("one", &stop)
            .unwrap();
        shut_down(&factory, "with the certificate of a plugin");
    });
}
