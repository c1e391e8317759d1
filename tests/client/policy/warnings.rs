use std::sync::{Arc, Mutex};

use k8s_informer::client::{Request, Warning};
use k8s_informer::object::GroupVersionResource;
use k8s_informer::reflector::ListOptions;
use k8s_informer::time::RateLimit;
use k8s_informer::{Client, Config, Stop};

use super::logged;
use crate::client::server::{Reply, Server, reply};

const DEPRECATED: &str = "Warning: 299 - \"v1 ComponentStatus is deprecated in v1.19+\"\r\n";

fn get(client: &Client, path: &str) {
    client
        .request(&Request::get(path), &Stop::never())
        .unwrap()
        .bytes()
        .unwrap();
}

fn recording_client(server: &Server) -> (Client, Arc<Mutex<Vec<Warning>>>) {
    let recorded = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&recorded);
    let config = Config::new(server.url()).on_warning(move |warning| {
        sink.lock().unwrap().push(warning.clone());
    });
    (Client::new(config).unwrap(), recorded)
}

#[test]
fn each_warning_text_is_logged_once_per_client() {
    let server = Server::start(|request| {
        let other = if request.contains("/other") {
            "Warning: 299 - \"another\"\r\n"
        } else {
            ""
        };
        Reply::Write(reply("200 OK", &format!("{DEPRECATED}{other}"), "{}"))
    });
    logged(&server);
    let client = Client::new(Config::new(server.url())).unwrap();
    for path in ["/first?token=s3cret", "/second", "/other", "/other"] {
        get(&client.clone(), path);
    }
    let line = |path: &str, text: &str| {
        format!(
            "WARN GET {}{path}: warning from the server: {text}",
            server.url()
        )
    };
    let deprecated = "v1 ComponentStatus is deprecated in v1.19+";
    assert_eq!(
        logged(&server),
        [line("/first", deprecated), line("/other", "another")]
    );
    get(&Client::new(Config::new(server.url())).unwrap(), "/third");
    assert_eq!(logged(&server).last(), Some(&line("/third", deprecated)));
}

#[test]
fn invalid_warnings_are_dropped_and_long_ones_truncated() {
    let long = "x".repeat(9000);
    let bytes = format!(
        "Warning: 110 - \"stale\"\r\nWarning: 299 - \"\"\r\n\
         Warning: 299 - \"{long}\", nonsense, 299 - \"after nonsense\"\r\nWarning: nonsense\r\n"
    );
    let server = Server::start(move |_| Reply::Write(reply("200 OK", &bytes, "{}")));
    logged(&server);
    get(&Client::new(Config::new(server.url())).unwrap(), "/");
    let lines = logged(&server);
    let [line] = &*lines else { panic!("{lines:?}") };
    assert!(
        line.ends_with(&format!(": {}…", "x".repeat(1024))),
        "{} bytes",
        line.len()
    );
}

#[test]
fn warning_handler_receives_all_and_disables_logging() {
    let server = Server::start(|_| {
        let headers = "Warning: 299 - \"one\", 299 me \"t\\\"wo\" \"Tue, 15 Nov 1994 08:12:31 GMT\"\r\n\
                       Warning: 110 proxy:80 \"stale\"\r\n";
        Reply::Write(reply("200 OK", headers, "{}"))
    });
    logged(&server);
    let (client, recorded) = recording_client(&server);
    get(&client, "/");
    get(&client, "/");
    let recorded: Vec<_> = recorded
        .lock()
        .unwrap()
        .iter()
        .map(|warning| (warning.code, warning.agent.clone(), warning.text.clone()))
        .collect();
    let expected = [
        (299, "-", "one"),
        (299, "me", "t\"wo"),
        (110, "proxy:80", "stale"),
    ]
    .map(|(code, agent, text)| (code, agent.to_owned(), text.to_owned()));
    assert_eq!(recorded, [expected.clone(), expected].concat());
    assert!(logged(&server).is_empty(), "{:?}", logged(&server));
}

#[test]
fn warnings_of_failures_lists_and_watches_are_delivered() {
    let server = Server::start(|request| match request {
        request if request.starts_with("POST") => Reply::Write(reply("422 No", DEPRECATED, "no")),
        _ => Reply::Write(reply("200 OK", DEPRECATED, "{}")),
    });
    let (client, recorded) = recording_client(&server);
    client
        .request(&Request::post("/"), &Stop::never())
        .unwrap_err();
    assert_eq!(recorded.lock().unwrap().len(), 1);
    let pods = client.lister_watcher(&GroupVersionResource::new("", "v1", "pods"), None);
    pods.list(&ListOptions::default(), &Stop::never()).unwrap();
    assert_eq!(recorded.lock().unwrap().len(), 2);
    pods.watch(&ListOptions::default(), &Stop::never()).unwrap();
    assert_eq!(recorded.lock().unwrap().len(), 3);
}

#[test]
fn handler_panic_is_logged_and_keeps_connection() {
    let server = Server::start(|_| Reply::Write(reply("200 OK", DEPRECATED, "{}")));
    logged(&server);
    let client =
        Client::new(Config::new(server.url()).on_warning(|_| panic!("not {}", "today"))).unwrap();
    get(&client, "/");
    get(&client, "/");
    assert_eq!(server.accepted(), 1, "the connection must be reused");
    let line = format!(
        "ERROR GET {}/: the warning handler panicked: not today",
        server.url()
    );
    assert_eq!(logged(&server), [line.clone(), line]);
}

#[test]
fn config_debug_names_warning_handler_and_limits() {
    let config = Config::new("http://127.0.0.1:1")
        .on_warning(|_| {})
        .rate_limit(RateLimit::per_second(1.5).burst(2))
        .body_limit(7);
    let text = format!("{config:?}");
    for part in [
        "on_warning: Some(WarningHandler { .. })",
        "rate_limit: Some(RateLimit { per_second: 1.5, burst: 2 })",
        "body_limit: 7",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
}
