//! When a client discovers resources again, and how a factory uses the result.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use k8s_informer::client::discovery::DiscoveredResource;
use k8s_informer::informer::{FactoryOptions, Source};
use k8s_informer::object::{GroupVersionKind, GroupVersionResource};
use k8s_informer::reflector::{ListWatch, ListerWatcher, ListerWatcherSource};
use k8s_informer::{Client, Config, SharedInformerFactory, Stop, Stopper};
use k8s_informer_testing::{ApiResource, ApiServer, Fault};
use serde_json::json;

use super::discovery::{
    aggregated, client, not_found, ok, path_of, recorded_server, serve_paths, unavailable,
};
use super::server::{Reply, SOON, Server, ServerEvent, reply};

/// A server, and the number of its requests.
fn counting(has_widgets: Arc<AtomicBool>) -> (Server, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let server = serve_paths(move |path| {
        counted.fetch_add(1, Ordering::SeqCst);
        let groups: &[(&str, &[&str])] = if has_widgets.load(Ordering::SeqCst) {
            &[("example.com", &["v1"])]
        } else {
            &[]
        };
        (path == "/apis").then(|| ok(&aggregated(groups)))
    });
    (server, count)
}

/// The number of requests of one discovery.
const REQUESTS_PER_DISCOVERY: usize = 2;

#[test]
fn concurrent_clones_share_one_discovery() {
    let (server, count) = counting(Arc::new(AtomicBool::new(true)));
    let client = client(&server);
    thread::scope(|scope| {
        for name in ["widgets", "wi", "Gadget", "gadgets.example.com"].repeat(4) {
            let client = client.clone();
            scope.spawn(move || {
                let resource: DiscoveredResource = client.discover(name, &Stop::never()).unwrap();
                assert_eq!(resource.resource.group, "example.com");
            });
        }
    });
    assert_eq!(count.load(Ordering::SeqCst), REQUESTS_PER_DISCOVERY);
}

#[test]
fn missing_name_triggers_rediscovery_at_limited_rate() {
    let has_widgets = Arc::new(AtomicBool::new(false));
    let (server, count) = counting(has_widgets.clone());
    let (client, stop) = (client(&server), Stopper::new());
    let discoveries = || count.load(Ordering::SeqCst) / REQUESTS_PER_DISCOVERY;

    // A name that is missing in a fresh discovery does not cause another one.
    let error = client.discover("widgets", &stop).unwrap_err();
    assert!(
        error.is_no_match() && error.to_string().starts_with("discover: "),
        "{error}"
    );
    assert_eq!(discoveries(), 1);
    has_widgets.store(true, Ordering::SeqCst);
    assert_eq!(
        client.discover("widgets", &stop).unwrap().kind.kind,
        "Widget"
    );
    assert_eq!(discoveries(), 2);
    // A known name causes no discovery. Soon after a discovery, an unknown name causes none either.
    for _ in 0..10 {
        client.discover("gadgets", &stop).unwrap();
        assert!(
            client
                .clone()
                .discover("gizmos", &stop)
                .unwrap_err()
                .is_no_match()
        );
    }
    assert_eq!(discoveries(), 2);
    // `rediscover` always sends requests.
    has_widgets.store(false, Ordering::SeqCst);
    assert!(client.rediscover(&stop).unwrap().resources().is_empty());
    assert!(
        client.discovery(&stop).unwrap().resources().is_empty(),
        "clones must share the rediscovered resources"
    );
    assert_eq!(discoveries(), 3);
}

#[test]
fn discover_kind_rediscovers_and_matches_exactly() {
    let has_widgets = Arc::new(AtomicBool::new(false));
    let (server, count) = counting(has_widgets.clone());
    let (client, stop) = (client(&server), Stopper::new());
    let kind = |api_version, kind| GroupVersionKind::of(api_version, kind);
    let find = |kind: &GroupVersionKind| client.discover_kind(kind, &stop);

    let widget = kind("example.com/v1", "Widget");
    let error = find(&widget).unwrap_err();
    assert!(error.is_no_match(), "{error}");
    assert_eq!(
        error.to_string(),
        "discover: the server has no kind \"example.com/v1 Widget\""
    );
    has_widgets.store(true, Ordering::SeqCst);
    assert_eq!(find(&widget).unwrap().resource.resource, "widgets");
    assert_eq!(count.load(Ordering::SeqCst), 2 * REQUESTS_PER_DISCOVERY);
    // Only the exact group, version and kind match.
    for other in [
        kind("example.com/v1", "widget"),
        kind("example.com/v2", "Widget"),
        kind("v1", "Widget"),
        kind("", "Widget"),
    ] {
        let error = find(&other).unwrap_err();
        assert!(
            error.is_no_match()
                && error
                    .to_string()
                    .contains("; similar names: widgets.example.com"),
            "{error}"
        );
    }
}

