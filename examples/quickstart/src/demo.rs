//! Runs an informer for Pods against an API server inside this program. The demo creates, changes
//! and deletes Pods while the informer watches.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use k8s_informer::client::Request;
use k8s_informer::handler::ResourceEventHandler;
use k8s_informer::{Client, Config, Deleted, Object, SharedInformerFactory, Stop, Stopper};
use k8s_informer_testing::ApiServer;
use serde_json::json;

use crate::pod::{Pod, head, row};

/// The pause between changes, so that you can watch them happen.
const PACE: Duration = Duration::from_millis(150);

const PODS: &str = "/api/v1/namespaces/default/pods";

pub(crate) fn run() -> Result<(), Box<dyn Error>> {
    // The test server acts as the cluster. For a real cluster, use Client::try_default().
    let server = ApiServer::start()?;
    let client = Client::new(Config::new(server.url()))?;
    println!("API server inside this program: {}\n", server.url());
    let stop = Stopper::new();
    create(&client, "early-0", "worker-1", &stop)?;

    // An informer is a cache, here with one index, that notifies handlers. Each of the two handlers
    // runs on its own thread.
    let factory = SharedInformerFactory::new(client.clone());
    let pods = factory.informer::<Pod>();
    pods.add_index("node", |pod| {
        pod.node().map(str::to_owned).into_iter().collect()
    })?;
    pods.add_event_handler(|handler| {
        handler
            .on_add(|pod, initial| {
                println!("+ {} {}", row(pod), if initial { "(initial)" } else { "" });
            })
            .on_update(|old, new| println!("~ {} (was {})", row(new), old.phase()))
            .on_delete(|gone| println!("- {}/{}", gone.namespace(), gone.name()))
    })?;
    let (counted, counts) = mpsc::channel();
    pods.add_handler(Tally(counted))?;

    // Now the informer runs: it lists, watches, fills the cache and calls the handlers.
    factory.start(&stop)?;
    factory.wait_for_cache_sync(None, &stop)?;
    println!("  synced: {} Pod\n", pods.lister().list().len());

    // Create, change and delete Pods with ordinary HTTP requests.
    println!("  {}", head());
    for (n, node) in ["worker-1", "worker-2", "worker-1", "worker-3"]
        .into_iter()
        .enumerate()
    {
        create(&client, &format!("web-{n}"), node, &stop)?;
    }
    for n in 0..4 {
        let running = json!({"status": {"phase": "Running"}});
        let patch = Request::patch(format!("{PODS}/web-{n}/status")).json(&running)?;
        client.request(&patch.content_type("application/merge-patch+json"), &stop)?;
        thread::sleep(PACE);
    }
    for name in ["web-1", "early-0"] {
        client.request(&Request::delete(format!("{PODS}/{name}")), &stop)?;
        thread::sleep(PACE);
    }

    // 11 events: 5 adds (one of them for the initial Pod), 4 updates and 2 deletes.
    let mut totals = BTreeMap::new();
    for what in counts.iter().take(11) {
        *totals.entry(what).or_insert(0) += 1;
    }
    println!("\nThe other handler counted {totals:?}.\n");

    println!("The cache, read through the lister:\n  {}", head());
    let lister = pods.lister();
    let mut all = lister.list();
    all.sort_by(|a, b| a.name().cmp(b.name()));
    for pod in &all {
        println!("  {}", row(pod));
    }
    let on_worker_1 = lister.by_index("node", "worker-1")?;
    let mut names: Vec<_> = on_worker_1.iter().map(|pod| pod.name()).collect();
    names.sort_unstable();
    println!("On worker-1, from the index: {}\n", names.join(", "));

    // Stop the informers of the factory and block until all their threads have ended.
    factory.shut_down(None)?;
    println!("Stopped: all threads have ended.");
    Ok(())
}

/// A custom handler type that sends the kind of each event.
struct Tally(mpsc::Sender<&'static str>);

impl Tally {
    fn count(&self, what: &'static str) {
        // The receiver is dropped when the demo ends.
        let _ = self.0.send(what);
    }
}

impl ResourceEventHandler<Pod> for Tally {
    fn on_add(&mut self, _: &Arc<Pod>, _: bool) {
        self.count("added");
    }

    fn on_update(&mut self, _: &Arc<Pod>, _: &Arc<Pod>) {
        self.count("updated");
    }

    fn on_delete(&mut self, _: &Deleted<Pod>) {
        self.count("deleted");
    }
}

fn create(client: &Client, name: &str, node: &str, stop: &Stop) -> Result<(), Box<dyn Error>> {
    let pod = json!({
        "metadata": {"name": name, "labels": {"app": "demo"}},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "demo:1"}]},
    });
    client.request(&Request::post(PODS).json(&pod)?, stop)?;
    thread::sleep(PACE);
    Ok(())
}
