//! A real etcd and kube-apiserver, as child processes of the test.

mod process;

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use k8s_informer::client::api::Patch;
use k8s_informer::client::{Client, Config, Impersonation, Request};
use k8s_informer::error::Error;
use k8s_informer::object::GroupVersionResource;
use k8s_informer::stop::{Stop, Stopper};
use parking_lot::Mutex;
use serde_json::{Value, json};

use self::process::Process;

/// The programs, in the order of their starts.
const PROGRAMS: [&str; 2] = ["etcd", "kube-apiserver"];

/// The number of starts with other ports if another process takes a port.
const STARTS: usize = 3;

/// The time between two checks whether the server is ready.
const TICK: Duration = Duration::from_millis(20);

/// A real kube-apiserver with its etcd, for a test.
///
/// It has everything that an [`ApiServer`](crate::ApiServer) lacks: schemas with CEL rules, defaults,
/// admission webhooks, RBAC, field ownership. It starts in a few seconds, and each one has its own
/// ports, certificates and data. The counterpart is the control plane of controller-runtime's
/// `envtest`.
///
/// ```
/// use k8s_informer::client::{Client, Request};
/// use k8s_informer::Stop;
/// use k8s_informer_testing::RealApiServer;
/// use serde_json::json;
///
/// if !RealApiServer::is_configured() {
///     return Ok(()); // This test needs KUBEBUILDER_ASSETS.
/// }
/// let server = RealApiServer::start()?;
/// let (path, stop) = ("/api/v1/namespaces/default/configmaps", Stop::never());
/// let map = json!({"metadata": {"name": "a"}});
/// server.client().request(&Request::post(path).json(&map)?, &stop)?;
///
/// // An account with the rights of the manifest of the program under test.
/// let rule = json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]});
/// let reader = Client::new(server.account("reader", &[rule])?)?;
/// reader.request(&Request::get(path), &stop)?;
/// let error = reader.request(&Request::delete(format!("{path}/a")), &stop).unwrap_err();
/// assert!(error.is_forbidden());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # The programs
///
/// Nothing is downloaded. The programs come from [`assets`](RealApiServerBuilder::assets), or from
/// the environment, by the variables of `envtest`: `TEST_ASSET_ETCD` and `TEST_ASSET_KUBE_APISERVER`
/// name a program, and `KUBEBUILDER_ASSETS` names a folder with the others. To get them:
///
/// ```sh
/// go install sigs.k8s.io/controller-runtime/tools/setup-envtest@latest
/// export KUBEBUILDER_ASSETS=$(setup-envtest use -p path)
/// ```
///
/// # What is missing
///
/// No controller runs. Nothing collects garbage, so objects outlive their owners. A deleted Namespace
/// stays in `Terminating` with its objects: give each test a Namespace of its own. A Deployment gets
/// no Pods, and no Pod runs. Pods need no ServiceAccount, because this admission plugin is off.
///
/// # Processes
///
/// A dropped server kills its processes and removes its folder. A shell, `sh`, does the same if the
/// test process ends in another way, for example if it is killed. It was tested on Linux.
pub struct RealApiServer {
    builder: RealApiServerBuilder,
    folder: PathBuf,
    port: u16,
    etcd_url: String,
    config: Config,
    /// Set when the server is ready for the first time.
    client: OnceLock<Client>,
    /// The processes that run, as in `PROGRAMS`. Held while processes are started or killed.
    processes: Mutex<[Option<Process>; 2]>,
}

