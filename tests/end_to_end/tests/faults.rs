//! Faults are reported, and the informer continues.

use std::time::{Duration, Instant};

use k8s_informer::reflector::ReflectorState;
use k8s_informer::{Error, SharedIndexInformer, SharedInformerFactory, Stopper};
use k8s_informer_testing::{ApiServer, Fault, Verb};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use crate::cluster::{
    BOTH, Cluster, LIST, ListMethod, on_every_disposable_cluster, on_the_embedded_server,
};
use crate::support::{Follower, PATIENCE, shut_down, wait_until};

fn start(
    cluster: &Cluster,
) -> (
    SharedInformerFactory,
    SharedIndexInformer<ConfigMap>,
    Stopper,
) {
    let factory = cluster.factory_with(|options| options.namespace("default"));
    let (maps, stop) = (factory.informer::<ConfigMap>(), Stopper::new());
    factory.start(&stop).unwrap();
    (factory, maps, stop)
}

/// Waits until the last error in the informer's status matches `like`, and returns it.
#[track_caller]
fn error_like(maps: &SharedIndexInformer<ConfigMap>, like: impl Fn(&Error) -> bool) -> Error {
    let error = wait_until("the status has the error", || {
        maps.status().last_error.filter(&like)
    });
    println!("  {error}");
    error
}

/// Makes the first list fail and returns the error in the informer's status. The informer still
/// syncs.
fn first_list_fails(cluster: &Cluster, server: &ApiServer, fault: Fault) -> Error {
    server.clear_requests();
    server.fail_next(fault.on(Verb::List).resource("configmaps").times(2));
    let (factory, maps, stop) = start(cluster);
    factory.wait_for_cache_sync(None, &stop).unwrap();
    let status = maps.status();
    let lists = server
        .requests()
        .iter()
        .filter(|request| request.verb() == Verb::List)
        .count();
    assert_eq!((lists, server.pending_faults()), (3, 0));
    // If a pooled connection turns out to be closed, the client repeats the request itself, so two
    // requests may count as one list.
    assert!((2..=3).contains(&status.lists), "{status:?}");
    shut_down(&factory, "after a failed list");
    let error = status.last_error.unwrap();
    println!("  {error}");
    assert!(
        error
            .to_string()
            .starts_with("list configmaps in namespace \"default\": "),
        "{error}"
    );
    error
}

#[test]
fn forbidden_list_is_retried_until_allowed() {
    on_the_embedded_server(LIST, |cluster, server| {
        let error = first_list_fails(cluster, server, Fault::status_with_message(403, "not yet"));
        assert!(
            error.is_forbidden() && error.to_string().ends_with(": not yet (403 Forbidden)"),
            "{error}"
        );
    });
}

#[test]
fn retry_after_of_a_429_is_respected() {
    on_the_embedded_server(LIST, |cluster, server| {
        let start = Instant::now();
        let error = first_list_fails(
            cluster,
            server,
            Fault::status(429).header("Retry-After", "1"),
        );
        assert!(error.is_too_many_requests(), "{error:?}");
        assert_eq!(error.retry_after(), Some(Duration::from_secs(1)));
        assert!(
            start.elapsed() >= Duration::from_secs(2),
            "two waits of one second each: {:?}",
            start.elapsed()
        );
    });
}

#[test]
fn plain_text_error_body_is_in_the_error() {
    on_the_embedded_server(LIST, |cluster, server| {
        let oops = Fault::response(500, "text/plain", "etcd is\nnot well\n");
        let error = first_list_fails(cluster, server, oops);
        assert!(
            error.is_internal_error() && error.is_retryable(),
            "{error:?}"
        );
        assert!(
            error.to_string().ends_with(": etcd is not well (500)"),
            "{error}"
        );
    });
}

#[test]
fn html_truncated_or_closed_list_is_retried() {
    on_the_embedded_server(LIST, |cluster, server| {
        let html = Fault::response(200, "text/html", "<html>Please log in</html>");
        let error = first_list_fails(cluster, server, html);
        assert!(
            error.is_decode() && !error.to_string().contains("log in"),
            "{error}"
        );
        let half = Fault::response(
            200,
            "application/json",
            r#"{"kind":"List","items":[{"metadata":{"#,
        );
        assert!(first_list_fails(cluster, server, half).is_decode());
        assert!(first_list_fails(cluster, server, Fault::close()).is_connection());
    });
}

