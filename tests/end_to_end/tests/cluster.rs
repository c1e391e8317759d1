//! Runs a test against different servers without changes to the test.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use k8s_informer::client::Request;
use k8s_informer::informer::FactoryOptions;
use k8s_informer::reflector::ReflectorOptions;
use k8s_informer::{Client, Config, Error, SharedInformerFactory, Stop};
use k8s_informer_testing::{self, ApiServer, ApiServerBuilder, RealApiServer};
use parking_lot::{Mutex, RwLock};
use serde_json::{Value, json};

use crate::local;
use crate::proxy::{Proxy, authority};
use crate::reader::READER;
use crate::support::{
    Folder, Versions, assert_no_thread_since, free_port, quick, threads, wait_until,
};

/// How an informer gets the initial objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListMethod {
    /// With a watch that starts with the initial objects.
    WatchList,
    /// With a LIST.
    List,
}

/// For tests that run with both list methods.
pub(crate) const BOTH: &[ListMethod] = &[ListMethod::WatchList, ListMethod::List];
/// For tests of watch-lists.
pub(crate) const WATCH_LIST: &[ListMethod] = &[ListMethod::WatchList];
/// For tests of LIST.
pub(crate) const LIST: &[ListMethod] = &[ListMethod::List];

/// The kube-apiserver that this process started. Tests that kill it hold the lock exclusively.
static OWN_SERVER: RwLock<()> = RwLock::new(());

/// Runs a test with each list method, against the embedded server and, if one is available, against
/// a real server.
pub(crate) fn on_every_cluster(list_methods: &[ListMethod], test: impl Fn(&Cluster)) {
    run_on_embedded(list_methods, &test);
    match Real::from_environment() {
        Some(Real {
            existing: Some(kubeconfig),
            ..
        }) => run(list_methods, || Cluster::existing(&kubeconfig), &test),
        Some(_) => run_on_shared(list_methods, &test),
        _ => println!(
            "skipped on a real server: neither USE_EXISTING_CLUSTER with KUBECONFIG nor KUBEBUILDER_ASSETS is set"
        ),
    }
}

/// Runs a test only against servers that it may kill, not against an existing cluster.
pub(crate) fn on_every_disposable_cluster(list_methods: &[ListMethod], test: impl Fn(&Cluster)) {
    run_on_embedded(list_methods, &test);
    match Real::from_environment() {
        Some(Real {
            starts_servers: true,
            ..
        }) => {
            let _alone = OWN_SERVER.write();
            run(list_methods, || Cluster::local(local::shared()), &test);
        }
        _ => println!(
            "skipped on a real server: it would be killed, and KUBEBUILDER_ASSETS is not set to start another"
        ),
    }
}

/// Runs a test against the embedded server only, because it needs behavior that a real server does
/// not offer.
pub(crate) fn on_the_embedded_server(
    list_methods: &[ListMethod],
    test: impl Fn(&Cluster, &ApiServer),
) {
    run_on_embedded(list_methods, &|cluster: &Cluster| {
        let Kind::Embedded { server, .. } = &cluster.kind else {
            unreachable!()
        };
        test(cluster, server);
    });
}

/// Runs a test against the embedded server, unless `REAL_SERVERS_ONLY` is set: CI tests the
/// embedded server in another job.
fn run_on_embedded(list_methods: &[ListMethod], test: &impl Fn(&Cluster)) {
    if !skips_embedded() {
        run(list_methods, Cluster::embedded, test);
    }
}

fn skips_embedded() -> bool {
    env::var_os("REAL_SERVERS_ONLY").is_some()
}

/// Runs a test on a separate cluster for each list method, so that no run sees objects of another
/// run.
fn run(list_methods: &[ListMethod], cluster: impl Fn() -> Cluster, test: &impl Fn(&Cluster)) {
    for &list_method in list_methods {
        let cluster = Cluster {
            list_method,
            ..cluster()
        };
        if list_method == ListMethod::WatchList && !cluster.has_watch_lists() {
            println!("skipped on {}: it has no watch-lists", cluster.url());
        } else {
            cluster.run(test);
        }
    }
}

