//! With the feature `gzip`, lists are compressed. Other responses are not.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use k8s_informer::client::Request;
use k8s_informer::informer::{FactoryOptions, Source};
use k8s_informer::metrics::ClientMetrics;
use k8s_informer::object::GroupVersionResource;
use k8s_informer::reflector::{ListOptions, ListerWatcherSource, ReflectorOptions};
use k8s_informer::{Client, Config, Error, SharedInformerFactory, Stop, Stopper};

use crate::client::server::{Reply, SOON, Server, reply};

const LIST: &str =
    r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}"#;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn compressed(body: &[u8]) -> Vec<u8> {
    let mut bytes = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    bytes.extend(body);
    bytes
}

fn chunked(body: &[u8], size: usize) -> Vec<u8> {
    let mut bytes =
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for chunk in body.chunks(size) {
        bytes.extend(format!("{:x}\r\n", chunk.len()).as_bytes());
        bytes.extend(chunk);
        bytes.extend(b"\r\n");
    }
    bytes.extend(b"0\r\n\r\n");
    bytes
}

fn pods() -> GroupVersionResource {
    GroupVersionResource::new("", "v1", "pods")
}

fn client(server: &Server) -> Client {
    Client::new(Config::new(server.url()).response_timeout(SOON)).unwrap()
}

fn list(client: &Client) -> Result<String, Error> {
    let body = client
        .lister_watcher(&pods(), None)
        .list(&ListOptions::default(), &Stop::never())?;
    Ok(io::read_to_string(body)?)
}

#[test]
fn only_list_requests_accept_gzip() {
    let server = Server::start(|_| Reply::Write(reply("200 OK", "", LIST)));
    let accept_encoding = || {
        let request = server.request();
        let mut lines = request
            .lines()
            .filter_map(|line| line.strip_prefix("accept-encoding: "));
        let accept_encoding = lines.next().unwrap().to_owned();
        assert_eq!(lines.next(), None, "{request}");
        accept_encoding
    };
    let client = client(&server);
    list(&client).unwrap();
    assert_eq!(accept_encoding(), "gzip");
    let (options, stop) = (ListOptions::default(), Stopper::new());
    io::read_to_string(
        client
            .metadata_lister_watcher(&pods(), None)
            .list(&options, &stop)
            .unwrap(),
    )
    .unwrap();
    assert_eq!(accept_encoding(), "gzip");
    io::read_to_string(
        client
            .lister_watcher(&pods(), None)
            .watch(&options, &stop)
            .unwrap(),
    )
    .unwrap();
    assert_eq!(accept_encoding(), "identity");
    for request in [Request::get("/api/v1/pods"), Request::post("/api/v1/pods")] {
        client.request(&request, &stop).unwrap().bytes().unwrap();
        assert_eq!(accept_encoding(), "identity");
    }
    let plain = Client::new(Config::new(server.url()).compression(false)).unwrap();
    list(&plain).unwrap();
    assert_eq!(accept_encoding(), "identity");
}

#[test]
fn gzip_list_equals_plain_list_and_reuses_connection() {
    let text = format!("{LIST}{}", " ".repeat(100_000));
    let (body, whole) = (gzip(text.as_bytes()), text.clone());
    // Two gzip members form one body.
    let (first, second) = text.split_at(50);
    let members = [gzip(first.as_bytes()), gzip(second.as_bytes())].concat();
    for (what, bytes) in [
        ("with a length", compressed(&body)),
        ("in chunks", chunked(&body, 100)),
        ("byte for byte", chunked(&body, 1)),
        ("in two members", compressed(&members)),
        ("not compressed", reply("200 OK", "", &text)),
    ] {
        let server = Server::start(move |_| Reply::Write(bytes.clone()));
        let client = client(&server);
        for _ in 0..3 {
            assert_eq!(list(&client).unwrap(), whole, "{what}");
        }
        assert_eq!(server.accepted(), 1, "{what}");
    }
}

