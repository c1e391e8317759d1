//! Requests with the credentials of an exec plugin.

use std::fs;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, SystemTime};

use k8s_informer::client::{ExecConfig, Request};
use k8s_informer::metrics::ClientMetrics;
use k8s_informer::{Client, Config, Error, Stop};
use rcgen::PKCS_ECDSA_P256_SHA256;
use serde_json::json;

use super::folder::Folder;
use super::script::{FUTURE, PAST, Plugin};
use super::server::{Reply, Server, reply};
use super::tls::Authority;

fn get(client: &Client) -> Result<Vec<u8>, Error> {
    client
        .request(&Request::get("/version"), &Stop::never())?
        .bytes()
}

#[test]
fn plugin_token_is_reused_until_expired_or_rejected() {
    let plugin = Plugin::new("plugin-token");
    let server = Server::start(|request| match request.contains("Bearer good") {
        true => Reply::Write(reply("200 OK", "", "{}")),
        false => Reply::Write(reply("401 Unauthorized", "", "{}")),
    });
    let client = Client::new(Config::new(server.url()).exec(plugin.config())).unwrap();
    assert_eq!(plugin.runs(), 0, "the plugin ran before the first request");
    plugin.set_credential(&json!({"token": "good", "expirationTimestamp": FUTURE}));
    get(&client).unwrap();
    get(&client.clone()).unwrap();
    assert_eq!(plugin.runs(), 1);

    plugin.set_credential(&json!({"token": "good, but late", "expirationTimestamp": FUTURE}));
    let client = Client::new(Config::new(server.url()).exec(plugin.config())).unwrap();
    let error = get(&client).unwrap_err();
    assert!(
        error.is_credentials() && error.to_string().contains("whitespace"),
        "{error}"
    );
    plugin.set_credential(&json!({"token": "good", "expirationTimestamp": PAST}));
    get(&client).unwrap();
    get(&client).unwrap();
    assert_eq!(
        plugin.runs(),
        4,
        "expected one run for the invalid token and two for the expired one"
    );

    // A 401 causes one more run. If the new credential is the same, the 401 is returned.
    plugin.set_credential(&json!({"token": "bad", "expirationTimestamp": FUTURE}));
    let client = Client::new(Config::new(server.url()).exec(plugin.config())).unwrap();
    assert!(get(&client).unwrap_err().is_unauthorized());
    assert_eq!(plugin.runs(), 6);
    plugin.set_credential(&json!({"token": "good", "expirationTimestamp": FUTURE}));
    get(&client).unwrap();
    get(&client).unwrap();
    assert_eq!(plugin.runs(), 7);
    // If the additional run after a 401 fails, its error is returned.
    let handed_out = plugin.credential_file();
    let server = Server::start(move |_| {
        let _ = fs::remove_file(&handed_out);
        Reply::Write(reply("401 Unauthorized", "", "{}"))
    });
    let client = Client::new(Config::new(server.url()).exec(plugin.config())).unwrap();
    let error = get(&client).unwrap_err();
    assert!(
        error.is_credentials() && error.to_string().contains("failed with exit code 1"),
        "{error}"
    );
}

#[test]
fn new_plugin_certificate_opens_new_connections() {
    let plugin = Plugin::new("plugin-certificate");
    let (authority, old, new) = (Authority::new(), Authority::new(), Authority::new());
    let certificate = |authority: &Authority, expires: &str| {
        let (chain, key) = authority.client(&PKCS_ECDSA_P256_SHA256);
        json!({"clientCertificateData": chain, "clientKeyData": key, "expirationTimestamp": expires})
    };
    let server = Server::with_tls(Some(authority.server_for("127.0.0.1", &old)), |_| {
        Reply::Write(reply("200 OK", "", "{}"))
    });
    let config = Config::new(server.https())
        .ca_pem(authority.pem.clone())
        .exec(plugin.config());
    let client = Client::new(config).unwrap();
    plugin.set_credential(&certificate(&old, PAST));
    for _ in 0..3 {
        get(&client).unwrap();
    }
    assert_eq!(
        (plugin.runs(), server.accepted()),
        (3, 1),
        "the same certificate must reuse the connection"
    );

    server.set_tls(authority.server_for("127.0.0.1", &new));
    plugin.set_credential(&certificate(&new, FUTURE));
    get(&client).unwrap();
    get(&client).unwrap();
    assert_eq!((plugin.runs(), server.accepted()), (4, 2));

    // An invalid certificate is not kept.
    let client = Client::new(
        Config::new(server.https())
            .ca_pem(authority.pem.clone())
            .exec(plugin.config()),
    )
    .unwrap();
    plugin.set_credential(&json!({"clientCertificateData": "s3cret", "clientKeyData": "s3cret"}));
    let error = get(&client).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("the certificate of exec plugin \"sh\": no certificate in PEM form"),
        "{error}"
    );
    assert!(!format!("{error:?}").contains("s3cret"));
    plugin.set_credential(&certificate(&new, FUTURE));
    get(&client).unwrap();
    let client = Client::new(Config::new("http://127.0.0.1:1").exec(plugin.config())).unwrap();
    let error = get(&client).unwrap_err();
    assert!(
        error.is_credentials() && error.to_string().contains("needs an https server"),
        "{error}"
    );
}