#[test]
fn kind_in_stale_version_is_not_reported_as_missing() {
    let server = serve_paths(|path| {
        let groups = json!({"kind": "APIGroupDiscoveryList", "items": [{
            "metadata": {"name": "example.com"},
            "versions": [{"version": "v1", "resources": [], "freshness": "Stale"}],
        }]});
        (path == "/apis").then(|| ok(&groups))
    });
    let (client, stop) = (client(&server), Stopper::new());
    let error = client
        .discover_kind(&GroupVersionKind::of("example.com/v1", "Widget"), &stop)
        .unwrap_err();
    assert!(!error.is_no_match(), "{error}");
    assert!(
        error.to_string().starts_with(
            "discover: the kind \"example.com/v1 Widget\": discovery of its group failed"
        ),
        "{error}"
    );
    let other = GroupVersionKind::of("example.com/v2", "Widget");
    assert!(
        client
            .discover_kind(&other, &stop)
            .unwrap_err()
            .is_no_match()
    );
}

#[test]
fn failed_discovery_is_retried_and_keeps_known_resources() {
    let works = Arc::new(AtomicBool::new(false));
    let server_works = works.clone();
    let server = serve_paths(move |path| match path {
        _ if !server_works.load(Ordering::SeqCst) => Some(unavailable()),
        "/apis" => Some(ok(&aggregated(&[("example.com", &["v1"])]))),
        _ => None,
    });
    let (client, stop) = (client(&server), Stopper::new());
    assert!(
        client
            .discover("widgets", &stop)
            .unwrap_err()
            .is_retryable()
    );
    works.store(true, Ordering::SeqCst);
    client.discover("widgets", &stop).unwrap();
    works.store(false, Ordering::SeqCst);
    assert!(client.rediscover(&stop).unwrap_err().is_retryable());
    client.discover("widgets", &stop).unwrap();
}

#[test]
fn stale_group_is_discovered_again() {
    let works = Arc::new(AtomicBool::new(false));
    let server_works = works.clone();
    let server = serve_paths(move |path| {
        let mut apis = aggregated(&[("example.com", &["v1"])]);
        if !server_works.load(Ordering::SeqCst) {
            apis["items"][0]["versions"][0]["freshness"] = "Stale".into();
        }
        (path == "/apis").then(|| ok(&apis))
    });
    let (client, stop) = (client(&server), Stopper::new());
    assert!(
        client
            .discover("widgets.example.com", &stop)
            .unwrap_err()
            .is_retryable()
    );
    works.store(true, Ordering::SeqCst);
    assert_eq!(
        client
            .discover("widgets.example.com", &stop)
            .unwrap()
            .kind
            .kind,
        "Widget"
    );
}

#[test]
fn stop_of_one_caller_does_not_end_discovery_of_others() {
    let hangs = Arc::new(AtomicBool::new(true));
    let server_hangs = hangs.clone();
    let server = Server::start(move |request| {
        match (server_hangs.load(Ordering::SeqCst), path_of(request)) {
            (true, _) => Reply::WriteAndHang(Vec::new()),
            (false, "/apis") => Reply::Write(ok(&aggregated(&[("example.com", &["v1"])]))),
            _ => Reply::Write(not_found()),
        }
    });
    let client = client(&server);
    let (first, second, third) = (Stopper::new(), Stopper::new(), Stopper::new());
    let start_discovery = |stop: &Stop| {
        let (client, stop) = (client.clone(), stop.clone());
        thread::spawn(move || client.discover("widgets", &stop))
    };
    let first_call = start_discovery(&first);
    assert!(matches!(server.next(), ServerEvent::Request(_)));
    let (second_call, third_call) = (start_discovery(&second), start_discovery(&third));

    second.stop();
    assert!(second_call.join().unwrap().unwrap_err().is_stopped());
    assert!(!first_call.is_finished() && !third_call.is_finished());
    // The third call waits for the discovery of the first call. When the first call is stopped, the
    // third call runs its own discovery.
    hangs.store(false, Ordering::SeqCst);
    first.stop();
    assert!(first_call.join().unwrap().unwrap_err().is_stopped());
    assert_eq!(third_call.join().unwrap().unwrap().kind.kind, "Widget");
    assert!(
        client.discover("widgets", &second).is_ok(),
        "a known resource must be returned without a wait"
    );
}

#[test]
fn discovery_of_silent_server_times_out() {
    let server = Server::mute();
    let config = Config::new(server.url()).response_timeout(Duration::from_millis(50));
    let error = Client::new(config)
        .unwrap()
        .discovery(&Stop::never())
        .unwrap_err();
    assert!(error.is_timeout(), "{error:?}");
}

