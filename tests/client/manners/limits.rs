use std::io::Read;

use k8s_informer::{Api, Client, Config, DynamicObject, Error, GroupVersionResource, Request, Stop};

use crate::server::{Reply, Server, answer, first_chunk};

/// Ten bytes.
const BODY: &str = r#"{"a":"bc"}"#;

fn bytes(config: Config, request: &Request) -> Result<Vec<u8>, Error> {
    Client::new(config).unwrap().request(request, &Stop::new())?.bytes()
}

#[test]
fn a_body_has_as_many_bytes_as_the_request_or_the_client_allows() {
    let server = Server::answering(BODY);
    let config = || Config::new(server.url());
    let get = || Request::get("/path");
    assert_eq!(bytes(config().body_limit(10), &get()).unwrap(), BODY.as_bytes());
    assert_eq!(bytes(config().body_limit(9), &get().body_limit(10)).unwrap(), BODY.as_bytes());
    bytes(config().body_limit(u64::MAX), &get()).unwrap();
    for (config, request) in [
        (config().body_limit(9), get()),
        (config(), get().body_limit(9)),
        (config().body_limit(10), get().body_limit(9)),
    ] {
        let error = bytes(config, &request).unwrap_err();
        assert!(error.is_decode(), "{error:?}");
        let expected =
            format!("GET {}/path: unexpected answer: the body is larger than 9 bytes", server.url());
        assert_eq!(error.to_string(), expected);
    }
    let error = bytes(config().body_limit(0), &get()).unwrap_err();
    assert!(error.to_string().ends_with("larger than 0 bytes"), "{error}");
}

#[test]
fn a_body_that_says_that_it_is_too_large_is_not_waited_for() {
    let server = Server::start(|_| {
        Reply::WriteAndHang(b"HTTP/1.1 200 OK\r\nContent-Length: 1048577\r\n\r\n".to_vec())
    });
    let error = bytes(Config::new(server.url()).body_limit(1 << 20), &Request::get("/")).unwrap_err();
    assert!(error.to_string().ends_with("the body is larger than 1 MiB"), "{error}");
}

#[test]
fn a_body_without_a_length_is_read_up_to_the_limit() {
    let server = Server::start(|_| Reply::WriteAndHang(first_chunk(BODY)));
    let client = Client::new(Config::new(server.url()).body_limit(4)).unwrap();
    let response = client.request(&Request::get("/"), &Stop::new()).unwrap();
    let error = response.json::<serde_json::Value>().unwrap_err();
    assert!(error.is_decode() && error.to_string().ends_with("larger than 4 bytes"), "{error}");
    // As a stream it has none.
    let response = client.request(&Request::get("/"), &Stop::new()).unwrap();
    let mut text = [0; BODY.len()];
    response.into_body().read_exact(&mut text).unwrap();
    assert_eq!(text, BODY.as_bytes());
}

#[test]
fn an_api_has_the_limit_of_its_client() {
    let server = Server::start(|_| {
        Reply::Write(answer(
            "200 OK",
            "",
            r#"{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a"}}"#,
        ))
    });
    let pods = GroupVersionResource::new("", "v1", "pods");
    let api = |config: Config| -> Api<DynamicObject> {
        Client::new(config).unwrap().dynamic_api(&pods, Some("default"))
    };
    api(Config::new(server.url())).get("a", &Stop::new()).unwrap();
    let error = api(Config::new(server.url()).body_limit(9)).get("a", &Stop::new()).unwrap_err();
    assert!(error.is_decode() && error.to_string().contains("larger than 9 bytes"), "{error}");
}
