use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use k8s_informer::client::Request;
use k8s_informer::client::api::{Api, DeleteOptions};
use k8s_informer::object::GroupVersionResource;
use k8s_informer::reflector::ListOptions;
use k8s_informer::{Client, Config, DynamicObject, Error, Stop, Stopper};

use crate::client::server::{Reply, SOON, Server, first_chunk, read_request, reply};

/// Ten bytes.
const BODY: &str = r#"{"a":"bc"}"#;

fn bytes(config: Config, request: &Request) -> Result<Vec<u8>, Error> {
    Client::new(config)
        .unwrap()
        .request(request, &Stop::never())?
        .bytes()
}

#[test]
fn request_body_limit_overrides_client_body_limit() {
    let server = Server::answering(BODY);
    let config = || Config::new(server.url());
    let get = || Request::get("/path");
    assert_eq!(
        bytes(config().body_limit(10), &get()).unwrap(),
        BODY.as_bytes()
    );
    assert_eq!(
        bytes(config().body_limit(9), &get().body_limit(10)).unwrap(),
        BODY.as_bytes()
    );
    bytes(config().body_limit(u64::MAX), &get()).unwrap();
    for (config, request) in [
        (config().body_limit(9), get()),
        (config(), get().body_limit(9)),
        (config().body_limit(10), get().body_limit(9)),
    ] {
        let error = bytes(config, &request).unwrap_err();
        assert!(error.is_decode(), "{error:?}");
        let expected = format!(
            "GET {}/path: unexpected response: the body is larger than 9 bytes",
            server.url()
        );
        assert_eq!(error.to_string(), expected);
    }
    let error = bytes(config().body_limit(0), &get()).unwrap_err();
    assert!(
        error.to_string().ends_with("larger than 0 bytes"),
        "{error}"
    );
}

#[test]
fn too_large_content_length_is_rejected_at_once() {
    let server = Server::start(|_| {
        Reply::WriteAndHang(b"HTTP/1.1 200 OK\r\nContent-Length: 1048577\r\n\r\n".to_vec())
    });
    let error = bytes(
        Config::new(server.url()).body_limit(1 << 20),
        &Request::get("/"),
    )
    .unwrap_err();
    assert!(
        error.to_string().ends_with("the body is larger than 1 MiB"),
        "{error}"
    );
}

#[test]
fn chunked_body_is_read_up_to_the_limit() {
    let server = Server::start(|_| Reply::WriteAndHang(first_chunk(BODY)));
    let client = Client::new(Config::new(server.url()).body_limit(4)).unwrap();
    let response = client.request(&Request::get("/"), &Stop::never()).unwrap();
    let error = response.json::<serde_json::Value>().unwrap_err();
    assert!(
        error.is_decode() && error.to_string().ends_with("larger than 4 bytes"),
        "{error}"
    );
    // A stream has no limit.
    let response = client.request(&Request::get("/"), &Stop::never()).unwrap();
    let mut text = [0; BODY.len()];
    response.into_body().read_exact(&mut text).unwrap();
    assert_eq!(text, BODY.as_bytes());
}

#[test]
fn api_uses_body_limit_of_its_client() {
    let server = Server::start(|_| {
        Reply::Write(reply(
            "200 OK",
            "",
            r#"{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a"}}"#,
        ))
    });
    let pods = GroupVersionResource::new("", "v1", "pods");
    let api = |config: Config| -> Api<DynamicObject> {
        Client::new(config)
            .unwrap()
            .dynamic_api(&pods, Some("default"))
    };
    api(Config::new(server.url()))
        .get("a", &Stop::never())
        .unwrap();
    let error = api(Config::new(server.url()).body_limit(9))
        .get("a", &Stop::never())
        .unwrap_err();
    assert!(
        error.is_decode() && error.to_string().contains("larger than 9 bytes"),
        "{error}"
    );
}

fn pod_list(server: &Server, config: impl FnOnce(Config) -> Config) -> Api<DynamicObject> {
    let pods = GroupVersionResource::new("", "v1", "pods");
    Client::new(config(Config::new(server.url())))
        .unwrap()
        .dynamic_api(&pods, None)
}