/// Options of a [`RealApiServer`].
///
/// ```
/// use k8s_informer::{Client, Stop};
/// use k8s_informer::client::Request;
/// use k8s_informer_testing::RealApiServer;
/// use std::time::Duration;
///
/// if !RealApiServer::is_configured() {
///     return Ok(());
/// }
/// let server = RealApiServer::builder()
///     .start_timeout(Duration::from_secs(120))
///     .apiserver_flag("max-requests-inflight", "50")
///     .token("of-a-program")
///     .token_without_rights("of-a-guest", "guest")
///     .start()?;
/// let client = |token| Client::new(server.config().token(token));
/// let list = Request::get("/api/v1/namespaces");
/// client("of-a-program")?.request(&list, &Stop::never())?;
/// assert!(client("of-a-guest")?.request(&list, &Stop::never()).unwrap_err().is_forbidden());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct RealApiServerBuilder {
    assets: Option<PathBuf>,
    /// As `name=value`.
    flags: Vec<String>,
    /// The lines of the file with the tokens.
    tokens: String,
    start_timeout: Duration,
}

impl RealApiServer {
    /// Starts the servers, and waits until they are ready.
    ///
    /// # Errors
    ///
    /// Returns an error if a program is missing or ends, with the last lines of its log, and if the
    /// servers are not ready within the [time limit](RealApiServerBuilder::start_timeout).
    pub fn start() -> io::Result<Self> {
        Self::builder().start()
    }

    /// Returns a builder for a server with other options.
    pub fn builder() -> RealApiServerBuilder {
        RealApiServerBuilder {
            assets: None,
            flags: Vec::new(),
            tokens: String::new(),
            start_timeout: Duration::from_secs(60),
        }
    }

    /// Whether the environment names [the programs](Self#the-programs). Otherwise, skip the test. If
    /// a variable names a file that does not exist, [`start`](Self::start) fails.
    pub fn is_configured() -> bool {
        PROGRAMS.iter().all(|name| named_program(name).is_some())
    }

    /// Returns a client with all rights. Install the definitions of custom resources with
    /// [`Client::install_crds`].
    pub fn client(&self) -> &Client {
        match self.client.get() {
            Some(client) => client,
            None => unreachable!("`start` returns a server that has been ready"),
        }
    }

    /// Returns the configuration of a client with all rights. To act as a user, call
    /// [`Config::impersonate`].
    pub fn config(&self) -> Config {
        self.config.clone()
    }

    /// Creates a user with exactly these rights, and returns a configuration that impersonates it.
    ///
    /// `rules` are those of a ClusterRole. Waits until they apply, in all namespaces. A second call
    /// for the user replaces them. For other rights, create the RBAC objects, and pass their subject
    /// to [`Config::impersonate`].
    ///
    /// # Errors
    ///
    /// Returns the error of the server if it rejects the rules or the name. Returns an error if the
    /// rules do not apply within the [time limit](RealApiServerBuilder::start_timeout) of a start.
    pub fn account(&self, user: &str, rules: &[Value]) -> Result<Config, Error> {
        // The server applies roles with a delay, but all rules of a role at once: this one shows
        // that it has applied the others.
        let marker = format!("/rules-{:x}", random());
        let mut rules = rules.to_vec();
        rules.push(json!({ "nonResourceURLs": [marker], "verbs": ["get"] }));
        let (group, stop) = ("rbac.authorization.k8s.io", Stopper::new());
        let object = |kind: &str| json!({ "apiGroup": group, "kind": kind, "name": user });
        let role = json!({ "rules": rules });
        let binding = json!({ "roleRef": object("ClusterRole"), "subjects": [object("User")] });
        for (plural, kind, mut content) in [
            ("clusterroles", "ClusterRole", role),
            ("clusterrolebindings", "ClusterRoleBinding", binding),
        ] {
            content["apiVersion"] = format!("{group}/v1").into();
            content["kind"] = kind.into();
            content["metadata"] = json!({ "name": user });
            let resource = GroupVersionResource::new(group, "v1", plural);
            let patch = Patch::apply("k8s-informer-testing", content).force(true);
            let api = self.client().dynamic_api(&resource, None);
            api.patch(user, &patch, &stop)?;
        }
        let config = self.config().impersonate(Impersonation::user(user));
        let client = Client::new(config.clone())?;
        wait_until_allowed(&client, &marker, self.builder.start_timeout)?;
        Ok(config)
    }