#[test]
fn garbage_line_restarts_only_the_watch() {
    on_the_embedded_server(BOTH, |cluster, server| {
        let path = "/api/v1/namespaces/default/configmaps";
        let object = |name: &str| json!({ "metadata": { "name": name } });
        let (factory, maps, stop) = start(cluster);
        let follower = Follower::default();
        maps.add_handler(follower.clone()).unwrap();
        factory.wait_for_cache_sync(None, &stop).unwrap();
        server.wait_for_watches(1, PATIENCE).unwrap();
        server.create(path, object("a")).unwrap();
        let version = server.resource_version();
        follower.wait_for_events(&["+a"]);

        server.write_to_watches("{\"type\": s3cret garbage}\n");
        let error = error_like(&maps, Error::is_decode);
        let text = error.to_string();
        assert!(
            text.starts_with("watch configmaps in namespace \"default\": "),
            "the error must name the watch: {text}"
        );
        assert!(
            text.contains(&format!("(last version {version})")),
            "the error must name the version: {text}"
        );
        assert!(!text.contains("s3cret"), "{text}");
        server.create(path, object("b")).unwrap();
        follower.wait_for_events(&["+a", "+b"]);
        let status = maps.status();
        let lists = u64::from(cluster.list_method == ListMethod::List);
        assert_eq!(
            (status.lists, status.watches),
            (lists, 2),
            "the watch continues at its last version"
        );

        // Neither an event with an object of the wrong shape nor a truncated event leads to a list.
        server.write_to_watches("{\"type\":\"ADDED\",\"object\":{\"metadata\":[7]}}\n");
        server.create(path, object("c")).unwrap();
        follower.wait_for_events(&["+a", "+b", "+c"]);
        server.write_to_watches("{\"type\":\"ADDED\",\"obj");
        server.cut_watches();
        server.create(path, object("d")).unwrap();
        follower.wait_for_events(&["+a", "+b", "+c", "+d"]);
        assert_eq!(follower.known().problems, [""; 0]);
        assert_eq!(maps.status().lists, lists);
        shut_down(&factory, "after garbage");
    });
}

/// All cases share one outage, because an outage takes seconds on a real server.
#[test]
fn absent_server_is_retried_without_blocking_others() {
    on_every_disposable_cluster(BOTH, |cluster| {
        let (watching, maps, stop) = start(cluster);
        watching.wait_for_cache_sync(None, &stop).unwrap();
        let (silent, own_maps, _) = start(cluster);
        silent.wait_for_cache_sync(None, &stop).unwrap();
        wait_until("the informer watches", || {
            (own_maps.status().state == ReflectorState::Watching).then_some(())
        });
        shut_down(&silent, "in a silent watch");

        cluster.kill();
        error_like(&maps, Error::is_connection_refused);
        shut_down(&watching, "during the outage");

        let (early, maps, _) = start(cluster);
        let error = error_like(&maps, Error::is_connection_refused);
        assert!(
            error.is_connection() && error.is_retryable() && !error.is_config(),
            "{error:?}"
        );
        let text = error.to_string();
        let verb = if cluster.list_method == ListMethod::WatchList {
            "watch"
        } else {
            "list"
        };
        assert!(
            text.starts_with(&format!("{verb} configmaps in namespace \"default\": GET ")),
            "{text}"
        );
        assert!(
            text.contains(cluster.url()) && text.contains("refused"),
            "{text}"
        );
        let (never, maps_of_never, _) = start(cluster);
        error_like(&maps_of_never, Error::is_connection_refused);
        shut_down(&never, "before the first contact");
        assert!(!maps_of_never.has_synced());

        cluster.restart();
        early.wait_for_cache_sync(None, &stop).unwrap();
        // The status follows the cache with a delay.
        wait_until("the informer watches", || {
            (maps.status().state == ReflectorState::Watching).then_some(())
        });
        let status = maps.status();
        assert!(
            status.lists.max(status.watches) > 1 && status.listed,
            "{status:?}"
        );
        shut_down(&early, "after the outage");
    });
}
