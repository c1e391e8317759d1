//! Connections through each kind of proxy, and over IPv6.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use k8s_informer::client::Request;
use k8s_informer::{Client, Config, Error, Stop};
use rcgen::PKCS_ED25519;

use super::server::{FullBacklog, Reply, Server, ServerEvent, first_chunk, hang, reply};
use super::stop::stop_during;
use super::tls::Authority;
use super::tunnels::{Kind, Tunnels};

fn get(config: Config) -> Result<Vec<u8>, Error> {
    Client::new(config)?
        .request(&Request::get("/version"), &Stop::never())?
        .bytes()
}

fn ok(_: &str) -> Reply {
    Reply::Write(reply("200 OK", "", "{}"))
}

/// One proxy of each kind.
fn all_kinds(authority: &Authority) -> [Kind; 4] {
    [
        Kind::Connect,
        Kind::ConnectOverTls(authority.server("127.0.0.1")),
        Kind::Socks,
        Kind::SocksFor("me", "s3cret"),
    ]
}

fn with_user(proxy: &Tunnels, user: &str) -> String {
    proxy.url().replace("://", &format!("://{user}@"))
}

#[test]
fn all_proxy_kinds_reach_servers_with_and_without_tls() {
    let authority = Authority::new();
    for kind in all_kinds(&authority) {
        for tls in [false, true] {
            let proxy = Tunnels::new(kind.clone());
            let server = Server::with_tls(tls.then(|| authority.server("127.0.0.1")), ok);
            let url = if tls { server.https() } else { server.url() };
            let config = Config::new(url).ca_pem(authority.pem.clone()).token("abc");
            let client = Client::new(config.proxy_url(with_user(&proxy, "me:s3cret"))).unwrap();
            for _ in 0..3 {
                let response = client
                    .request(&Request::get("/version"), &Stop::never())
                    .unwrap();
                assert_eq!(response.bytes().unwrap(), b"{}");
                let request = server.request();
                assert!(
                    request.starts_with("GET /version HTTP/1.1\r\n"),
                    "{request}"
                );
                assert!(
                    request.contains(&server.address.to_string()) && request.contains("abc"),
                    "{request}"
                );
                assert!(
                    !request.to_ascii_lowercase().contains("proxy-"),
                    "{request}"
                );
            }
            assert_eq!(
                proxy.opened(),
                [server.address.to_string()],
                "the tunnel must be reused"
            );
            let expected_heads: &[_] = match &kind {
                Kind::SocksFor(..) => &["me:s3cret".to_owned()],
                Kind::Socks => &[],
                _ => {
                    let heads = proxy.heads();
                    let [head] = &heads[..] else {
                        panic!("{heads:?}")
                    };
                    assert!(
                        head.starts_with(&format!("CONNECT {} HTTP/1.1\r\n", server.address)),
                        "{head}"
                    );
                    assert!(
                        head.contains("\r\nProxy-Authorization: Basic bWU6czNjcmV0\r\n"),
                        "{head}"
                    );
                    assert!(
                        !head.contains("abc"),
                        "the proxy received the token: {head}"
                    );
                    continue;
                }
            };
            assert_eq!(proxy.heads(), expected_heads);
        }
    }
}

#[test]
fn names_are_resolved_by_the_proxy() {
    let server = Server::answering("{}");
    for kind in all_kinds(&Authority::new()) {
        for scheme in ["socks5://", "socks5h://"] {
            let proxy = Tunnels::new(kind.clone()).to(server.address);
            let url = with_user(&proxy, "me:s3cret").replace("socks5://", scheme);
            get(Config::new("http://kube.invalid:6443")
                .insecure_skip_tls_verify(true)
                .proxy_url(url))
            .unwrap();
            assert_eq!(proxy.opened(), ["kube.invalid:6443"]);
        }
    }
    // Without a port in the server's URL, the proxy receives the default port of the scheme.
    let proxy = Tunnels::new(Kind::Connect).to(server.address);
    get(Config::new("http://kube.invalid").proxy_url(proxy.url())).unwrap();
    assert_eq!(proxy.opened(), ["kube.invalid:80"]);
}