    /// Returns the folder of this server. It contains the certificate of the server and its CA,
    /// `apiserver.crt`, and the logs, `etcd.log` and `kube-apiserver.log`.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the URL of etcd, which accepts JSON requests without credentials.
    pub fn etcd_url(&self) -> &str {
        &self.etcd_url
    }

    /// Kills the kube-apiserver and all its connections, until [`resume`](Self::resume).
    pub fn pause(&self) {
        self.kill(1);
    }

    /// Kills etcd, until [`resume`](Self::resume).
    pub fn pause_etcd(&self) {
        self.kill(0);
    }

    fn kill(&self, program: usize) {
        let mut processes = self.processes.lock();
        processes[program].take().inspect(Process::keep_files);
    }

    /// Starts what does not run, with its previous data and address, and waits until the server is
    /// ready.
    ///
    /// # Errors
    ///
    /// The errors of [`start`](Self::start).
    pub fn resume(&self) -> io::Result<()> {
        let mut processes = self.processes.lock();
        for (at, name) in PROGRAMS.into_iter().enumerate() {
            if processes[at].is_none() {
                let program = self.builder.program(name)?;
                let arguments = match at {
                    0 => vec!["--config-file".to_owned(), "etcd.yaml".to_owned()],
                    _ => self.arguments(),
                };
                let process = Process::start(&program, arguments, &self.folder, &self.log(name));
                processes[at] = Some(process.map_err(|error| failed("start the shell sh", error))?);
            }
        }
        let timeout = self.builder.start_timeout;
        let deadline = Instant::now() + timeout;
        let ready = Request::get("/readyz").retries(0);
        let ready = ready.response_timeout(Duration::from_secs(5));
        loop {
            for (name, process) in PROGRAMS.iter().zip(processes.iter_mut()) {
                if let Some(status) = process.as_mut().map_or(Ok(None), Process::ended)? {
                    return Err(self.with_log(name, format_args!("has ended ({status})")));
                }
            }
            // The server creates its certificate at its first start. It writes the key last.
            if self.folder.join("apiserver.key").exists() {
                let client = Client::new(self.config()).map_err(io::Error::other)?;
                if client.request(&ready, &Stop::never()).is_ok() {
                    self.client.get_or_init(|| client);
                    return Ok(());
                }
            }
            if Instant::now() >= deadline {
                let problem = format_args!("is not ready after {timeout:?}");
                return Err(self.with_log(PROGRAMS[1], problem));
            }
            thread::park_timeout(TICK);
        }
    }

    fn arguments(&self) -> Vec<String> {
        let (port, etcd_url, flags) = (self.port, &self.etcd_url, &self.builder.flags);
        // The server creates its certificate in `cert-dir`. Tokens of service accounts use its key.
        let defaults = format!(
            "bind-address=127.0.0.1 secure-port={port} advertise-address=127.0.0.1 \
             endpoint-reconciler-type=none etcd-servers={etcd_url} cert-dir=. \
             service-account-issuer=https://kubernetes.default.svc \
             service-account-key-file=apiserver.key service-account-signing-key-file=apiserver.key \
             service-cluster-ip-range=10.0.0.0/24 token-auth-file=tokens.csv \
             authorization-mode=RBAC disable-admission-plugins=ServiceAccount \
             allow-privileged=true shutdown-delay-duration=0s"
        );
        let name = |flag: &str| flag.split('=').next().map(str::to_owned);
        let is_default = |flag: &&str| flags.iter().all(|set| name(set) != name(flag));
        let defaults = defaults.split(' ').filter(is_default);
        let all = defaults.chain(flags.iter().map(String::as_str));
        all.map(|flag| format!("--{flag}")).collect()
    }

    fn log(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.log"))
    }

