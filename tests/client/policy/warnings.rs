use std::sync::{Arc, Mutex};

use k8s_informer::client::{Request, Warning};
use k8s_informer::object::GroupVersionResource;
use k8s_informer::reflector::ListOptions;
use k8s_informer::{Client, Config, Stop};

use super::logged;
use crate::client::server::{Reply, Server, reply};

const DEPRECATED: &str = "Warning: 299 - \"v1 ComponentStatus is deprecated in v1.19+\"\r\n";

fn get(client: &Client, path: &str) {
    client
        .request(&Request::get(path), &Stop::new())
        .unwrap()
        .bytes()
        .unwrap();
}

fn noting(server: &Server) -> (Client, Arc<Mutex<Vec<Warning>>>) {
    let noted = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&noted);
    let config = Config::new(server.url()).on_warning(move |warning| {
        notes.lock().unwrap().push(warning.clone());
    });
    (Client::new(config).unwrap(), noted)
}

#[test]
fn each_text_is_logged_once_a_client() {
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
        format!("WARN GET {}{path}: the server warns: {text}", server.url())
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
fn what_is_logged_is_short_and_has_no_control_characters() {
    let long = "x".repeat(9000);
    let bytes = format!(
        "Warning: 299 - \"=?utf-8?q?=1b[31mred?=\"\r\nWarning: 110 - \"stale\"\r\nWarning: 299 - \"\"\r\n\
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
fn warning_handler_gets_every_warning_and_none_is_logged() {
    let server = Server::start(|_| {
        let headers = "Warning: 299 - \"one\", 299 me \"t\\\"wo\" \"Tue, 15 Nov 1994 08:12:31 GMT\"\r\n\
                       Warning: 110 proxy:80 \"stale\"\r\n";
        Reply::Write(reply("200 OK", headers, "{}"))
    });
    logged(&server);
    let (client, noted) = noting(&server);
    get(&client, "/");
    get(&client, "/");
    let noted: Vec<_> = noted
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
    assert_eq!(noted, [expected.clone(), expected].concat());
    assert!(logged(&server).is_empty(), "{:?}", logged(&server));
}

#[test]
fn failures_lists_and_watches_have_warnings_too() {
    let server = Server::start(|request| match request {
        request if request.starts_with("POST") => Reply::Write(reply("422 No", DEPRECATED, "no")),
        _ => Reply::Write(reply("200 OK", DEPRECATED, "{}")),
    });
    let (client, noted) = noting(&server);
    client
        .request(&Request::post("/"), &Stop::new())
        .unwrap_err();
    assert_eq!(noted.lock().unwrap().len(), 1);
    let pods = client.lister_watcher(&GroupVersionResource::new("", "v1", "pods"), None);
    pods.list(&ListOptions::default(), &Stop::new()).unwrap();
    assert_eq!(noted.lock().unwrap().len(), 2);
    pods.watch(&ListOptions::default(), &Stop::new()).unwrap();
    assert_eq!(noted.lock().unwrap().len(), 3);
}

#[test]
fn a_panic_of_the_handler_costs_nothing_but_a_line() {
    let server = Server::start(|_| Reply::Write(reply("200 OK", DEPRECATED, "{}")));
    logged(&server);
    let client =
        Client::new(Config::new(server.url()).on_warning(|_| panic!("not {}", "today"))).unwrap();
    get(&client, "/");
    get(&client, "/");
    assert_eq!(server.accepted(), 1, "the connection is as good as before");
    let line = format!(
        "ERROR GET {}/: the handler of warnings panicked: not today",
        server.url()
    );
    assert_eq!(logged(&server), [line.clone(), line]);
}

#[test]
fn a_handler_and_metrics_are_not_shown() {
    let config = Config::new("http://127.0.0.1:1")
        .on_warning(|_| {})
        .rate_limit(1.5, 2)
        .body_limit(7);
    let text = format!("{config:?}");
    for part in [
        "on_warning: Some(WarningHandler)",
        "rate_limit: Some((1.5, 2))",
        "body_limit: 7",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
}