#[test]
fn truncated_or_damaged_gzip_body_is_an_error() {
    let body = gzip(format!("{LIST}{}", "s3cret ".repeat(1000)).as_bytes());
    let mut wrong_checksum = body.clone();
    let sum = wrong_checksum.len() - 8;
    wrong_checksum[sum] ^= 1;
    let mut wrong_inside = body.clone();
    wrong_inside[12] ^= 0xff;
    let trailed = [&*body, b"s3cret"].concat();
    for (what, bytes, expected) in [
        (
            "half of the body",
            body[..body.len() / 2].to_vec(),
            "the compressed body is truncated",
        ),
        (
            "no checksum",
            body[..body.len() - 4].to_vec(),
            "the compressed body is truncated",
        ),
        ("empty body", Vec::new(), "the compressed body is truncated"),
        (
            "wrong checksum",
            wrong_checksum,
            "the compressed body is corrupt",
        ),
        ("flipped bits", wrong_inside, "the compressed body "),
        ("trailing bytes", trailed, "the compressed body "),
        (
            "not gzip",
            b"{\"s3cret\": true, \"and\": \"more\"}".to_vec(),
            "the compressed body is corrupt",
        ),
    ] {
        let server = Server::start(move |_| Reply::Write(compressed(&bytes)));
        let error = list(&client(&server)).unwrap_err();
        assert!(error.is_decode(), "{what}: {error:?}");
        let begin = format!("GET {}/api/v1/pods: ", server.url());
        let text = error.to_string();
        assert!(
            text.starts_with(&begin) && text.contains(expected),
            "{what}: {text}"
        );
        assert!(
            !format!("{error} {error:?}").contains("s3cret"),
            "{what}: {error:?}"
        );
    }
    // A truncated body is a connection error.
    let bytes = compressed(&body);
    let server = Server::start(move |_| Reply::WriteAndClose(bytes[..bytes.len() - 20].to_vec()));
    let error = list(&client(&server)).unwrap_err();
    assert!(
        error.is_connection() && error.to_string().contains("closed the connection"),
        "{error:?}"
    );
}

#[test]
fn compressed_error_of_list_is_decoded() {
    let status =
        r#"{"kind": "Status", "message": "no pods for you", "reason": "Forbidden", "code": 403}"#;
    let bytes = compressed(&gzip(status.as_bytes()));
    let bytes = [
        b"HTTP/1.1 403 No\r\n",
        bytes.split_at(b"HTTP/1.1 200 OK\r\n".len()).1,
    ]
    .concat();
    let server = Server::start(move |_| Reply::Write(bytes.clone()));
    let error = list(&client(&server)).unwrap_err();
    assert!(
        error.is_forbidden() && error.to_string().contains("no pods for you"),
        "{error:?}"
    );
    // This request does not accept gzip, so the compressed `Status` is not read.
    let error = client(&server)
        .request(&Request::get("/"), &Stop::never())
        .unwrap_err();
    assert!(
        error.is_forbidden() && error.to_string().contains("403 and no message"),
        "{error:?}"
    );
}

#[test]
fn unrequested_gzip_is_rejected() {
    let bytes = compressed(&gzip(LIST.as_bytes()));
    let server = Server::start(move |_| Reply::Write(bytes.clone()));
    let client = client(&server);
    let stop = Stopper::new();
    let pods = client.lister_watcher(&pods(), None);
    for error in [
        pods.watch(&ListOptions::default(), &stop).unwrap_err(),
        client.request(&Request::get("/"), &stop).unwrap_err(),
    ] {
        assert!(
            error.is_decode() && error.to_string().contains("gzip, which was not requested"),
            "{error}"
        );
    }
}

#[test]
fn silent_gzip_body_times_out_on_each_read() {
    let body = gzip(LIST.as_bytes());
    let head = chunked(&body[..20], 20);
    // Removes the final chunk.
    let head = head[..head.len() - 5].to_vec();
    let server = Server::start(move |_| Reply::WriteAndHang(head.clone()));
    let config = Config::new(server.url()).response_timeout(Duration::from_millis(50));
    let lists = Client::new(config).unwrap().lister_watcher(&pods(), None);
    let mut body = lists.list(&ListOptions::default(), &Stop::never()).unwrap();
    for _ in 0..2 {
        let error = io::copy(&mut body, &mut io::sink()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error:?}");
    }
}