    /// Returns an error with the end of the log.
    fn with_log(&self, name: &str, problem: fmt::Arguments<'_>) -> io::Error {
        let log = fs::read(self.log(name)).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<_> = log.lines().collect();
        let last = lines[lines.len().saturating_sub(5)..].join("\n");
        let kind = match last.contains("address already in use") {
            true => io::ErrorKind::AddrInUse,
            false => io::ErrorKind::Other,
        };
        let problem = format!("{name} {problem}; the last lines of its log:\n{last}");
        io::Error::new(kind, problem)
    }
}

impl RealApiServerBuilder {
    /// Uses the programs in this folder instead of those that the environment names.
    pub fn assets(mut self, folder: impl Into<PathBuf>) -> Self {
        self.assets = Some(folder.into());
        self
    }

    /// Sets a flag of kube-apiserver: `apiserver_flag("feature-gates", "WatchList=false")`. A flag
    /// that this package sets is replaced.
    pub fn apiserver_flag(mut self, name: &str, value: impl fmt::Display) -> Self {
        self.flags.push(format!("{name}={value}"));
        self
    }

    /// Adds a bearer token with all rights.
    pub fn token(self, token: impl fmt::Display) -> Self {
        self.token_line(format_args!("{token},admin,1,system:masters"))
    }

    /// Adds a bearer token for `user`, who has no rights.
    pub fn token_without_rights(self, token: impl fmt::Display, user: impl fmt::Display) -> Self {
        self.token_line(format_args!("{token},{user},2"))
    }

    fn token_line(mut self, line: fmt::Arguments<'_>) -> Self {
        self.tokens += &format!("{line}\n");
        self
    }

    /// Sets how long a start can take. The default is one minute.
    pub fn start_timeout(mut self, timeout: Duration) -> Self {
        self.start_timeout = timeout;
        self
    }

    /// Starts the servers, and waits until they are ready.
    ///
    /// # Errors
    ///
    /// The errors of [`RealApiServer::start`].
    pub fn start(self) -> io::Result<RealApiServer> {
        for _ in 1..STARTS {
            match self.clone().launch() {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                result => return result,
            }
        }
        self.launch()
    }

    fn program(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.assets.as_ref().map(|folder| folder.join(name));
        let problem = match path.or_else(|| named_program(name)) {
            Some(path) if path.is_file() => return Ok(path),
            Some(path) => format!("there is no file {}", path.display()),
            None => format!("neither {} nor KUBEBUILDER_ASSETS is set", variable(name)),
        };
        Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!(
                "can't start {name}: {problem}; to get it, run \
                 `go install sigs.k8s.io/controller-runtime/tools/setup-envtest@latest` and \
                 `export KUBEBUILDER_ASSETS=$(setup-envtest use -p path)`"
            ),
        ))
    }

    fn launch(self) -> io::Result<RealApiServer> {
        let folder = std::env::temp_dir().join(format!("k8s-informer-{:016x}", random()));
        let [client_port, peer_port, port] = free_ports()?;
        let [etcd_url, peer_url] =
            [client_port, peer_port].map(|port| format!("http://127.0.0.1:{port}"));
        let etcd = format!(
            "name: default\ndata-dir: etcd-data\nlog-level: warn\nunsafe-no-fsync: true\n\
             enable-grpc-gateway: true\ninitial-cluster: default={peer_url}\n\
             listen-client-urls: {etcd_url}\nadvertise-client-urls: {etcd_url}\n\
             listen-peer-urls: {peer_url}\ninitial-advertise-peer-urls: {peer_url}\n"
        );
        let token = format!("{:016x}{:016x}", random(), random());
        let config = Config::new(format!("https://127.0.0.1:{port}"))
            .ca_file(folder.join("apiserver.crt"))
            .token(&token)
            .no_proxy();
        create_private(&folder)
            .map_err(|error| failed(format_args!("create {}", folder.display()), error))?;
        // The folder is removed when this value is dropped.
        let server = RealApiServer {
            builder: self.token(token),
            folder,
            port,
            etcd_url,
            config,
            client: OnceLock::new(),
            processes: Mutex::default(),
        };
        fs::write(server.folder.join("etcd.yaml"), etcd)?;
        fs::write(server.folder.join("tokens.csv"), &server.builder.tokens)?;
        server.resume()?;
        Ok(server)
    }
}

