//! A local etcd and kube-apiserver that can be killed, compacted and restored.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use k8s_informer::client::Request;
use k8s_informer::{Client, Config, Stop};
use serde_json::{Value, json};

/// The maximum time of a start, which takes five seconds on an idle machine.
const PATIENCE: Duration = Duration::from_secs(180);

pub(crate) const TOKEN: &str = "chaos";

pub(crate) struct Server {
    folder: PathBuf,
    assets: PathBuf,
    etcd_port: u16,
    port: u16,
    etcd: Option<Process>,
    api: Option<Process>,
}

impl Server {
    /// Returns the folder with the binaries of etcd and kube-apiserver, or `None`.
    pub(crate) fn assets() -> Option<PathBuf> {
        let folder = PathBuf::from(std::env::var_os("KUBEBUILDER_ASSETS")?);
        ["etcd", "kube-apiserver"]
            .iter()
            .all(|name| folder.join(name).is_file())
            .then_some(folder)
    }

    pub(crate) fn start(assets: PathBuf) -> Self {
        let folder =
            std::env::temp_dir().join(format!("k8s-informer-chaos-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder for the servers");
        let [etcd_port, peer_port, port] = free_ports();
        let write = |name: &str, text: &str| {
            fs::write(folder.join(name), text).expect("a file for the servers");
        };
        let etcd = json!({
            "name": "chaos",
            "data-dir": folder.join("etcd-data"),
            "listen-client-urls": format!("http://127.0.0.1:{etcd_port}"),
            "advertise-client-urls": format!("http://127.0.0.1:{etcd_port}"),
            "listen-peer-urls": format!("http://127.0.0.1:{peer_port}"),
            "initial-advertise-peer-urls": format!("http://127.0.0.1:{peer_port}"),
            "initial-cluster": format!("chaos=http://127.0.0.1:{peer_port}"),
            "log-level": "warn",
            "unsafe-no-fsync": true,
        });
        write("etcd.json", &etcd.to_string());
        write(
            "accounts.key",
            include_str!("../../client/keys/ec.sec1.pem"),
        );
        write(
            "tokens.csv",
            &format!("{TOKEN},{TOKEN},1,\"system:masters\"\n"),
        );
        let mut server = Self {
            folder,
            assets,
            etcd_port,
            port,
            etcd: None,
            api: None,
        };
        server.up();
        if let Ok(expected) = std::env::var("EXPECTED_KUBERNETES") {
            let version = Request::get("/version");
            let version = server.client().request(&version, &Stop::new());
            let version: Value = version.expect("a version").json().expect("JSON");
            let version = version["gitVersion"].as_str().unwrap_or_default();
            assert!(version.starts_with(&format!("v{expected}.")), "{version}");
        }
        server
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Returns the file with the certificates of the server and of its CA. The server creates this
    /// file itself.
    pub(crate) fn certificates(&self) -> PathBuf {
        self.folder.join("apiserver.crt")
    }

    /// Returns the configuration for the server itself or for a proxy at `url`.
    pub(crate) fn config(&self, url: String) -> Config {
        Config::new(url).ca_file(self.certificates()).token(TOKEN)
    }

    /// Returns a client that does not use a proxy.
    pub(crate) fn client(&self) -> Client {
        let config = self.config(format!("https://127.0.0.1:{}", self.port));
        Client::new(config.response_timeout(Duration::from_secs(10))).expect("a client")
    }

    pub(crate) fn kill_api(&mut self) {
        self.api = None;
    }

    pub(crate) fn kill_etcd(&mut self) {
        self.etcd = None;
    }

    /// Starts each process that is not running, with its previous data, and waits until the API
    /// server is ready.
    pub(crate) fn up(&mut self) {
        if self.etcd.is_none() {
            let program = self.assets.join("etcd");
            let config = [
                "--config-file".to_owned(),
                self.folder.join("etcd.json").display().to_string(),
            ];
            self.etcd = Some(Process::start(
                &program,
                &config,
                &self.folder.join("etcd.log"),
            ));
            wait_for("etcd", &self.folder, || {
                self.etcd("/v3/maintenance/status", &json!({})).is_some()
            });
        }
        if self.api.is_none() {
            self.api = Some(self.serve());
            // On its first start, the API server creates its certificates. It writes the key last.
            wait_for("kube-apiserver", &self.folder, || {
                self.folder.join("apiserver.key").exists()
            });
        }
        let client = self.client();
        let ready = Request::get("/readyz").retries(0);
        wait_for("kube-apiserver", &self.folder, || {
            client.request(&ready, &Stop::new()).is_ok()
        });
    }

    fn serve(&self) -> Process {
        let file = |name: &str| self.folder.join(name).display().to_string();
        let arguments = [
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", self.port),
            "--advertise-address=127.0.0.1".to_owned(),
            "--endpoint-reconciler-type=none".to_owned(),
            format!("--etcd-servers=http://127.0.0.1:{}", self.etcd_port),
            format!("--cert-dir={}", self.folder.display()),
            format!("--token-auth-file={}", file("tokens.csv")),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={}", file("accounts.key")),
            format!(
                "--service-account-signing-key-file={}",
                file("accounts.key")
            ),
            "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
            "--authorization-mode=AlwaysAllow".to_owned(),
            "--disable-admission-plugins=ServiceAccount".to_owned(),
            "--shutdown-delay-duration=0s".to_owned(),
        ];
        let log = self.folder.join("kube-apiserver.log");
        Process::start(&self.assets.join("kube-apiserver"), &arguments, &log)
    }

    /// Copies etcd's data and returns the revision of the copy. Kills and restarts etcd.
    pub(crate) fn backup(&mut self) -> u64 {
        let revision = self.revision();
        self.kill_etcd();
        self.copy("etcd-data", "etcd-backup");
        self.up();
        revision
    }

    /// Replaces etcd's data with the copy. Kills and restarts both processes.
    pub(crate) fn restore(&mut self) {
        self.kill_api();
        self.kill_etcd();
        self.copy("etcd-backup", "etcd-data");
        self.up();
    }

    fn copy(&self, from: &str, to: &str) {
        let [from, to] = [from, to].map(|name| self.folder.join(name));
        let _ = fs::remove_dir_all(&to);
        let status = Command::new("cp")
            .arg("-r")
            .args([from, to])
            .status()
            .expect("cp");
        assert!(status.success(), "cannot copy the data of etcd");
    }

    /// Returns etcd's revision, which is the newest resourceVersion.
    pub(crate) fn revision(&self) -> u64 {
        let reply = self
            .etcd("/v3/kv/range", &json!({ "key": "AA==" }))
            .unwrap_or_default();
        reply["header"]["revision"]
            .as_str()
            .and_then(|text| text.parse().ok())
            .unwrap_or_default()
    }

    /// Makes etcd drop all history before `revision`.
    pub(crate) fn compact(&self, revision: u64) {
        self.etcd(
            "/v3/kv/compaction",
            &json!({ "revision": revision.to_string(), "physical": true }),
        );
    }

    /// Sends a request to etcd's JSON gateway.
    fn etcd(&self, path: &str, body: &Value) -> Option<Value> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.etcd_port)).ok()?;
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .ok()?;
        let body = body.to_string();
        let length = body.len();
        let head =
            format!("POST {path} HTTP/1.0\r\nHost: etcd\r\nContent-Length: {length}\r\n\r\n{body}");
        stream.write_all(head.as_bytes()).ok()?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply).ok()?;
        let (head, body) = reply.split_once("\r\n\r\n")?;
        head.split(' ').nth(1).filter(|code| *code == "200")?;
        serde_json::from_str(body).ok()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill_api();
        self.kill_etcd();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn wait_for(what: &str, logs: &Path, mut ready: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !ready() {
        assert!(
            Instant::now() < deadline,
            "{what} did not become ready; see its log in {}",
            logs.display()
        );
        thread::sleep(Duration::from_millis(50));
    }
}

/// Returns ports below the ephemeral range, so that no outgoing connection takes the port of a
/// server that is down.
fn free_ports() -> [u16; 3] {
    let start = 18_000 + (std::process::id() % 500 * 8) as u16;
    let mut free =
        (start..start + 4000).filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    [(); 3].map(|()| free.next().expect("a free port"))
}

/// A server that is killed when this value is dropped or when this process ends for any reason: a
/// shell waits until its stdin pipe closes and then kills its child.
struct Process(Child);

impl Process {
    fn start(program: &Path, arguments: &[String], log: &Path) -> Self {
        const SCRIPT: &str = r#"
            trap '' INT TERM HUP
            "$@" </dev/null & server=$!
            read -r _
            kill -KILL "$server"; wait "$server""#;
        let log = File::options()
            .create(true)
            .append(true)
            .open(log)
            .expect("a log");
        let shell = Command::new("sh")
            .args(["-c", SCRIPT, "chaos"])
            .arg(program)
            .args(arguments)
            .env("NO_PROXY", "*")
            .stdin(Stdio::piped())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log)
            .spawn();
        Self(shell.expect("a shell"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // `wait` closes the shell's stdin pipe first, so the shell kills its child and ends.
        let _ = self.0.wait();
    }
}