#[test]
fn tls_proxy_is_verified_without_client_certificate() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let server = Server::with_tls(Some(authority.server_for("kube.example", &authority)), ok);
    let (chain, key) = authority.client(&PKCS_ED25519);
    let config = Config::new(server.https())
        .ca_pem(authority.pem.clone())
        .tls_server_name("kube.example")
        .client_certificate_pem(chain, key);
    let through = |tls| {
        let proxy = Tunnels::new(Kind::ConnectOverTls(tls));
        let url = proxy.url();
        (get(config.clone().proxy_url(&url)), url)
    };
    assert_eq!(through(authority.server("127.0.0.1")).0.unwrap(), b"{}");
    for tls in [
        // A proxy with a certificate for the name of the server, a proxy with a certificate of an
        // unknown authority, and a proxy that requires a client certificate.
        authority.server("kube.example"),
        stranger.server("127.0.0.1"),
        authority.server_for("127.0.0.1", &authority),
    ] {
        let (result, url) = through(tls);
        let error = result.unwrap_err();
        assert!(error.is_tls() && !error.is_config(), "{error:?}");
        assert!(
            error.to_string().contains(&format!("the proxy {url}")),
            "{error}"
        );
    }
    // An https URL for a proxy that does not speak TLS: the error is retryable.
    let proxy = Tunnels::new(Kind::Connect);
    let config = config
        .proxy_url(format!("https://{}", proxy.address))
        .connect_timeout(Duration::from_secs(1));
    assert!(get(config).unwrap_err().is_retryable());
    // `insecure_skip_tls_verify` also applies to the proxy.
    let (proxy, plain) = (
        Tunnels::new(Kind::ConnectOverTls(stranger.server("other"))),
        Server::answering("{}"),
    );
    get(Config::new(plain.url())
        .insecure_skip_tls_verify(true)
        .proxy_url(proxy.url()))
    .unwrap();
}

/// A port that is taken, but without a listener.
fn closed_port() -> (socket2::Socket, SocketAddr) {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket
        .bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())
        .unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    (socket, address)
}

/// The error of a request through a proxy that sends these bytes, whatever it reads.
fn proxy_error(scheme: &str, answers: &[&[u8]], limit: Duration) -> Error {
    let answers: Vec<_> = answers.iter().map(|reply| reply.to_vec()).collect();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || -> std::io::Result<()> {
        let (mut stream, _) = listener.accept()?;
        for reply in answers {
            let _ = stream.read(&mut [0; 1024])?;
            match &reply[..] {
                [] => hang(&mut stream, None),
                reply => stream.write_all(reply)?,
            }
        }
        Ok(())
    });
    let url = format!("{scheme}://me:s3cret@{address}");
    let config = Config::new("https://kube.invalid")
        .insecure_skip_tls_verify(true)
        .connect_timeout(limit);
    let error = get(config.proxy_url(url)).unwrap_err();
    let text = format!("{error} {error:?}");
    assert!(
        text.contains(&format!("the proxy {scheme}://{address}")),
        "the error does not name the proxy: {text}"
    );
    assert!(!text.contains("s3cret") && !text.contains("me:"), "{text}");
    error
}