/// Runs a test against servers without watch-lists, with options that request a watch-list.
pub(crate) fn on_every_cluster_without_watch_lists(test: impl Fn(&Cluster)) {
    if !skips_embedded() {
        Cluster::start_embedded(ApiServer::builder().watch_list(false)).run(&test);
    }
    if let Some(Real {
        starts_servers: true,
        ..
    }) = Real::from_environment()
    {
        Cluster::local(local::start(Some("WatchList=false")).unwrap()).run(&test);
    } else {
        println!("skipped on a real server: KUBEBUILDER_ASSETS is not set to start one");
    }
}

/// Runs a test against servers that limit lists and watches to shards and against servers that do
/// not. [`Cluster::supports_shards`] distinguishes them.
pub(crate) fn on_every_cluster_with_and_without_shards(
    list_methods: &[ListMethod],
    test: impl Fn(&Cluster),
) {
    let run_on = |sharded: bool, cluster: &dyn Fn() -> Cluster| {
        run(list_methods, cluster, &|cluster: &Cluster| {
            assert_eq!(cluster.supports_shards(), sharded);
            test(cluster);
        });
    };
    for sharded in [false, true].into_iter().filter(|_| !skips_embedded()) {
        let builder = || ApiServer::builder().sharded_list_and_watch(sharded);
        run_on(sharded, &|| Cluster::start_embedded(builder()));
    }
    let Some(real) = Real::from_environment() else {
        return println!("skipped on a real server: the environment configures none");
    };
    let existing = real.existing.map(|kubeconfig| {
        let sharded = Cluster::existing(&kubeconfig).supports_shards();
        run_on(sharded, &|| Cluster::existing(&kubeconfig));
        sharded
    });
    if !real.starts_servers {
        return println!(
            "skipped with the other shard setting: KUBEBUILDER_ASSETS is not set to start a server"
        );
    }
    if existing != Some(false) {
        let _up = OWN_SERVER.read();
        run_on(false, &|| Cluster::local(local::shared()));
    }
    if existing != Some(true) {
        match local::start(Some("ShardedListAndWatch=true")) {
            Ok(server) => run_on(true, &|| Cluster::local(Arc::clone(&server))),
            Err(error) if error.to_string().contains("ShardedListAndWatch") => println!(
                "skipped on a real server with shards: this kube-apiserver does not support them"
            ),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Runs a test on the server that this process shares, while no test kills it.
fn run_on_shared(list_methods: &[ListMethod], test: &impl Fn(&Cluster)) {
    let _up = OWN_SERVER.read();
    run(list_methods, || Cluster::local(local::shared()), test);
}

/// A running test. When the last concurrent test ends, all threads started since must be gone.
struct Running;

struct RunningTests {
    count: usize,
    threads_before: BTreeMap<String, String>,
}

static RUNNING: Mutex<Option<RunningTests>> = Mutex::new(None);

impl Running {
    fn begin() -> Self {
        // Linux cuts the names of threads to 15 bytes, and `threads` ignores those with `::`.
        let current = thread::current();
        let name = current.name().unwrap_or_default();
        assert!(
            name.find("::").is_none_or(|end| end <= 13),
            "rename the module to at most 13 bytes: {name}"
        );
        let mut running = RUNNING.lock();
        let tests = running.get_or_insert_with(|| RunningTests {
            count: 0,
            threads_before: threads(),
        });
        tests.count += 1;
        Self
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut running = RUNNING.lock();
        let Some(tests) = running.as_mut() else {
            return;
        };
        tests.count -= 1;
        if tests.count == 0
            && let Some(tests) = running.take()
            && !thread::panicking()
        {
            assert_no_thread_since(&tests.threads_before);
        }
    }
}

/// The real servers that the environment offers.
struct Real {
    existing: Option<PathBuf>,
    /// Whether the tests can start servers of their own.
    starts_servers: bool,
}

impl Real {
    fn from_environment() -> Option<Self> {
        let existing = match (
            env::var("USE_EXISTING_CLUSTER").as_deref(),
            env::var_os("KUBECONFIG"),
        ) {
            (Ok("true"), Some(files)) => env::split_paths(&files).next(),
            _ => None,
        };
        let starts_servers = RealApiServer::is_configured();
        let real = (existing.is_some() || starts_servers).then_some(Self {
            existing,
            starts_servers,
        });
        assert!(
            real.is_some() || !skips_embedded(),
            "REAL_SERVERS_ONLY is set, but no real server; set KUBEBUILDER_ASSETS, or \
             USE_EXISTING_CLUSTER=true and KUBECONFIG"
        );
        real
    }
}

/// The token with all rights on the embedded server.
pub(crate) const ADMIN: &str = "embedded-admin";

pub(crate) struct Cluster {
    kind: Kind,
    pub(crate) list_method: ListMethod,
    /// The admin's kubeconfig. The other kubeconfigs are in the same folder.
    kubeconfig: PathBuf,
    client: Client,
}

enum Kind {
    Embedded { server: ApiServer, _folder: Folder },
    Existing,
    Local(Arc<RealApiServer>),
}

impl Cluster {
    fn embedded() -> Self {
        Self::start_embedded(ApiServer::builder())
    }

    fn start_embedded(builder: ApiServerBuilder) -> Self {
        let (token, nobody) = (ADMIN, "embedded-nobody");
        let server = builder
            .port(free_port())
            .token(token)
            .token(READER)
            .token_without_rights(nobody, "token-nobody")
            .start()
            .unwrap();
        let folder = Folder::new();
        folder.write("token", token);
        for (name, user) in [
            ("kubeconfig", json!({ "tokenFile": "token" })),
            ("kubeconfig-token", json!({ "token": token })),
            ("kubeconfig-nobody", json!({ "token": nobody })),
            ("kubeconfig-reader", json!({ "token": READER })),
        ] {
            let text = json!({
                "clusters": [{ "name": "loopback", "cluster": { "server": server.url() } }],
                "users": [{ "name": "user", "user": user }],
                "contexts": [{ "name": "test", "context": { "cluster": "loopback", "user": "user" } }],
                "current-context": "test",
            });
            folder.write(name, text.to_string());
        }
        let kubeconfig = folder.path().join("kubeconfig");
        Self::new(
            Kind::Embedded {
                server,
                _folder: folder,
            },
            kubeconfig,
        )
    }

    fn existing(kubeconfig: &Path) -> Self {
        Self::new(Kind::Existing, kubeconfig.to_owned())
    }

    fn local(server: Arc<RealApiServer>) -> Self {
        let kubeconfig = server.folder().join("kubeconfig");
        Self::new(Kind::Local(server), kubeconfig)
    }

    fn new(kind: Kind, kubeconfig: PathBuf) -> Self {
        let client = Client::new(Config::from_kubeconfig(&kubeconfig, None).unwrap()).unwrap();
        Self {
            kind,
            list_method: ListMethod::WatchList,
            kubeconfig,
            client,
        }
    }

    fn run(&self, test: &impl Fn(&Self)) {
        let kind = match &self.kind {
            Kind::Embedded { .. } => "the embedded server",
            Kind::Existing => "the existing cluster",
            Kind::Local(_) => "a local kube-apiserver",
        };
        println!(
            "on {kind} at {}, by {:?}",
            self.client.server(),
            self.list_method
        );
        let start = Instant::now();
        let running = Running::begin();
        test(self);
        drop(running);
        println!("on {kind}: {:?}", start.elapsed());
    }

    /// Returns a client with all rights.
    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    /// Returns options with short waits and the list method of this cluster.
    pub(crate) fn options(&self) -> ReflectorOptions {
        let mut options = quick();
        options.watch_list = self.list_method == ListMethod::WatchList;
        options
    }

    /// Returns options of a factory with [`options`](Self::options).
    pub(crate) fn factory_options(&self) -> FactoryOptions {
        FactoryOptions::new().reflector(self.options())
    }

    /// Returns a factory with all rights and [`options`](Self::options).
    pub(crate) fn factory(&self) -> SharedInformerFactory {
        self.factory_with(|options| options)
    }

    /// Like [`factory`](Self::factory), with other options added.
    pub(crate) fn factory_with(
        &self,
        configure: impl FnOnce(FactoryOptions) -> FactoryOptions,
    ) -> SharedInformerFactory {
        SharedInformerFactory::with_options(self.client(), configure(self.factory_options()))
    }

    /// Whether the server supports watch-lists. Only a rejection of the parameters means that it
    /// does not: a server that has just started can respond with other errors.
    pub(crate) fn has_watch_lists(&self) -> bool {
        let request = Request::get("/api/v1/namespaces/default/configmaps")
            .query("watch", "true")
            .query("sendInitialEvents", "true")
            .query("resourceVersionMatch", "NotOlderThan")
            .query("timeoutSeconds", "1");
        wait_until("the server starts or rejects a watch-list", || {
            match self.client.request(&request, &Stop::never()) {
                Ok(_) => Some(true),
                Err(error) => error.is_invalid().then_some(false),
            }
        })
    }

    /// The minor version of Kubernetes, such as 36.
    pub(crate) fn minor(&self) -> u32 {
        let version = server_version(&self.client);
        version.split('.').nth(1).unwrap().parse().unwrap()
    }

    /// Whether the server filters by shard, because its gate ShardedListAndWatch is on (SH3).
    pub(crate) fn supports_shards(&self) -> bool {
        let half = "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')";
        let request =
            Request::get("/api/v1/namespaces/default/configmaps").query("shardSelector", half);
        !self.send(request)["metadata"]["shardInfo"].is_null()
    }

    pub(crate) fn url(&self) -> &str {
        self.client.server()
    }

    /// Returns a kubeconfig for each form of credentials.
    pub(crate) fn kubeconfigs(&self) -> Vec<PathBuf> {
        let others = [
            "kubeconfig-pkcs1",
            "kubeconfig-ec",
            "kubeconfig-ec-sec1",
            "kubeconfig-token",
        ];
        let others = others.map(|name| self.kubeconfig.with_file_name(name));
        let mut all = vec![self.kubeconfig.clone()];
        all.extend(others.into_iter().filter(|path| path.exists()));
        all
    }

    /// Returns the kubeconfig of `token-nobody`, which has no rights.
    pub(crate) fn unprivileged_kubeconfig(&self) -> Option<PathBuf> {
        Some(self.kubeconfig.with_file_name("kubeconfig-nobody")).filter(|path| path.exists())
    }

    /// Returns the kubeconfig that [`Reader`](crate::reader::Reader) uses.
    pub(crate) fn reader_kubeconfig(&self) -> Option<PathBuf> {
        match &self.kind {
            Kind::Embedded { .. } => Some(self.kubeconfig.with_file_name("kubeconfig-reader")),
            _ => self.unprivileged_kubeconfig(),
        }
    }

    pub(crate) fn embedded_server(&self) -> Option<&ApiServer> {
        match &self.kind {
            Kind::Embedded { server, .. } => Some(server),
            _ => None,
        }
    }

    /// Kills the server and all its connections at once.
    pub(crate) fn kill(&self) {
        match &self.kind {
            Kind::Embedded { server, .. } => server.pause(),
            Kind::Local(server) => server.pause(),
            Kind::Existing => panic!("an existing cluster must not be killed"),
        }
    }

    /// Deletes ConfigMaps by path while the server is down. No watch reports the deletions.
    pub(crate) fn delete_unseen(&self, paths: &[String]) {
        match &self.kind {
            Kind::Embedded { server, .. } => {
                for path in paths {
                    server.delete(path).unwrap();
                }
                // A kube-apiserver that has just started has no watch events of the past either.
                server.forget_events();
            }
            Kind::Local(server) => paths
                .iter()
                .for_each(|path| local::delete_from_etcd(server, path)),
            Kind::Existing => panic!("an existing cluster must not be killed"),
        }
    }

    /// Compacts the server: drops all states before the current one.
    pub(crate) fn compact(&self) {
        match &self.kind {
            Kind::Embedded { server, .. } => server.compact(),
            Kind::Local(server) => local::compact(server),
            Kind::Existing => panic!("an existing cluster must not be compacted"),
        }
    }

    /// Starts the server again with its previous data.
    pub(crate) fn restart(&self) {
        match &self.kind {
            Kind::Embedded { server, .. } => server.resume().unwrap(),
            Kind::Local(server) => server.resume().unwrap(),
            Kind::Existing => panic!("an existing cluster must not be killed"),
        }
    }

    /// Returns a backup of the current state for [`restore`](Self::restore). The server may be down
    /// for a moment.
    pub(crate) fn backup(&self) -> Backup {
        match &self.kind {
            Kind::Embedded { server, .. } => Backup(Some(server.backup())),
            Kind::Local(server) => {
                local::backup(server);
                Backup(None)
            }
            Kind::Existing => panic!("an existing cluster must not be killed"),
        }
    }

    /// Takes the server down and restarts it in the state of the backup.
    pub(crate) fn restore(&self, backup: &Backup) {
        match (&self.kind, backup) {
            (Kind::Embedded { server, .. }, Backup(Some(backup))) => {
                server.pause();
                server.restore(backup).unwrap();
                server.resume().unwrap();
            }
            (Kind::Local(server), _) => local::restore(server),
            _ => panic!(
                "an existing cluster cannot be restored, or the backup is of another cluster"
            ),
        }
    }

    /// Returns a disturbable network in front of the server.
    pub(crate) fn proxy(&self) -> Proxy {
        Proxy::to(self.url())
    }

    /// Returns a client with all rights that connects through `proxy`.
    pub(crate) fn client_through(&self, proxy: &Proxy) -> Client {
        self.client_of(&self.kubeconfig, proxy)
    }

    /// Returns a client with this kubeconfig that connects through `proxy`.
    pub(crate) fn client_of(&self, kubeconfig: &Path, proxy: &Proxy) -> Client {
        let host = authority(self.url()).rsplit_once(':').unwrap().0;
        let text = fs::read_to_string(kubeconfig).unwrap();
        let text = text.replace(authority(self.url()), &proxy.address().to_string());
        // Write the copy into the folder of the original, because the paths in a kubeconfig are
        // relative. But never write into the folder of an existing cluster's kubeconfig.
        let folder = Folder::new();
        let path = match &self.kind {
            Kind::Existing => folder.path().join("kubeconfig"),
            // Tests use several proxies at once.
            _ => kubeconfig.with_file_name(format!("kubeconfig-{}", proxy.address().port())),
        };
        fs::write(&path, text).unwrap();
        Client::new(
            Config::from_kubeconfig(path, None)
                .unwrap()
                .tls_server_name(host),
        )
        .unwrap()
    }

    /// Returns the current ConfigMaps of the namespace: key to version.
    pub(crate) fn versions(&self, namespace: &Namespace<'_>) -> Versions {
        versions(&self.send(Request::get(namespace.path("configmaps"))))
    }

    /// Sends a request that must succeed.
    #[track_caller]
    pub(crate) fn send(&self, request: Request) -> Value {
        self.try_send(request)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    pub(crate) fn try_send(&self, request: Request) -> Result<Value, Error> {
        self.client.request(&request, &Stop::never())?.json()
    }

    /// Waits until lists that accept any version, such as the first one of an informer, show the
    /// current state of an object. A real server answers them from its cache.
    pub(crate) fn wait_until_listed(&self, path: &str) {
        if matches!(self.kind, Kind::Embedded { .. }) {
            return;
        }
        let get = |request| self.try_send(request).ok();
        wait_until("the cache of the server has the object", || {
            let current = get(Request::get(path))?;
            let cached = get(Request::get(path).query("resourceVersion", "0"))?;
            (cached == current).then_some(())
        });
    }

    /// Creates a namespace for this test.
    pub(crate) fn namespace(&self, purpose: &str) -> Namespace<'_> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        // The time makes the name differ from namespaces that a killed run left behind.
        let millis = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_millis();
        let name = format!(
            "e2e-{purpose}-{millis:x}-{}",
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let namespace = json!({ "metadata": { "name": name } });
        self.send(
            Request::post("/api/v1/namespaces")
                .json(&namespace)
                .unwrap(),
        );
        Namespace {
            cluster: self,
            name,
        }
    }
}

/// A backup made by [`Cluster::backup`].
pub(crate) struct Backup(Option<k8s_informer_testing::Backup>);

/// A namespace that is deleted with its objects on drop.
pub(crate) struct Namespace<'a> {
    cluster: &'a Cluster,
    pub(crate) name: String,
}

impl Namespace<'_> {
    /// Returns `/api/v1/namespaces/NAME/RESOURCE`.
    pub(crate) fn path(&self, resource: &str) -> String {
        format!("/api/v1/namespaces/{}/{resource}", self.name)
    }

    #[track_caller]
    pub(crate) fn create(&self, name: &str, labels: Value) -> Value {
        let object =
            json!({ "metadata": { "name": name, "labels": labels }, "data": { "round": "0" } });
        let path = self.path("configmaps");
        let created = self
            .cluster
            .send(Request::post(&path).json(&object).unwrap());
        self.wait_until_listed(name);
        created
    }

    /// Like [`Cluster::wait_until_listed`], for a ConfigMap.
    pub(crate) fn wait_until_listed(&self, name: &str) {
        let path = format!("{}/{name}", self.path("configmaps"));
        self.cluster.wait_until_listed(&path);
    }

    #[track_caller]
    pub(crate) fn patch(&self, name: &str, patch: &Value) -> Value {
        self.cluster.send(merge_patch(
            &format!("{}/{name}", self.path("configmaps")),
            patch,
        ))
    }

    #[track_caller]
    pub(crate) fn delete(&self, name: &str) {
        self.cluster.send(Request::delete(format!(
            "{}/{name}",
            self.path("configmaps")
        )));
    }
}

impl Drop for Namespace<'_> {
    fn drop(&mut self) {
        let Self { cluster, name } = &*self;
        let clean = || {
            let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{name}/leases");
            for path in [
                self.path("configmaps"),
                self.path("pods"),
                self.path("events"),
                leases,
            ] {
                // Delete without a grace period, because otherwise a Pod would wait for a kubelet.
                let no_grace = json!({ "gracePeriodSeconds": 0 });
                cluster.try_send(Request::delete(path).json(&no_grace)?)?;
            }
            let mut terminating =
                cluster.try_send(Request::delete(format!("/api/v1/namespaces/{name}")))?;
            // A bare API server has no controller that removes the finalizers.
            terminating["spec"]["finalizers"] = json!([]);
            let finalize =
                Request::put(format!("/api/v1/namespaces/{name}/finalize")).json(&terminating)?;
            // Ignore the result: if there is a controller, it may have removed the finalizers
            // first.
            let _ = cluster.try_send(finalize);
            Ok::<_, Error>(())
        };
        if let Err(error) = clean() {
            println!("namespace {name} was not deleted: {error}");
        }
    }
}

/// Returns the version of a server, such as `v1.36.3`.
fn server_version(client: &Client) -> String {
    let request = Request::get("/version");
    let version: Value = client
        .request(&request, &Stop::never())
        .unwrap()
        .json()
        .unwrap();
    version["gitVersion"].as_str().unwrap().to_owned()
}

/// Checks the version that `.ci/kubernetes_versions` expects.
pub(crate) fn assert_expected_version(client: &Client) {
    if let Ok(expected) = env::var("EXPECTED_KUBERNETES") {
        let version = server_version(client);
        assert!(version.starts_with(&format!("v{expected}.")), "{version}");
    }
}

pub(crate) fn merge_patch(path: &str, patch: &Value) -> Request {
    Request::patch(path)
        .json(patch)
        .unwrap()
        .content_type("application/merge-patch+json")
}

/// Returns the keys and versions of a list.
pub(crate) fn versions(list: &Value) -> Versions {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let version = |item: &Value| {
        let metadata = &item["metadata"];
        let key = format!(
            "{}/{}",
            text(&metadata["namespace"]),
            text(&metadata["name"])
        );
        (key, text(&metadata["resourceVersion"]))
    };
    list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(version)
        .collect()
}