#[test]
fn concurrent_401s_share_one_plugin_run() {
    let plugin = Plugin::new("plugin-refused");
    plugin.set_credential(&json!({"token": "bad", "expirationTimestamp": FUTURE}));
    // All requests arrive before the first one is rejected.
    let all = Barrier::new(8);
    let server = Server::start(move |request| match request.contains("Bearer bad") {
        false => Reply::Write(reply("200 OK", "", "{}")),
        true => {
            if request.starts_with("POST") {
                all.wait();
            }
            Reply::Write(reply("401 Unauthorized", "", "{}"))
        }
    });
    let client = Client::new(Config::new(server.url()).exec(plugin.config())).unwrap();
    assert!(get(&client).unwrap_err().is_unauthorized());
    assert_eq!(plugin.runs(), 2);
    plugin.set_credential(&json!({"token": "good", "expirationTimestamp": FUTURE}));
    let post = || client.request(&Request::post("/things").body("b"), &Stop::never());
    thread::scope(|scope| {
        let requests: Vec<_> = (0..8).map(|_| scope.spawn(post)).collect();
        requests
            .into_iter()
            .for_each(|request| drop(request.join().unwrap().unwrap()));
    });
    assert_eq!(plugin.runs(), 3);
}

#[test]
fn unreadable_ca_file_does_not_affect_plugin_credentials() {
    let plugin = Plugin::new("plugin-authority");
    let authority = Authority::new();
    let certificate = |expires: &str| {
        let (chain, key) = authority.client(&PKCS_ECDSA_P256_SHA256);
        json!({"clientCertificateData": chain, "clientKeyData": key, "expirationTimestamp": expires})
    };
    let folder = Folder::new("plugin-authority");
    let file = folder.write("ca.crt", &authority.pem);
    let server = Server::with_tls(Some(authority.server_for("127.0.0.1", &authority)), |_| {
        Reply::Write(reply("200 OK", "", "{}"))
    });
    let client = Client::new(
        Config::new(server.https())
            .ca_file(&file)
            .exec(plugin.config()),
    )
    .unwrap();
    plugin.set_credential(&certificate(FUTURE));
    for broken in ["", "-----BEGIN CERTIFICATE-----\nAAAA"] {
        fs::write(&file, broken).unwrap();
        get(&client).unwrap();
    }
    fs::remove_file(&file).unwrap();
    get(&client).unwrap();
    assert_eq!((plugin.runs(), server.accepted()), (1, 1));

    // The plugin rotates its certificate while the CA file is missing.
    let client = Client::new(
        Config::new(server.https())
            .ca_file(folder.write("ca.crt", &authority.pem))
            .exec(plugin.config()),
    )
    .unwrap();
    plugin.set_credential(&certificate(PAST));
    get(&client).unwrap();
    fs::remove_file(&file).unwrap();
    plugin.set_credential(&certificate(FUTURE));
    get(&client).unwrap();
    get(&client).unwrap();
    assert_eq!((plugin.runs(), server.accepted()), (3, 3));
}

#[test]
fn plugin_does_not_run_if_token_or_basic_auth_is_set() {
    let plugin = Plugin::new("plugin-unasked");
    let server = Server::answering("{}");
    let config = Config::new(server.url()).exec(plugin.config());
    for config in [config.clone().token("t"), config.basic_auth("jane", "p")] {
        get(&Client::new(config).unwrap()).unwrap();
    }
    assert_eq!(plugin.runs(), 0);
}

#[test]
fn plugin_runs_and_certificates_are_recorded_in_metrics() {
    #[derive(Default)]
    struct RecordedMetrics(Mutex<Vec<String>>);
    impl ClientMetrics for RecordedMetrics {
        fn exec_plugin_call(&self, exit_code: i32, call_status: &str) {
            self.0
                .lock()
                .unwrap()
                .push(format!("{exit_code} {call_status}"));
        }
        fn certificate_rotation_age(&self, age: Duration) {
            assert!(age < Duration::from_secs(60));
            self.0.lock().unwrap().push("rotated".to_owned());
        }
        fn certificate_expiry(&self, expiry: Option<SystemTime>) {
            let is_past = expiry.map(|expiry| expiry < SystemTime::now());
            self.0.lock().unwrap().push(format!("{is_past:?}"));
        }
    }
    let plugin = Plugin::new("plugin-metrics");
    let authority = Authority::new();
    let server = Server::with_tls(Some(authority.server("127.0.0.1")), |_| {
        Reply::Write(reply("200 OK", "", "{}"))
    });
    let recorded = Arc::new(RecordedMetrics::default());
    let config = |plugin: ExecConfig| {
        Config::new(server.https())
            .ca_pem(authority.pem.clone())
            .metrics(recorded.clone())
            .exec(plugin)
    };
    let client = Client::new(config(plugin.config())).unwrap();
    get(&client).unwrap_err(); // The plugin has no credential yet.
    for expires in [PAST, PAST, FUTURE] {
        let (chain, key) = authority.client(&PKCS_ECDSA_P256_SHA256);
        let status = json!({"clientCertificateData": chain, "clientKeyData": key, "expirationTimestamp": expires});
        plugin.set_credential(&status);
        get(&client).unwrap();
    }
    let client = Client::new(config(ExecConfig::new("k8s-informer-no-such-plugin"))).unwrap();
    get(&client).unwrap_err();
    let client = Client::new(config(ExecConfig::new("sh").args(["-c", "kill -9 $$"]))).unwrap();
    get(&client).unwrap_err();
    assert_eq!(
        *recorded.0.lock().unwrap(),
        [
            "1 plugin_execution_error",
            "0 no_error",
            "Some(true)",
            "0 no_error",
            "rotated",
            "Some(true)",
            "0 no_error",
            "rotated",
            "Some(false)",
            "1 plugin_not_found_error",
            "-1 plugin_execution_error",
        ]
    );
}