#[test]
fn proxy_error_has_address_without_password() {
    const LONG: Duration = Duration::from_secs(20);
    let huge = [b"HTTP/1.1 200 OK\r\nX: ".as_slice(), &[b'x'; 40_000]].concat();
    type Responses<'a> = &'a [&'a [u8]];
    for (scheme, answers, expected) in [
        (
            "http",
            &[b"HTTP/1.1 407 s3cret\r\n\r\n".as_slice()] as Responses<'_>,
            "407 Proxy Authentication Required",
        ),
        (
            "http",
            &[b"HTTP/1.1 503 s3cret\r\n\r\ns3cret"],
            "with 503 Service Unavailable",
        ),
        (
            "http",
            &[b"HTTP/1.1 200 OK\r\n\r\ns3cret"],
            "data arrived after the response",
        ),
        ("http", &[b"s3cret"], "the response is not HTTP"),
        (
            "http",
            &[b"HTTP/1.1 200 OK\r\n"],
            "closed the connection before it responded",
        ),
        ("http", &[&huge], "larger than 16 KiB"),
        (
            "socks5",
            &[b"HTTP/1.1 400 s3cret\r\n\r\n"],
            "the response is not SOCKS5",
        ),
        (
            "socks5",
            &[b"\x05\xff"],
            "authentication with a user name and password is not supported",
        ),
        (
            "socks5",
            &[b"\x05\x01"],
            "the chosen authentication method was not offered",
        ),
        (
            "socks5",
            &[b"\x05\x02", b"\x01\x01"],
            "the user name and password were rejected",
        ),
        (
            "socks5",
            &[b"\x05\x02", b"\x05\x00"],
            "the response is not SOCKS5",
        ),
        (
            "socks5",
            &[b"\x05\x00", b"\x05\x05\x00\x01"],
            "the tunnel to kube.invalid:443 was refused: connection refused",
        ),
        (
            "socks5h",
            &[b"\x05\x00", b"\x05\x02\x00\x01"],
            "not allowed by the proxy's rules",
        ),
        (
            "socks5",
            &[b"\x05\x00", b"\x05\x63\x00\x01"],
            "unknown code 99",
        ),
        (
            "socks5",
            &[b"\x05\x00", b"\x05\x00\x01\x01"],
            "the response is not SOCKS5",
        ),
        (
            "socks5",
            &[b"\x05\x00", b"\x05\x00\x00\x02"],
            "the response is not SOCKS5",
        ),
        (
            "socks5",
            &[b"\x05\x00", b"\x04\x00\x00\x01"],
            "the response is not SOCKS5",
        ),
        (
            "socks5",
            &[b"\x05\x00", b"\x05\x00\x00\x01\x7f"],
            "closed the connection before it responded",
        ),
        (
            "socks5",
            &[b"\x05\x00", b"\x05\x00\x00\x01\x7f\0\0\x01\0\0s3cret"],
            "data arrived after the response",
        ),
        (
            "socks5",
            &[b"\x05"],
            "closed the connection before it responded",
        ),
    ] {
        let error = proxy_error(scheme, answers, LONG);
        assert!(error.to_string().contains(expected), "{expected}: {error}");
        assert!(
            error.is_connection() && error.is_retryable() && !error.is_tls(),
            "{error:?}"
        );
    }
    const SHORT: Duration = Duration::from_millis(50);
    for (scheme, answers) in [
        ("http", &[b"".as_slice()] as Responses<'_>),
        ("http", &[b"HTTP/1.1 200 OK\r\n", b""]),
        ("https", &[b""]),
        ("socks5", &[b""]),
        ("socks5", &[b"\x05\x02", b""]),
        ("socks5", &[b"\x05\x00", b""]),
        ("socks5", &[b"\x05\x00", b"\x05\x00\x00\x03\xff", b""]),
    ] {
        let error = proxy_error(scheme, answers, SHORT);
        assert!(error.is_timeout() && !error.is_tls(), "{error:?}");
    }
    let (_closed_port, address) = closed_port();
    let error =
        get(Config::new("http://kube.invalid").proxy_url(format!("http://{address}"))).unwrap_err();
    assert!(error.is_connection_refused(), "{error:?}");
    assert!(
        error
            .to_string()
            .contains(&format!("the proxy http://{address}")),
        "{error}"
    );
}

#[test]
fn wrong_or_missing_proxy_password_is_reported() {
    let proxy = Tunnels::new(Kind::SocksFor("me", "s3cret"));
    for (url, expected) in [
        (proxy.url(), "a user name and a password are required"),
        (
            with_user(&proxy, "me:wrong"),
            "the user name and password were rejected",
        ),
    ] {
        let error = get(Config::new("http://kube.invalid").proxy_url(url))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(expected) && !error.contains("wrong"),
            "{error}"
        );
    }
}

#[test]
fn invalid_proxy_url_is_rejected_without_showing_it() {
    for (url, expected) in [
        ("proxy.corp:3128", "has no scheme"),
        ("socks4://me:s3cret@proxy", "socks4"),
        ("http://me:s3cret@", "invalid host or port"),
        ("http://me:s3cret/x@proxy", "invalid host or port"),
    ] {
        let config = Config::new("https://kube.invalid")
            .insecure_skip_tls_verify(true)
            .proxy_url(url);
        let shown = format!("{config:?}");
        let error = Client::new(config).unwrap_err();
        assert!(
            error.is_config() && error.to_string().contains(expected),
            "{error}"
        );
        assert!(
            !format!("{error:?} {shown}").contains("s3cret"),
            "{error:?} {shown}"
        );
    }
}

/// Set in the child process, which gets its proxy from the environment.
const CHILD: &str = "TEST_PROXY_CHILD";

#[test]
fn configured_proxy_takes_precedence_over_environment() {
    if let Some(explicit) = std::env::var_os(CHILD) {
        let config = Config::new("http://kube.invalid:6443");
        get(config.clone()).unwrap();
        get(config.proxy_url(explicit.into_string().unwrap())).unwrap();
        // Both requests avoid the proxy. The first goes to a loopback address, the second to
        // 0.0.0.0, which is in `NO_PROXY` and also reaches this machine.
        let server = std::env::var("TEST_PROXY_SERVER").unwrap();
        get(Config::new(&server)).unwrap();
        get(Config::new(server.replace("127.0.0.1", "0.0.0.0"))).unwrap();
        // The port in `NO_PROXY` is another one. The first request avoids the proxy because of
        // `no_proxy`, and the second request uses the proxy.
        let other = std::env::var("TEST_PROXY_OTHER")
            .unwrap()
            .replace("127.0.0.1", "0.0.0.0");
        get(Config::new(&other).no_proxy()).unwrap();
        get(Config::new(&other)).unwrap();
        println!("child finished");
        return;
    }
    let (server, other) = (Server::answering("{}"), Server::answering("{}"));
    let [proxy, explicit] =
        [Kind::Connect, Kind::Socks].map(|kind| Tunnels::new(kind).to(server.address));
    let name = "client::proxy::configured_proxy_takes_precedence_over_environment";
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(CHILD, explicit.url())
        .env("TEST_PROXY_SERVER", server.url())
        .env("TEST_PROXY_OTHER", other.url())
        .env("HTTP_PROXY", proxy.address.to_string())
        .env(
            "NO_PROXY",
            format!("10.0.0.0/8, 0.0.0.0:{}", server.address.port()),
        )
        .env_remove("REQUEST_METHOD")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("child finished"),
        "{text}{output:?}"
    );
    let expected_tunnels = [
        "kube.invalid:6443",
        &format!("0.0.0.0:{}", other.address.port()),
    ];
    assert_eq!(proxy.opened(), expected_tunnels);
    assert_eq!(other.accepted(), 1);
    assert_eq!(explicit.opened(), ["kube.invalid:6443"]);
}