#[test]
fn stop_ends_hanging_gzip_body() {
    let body = gzip(&[b' '; 100_000]);
    let head = chunked(&body[..50], 50);
    let head = head[..head.len() - 5].to_vec();
    let server = Server::start(move |_| Reply::WriteAndHang(head.clone()));
    let stop = Stopper::new();
    let lists = client(&server).lister_watcher(&pods(), None);
    let mut body = lists.list(&ListOptions::default(), &stop).unwrap();
    let reading = std::thread::spawn(move || io::copy(&mut body, &mut io::sink()).unwrap_err());
    server.request();
    stop.stop();
    let error = Error::from(reading.join().unwrap());
    assert!(error.is_stopped(), "{error:?}");
}

#[test]
fn gzip_bomb_of_many_objects_ends_at_the_body_limit() {
    const LIMIT: u64 = 1 << 20;
    let items = |count: usize, of: &dyn Fn(usize) -> String| {
        let items: Vec<_> = (0..count).map(of).collect();
        format!(
            r#"{{"kind":"PodList","metadata":{{"resourceVersion":"7"}},"items":[{}]}}"#,
            items.join(",")
        )
    };
    let alike = items(200_000, &|_| r#"{"metadata":{"name":"a"}}"#.to_owned());
    let various = items(40_000, &|at| {
        let number = (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        format!(r#"{{"metadata":{{"name":"{number:x}"}}}}"#)
    });
    for (text, is_bomb) in [(alike, true), (various, false)] {
        assert!(text.len() as u64 > LIMIT);
        let packed = gzip(text.as_bytes());
        assert_eq!(packed.len() * 100 < text.len(), is_bomb);
        for bytes in [compressed(&packed), chunked(&packed, 1000)] {
            let server = Server::start(move |_| Reply::Write(bytes.clone()));
            let config = Config::new(server.url())
                .response_timeout(SOON)
                .body_limit(LIMIT);
            match list(&Client::new(config).unwrap()) {
                Ok(whole) => assert!(!is_bomb && whole == text),
                Err(error) => {
                    let expected =
                        "expands to more than 1048576 bytes, and to more than 100 times its size";
                    assert!(
                        is_bomb && error.is_decode() && error.to_string().ends_with(expected),
                        "{error}"
                    );
                }
            }
        }
    }
}

#[test]
fn gzip_bomb_in_one_object_ends_at_the_object_limit() {
    // A string of a gigabyte compresses to a megabyte. It is written in pieces.
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder
        .write_all(br#"{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[{"a":""#)
        .unwrap();
    for _ in 0..1024 {
        encoder.write_all(&[b'x'; 256 << 10]).unwrap();
    }
    let bytes = compressed(&encoder.finish().unwrap());
    assert!(bytes.len() < 4 << 20, "{}", bytes.len());
    let server = Server::start(move |_| Reply::Write(bytes.clone()));

    /// Sends the decompressed size of each list.
    struct Sizes(Sender<u64>);
    impl ClientMetrics for Sizes {
        fn response_size(&self, _: &str, _: &str, bytes: u64) {
            let _ = self.0.send(bytes);
        }
    }
    let (sizes, decompressed) = channel();
    let (errors, reported) = channel();
    let mut options = ReflectorOptions::default();
    options.watch_list = false;
    // The rest of a larger object is skipped, up to 64 times the limit: here to a megabyte.
    options.limits.object_bytes = 16 << 10;
    options.watch_error_handler = Some(Arc::new(move |error: &Error| {
        let _ = errors.send(error.clone());
    }));
    let config = Config::new(server.url()).metrics(Arc::new(Sizes(sizes)));
    let factory = SharedInformerFactory::with_options(
        Client::new(config).unwrap(),
        FactoryOptions::new().reflector(options),
    );
    factory.informer_for(Source::dynamic(pods()));
    factory.start(&Stop::never()).unwrap();
    let error = reported.recv_timeout(SOON).unwrap();
    assert!(error.is_decode(), "{error:?}");
    let bytes = decompressed.recv_timeout(SOON).unwrap();
    assert!(bytes < 3 << 20, "{bytes} bytes");
    factory.shut_down(None).unwrap();
}
