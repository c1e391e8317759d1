//! Runs the controller against an API server inside this program, with concurrent changes and
//! failed requests.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use k8s_informer::testing::{ApiServer, Fault, RequestRecord, Verb};
use k8s_informer::{Client, Config, Stop};
use serde_json::{Value, json};

use crate::controller::{Action, NAME, Options, Outcome, TEAM, TeamController};
use crate::print;

/// The timeout of each step. It is much longer than any step takes.
const PATIENCE: Duration = Duration::from_secs(20);

const NAMESPACES: &str = "/api/v1/namespaces";

pub(crate) fn run(options: Options) -> Result<(), Box<dyn Error>> {
    let server = ApiServer::start()?;
    println!("API server inside this program: {}\n", server.url());
    let client = Client::new(Config::new(server.url()))?;
    let (sender, reports) = mpsc::channel();
    let controller = TeamController::new(client, options, move |namespace, outcome| {
        print(namespace, outcome);
        // The receiver is dropped when the demo ends.
        let _ = sender.send((namespace.to_owned(), kind(outcome)));
    })?;

    let stop = Stop::new();
    let counts = thread::scope(|scope| {
        let running = scope.spawn(|| controller.run(&stop).map_err(|error| error.to_string()));
        let played = play(&Stage {
            server: &server,
            reports: &reports,
        });
        println!("Stopping: the workers finish their keys and end, then the informers stop.");
        stop.stop();
        let ended = running.join().map_err(|_| "the controller panicked")?;
        ended.and(played.map_err(|error| error.to_string()))
    })?;
    println!("All threads have ended. Number of keys per outcome: {counts:?}");
    Ok(())
}

/// The number of keys per outcome.
type Counts = BTreeMap<&'static str, usize>;

fn kind(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Done(Action::Nothing) => "nothing to do",
        Outcome::Done(Action::Created) => "created",
        Outcome::Done(Action::Repaired) => "repaired",
        Outcome::Done(Action::Deleted) => "deleted",
        Outcome::Retry(error) if error.is_conflict() => "conflict",
        Outcome::Retry(_) => "retry",
        Outcome::GivenUp(_) => "gave up",
    }
}

fn play(stage: &Stage<'_>) -> Result<Counts, Box<dyn Error>> {
    let mut counts = Counts::new();
    let mut expect = |namespace, what| stage.expect(namespace, what, &mut counts);
    let server = stage.server;

    println!("Create two Namespaces, one with a team:");
    stage.namespace("plain", json!({}))?;
    stage.namespace("blue", json!({ TEAM: "sky" }))?;
    expect("blue", "created")?;

    println!("Delete the ConfigMap that the controller created:");
    server.delete(&map("blue"))?;
    expect("blue", "created")?;

    println!("Change the ConfigMap, and change it again while the controller repairs it:");
    server.fail_next(
        Fault::delay(Duration::from_millis(300))
            .on(Verb::Patch)
            .resource("configmaps"),
    );
    server.patch(&map("blue"), json!({ "data": { "team": "sea" } }))?;
    let is_patch = |request: &RequestRecord| request.verb() == Verb::Patch;
    server.wait_for_requests(|requests| requests.iter().any(is_patch), PATIENCE);
    server.patch(&map("blue"), json!({ "data": { "team": "lake" } }))?;
    expect("blue", "repaired")?;

    println!("Add the other Namespace to a team, while three requests fail:");
    server.fail_next(
        Fault::status(500)
            .on(Verb::Create)
            .resource("configmaps")
            .times(3),
    );
    stage.label("plain", json!("forest"))?;
    expect("plain", "created")?;

    println!("Add a third Namespace to a team; its ConfigMap of that name has another owner:");
    stage.namespace("red", json!({}))?;
    let foreign = json!({ "metadata": { "name": NAME }, "data": { "colour": "red" } });
    server.create(&format!("{NAMESPACES}/red/configmaps"), foreign)?;
    stage.label("red", json!("fire"))?;
    expect("red", "retry")?;
    println!("Delete the ConfigMap of the other owner:");
    server.delete(&map("red"))?;
    expect("red", "created")?;

    println!("Remove the first Namespace from its team:");
    stage.label("blue", Value::Null)?;
    expect("blue", "deleted")?;

    println!("\nConfigMaps at the end:");
    let query = format!("/api/v1/configmaps?fieldSelector=metadata.name%3D{NAME}");
    for map in server.list(&query)?["items"]
        .as_array()
        .into_iter()
        .flatten()
    {
        println!("  {}: {}", map["metadata"]["namespace"], map["data"]);
    }
    println!();
    Ok(counts)
}

/// The server of the demo, and the outcomes that the controller reports.
struct Stage<'a> {
    server: &'a ApiServer,
    reports: &'a mpsc::Receiver<(String, &'static str)>,
}

impl Stage<'_> {
    fn namespace(&self, name: &str, labels: Value) -> Result<(), Box<dyn Error>> {
        self.server.create(
            NAMESPACES,
            json!({ "metadata": { "name": name, "labels": labels } }),
        )?;
        Ok(())
    }

    fn label(&self, namespace: &str, team: Value) -> Result<(), Box<dyn Error>> {
        let labels = json!({ "metadata": { "labels": { TEAM: team } } });
        self.server
            .patch(&format!("{NAMESPACES}/{namespace}"), labels)?;
        Ok(())
    }

    /// Waits until the outcome of `namespace` is `what`. Counts all outcomes in the meantime.
    fn expect(
        &self,
        namespace: &str,
        what: &str,
        counts: &mut Counts,
    ) -> Result<(), Box<dyn Error>> {
        loop {
            let timed_out = |_| format!("{namespace}: timed out waiting for the outcome {what:?}");
            let (of, kind) = self.reports.recv_timeout(PATIENCE).map_err(timed_out)?;
            *counts.entry(kind).or_insert(0) += 1;
            if of == namespace && kind == what {
                return Ok(());
            }
        }
    }
}

fn map(namespace: &str) -> String {
    format!("{NAMESPACES}/{namespace}/configmaps/{NAME}")
}