#[test]
fn stop_ends_every_phase_of_a_proxied_request() {
    let config = || Config::new("https://kube.invalid").insecure_skip_tls_verify(true);
    if let Some(full) = FullBacklog::find() {
        stop_during(
            config().proxy_url(format!("http://{}", full.address)),
            || full.wait_for_connect(),
        );
    }
    // The proxy reads the first message (CONNECT request, SOCKS hello or TLS hello) and stays
    // silent.
    for scheme in ["http", "socks5", "https"] {
        let mute = Server::mute();
        stop_during(
            config().proxy_url(format!("{scheme}://{}", mute.address)),
            || {
                assert!(matches!(mute.next(), ServerEvent::Request(_)));
            },
        );
        while mute.next() != ServerEvent::Closed {}
    }
    let authority = Authority::new();
    for kind in all_kinds(&authority) {
        // The server at the end of the tunnel stays silent: in the TLS handshake, before the
        // response head, or in the middle of the body.
        let mute = Server::mute();
        let proxy = Tunnels::new(kind).to(mute.address);
        let url = with_user(&proxy, "me:s3cret");
        stop_during(config().proxy_url(&url), || {
            assert!(matches!(mute.next(), ServerEvent::Request(_)));
        });
        for reply in [Vec::new(), first_chunk("{")] {
            let tls = Some(authority.server("127.0.0.1"));
            let server = Server::with_tls(tls, move |_| Reply::WriteAndHang(reply.clone()));
            proxy.redirect_to(server.address);
            let config = Config::new(server.https())
                .ca_pem(authority.pem.clone())
                .proxy_url(&url);
            stop_during(config, || drop(server.request()));
            assert_eq!(server.next(), ServerEvent::Closed);
        }
    }
}

#[test]
fn get_on_closed_pooled_tunnel_is_retried() {
    for kind in all_kinds(&Authority::new()) {
        let proxy = Tunnels::new(kind);
        let count = AtomicUsize::new(0);
        let server = Server::start(move |_| match count.fetch_add(1, Ordering::SeqCst) {
            // The server closes the connection at the second request. The client cannot notice this
            // before it sends.
            1 => Reply::WriteAndClose(Vec::new()),
            _ => ok(""),
        });
        let config = Config::new(server.url()).insecure_skip_tls_verify(true);
        let client = Client::new(config.proxy_url(with_user(&proxy, "me:s3cret"))).unwrap();
        let request = |request: Request| client.request(&request, &Stop::never())?.bytes();
        for _ in 0..3 {
            request(Request::get("/")).unwrap();
        }
        assert_eq!((server.accepted(), proxy.opened().len()), (2, 2));
        // When the proxy closes the tunnels, the client notices that before it sends the next GET,
        // or it retries the GET.
        proxy.cut();
        request(Request::get("/")).unwrap();
        assert_eq!((server.accepted(), proxy.opened().len()), (3, 3));
    }
}

