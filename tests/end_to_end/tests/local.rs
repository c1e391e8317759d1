//! A real etcd and kube-apiserver from `$KUBEBUILDER_ASSETS`. All tests of the process share these
//! two servers and may kill them.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use k8s_informer::client::Request;
use k8s_informer::{Client, Config, Stop};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde_json::{Value, json};

use crate::cluster::assert_expected_version;
use crate::support::{free_port, new_folder, wait_until};

pub(crate) struct Local {
    pub(crate) folder: PathBuf,
    assets: PathBuf,
    etcd_port: u16,
    /// Usually the API server listens on `port`. While it must appear down to the tested client, it
    /// listens on `other_port`.
    port: u16,
    other_port: u16,
    gates: Gates,
    /// `None` while the process is down.
    etcd: Option<Keeper>,
    api: Option<Keeper>,
}

/// The feature gates that differ from the defaults of the kube-apiserver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gates {
    pub(crate) without_watch_list: bool,
    pub(crate) shards: bool,
}

impl Gates {
    /// Names only gates that differ, because not every version has each gate.
    fn flag(self) -> Option<String> {
        let watch_list = self.without_watch_list.then_some("WatchList=false");
        let shards = self.shards.then_some("ShardedListAndWatch=true");
        let gates: Vec<_> = watch_list.into_iter().chain(shards).collect();
        (!gates.is_empty()).then(|| format!("--feature-gates={}", gates.join(",")))
    }
}

