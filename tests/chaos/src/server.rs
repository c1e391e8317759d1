//! A local etcd and kube-apiserver that can be killed, compacted and restored.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use k8s_informer::client::Request;
use k8s_informer::{Client, Config, Error, Stop};
use k8s_informer_testing::RealApiServer;
use serde_json::{Value, json};

/// The maximum time of a start, which takes three seconds on an idle machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// The maximum time until a request succeeds.
const REQUEST: Duration = Duration::from_secs(120);

pub(crate) const TOKEN: &str = "chaos";

pub(crate) struct Server {
    real: RealApiServer,
    etcd: Client,
}

impl Server {
    /// Starts a server, or explains why the program is skipped.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with(None)
    }

    /// Starts a server with feature gates, or explains why the program is skipped.
    pub(crate) fn start_with(gates: Option<&str>) -> Option<Self> {
        if !RealApiServer::is_configured() {
            println!("chaos: skipped: $KUBEBUILDER_ASSETS does not name etcd and kube-apiserver");
            return None;
        }
        let mut builder = RealApiServer::builder()
            .token(TOKEN)
            .start_timeout(PATIENCE);
        if let Some(gates) = gates {
            builder = builder.apiserver_flag("feature-gates", gates);
        }
        let real = match (builder.start(), gates) {
            (Err(error), Some(_)) if error.to_string().contains("unrecognized feature gate") => {
                println!("chaos: skipped: this kube-apiserver has other feature gates: {error}");
                return None;
            }
            (real, _) => real.expect("a server"),
        };
        let etcd = Client::new(Config::new(real.etcd_url()).no_proxy()).expect("a client of etcd");
        if let Ok(expected) = std::env::var("EXPECTED_KUBERNETES") {
            let version = Request::get("/version");
            let version = real.client().request(&version, &Stop::never());
            let version: Value = version.expect("a version").json().expect("JSON");
            let version = version["gitVersion"].as_str().unwrap_or_default();
            assert!(version.starts_with(&format!("v{expected}.")), "{version}");
        }
        Some(Self { real, etcd })
    }

    pub(crate) fn port(&self) -> u16 {
        let url = self.real.client().server();
        url.rsplit(':')
            .next()
            .and_then(|port| port.parse().ok())
            .expect("a port")
    }

    /// Returns the file with the certificates of the server and of its CA.
    pub(crate) fn certificates(&self) -> PathBuf {
        self.real.folder().join("apiserver.crt")
    }

    /// Returns the configuration for the server itself or for a proxy at `url`.
    pub(crate) fn config(&self, url: String) -> Config {
        Config::new(url).ca_file(self.certificates()).token(TOKEN)
    }

    /// Returns a client that does not use a proxy.
    pub(crate) fn client(&self) -> Client {
        let config = self.real.config().response_timeout(Duration::from_secs(10));
        Client::new(config).expect("a client")
    }

    pub(crate) fn kill_api(&self) {
        self.real.pause();
    }

    pub(crate) fn kill_etcd(&self) {
        self.real.pause_etcd();
    }

    /// Starts each process that is not running, with its previous data, and waits until the API
    /// server is ready.
    pub(crate) fn up(&self) {
        self.real.resume().expect("a server");
    }

    /// Copies etcd's data and returns the revision of the copy. Kills and restarts etcd.
    pub(crate) fn backup(&self) -> u64 {
        let revision = self.revision();
        self.kill_etcd();
        self.copy("etcd-data", "etcd-backup");
        self.up();
        revision
    }

    /// Replaces etcd's data with the copy. Kills and restarts both processes.
    pub(crate) fn restore(&self) {
        self.kill_api();
        self.kill_etcd();
        self.copy("etcd-backup", "etcd-data");
        self.up();
    }

    fn copy(&self, from: &str, to: &str) {
        let [from, to] = [from, to].map(|name| self.real.folder().join(name));
        let _ = fs::remove_dir_all(&to);
        let status = Command::new("cp").arg("-r").args([from, to]).status();
        assert!(
            status.expect("cp").success(),
            "cannot copy the data of etcd"
        );
    }

    /// Returns etcd's revision, which is the newest resourceVersion.
    pub(crate) fn revision(&self) -> u64 {
        let reply = self.etcd("/v3/kv/range", &json!({ "key": "AA==" }));
        let revision = reply
            .as_ref()
            .and_then(|reply| reply["header"]["revision"].as_str());
        revision
            .and_then(|text| text.parse().ok())
            .unwrap_or_default()
    }

    /// Makes etcd drop all history before `revision`.
    pub(crate) fn compact(&self, revision: u64) {
        let revision = json!({ "revision": revision.to_string(), "physical": true });
        self.etcd("/v3/kv/compaction", &revision);
    }

    /// Sends a request to etcd's JSON gateway.
    fn etcd(&self, path: &str, body: &Value) -> Option<Value> {
        let request = Request::post(path).json(body).ok()?.retries(0);
        let request = request.response_timeout(Duration::from_secs(10));
        self.etcd
            .request(&request, &Stop::never())
            .ok()?
            .json()
            .ok()
    }
}

pub(crate) fn post(path: &str, body: &Value) -> Request {
    Request::post(path).json(body).expect("a request")
}

/// Sends a request until the server has accepted or refused it.
pub(crate) fn send(client: &Client, request: &Request) -> Result<Value, Error> {
    let deadline = Instant::now() + REQUEST;
    loop {
        let request = request.clone().retries(0);
        let response = client.request(&request, &Stop::never());
        let error = match response.and_then(|response| response.json()) {
            Ok(object) => return Ok(object),
            Err(error) => error,
        };
        let is_refused = error
            .status()
            .is_some_and(|status| (400..429).contains(&status.code));
        if is_refused {
            return Err(error);
        }
        assert!(
            Instant::now() < deadline,
            "the server does not respond: {error}"
        );
        thread::sleep(Duration::from_millis(100));
    }
}
