//! The real API servers that the tests start, with a kubeconfig for each form of credentials.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::process::Command;
use std::sync::{Arc, OnceLock};

use k8s_informer::client::Request;
use k8s_informer::{Client, Config, Stop};
use k8s_informer_testing::RealApiServer;
use k8s_openapi::ByteString;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose};
use serde_json::{Value, json};

use crate::cluster::assert_expected_version;

/// Returns the server that all tests of the process share, and may pause. The first call starts it.
pub(crate) fn shared() -> Arc<RealApiServer> {
    static SHARED: OnceLock<Arc<RealApiServer>> = OnceLock::new();
    let shared = SHARED.get_or_init(|| start(None).unwrap());
    // A test may have failed while the server was down.
    shared.resume().unwrap();
    Arc::clone(shared)
}

/// Starts a server with a feature gate.
pub(crate) fn start(gate: Option<&str>) -> io::Result<Arc<RealApiServer>> {
    let [admin, nobody] =
        ["admin", "nobody"].map(|user| format!("{user}-{:x}", RandomState::new().hash_one(0)));
    let mut builder = RealApiServer::builder()
        .apiserver_flag(
            "client-ca-file",
            concat!(env!("CARGO_MANIFEST_DIR"), "/../client/keys/ec.ca.crt"),
        )
        .token(&admin)
        .token_without_rights(&nobody, "token-nobody");
    if let Some(gate) = gate {
        builder = builder.apiserver_flag("feature-gates", gate);
    }
    let server = builder.start()?;
    write_kubeconfigs(&server, &admin, &nobody);
    assert_expected_version(server.client());
    Ok(Arc::new(server))
}

/// Deletes an object of the core group from etcd by its path.
pub(crate) fn delete_from_etcd(server: &RealApiServer, path: &str) {
    let key = path.replace("/api/v1/namespaces/", "/registry/");
    let (namespace, rest) = key["/registry/".len()..].split_once('/').unwrap();
    let (resource, name) = rest.split_once('/').unwrap();
    let key = ByteString(format!("/registry/{resource}/{namespace}/{name}").into_bytes());
    let deleted = etcd(server, "/v3/kv/deleterange", json!({ "key": key }));
    assert_eq!(deleted["deleted"], "1", "{path}");
}

/// Compacts etcd at its current revision.
pub(crate) fn compact(server: &RealApiServer) {
    // Each response contains the revision, so any key works.
    let any = json!({ "key": ByteString(b"x".to_vec()) });
    let revision = etcd(server, "/v3/kv/range", any)["header"]["revision"].clone();
    let compaction = json!({ "revision": revision, "physical": true });
    etcd(server, "/v3/kv/compaction", compaction);
}

fn etcd(server: &RealApiServer, path: &str, body: Value) -> Value {
    let client = Client::new(Config::new(server.etcd_url())).unwrap();
    let request = Request::post(path).json(&body).unwrap();
    let response = client.request(&request, &Stop::never()).unwrap();
    response.json().unwrap()
}

/// Copies etcd's data.
pub(crate) fn backup(server: &RealApiServer) {
    copy_data(server, "etcd-data", "etcd-backup");
}

/// Replaces etcd's data with the copy.
pub(crate) fn restore(server: &RealApiServer) {
    copy_data(server, "etcd-backup", "etcd-data");
}

fn copy_data(server: &RealApiServer, from: &str, to: &str) {
    server.pause();
    server.pause_etcd();
    let [from, to] = [from, to].map(|name| server.folder().join(name));
    let _ = fs::remove_dir_all(&to);
    let copied = Command::new("cp").arg("-r").args([from, to]).status();
    assert!(copied.unwrap().success());
    server.resume().unwrap();
}

/// Writes a kubeconfig for every form of credentials, like `up` of the shared scripts.
fn write_kubeconfigs(server: &RealApiServer, admin: &str, nobody: &str) {
    let write = |name: &str, text: &str| fs::write(server.folder().join(name), text).unwrap();
    // JSON is valid YAML. The paths are relative to the file.
    let kubeconfig = |name: &str, user: Value| {
        let text = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "loopback", "cluster": {
                "server": server.client().server(), "certificate-authority": "apiserver.crt",
            } }],
            "users": [{ "name": "user", "user": user }],
            "contexts": [{ "name": "test", "context": { "cluster": "loopback", "user": "user" } }],
            "current-context": "test",
        });
        write(&format!("kubeconfig{name}"), &text.to_string());
    };
    // The crypto provider cannot generate RSA keys, so use the key files of the client tests.
    let rsa = include_str!("../../client/keys/rsa.pkcs8.pem");
    let ec = include_str!("../../client/keys/ec.pkcs8.pem");
    // The subject and the key of the flag `client-ca-file`.
    let mut ca = CertificateParams::default();
    ca.distinguished_name = Default::default();
    ca.distinguished_name
        .push(DnType::CommonName, "loopback-test-ca");
    let issuer = Issuer::new(ca, KeyPair::from_pem(ec).unwrap());
    for (name, key, written) in [
        ("", rsa, rsa),
        (
            "-pkcs1",
            rsa,
            include_str!("../../client/keys/rsa.pkcs1.pem"),
        ),
        ("-ec", ec, ec),
        (
            "-ec-sec1",
            ec,
            include_str!("../../client/keys/ec.sec1.pem"),
        ),
    ] {
        let mut params = CertificateParams::default();
        let subject = &mut params.distinguished_name;
        subject.push(DnType::OrganizationName, "system:masters");
        subject.push(DnType::CommonName, "admin");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::from_pem(key).unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap();
        write(&format!("admin{name}.crt"), &certificate.pem());
        write(&format!("admin{name}.key"), written);
        let user = json!({
            "client-certificate": format!("admin{name}.crt"),
            "client-key": format!("admin{name}.key"),
        });
        kubeconfig(name, user);
    }
    kubeconfig("-token", json!({ "token": admin }));
    kubeconfig("-nobody", json!({ "token": nobody }));
}