impl Drop for RealApiServer {
    fn drop(&mut self) {
        let [etcd, apiserver] = std::mem::take(self.processes.get_mut());
        drop(apiserver);
        drop(etcd);
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl fmt::Debug for RealApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RealApiServer({})", self.folder.display())
    }
}

/// Returns the variable of `envtest` that names a program.
fn variable(program: &str) -> String {
    format!("TEST_ASSET_{}", program.to_uppercase().replace('-', "_"))
}

/// Returns the path that the environment names. Like `envtest`, it prefers the variable of the
/// program. An empty variable counts as unset.
fn named_program(name: &str) -> Option<PathBuf> {
    let var = |name: &str| std::env::var_os(name).filter(|value: &OsString| !value.is_empty());
    let folder = || Some(PathBuf::from(var("KUBEBUILDER_ASSETS")?).join(name));
    var(&variable(name)).map(PathBuf::from).or_else(folder)
}

/// Creates a folder for secrets: only the user can read it.
fn create_private(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Waits until the user of `client` has the right to get `path`, where the server has nothing.
///
/// # Errors
///
/// Returns an error at the time limit. Other errors than a refusal, such as those of a connection,
/// say nothing about the rights of the user, and are returned at once.
fn wait_until_allowed(client: &Client, path: &str, timeout: Duration) -> Result<(), Error> {
    let (request, stop) = (Request::get(path), Stopper::new());
    let deadline = Instant::now() + timeout;
    loop {
        match client.request(&request, &stop) {
            Ok(_) => return Ok(()),
            // The request has passed the authorization.
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) if !error.is_forbidden() => return Err(error),
            Err(error) if Instant::now() >= deadline => {
                return Err(Error::other(format!(
                    "the rules of the account do not apply after {timeout:?}: {error}"
                )));
            }
            Err(_) => thread::park_timeout(TICK),
        }
    }
}

fn failed(what: impl fmt::Display, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("can't {what}: {error}"))
}

/// Returns free ports below the usual ephemeral ranges. Otherwise, a connection could get the port
/// of a server while it is down.
fn free_ports() -> io::Result<[u16; 3]> {
    let start = random() % 14_000;
    let free: Vec<u16> = (0..14_000)
        .map(|offset| 18_000 + ((start + offset) % 14_000) as u16)
        .filter(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .take(3)
        .collect();
    free.try_into()
        .map_err(|_| io::Error::other("fewer than 3 ports of 127.0.0.1 are free"))
}

/// Returns a number that cannot be guessed.
fn random() -> u64 {
    RandomState::new().hash_one(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ApiServer, Fault};

    const PATH: &str = "/rules-1";

    fn allowed(timeout: Duration, faults: impl IntoIterator<Item = Fault>) -> Result<(), Error> {
        let server = ApiServer::start().unwrap();
        for fault in faults {
            server.fail_next(fault);
        }
        let client = Client::new(Config::new(server.url())).unwrap();
        wait_until_allowed(&client, PATH, timeout)
    }

    #[test]
    fn account_is_ready_when_its_rules_apply() {
        let long = Duration::from_secs(60);
        allowed(long, []).unwrap();
        allowed(long, [Fault::status(403).times(3)]).unwrap();
    }

    #[test]
    fn account_whose_rules_never_apply_is_an_error() {
        let short = Duration::from_millis(50);
        let error = allowed(short, [Fault::status(403).times(usize::MAX)]).unwrap_err();
        let expected = "the rules of the account do not apply after 50ms: GET ";
        assert!(error.to_string().starts_with(expected), "{error}");
        // An error that says nothing about the rules is no success either.
        let error = allowed(short, [Fault::status(500)]).unwrap_err();
        assert!(error.is_internal_error(), "{error}");
    }
}
