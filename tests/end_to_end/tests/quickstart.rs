//! The screen of `examples/quickstart --live`.

use k8s_informer::{Client, Config, SharedInformerFactory, Stopper};
use k8s_informer_testing::ApiServer;
use serde_json::json;

use self::screen::{View, draw};

#[allow(dead_code, reason = "the example also prints Pods as lines of text")]
#[path = "../../../examples/quickstart/src/pod.rs"]
mod pod;
#[path = "../../../examples/quickstart/src/screen.rs"]
mod screen;

const TITLE: &str = "Ctrl-C ends this. Server: https://a.cluster.with.a.long.name.example:6443/";
const ERROR: &str = "backing off, not synced yet; objects listed 0, lists 1, watches 0, relists 0; last contact 0s ago; \
                     failures 1; last error 0s ago: list pods: pods is forbidden: User \"nobody\" cannot list resource \"pods\"";

/// Returns the lines of a screen. Checks the control sequences and removes them.
fn lines(
    status: &str,
    recent: &str,
    rows: &[[&str; 3]],
    height: usize,
    width: usize,
) -> Vec<String> {
    let header = [
        TITLE.to_owned(),
        "9 Pods of all namespaces in the cache, at version 41".to_owned(),
    ];
    let view = View {
        header: &header,
        status,
        recent,
        titles: ["NAMESPACE", "NAME", "NODE"],
    };
    let rows = rows.iter().map(|row| row.map(str::to_owned));
    let text = draw(&view, rows, height, width);
    let text = text
        .strip_prefix("\x1b[?7l\x1b[H")
        .expect("the text must disable wrapping and move the cursor home");
    let text = text
        .strip_suffix("\x1b[K\x1b[J\x1b[?7h")
        .expect("the text must erase the rest and enable wrapping");
    let lines: Vec<_> = text.split("\x1b[K\n").map(str::to_owned).collect();
    for line in &lines {
        assert!(!line.contains(char::is_control), "{line:?}");
        assert!(
            line.chars().count() < width.max(2),
            "{line:?} in {width} columns"
        );
    }
    assert!(lines.len() <= height, "{lines:#?} in {height} lines");
    lines
}

fn pods(names: &[String]) -> Vec<[&str; 3]> {
    names
        .iter()
        .map(|name| ["default", name.as_str(), "worker-1"])
        .collect()
}

#[test]
fn screen_fits_every_size_of_terminal() {
    let names: Vec<_> = (0..50).map(|n| format!("web-{n}")).collect();
    for height in 1..60 {
        for width in 1..100 {
            let lines = lines(ERROR, "+ default/web-0", &pods(&names), height, width);
            assert!(
                !(10..50).contains(&height) || lines.len() == height,
                "{lines:#?} in {height} lines"
            );
            assert!(
                width < 20 || lines[0].starts_with("Ctrl-C ends this"),
                "{lines:#?}"
            );
        }
    }
}

#[test]
fn screen_counts_rows_that_do_not_fit() {
    let names: Vec<_> = (0..9).map(|n| format!("web-{n}")).collect();
    let shown = lines("watching", "~ default/web-4", &pods(&names), 10, 60);
    assert_eq!(
        shown,
        [
            "Ctrl-C ends this. Server: https://a.cluster.with.a.long.na…",
            "9 Pods of all namespaces in the cache, at version 41",
            "watching",
            "~ default/web-4",
            "NAMESPACE  NAME   NODE",
            "default    web-0  worker-1",
            "default    web-1  worker-1",
            "default    web-2  worker-1",
            "default    web-3  worker-1",
            "… and 5 more",
        ]
    );
    assert_eq!(
        lines("watching", "", &pods(&names), 13, 60).last().unwrap(),
        "default    web-8  worker-1"
    );
    let tiny = lines("watching", "~ default/web-4", &pods(&names), 3, 30);
    assert_eq!(
        tiny,
        [
            "Ctrl-C ends this. Server: ht…",
            "9 Pods of all namespaces in …",
            "watching"
        ]
    );
}

#[test]
fn screen_shrinks_the_widest_columns() {
    let name = "a-deployment-with-a-very-long-name-6d4cf56db6-x7k2p";
    let shown = lines("watching", "", &[["default", name, "worker-1"]], 10, 45);
    assert_eq!(shown[3], "NAMESPACE  NAME                     NODE");
    assert_eq!(shown[4], "default    a-deployment-with-a-ve…  worker-1");
}

#[test]
fn screen_wraps_a_long_error() {
    let row = ["default", "web-0", "worker-1"];
    let shown = lines(ERROR, "", &[row], 12, 60);
    assert!(
        shown[2].starts_with("backing off") && shown[4].ends_with('…'),
        "{shown:#?}"
    );
    assert_eq!(shown[5], "NAMESPACE  NAME   NODE");
    let without_rows = lines(ERROR, "", &[], 8, 60);
    assert_eq!(without_rows[2..6].concat(), ERROR);
}

#[test]
fn screen_escapes_control_characters_of_objects() {
    let hostile = "evil\x1b[2J\x1b]0;title\x07\u{9b}31m\n\r\t\u{202e}";
    lines(hostile, hostile, &[[hostile, hostile, hostile]], 12, 200);

    let server = ApiServer::start().unwrap();
    let factory = SharedInformerFactory::new(Client::new(Config::new(server.url())).unwrap());
    let (pods, stop) = (factory.informer::<pod::Pod>(), Stopper::new());
    // Servers validate names. Other fields can contain anything.
    let object = json!({"metadata": {"name": "a"}, "spec": {"containers": []}, "status": {"phase": hostile}});
    server
        .create("/api/v1/namespaces/default/pods", object)
        .unwrap();
    factory.start(&stop).unwrap();
    factory.wait_for_cache_sync(None, &stop).unwrap();
    let [namespace, name, phase, ..] = pod::cells(&pods.lister().list()[0]);
    assert_eq!((namespace.as_str(), name.as_str()), ("default", "a"));
    assert_eq!(
        phase,
        r"evil\u{1b}[2J\u{1b}]0;title\u{7}\u{9b}31m\n\r\t\u{202e}"
    );
}