#[test]
fn discovery_error_hides_token() {
    let server = serve_paths(|_| Some(reply("401 Unauthorized", "", "")));
    let client = Client::new(Config::new(server.url()).token("s3cret")).unwrap();
    let error = client.discover("pods", &Stop::never()).unwrap_err();
    assert!(error.is_unauthorized(), "{error:?}");
    assert!(!format!("{error} {error:?} {client:?}").contains("s3cret"));
    assert!(server.request().contains("authorization: Bearer s3cret"));
}

#[test]
fn factory_finds_resources_by_name() {
    let server = ApiServer::start().unwrap();
    let stop = Stopper::new();
    server
        .create(
            "/apis/apps/v1/namespaces/web/deployments",
            json!({"metadata": {"name": "a"}}),
        )
        .unwrap();
    server
        .create(
            "/apis/apps/v1/namespaces/db/deployments",
            json!({"metadata": {"name": "b"}}),
        )
        .unwrap();
    server
        .create("/api/v1/nodes", json!({"metadata": {"name": "n"}}))
        .unwrap();
    let client = Client::new(Config::new(server.url())).unwrap();
    let factory =
        SharedInformerFactory::with_options(client, FactoryOptions::new().namespace("web"));

    let by_name = factory.informer_for(Source::dynamic(
        factory.find_resource("deployments.apps", &stop).unwrap(),
    ));
    let by_resource = factory.informer_for(Source::dynamic(GroupVersionResource::new(
        "apps",
        "v1",
        "deployments",
    )));
    for name in ["deploy", "Deployment", "Deployment.v1.apps"] {
        let same =
            factory.informer_for(Source::dynamic(factory.find_resource(name, &stop).unwrap()));
        assert!(same.is_same(&by_name), "{name}");
    }
    assert!(by_resource.is_same(&by_name));
    factory.start(&stop).unwrap();
    factory.wait_for_cache_sync(SOON, &stop).unwrap();
    assert_eq!(
        by_name.lister().list().len(),
        1,
        "the informer must list only the factory's namespace"
    );

    let error = factory
        .find_resource("deployments.batch", &stop)
        .unwrap_err();
    assert!(
        error.is_no_match() && error.to_string().contains("deployments.apps"),
        "{error}"
    );
    let stopped = Stopper::new();
    stopped.stop();
    let other_server = SharedInformerFactory::new(self::client(&Server::mute()));
    assert!(
        other_server
            .find_resource("pods", &stopped)
            .unwrap_err()
            .is_stopped()
    );
    factory.shut_down(None).unwrap();
}

/// One of several API servers does not know a new definition yet.
#[test]
fn find_resource_asks_again_before_a_name_is_missing() {
    let server = ApiServer::builder()
        .resource(ApiResource::new("example.com", "v1", "gizmos", "Gizmo"))
        .start()
        .unwrap();
    let version = json!({"version": "v1", "freshness": "Current", "resources": [
        {"resource": "deployments", "responseKind": {"group": "", "version": "", "kind": "Deployment"},
         "scope": "Namespaced", "singularResource": "deployment", "verbs": ["list", "watch"]},
    ]});
    let document = json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {},
        "items": [{"metadata": {"name": "apps"}, "versions": [version]}],
    });
    let content_type = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let old = Fault::response(200, content_type, document.to_string());
    server.fail_next(old.when(|request| request.path() == "/apis").times(2));
    let client = Client::new(Config::new(server.url())).unwrap();
    let factory = SharedInformerFactory::new(client);
    let found = factory.find_resource("gizmos", &Stop::never()).unwrap();
    assert_eq!(
        found,
        GroupVersionResource::new("example.com", "v1", "gizmos")
    );
    assert_eq!(server.pending_faults(), 0);
}

#[test]
fn find_resource_rejects_unwatchable_resources() {
    let factory = SharedInformerFactory::new(client(&recorded_server()));
    for (name, verb) in [("tokenreviews", "list"), ("componentstatuses", "watch")] {
        let error = factory.find_resource(name, &Stop::never()).unwrap_err();
        let text = error.to_string();
        assert!(!error.is_no_match() && !error.is_retryable(), "{error:?}");
        assert!(
            text.starts_with(name) && text.contains(&format!("does not support the verb {verb}")),
            "{text}"
        );
    }
    factory
        .find_resource("componentstatuse", &Stop::never())
        .unwrap_err();
}

#[test]
fn find_resource_fails_for_source_without_discovery() {
    struct Nameless;
    impl ListerWatcherSource for Nameless {
        fn lister_watcher(
            &self,
            _: &GroupVersionResource,
            _: Option<&str>,
        ) -> Arc<dyn ListerWatcher> {
            Arc::new(ListWatch::new(|_, _| unreachable!(), |_, _| unreachable!()))
        }
    }
    let factory = SharedInformerFactory::new(Nameless);
    let error = factory
        .find_resource("deployments.apps", &Stop::never())
        .unwrap_err();
    assert!(
        error.to_string().contains("this source has no discovery"),
        "{error}"
    );
}