impl Local {
    /// Returns the two running servers. The first call starts them. They end with the process.
    pub(crate) fn get(assets: &Path) -> &'static Mutex<Self> {
        static LOCAL: OnceLock<Mutex<Local>> = OnceLock::new();
        let local = LOCAL.get_or_init(|| Mutex::new(Self::start(assets)));
        // A test may have failed while the server was down.
        lock(local).up();
        local
    }

    fn start(assets: &Path) -> Self {
        let folder = new_folder();
        let (etcd_port, peer_port, port, other_port) =
            (free_port(), free_port(), free_port(), free_port());
        write_files(&folder, port);
        let etcd = json!({
            "name": "loopback",
            "data-dir": folder.join("etcd-data"),
            "listen-client-urls": format!("http://127.0.0.1:{etcd_port}"),
            "advertise-client-urls": format!("http://127.0.0.1:{etcd_port}"),
            "listen-peer-urls": format!("http://127.0.0.1:{peer_port}"),
            "initial-advertise-peer-urls": format!("http://127.0.0.1:{peer_port}"),
            "initial-cluster": format!("loopback=http://127.0.0.1:{peer_port}"),
            "logger": "zap",
            "log-level": "warn",
            "unsafe-no-fsync": true,
            "enable-grpc-gateway": true,
        });
        fs::write(folder.join("etcd.yaml"), etcd.to_string()).unwrap();
        let assets = assets.to_owned();
        Self {
            folder,
            assets,
            etcd_port,
            port,
            other_port,
            gates: Gates::default(),
            etcd: None,
            api: None,
        }
    }

    /// Kills the kube-apiserver with SIGKILL and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        self.api = None;
    }

    /// Sets the feature gates. Restarts the kube-apiserver if they change.
    pub(crate) fn set_gates(&mut self, gates: Gates) {
        if self.gates != gates {
            self.kill();
            self.gates = gates;
            self.up();
        }
    }

    /// Compacts etcd at its current revision.
    pub(crate) fn compact(&self) {
        let etcd =
            Client::new(Config::new(format!("http://127.0.0.1:{}", self.etcd_port))).unwrap();
        let send = |path: &str, body: Value| {
            let request = Request::post(path).json(&body).unwrap();
            etcd.request(&request, &Stop::new())
                .unwrap()
                .json::<Value>()
                .unwrap()
        };
        // Each response contains the revision, so any key works ("eA==" is x).
        let revision = send("/v3/kv/range", json!({ "key": "eA==" }))["header"]["revision"].clone();
        send(
            "/v3/kv/compaction",
            json!({ "revision": revision, "physical": true }),
        );
    }

    /// Copies etcd's data.
    pub(crate) fn backup(&mut self) {
        self.replace_data("etcd-data", "etcd-backup");
    }

    /// Replaces etcd's data with the copy.
    pub(crate) fn restore(&mut self) {
        self.replace_data("etcd-backup", "etcd-data");
    }

    fn replace_data(&mut self, from: &str, to: &str) {
        self.kill();
        if let Some(etcd) = self.etcd.take() {
            etcd.end_and_keep_files();
        }
        let [from, to] = [from, to].map(|name| self.folder.join(name));
        let _ = fs::remove_dir_all(&to);
        assert!(
            Command::new("cp")
                .arg("-r")
                .args([from, to])
                .status()
                .unwrap()
                .success()
        );
        self.up();
    }

    /// Starts each process that is not running, with its previous data.
    pub(crate) fn up(&mut self) {
        if self.etcd.is_none() {
            let config = self.folder.join("etcd.yaml").display().to_string();
            self.etcd = Some(Keeper::start(
                &self.assets.join("etcd"),
                &["--config-file".to_owned(), config],
                &self.folder.join("etcd.log"),
                Some(&self.folder),
            ));
        }
        if self.api.is_none() {
            self.api = Some(self.serve(self.port));
        }
    }

    /// Runs `work` against the server at another address. For clients of the usual address the
    /// server is down.
    pub(crate) fn at_other_address(&mut self, work: impl FnOnce(&Client)) {
        assert!(self.api.is_none());
        let _other_server = self.serve(self.other_port);
        work(&self.client(self.other_port));
    }

    fn client(&self, port: u16) -> Client {
        let config = Config::new(format!("https://127.0.0.1:{port}"))
            .ca_file(self.folder.join("ca.crt"))
            .token_file(self.folder.join("token"));
        Client::new(config).unwrap()
    }

    fn serve(&self, port: u16) -> Keeper {
        let file = |name: &str| self.folder.join(name).display().to_string();
        let arguments = [
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={port}"),
            "--advertise-address=127.0.0.1".to_owned(),
            "--endpoint-reconciler-type=none".to_owned(),
            format!("--etcd-servers=http://127.0.0.1:{}", self.etcd_port),
            format!("--tls-cert-file={}", file("server.crt")),
            format!("--tls-private-key-file={}", file("server.key")),
            format!("--client-ca-file={}", file("ca.crt")),
            format!("--token-auth-file={}", file("tokens.csv")),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={}", file("accounts.pub")),
            format!(
                "--service-account-signing-key-file={}",
                file("accounts.key")
            ),
            "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
            "--authorization-mode=RBAC".to_owned(),
            "--disable-admission-plugins=ServiceAccount".to_owned(),
            "--allow-privileged=true".to_owned(),
            "--shutdown-delay-duration=0s".to_owned(),
        ];
        let arguments: Vec<_> = arguments.into_iter().chain(self.gates.flag()).collect();
        let log = self.folder.join("kube-apiserver.log");
        let keeper = Keeper::start(&self.assets.join("kube-apiserver"), &arguments, &log, None);
        let client = self.client(port);
        wait_until(
            &format!("kube-apiserver is ready; its log is {}", log.display()),
            || client.request(&Request::get("/readyz"), &Stop::new()).ok(),
        );
        assert_expected_version(&client);
        keeper
    }
}

/// Whether the kube-apiserver supports the feature gate for sharded lists and watches. Does not
/// start it, because another test may have killed it.
pub(crate) fn supports_shards(assets: &Path) -> bool {
    let help = Command::new(assets.join("kube-apiserver"))
        .arg("--help")
        .output()
        .unwrap();
    String::from_utf8_lossy(&help.stdout).contains("ShardedListAndWatch=true|false")
}

pub(crate) fn lock(local: &Mutex<Local>) -> MutexGuard<'_, Local> {
    local.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A server that ends with this process, however the process ends. A shell waits until its stdin
/// pipe closes and then kills its child. If nothing else closes the pipe, the system does so when
/// this process ends. The child's id cannot be reused before the shell has waited for it.
struct Keeper(Child);

