use std::time::{Duration, UNIX_EPOCH};

use super::*;
use crate::metrics::{LastState, ReconcileResult};
use k8s_informer::__private::sync::thread;

/// Returns the lines of the samples whose name starts with `prefix`, without buckets.
fn samples(registry: &MetricsRegistry, prefix: &str) -> Vec<String> {
    let text = registry.render();
    let lines = text.lines().filter(|line| line.starts_with(prefix));
    let lines = lines.filter(|line| !line.contains("_bucket{"));
    lines.map(str::to_owned).collect()
}

#[test]
fn cr7_series_of_a_controller_are_0_from_the_start() {
    let registry = MetricsRegistry::new();
    registry.controller_metrics("team").unwrap();
    assert_eq!(
        samples(&registry, "controller_runtime_"),
        [
            r#"controller_runtime_active_workers{controller="team"} 0"#,
            r#"controller_runtime_consistency_wait_duration_seconds_sum{controller="team"} 0"#,
            r#"controller_runtime_consistency_wait_duration_seconds_count{controller="team"} 0"#,
            r#"controller_runtime_max_concurrent_reconciles{controller="team"} 0"#,
            r#"controller_runtime_reconcile_errors_total{controller="team"} 0"#,
            r#"controller_runtime_reconcile_panics_total{controller="team"} 0"#,
            r#"controller_runtime_reconcile_time_seconds_sum{controller="team"} 0"#,
            r#"controller_runtime_reconcile_time_seconds_count{controller="team"} 0"#,
            r#"controller_runtime_reconcile_timeouts_total{controller="team"} 0"#,
            r#"controller_runtime_reconcile_total{controller="team",result="error"} 0"#,
            r#"controller_runtime_reconcile_total{controller="team",result="requeue"} 0"#,
            r#"controller_runtime_reconcile_total{controller="team",result="requeue_after"} 0"#,
            r#"controller_runtime_reconcile_total{controller="team",result="success"} 0"#,
            r#"controller_runtime_terminal_reconcile_errors_total{controller="team"} 0"#,
            r#"controller_runtime_vanished_objects_total{controller="team",last_state="final"} 0"#,
            r#"controller_runtime_vanished_objects_total{controller="team",last_state="tombstone"} 0"#,
        ]
    );
}

#[test]
fn cr7_terminal_error_is_counted_as_an_error_too() {
    let registry = MetricsRegistry::new();
    let metrics = registry.controller_metrics("team").unwrap();
    metrics.reconciled(ReconcileResult::Error, Duration::from_millis(500));
    metrics.reconciled(ReconcileResult::TerminalError, Duration::from_millis(250));
    metrics.panicked();
    metrics.timed_out();
    metrics.max_concurrent_reconciles(4);
    metrics.active_workers(2);
    metrics.waited_for_own_writes(Duration::from_millis(1500));
    metrics.vanished(LastState::Tombstone);
    let values: Vec<String> = samples(&registry, "controller_runtime_")
        .iter()
        .filter_map(|line| Some(line.rsplit_once(' ')?.1.to_owned()))
        .collect();
    assert_eq!(
        values,
        [
            "2", "1.5", "1", "4", "2", "1", "0.75", "2", "1", "2", "0", "0", "0", "1", "0", "1"
        ]
    );
}

#[test]
fn histogram_buckets_are_cumulative_with_inclusive_bounds() {
    let registry = MetricsRegistry::new();
    let metrics = registry.work_queue_metrics("team").unwrap();
    for millis in [0, 1, 2, 2_000_000] {
        metrics.work_duration(Duration::from_millis(millis));
    }
    let text = registry.render();
    let head = "workqueue_work_duration_seconds_bucket{name=\"team\",controller=\"team\",le=";
    let buckets: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix(head))
        .collect();
    assert_eq!(
        buckets,
        [
            r#""0.00000001"} 1"#,
            r#""0.0000001"} 1"#,
            r#""0.000001"} 1"#,
            r#""0.00001"} 1"#,
            r#""0.0001"} 1"#,
            r#""0.001"} 2"#,
            r#""0.01"} 3"#,
            r#""0.1"} 3"#,
            r#""1"} 3"#,
            r#""10"} 3"#,
            r#""100"} 3"#,
            r#""1000"} 3"#,
            r#""+Inf"} 4"#,
        ]
    );
    let count = "workqueue_work_duration_seconds_count{name=\"team\",controller=\"team\"} 4";
    assert!(text.lines().any(|line| line == count));
}