#[test]
fn error_behind_proxy_names_the_proxy() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let server = Server::with_tls(Some(stranger.server("127.0.0.1")), ok);
    let proxy = Tunnels::new(Kind::Connect);
    let config = Config::new(server.https())
        .ca_pem(authority.pem)
        .proxy_url(with_user(&proxy, "me:s3cret"));
    let error = get(config).unwrap_err();
    assert!(error.is_tls(), "{error:?}");
    let expected = format!(
        "through the proxy {}: TLS: the server's certificate is not signed by a trusted authority",
        proxy.url()
    );
    assert!(error.to_string().contains(&expected), "{error}");
    // If the proxy cannot connect to the server, it closes the tunnel, which is a connection error.
    // A silent server causes a timeout.
    let server = Server::start(ok);
    let config = Config::new(server.https())
        .insecure_skip_tls_verify(true)
        .proxy_url(proxy.url());
    let (_closed_port, address) = closed_port();
    proxy.redirect_to(address);
    let error = get(config.clone()).unwrap_err();
    assert!(
        error.is_connection() && !error.is_connection_refused(),
        "{error:?}"
    );
    let mute = Server::mute();
    proxy.redirect_to(mute.address);
    let error = get(config.connect_timeout(Duration::from_millis(50))).unwrap_err();
    assert!(error.is_timeout(), "{error:?}");
    assert!(
        error
            .to_string()
            .contains(&format!("through the proxy {}: ", proxy.url())),
        "{error}"
    );
}

/// Returns a listener on `::1`. Without IPv6, returns `None`, and the caller skips its test.
fn ipv6() -> Option<TcpListener> {
    let listener = TcpListener::bind("[::1]:0");
    if let Err(error) = &listener {
        println!("skipped: IPv6 is not available: {error}");
    }
    listener.ok()
}

#[test]
fn servers_and_proxies_may_have_ipv6_addresses() {
    let authority = Authority::new();
    for tls in [false, true] {
        let Some(listener) = ipv6() else { return };
        let server = Server::on(listener, tls.then(|| authority.server("::1")), ok);
        let url = if tls { server.https() } else { server.url() };
        assert!(url.contains("://[::1]:"), "{url}");
        let config = Config::new(url).ca_pem(authority.pem.clone());
        get(config.clone()).unwrap();
        for kind in [
            Kind::Connect,
            Kind::ConnectOverTls(authority.server("::1")),
            Kind::Socks,
            Kind::SocksFor("me", "s3cret"),
        ] {
            let proxy = Tunnels::on("[::1]:0", kind).unwrap();
            get(config.clone().proxy_url(with_user(&proxy, "me:s3cret"))).unwrap();
            assert_eq!(proxy.opened(), [server.address.to_string()]);
        }
    }
}

/// In a URL, the zone of a link-local address follows a `%`, which is escaped as in Go.
#[test]
fn ipv6_zone_is_not_part_of_the_certificate_name() {
    let authority = Authority::new();
    for tls in [false, true] {
        let Some(listener) = ipv6() else { return };
        let server = Server::on(listener, tls.then(|| authority.server("::1")), ok);
        // Any IPv6 address may have a zone, here as a number.
        let url = if tls { server.https() } else { server.url() }.replace("[::1]", "[::1%251]");
        get(Config::new(url).ca_pem(authority.pem.clone())).unwrap();
    }
}

/// `localhost` has several addresses, and nothing listens on one of them.
#[test]
fn localhost_is_reached_at_its_ipv6_address() {
    let Some(listener) = ipv6() else { return };
    let server = Server::on(listener, None, ok);
    let on_v4 = SocketAddr::from(([127, 0, 0, 1], server.address.port()));
    if TcpStream::connect(on_v4).is_ok() {
        return println!("skipped: {on_v4} is in use");
    }
    let by_name = format!("http://localhost:{}", server.address.port());
    let addresses: Vec<_> = ("localhost", 1).to_socket_addrs().unwrap().collect();
    if addresses.iter().any(SocketAddr::is_ipv6) {
        get(Config::new(by_name)).unwrap();
    } else {
        println!("skipped: localhost has no IPv6 address here");
    }
}