impl Keeper {
    fn start(program: &Path, arguments: &[String], log: &Path, remove: Option<&Path>) -> Self {
        // Ctrl-C also reaches the shell. The shell must not end before it has killed the server.
        const SCRIPT: &str = r#"
            trap '' INT TERM HUP
            log=$1 remove=$2; shift 2
            "$@" >"$log" 2>&1 </dev/null & server=$!
            read -r keep
            kill -KILL "$server"; wait "$server"
            [ -n "$keep" ] || [ -z "$remove" ] || rm -rf "$remove""#;
        let shell = Command::new("sh")
            .args(["-c", SCRIPT, "keeper"])
            .arg(log)
            .arg(remove.unwrap_or_else(|| Path::new("")))
            .arg(program)
            .args(arguments)
            .env("NO_PROXY", "*")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self(shell)
    }
}

impl Keeper {
    fn end_and_keep_files(mut self) {
        if let Some(pipe) = &mut self.0.stdin {
            pipe.write_all(b"keep\n").unwrap();
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // `wait` closes the shell's stdin pipe first, so the shell kills the server and ends.
        let _ = self.0.wait();
    }
}

/// Writes certificates, tokens and a kubeconfig for every form of credentials, like `up` of the
/// shared scripts.
fn write_files(folder: &Path, port: u16) {
    let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
        .distinguished_name
        .push(DnType::CommonName, "loopback-test-ca");
    let key = KeyPair::generate().unwrap();
    write("ca.crt", &params.self_signed(&key).unwrap().pem());
    let issuer = Issuer::new(params, key);

    let sign = |names: &[&str], group: Option<&str>, user: &str, usage, key: &KeyPair| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        if let Some(group) = group {
            params
                .distinguished_name
                .push(DnType::OrganizationName, group);
        }
        params.distinguished_name.push(DnType::CommonName, user);
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyEncipherment,
        ];
        params.extended_key_usages = vec![usage];
        params.signed_by(key, &issuer).unwrap().pem()
    };
    let key = KeyPair::generate().unwrap();
    let names = [
        "127.0.0.1",
        "10.0.0.1",
        "localhost",
        "kubernetes.default.svc",
    ];
    write(
        "server.crt",
        &sign(
            &names,
            None,
            "kube-apiserver",
            ExtendedKeyUsagePurpose::ServerAuth,
            &key,
        ),
    );
    write("server.key", &key.serialize_pem());
    let key = KeyPair::generate().unwrap();
    write("accounts.key", &key.serialize_pem());
    write("accounts.pub", &key.public_key_pem());

    let masters = Some("system:masters");
    // The crypto provider cannot generate RSA keys, so use the key files of the client tests.
    let rsa = include_str!("../../client/keys/rsa.pkcs8.pem");
    let ec = include_str!("../../client/keys/ec.pkcs8.pem");
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
        let key = KeyPair::from_pem(key).unwrap();
        let chain = sign(
            &[],
            masters,
            "admin",
            ExtendedKeyUsagePurpose::ClientAuth,
            &key,
        );
        write(&format!("admin{name}.crt"), &chain);
        write(&format!("admin{name}.key"), written);
        let user = json!({
            "client-certificate": format!("admin{name}.crt"),
            "client-key": format!("admin{name}.key"),
        });
        write(&format!("kubeconfig{name}"), &kubeconfig(port, user));
    }
    // Random enough for loopback: each token comes from a new key.
    let token = |user: &str| {
        let key = KeyPair::generate().unwrap();
        let hex: String = key.public_key_raw()[1..17]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        format!("{user}-{hex}")
    };
    let (admin, nobody) = (token("admin"), token("nobody"));
    write("token", &admin);
    write(
        "tokens.csv",
        &format!("{admin},token-admin,1,\"system:masters\"\n{nobody},token-nobody,2\n"),
    );
    write(
        "kubeconfig-token",
        &kubeconfig(port, json!({ "token": admin })),
    );
    write(
        "kubeconfig-nobody",
        &kubeconfig(port, json!({ "token": nobody })),
    );
}

/// JSON is valid YAML. The paths are relative to the file.
fn kubeconfig(port: u16, user: Value) -> String {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "loopback", "cluster": {
            "server": format!("https://127.0.0.1:{port}"),
            "certificate-authority": "ca.crt",
        } }],
        "users": [{ "name": "user", "user": user }],
        "contexts": [{ "name": "test", "context": { "cluster": "loopback", "user": "user" } }],
        "current-context": "test",
    })
    .to_string()
}