#[test]
fn label_values_are_escaped() {
    let registry = MetricsRegistry::new();
    registry.leader_election_metrics("a\\b\"c\nd é").slow_path();
    assert_eq!(
        samples(&registry, "leader_election_slowpath"),
        [r#"leader_election_slowpath_total{name="a\\b\"c\nd é"} 1"#]
    );
}

#[test]
fn families_are_sorted_and_each_has_one_head() {
    let registry = MetricsRegistry::new();
    for name in ["b", "a", "c"] {
        registry.controller_metrics(name);
        registry.work_queue_metrics(name);
        registry.leader_election_metrics(name);
    }
    registry.client_metrics().request("500", "GET", "host:1");
    registry
        .client_metrics()
        .request("<error>", "GET", "host:1");
    let text = registry.render();
    let heads = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let names: Vec<&str> = heads.filter_map(|head| head.split(' ').next()).collect();
    let mut sorted = names.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(names, sorted);
    let mut family = "";
    for line in text.lines() {
        match line.strip_prefix("# ") {
            Some(head) => family = head.split(' ').nth(1).unwrap(),
            None => assert!(
                line.starts_with(family),
                "{line} after the head of {family}"
            ),
        }
    }
    assert_eq!(text, registry.render());
}

#[test]
fn series_of_informers_end_with_the_last_informer() {
    let pods = GroupVersionResource::new("", "v1", "pods");
    let registry = MetricsRegistry::new();
    let version = |value| {
        let labels = r#"{name="team",group="",version="v1",resource="pods"}"#;
        format!("informer_store_resource_version{labels} {value}")
    };
    let old = registry.informer_metrics("team", &pods).unwrap();
    old.store_resource_version(7);
    assert_eq!(samples(&registry, "informer_store"), [version(7)]);
    let new = registry.informer_metrics("team", &pods).unwrap();
    old.ended();
    assert_eq!(samples(&registry, "informer_store"), [version(7)]);
    new.ended();
    assert_eq!(registry.render(), "");
    old.store_resource_version(8);
    assert_eq!(registry.render(), "");
    let next = registry.informer_metrics("team", &pods).unwrap();
    assert_eq!(samples(&registry, "informer_store"), [version(0)]);
    next.ended();
    assert_eq!(registry.render(), "");
}

#[test]
fn certificate_expiry_is_rendered_as_the_time_left() {
    let registry = MetricsRegistry::new();
    let metrics = registry.client_metrics();
    let ttl = |seconds| {
        let text = registry
            .series
            .render(UNIX_EPOCH + Duration::from_secs(seconds));
        let name = "rest_client_exec_plugin_ttl_seconds ";
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(name));
        lines.next().unwrap().to_owned()
    };
    assert_eq!(ttl(1_000), "+Inf");
    metrics.certificate_expiry(Some(UNIX_EPOCH + Duration::from_secs(1_600)));
    assert_eq!(ttl(1_000), "600");
    assert_eq!(ttl(2_000), "-400");
    metrics.certificate_expiry(None);
    assert_eq!(ttl(1_000), "+Inf");
}

