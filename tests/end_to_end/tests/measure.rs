//! `examples/measure` counts correctly for every type of object.

use std::time::{SystemTime, UNIX_EPOCH};

use k8s_informer::Stopper;
use k8s_informer::client::Request;
use k8s_informer::reflector::ReflectorStatus;
use serde_json::json;

use self::arguments::Arguments;
use self::report::Report;
use self::run::{ProgressObserver, Run};
use self::table::Table;
use self::types::{TYPES, measure};
use crate::cluster::{
    BOTH, Cluster, ListMethod, Namespace, merge_patch, on_every_cluster, on_the_embedded_server,
};
use crate::support::free_port;

#[path = "../../../examples/measure/src/arguments.rs"]
mod arguments;
#[path = "../../../examples/measure/src/count.rs"]
mod count;
#[path = "../../../examples/measure/src/custom.rs"]
mod custom;
#[path = "../../../examples/measure/src/latency.rs"]
mod latency;
#[path = "../../../examples/measure/src/meter.rs"]
mod meter;
#[path = "../../../examples/measure/src/report.rs"]
mod report;
#[path = "../../../examples/measure/src/run.rs"]
mod run;
#[path = "../../../examples/measure/src/table.rs"]
mod table;
#[path = "../../../examples/measure/src/types.rs"]
mod types;

/// Calls a function once the informer has synced.
struct Synced<F>(F);

impl<F: FnMut()> ProgressObserver for Synced<F> {
    fn progress(&mut self, _: &ReflectorStatus) {}

    fn synced(&mut self, _: &Report) {
        (self.0)();
    }
}

/// Runs the example with this command line and returns its JSON report.
fn run<'a>(
    line: impl IntoIterator<Item = &'a str>,
    synced: impl FnMut(),
) -> Result<Report, String> {
    let line: Vec<_> = line.into_iter().collect();
    let report = || {
        let arguments = Arguments::parse(lexopt::Parser::from_args(&line))?.unwrap();
        let Arguments {
            config,
            resource,
            r#type,
            settings,
            json,
        } = arguments;
        assert_eq!(json, line.contains(&"--json"));
        let (stop, observer) = (Stopper::new(), &mut Synced(synced));
        measure(
            &r#type,
            &resource,
            Run {
                config,
                settings: &settings,
                stop: &stop,
                observer,
            },
        )
    };
    let report = report().map_err(|error| error.to_string())?;
    Ok(serde_json::from_str(&serde_json::to_string(&report).unwrap()).unwrap())
}

fn create(cluster: &Cluster, namespace: &Namespace<'_>, names: &[&str]) {
    for name in names {
        let spec = json!({"containers": [{"name": "main", "image": "busybox"}]});
        let pod = json!({"metadata": {"name": name, "labels": {"app": "web"}}, "spec": spec});
        cluster.send(Request::post(namespace.path("pods")).json(&pod).unwrap());
    }
}

#[test]
fn objects_and_events_are_counted_for_every_type() {
    on_every_cluster(BOTH, |cluster| {
        let kubeconfig = cluster.kubeconfigs().remove(0);
        for r#type in TYPES {
            let namespace = cluster.namespace("measure");
            create(cluster, &namespace, &["a", "b", "c"]);
            let pods = namespace.path("pods");
            let change = || {
                let now = SystemTime::now()
                    .duration_since(UNIX_EPOCH)
                    .unwrap()
                    .as_nanos();
                let stamp = json!({"example.com/sent-at": format!("{now:020}")});
                cluster.send(merge_patch(
                    &format!("{pods}/a"),
                    &json!({"metadata": {"annotations": stamp}}),
                ));
                let no_grace = json!({"gracePeriodSeconds": 0});
                cluster.send(
                    Request::delete(format!("{pods}/b"))
                        .json(&no_grace)
                        .unwrap(),
                );
            };
            let mut line = vec!["--type", r#type, "--selector", "app=web", "--handlers", "2"];
            line.extend([
                "--kubeconfig",
                kubeconfig.to_str().unwrap(),
                "--namespace",
                &namespace.name,
            ]);
            line.extend(["--events", "2", "--latency", "--json"]);
            if cluster.list_method == ListMethod::List {
                line.extend(["--page-size", "2"]);
            }
            let report = run(line, change).unwrap();
            assert_eq!((&*report.r#type, &*report.resource), (r#type, "pods"));
            assert_eq!((report.objects, report.unreadable), (3, 0));
            assert_eq!((report.handlers, report.events), (2, 2));
            assert_eq!(report.lists > 0, cluster.list_method == ListMethod::List);
            assert!(report.threads >= 5 && report.sync_seconds > 0.0 && report.resident_bytes > 0);
            let latency = report.latency.unwrap();
            assert!(
                latency.samples == 1 && latency.p50_us == latency.max_us,
                "{latency:?}"
            );
            let table = Table(&report).to_string();
            assert!(
                table.starts_with(&format!("pods as {type}\n  objects ")),
                "{table}"
            );
        }
    });
}

#[test]
fn resources_can_be_measured_by_plural_or_short_name() {
    on_the_embedded_server(BOTH, |cluster, _| {
        let kubeconfig = cluster.kubeconfigs().remove(0);
        let measure = |resource: &str, r#type: &str| {
            let path = kubeconfig.to_str().unwrap();
            run(
                [
                    resource,
                    "--type",
                    r#type,
                    "--seconds",
                    "0",
                    "--kubeconfig",
                    path,
                ],
                || {},
            )
        };
        let namespaces = measure("namespaces", "dynamic").unwrap();
        assert_eq!(
            measure("ns", "dynamic").unwrap().objects,
            namespaces.objects
        );
        let path = kubeconfig.to_str().unwrap();
        let alone = ["ns", "--type", "dynamic", "--one-thread", "--seconds", "0"];
        let alone = run(alone.into_iter().chain(["--kubeconfig", path]), || {}).unwrap();
        assert_eq!((alone.objects, alone.handlers), (namespaces.objects, 1));
        assert_eq!(
            measure("Namespace", "metadata").unwrap().objects,
            namespaces.objects
        );
        assert_eq!((namespaces.events, namespaces.latency.is_none()), (0, true));

        for (resource, r#type, why) in [
            ("gizmos", "dynamic", "gizmos"),
            (
                "gizmos",
                "k8s-openapi",
                "gizmos: --type k8s-openapi supports only pods, nodes, ",
            ),
            ("nodes", "custom", "--type custom supports only pods"),
            (
                "pods",
                "typed",
                "unknown type typed; expected one of k8s-openapi, custom, ",
            ),
        ] {
            let error = measure(resource, r#type).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    });
}

#[test]
fn absent_server_or_wrong_arguments_are_errors() {
    let closed_port = format!("http://127.0.0.1:{}", free_port());
    let error = run(["--server", &closed_port], || {}).unwrap_err();
    assert!(error.contains("127.0.0.1"), "{error}");
    for wrong in [
        &["--server", "http://a", "--context", "b"][..],
        &["--server", "http://a", "--handlers", "0"],
        &["--server", "http://a", "--seconds", "-1"],
        &["pods", "nodes"],
    ] {
        run(wrong.iter().copied(), || {}).unwrap_err();
    }
}