#[test]
fn api_list_above_the_body_limit_is_rejected() {
    const PAGE: &str =
        r#"{"kind":"PodList","metadata":{"continue":"x"},"items":[{"metadata":{"name":"a"}}]}"#;
    let (all, stop) = (ListOptions::default(), Stopper::new());
    let whole = Server::answering(PAGE);
    let chunked = Server::start(|_| Reply::WriteAndHang(first_chunk(PAGE)));
    for server in [&whole, &chunked] {
        let api = pod_list(server, |config| config.body_limit(PAGE.len() as u64 - 1));
        for error in [
            api.list(&all, &stop).unwrap_err(),
            api.pages(&all, &stop).next().unwrap().unwrap_err(),
        ] {
            assert!(error.is_decode(), "{error:?}");
            let expected = format!("the body is larger than {} bytes", PAGE.len() - 1);
            assert!(error.to_string().ends_with(&expected), "{error}");
        }
    }
    // The limit applies to each page.
    let mut tokens = 0..;
    let next =
        Mutex::new(move || PAGE.replace("\"x\"", &format!("\"{}\"", tokens.next().unwrap() % 10)));
    let pages = Server::start(move |_| Reply::Write(reply("200 OK", "", &next.lock().unwrap()())));
    let api = pod_list(&pages, |config| config.body_limit(PAGE.len() as u64));
    let sizes: Vec<_> = api
        .pages(&all, &stop)
        .take(3)
        .map(|page| page.unwrap().items.len())
        .collect();
    assert_eq!(sizes, [1, 1, 1]);
}

/// Answers each request with `first`, then with blanks forever, so that no read is silent for long.
fn slow_server(first: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || -> io::Result<()> {
                read_request(&mut stream)?;
                stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
                stream.write_all(format!("{:x}\r\n{first}\r\n", first.len()).as_bytes())?;
                // The timeout of the read below is the pause between two blanks.
                stream.set_read_timeout(Some(Duration::from_millis(5)))?;
                loop {
                    stream.write_all(b"1\r\n \r\n")?;
                    if !stream
                        .read(&mut [0])
                        .is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
                    {
                        return Ok(());
                    }
                }
            });
        }
    });
    url
}

#[test]
fn slow_body_ends_at_the_response_timeout() {
    let limit = Duration::from_millis(200);
    let pods = GroupVersionResource::new("", "v1", "pods");
    let list = slow_server(r#"{"kind":"PodList","metadata":{},"items":["#);
    let client = Client::new(Config::new(list).response_timeout(limit)).unwrap();
    let get = {
        let client = client.clone();
        move || client.request(&Request::get("/"), &Stop::never())
    };
    let api: Api<DynamicObject> = client.dynamic_api(&pods, Some("n"));
    let (all, none) = (ListOptions::default(), DeleteOptions::default());
    type Call = Box<dyn FnOnce(&Stop) -> Result<(), Error> + Send>;
    let api_call = |call: fn(
        &Api<DynamicObject>,
        &ListOptions,
        &DeleteOptions,
        &Stop,
    ) -> Result<(), Error>|
     -> Call {
        let (api, all, none) = (api.clone(), all.clone(), none.clone());
        Box::new(move |stop| call(&api, &all, &none, stop))
    };
    let calls: [(&str, Call); 9] = [
        (
            "list",
            api_call(|api, all, _, stop| api.list(all, stop).map(drop)),
        ),
        (
            "page",
            api_call(|api, all, _, stop| api.pages(all, stop).next().unwrap().map(drop)),
        ),
        (
            "get",
            api_call(|api, _, _, stop| api.get("a", stop).map(drop)),
        ),
        (
            "delete",
            api_call(|api, _, none, stop| api.delete("a", none, stop)),
        ),
        (
            "delete all",
            api_call(|api, all, none, stop| api.delete_collection(none, all, stop)),
        ),
        (
            "create",
            api_call(|api, _, _, stop| {
                api.subresource::<DynamicObject>("b")
                    .create("a", &0, stop)
                    .map(drop)
            }),
        ),
        (
            "bytes",
            Box::new({
                let get = get.clone();
                move |_| get()?.bytes().map(drop)
            }),
        ),
        (
            "json",
            Box::new(move |_| get()?.json::<serde_json::Value>().map(drop)),
        ),
        // An informer's list can have any size, so the time limit for it is ten times as long.
        (
            "informer",
            Box::new(move |stop| {
                let body = client
                    .lister_watcher(&pods, None)
                    .list(&ListOptions::default(), stop)?;
                io::copy(&mut { body }, &mut io::sink())?;
                Ok(())
            }),
        ),
    ];
    for (what, call) in calls {
        let (sender, done) = channel();
        thread::spawn(move || sender.send(call(&Stop::never())));
        let error = done
            .recv_timeout(SOON)
            .unwrap_or_else(|_| panic!("{what} did not end"))
            .expect_err(what);
        assert!(error.is_timeout(), "{what}: {error}");
    }
}