#[test]
fn concurrent_updates_are_all_counted() {
    const UPDATES: usize = 2_000;
    let registry = MetricsRegistry::new();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let metrics = registry.controller_metrics("team").unwrap();
                for _ in 0..UPDATES {
                    metrics.reconciled(ReconcileResult::Success, Duration::from_millis(500));
                }
            });
        }
        for _ in 0..20 {
            registry.render();
        }
    });
    let expected = |suffix: &str, value: usize| {
        let name = "controller_runtime_reconcile_";
        format!("{name}{suffix} {value}")
    };
    let lines = samples(&registry, "controller_runtime_reconcile_t");
    for line in [
        expected(r#"time_seconds_sum{controller="team"}"#, 2 * UPDATES),
        expected(r#"time_seconds_count{controller="team"}"#, 4 * UPDATES),
        expected(r#"total{controller="team",result="success"}"#, 4 * UPDATES),
    ] {
        assert!(lines.contains(&line), "{line} is missing in {lines:?}");
    }
}

#[test]
fn metrics_of_the_program_are_rendered_with_the_others() {
    let registry = MetricsRegistry::new();
    let hosts = registry
        .gauge("b_hosts", "Hosts,\nin \\ all.", &[])
        .unwrap();
    hosts.set(f64::NEG_INFINITY);
    registry.gauge("b_hosts", "", &[]).unwrap().set(1.5);
    hosts.add(-2.0);
    let calls = |result| registry.counter("a_calls_total", "Calls.", &[("result", result)]);
    calls("ok").unwrap().add(2);
    calls("\"no\"").unwrap().clone().increment();
    calls("ok").unwrap().increment();
    let times = registry
        .histogram("c_seconds", "Times.", &[0.1, 1.0], &[("a", "b")])
        .unwrap();
    for value in [0.1, 0.2, f64::NAN] {
        times.observe(value);
    }
    registry.append(String::new);
    registry.append(|| "# TYPE d gauge\nd 1".to_owned());
    registry.append(|| panic!("no cache"));
    registry.append(|| "e 2\n".to_owned());
    assert_eq!(
        registry.render(),
        r#"# HELP a_calls_total Calls.
# TYPE a_calls_total counter
a_calls_total{result="\"no\""} 1
a_calls_total{result="ok"} 3
# HELP b_hosts Hosts,\nin \\ all.
# TYPE b_hosts gauge
b_hosts -0.5
# HELP c_seconds Times.
# TYPE c_seconds histogram
c_seconds_bucket{a="b",le="0.1"} 1
c_seconds_bucket{a="b",le="1"} 2
c_seconds_bucket{a="b",le="+Inf"} 3
c_seconds_sum{a="b"} NaN
c_seconds_count{a="b"} 3
# TYPE d gauge
d 1
e 2
"#
    );
    hosts.set(f64::NEG_INFINITY);
    assert!(registry.render().contains("b_hosts -Inf\n"));
}

#[test]
fn invalid_metric_of_the_program_is_refused_with_the_reason() {
    let registry = MetricsRegistry::new();
    registry.controller_metrics("team");
    registry.counter("calls", "", &[]).unwrap();
    registry.counter("callsigns", "", &[]).unwrap();
    registry.histogram("times", "", &[1.0], &[]).unwrap();
    let counter = |name, labels: &[(&str, &str)]| registry.counter(name, "", labels).map(drop);
    let histogram =
        |name, bounds, labels: &[_]| registry.histogram(name, "", bounds, labels).map(drop);
    for (refused, reason) in [
        (counter("", &[]), "a name consists of letters"),
        (counter("3calls", &[]), "a name consists of letters"),
        (counter("dns-calls", &[]), "a name consists of letters"),
        (counter("anrufgrün", &[]), "a name consists of letters"),
        (
            counter("workqueue_x", &[]),
            "\"workqueue_\" belong to k8s-informer",
        ),
        (counter("a", &[("b:c", "")]), "invalid label \"b:c\""),
        (counter("a", &[("__b", "")]), "invalid label \"__b\""),
        (
            counter("a", &[("b", "1"), ("b", "2")]),
            "\"b\" occurs twice",
        ),
        (histogram("a", &[1.0], &[("le", "")]), "use another name"),
        (
            histogram("a", &[1.0, 1.0], &[]),
            "each greater than the one before",
        ),
        (histogram("a", &[f64::NAN], &[]), "must be finite"),
        (histogram("a", &[f64::INFINITY], &[]), "must be finite"),
        (
            histogram("calls", &[1.0], &[("a", "b")]),
            "another type or other buckets",
        ),
        (
            histogram("times", &[2.0], &[("a", "b")]),
            "another type or other buckets",
        ),
        (registry.gauge("calls", "", &[]).map(drop), "another type"),
    ] {
        let error = refused.unwrap_err();
        assert!(error.to_string().contains(reason), "{reason}: {error}");
        assert!(error.is_config() || !error.is_retryable(), "{error:?}");
    }
    assert!(!registry.render().contains(" a "));
    counter("a:b_c9", &[("le", "x")]).unwrap();
    histogram("empty", &[], &[]).unwrap();
}
