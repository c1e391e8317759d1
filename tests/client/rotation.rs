//! Credential files and CA files that change while a client is in use.

use std::fs;
use std::io::Read;
#[cfg(unix)]
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_informer::client::Request;
use k8s_informer::{Client, Config, Error, Stop, Stopper};
use rcgen::PKCS_ECDSA_P256_SHA256;

use super::folder::Folder;
use super::server::{Reply, Server, ServerEvent, first_chunk, reply};
use super::tls::Authority;

fn get(client: &Client) -> Result<Vec<u8>, Error> {
    client
        .request(&Request::get("/version"), &Stop::never())?
        .bytes()
}

fn script(request: &str) -> Reply {
    match request.starts_with("GET /watch") {
        true => Reply::WriteAndHang(first_chunk("event")),
        false => Reply::Write(reply("200 OK", "", "{}")),
    }
}

#[test]
fn rotated_ca_applies_to_the_next_connection() {
    let (old, new) = (Authority::new(), Authority::new());
    let folder = Folder::new("rotated-ca");
    let file = folder.write("ca.crt", &old.pem);
    let server = Server::with_tls(Some(old.server("127.0.0.1")), script);
    let client = Client::new(Config::new(server.https()).ca_file(&file)).unwrap();
    get(&client).unwrap();
    let stop = Stopper::new();
    let mut watch = client
        .request(&Request::get("/watch"), &stop)
        .unwrap()
        .into_body();
    let mut event = [0; 5];
    watch.read_exact(&mut event).unwrap();

    // Both authorities are trusted for a while, as is usual.
    fs::write(&file, format!("{}{}", old.pem, new.pem)).unwrap();
    get(&client).unwrap();
    server.set_tls(new.server("127.0.0.1"));
    get(&client).unwrap();
    fs::write(&file, &new.pem).unwrap();
    get(&client).unwrap();
    get(&client).unwrap();
    // Three connections: one opened with the old authority (the watch keeps it), one with both
    // authorities, and one with the new authority.
    assert_eq!(
        server.accepted(),
        3,
        "a connection must be reused until the file changes"
    );

    server.set_tls(old.server("127.0.0.1"));
    fs::write(&file, format!("{}\n", new.pem)).unwrap();
    assert!(
        get(&client).unwrap_err().is_tls(),
        "the old authority must not be trusted"
    );
    // The watch is still open, and ends with its stop.
    stop.stop();
    let error = Error::from(watch.read(&mut event).unwrap_err());
    assert!(error.is_stopped(), "{error}");
}

#[test]
fn rotated_client_certificate_is_used_by_next_request() {
    let (authority, old, new) = (Authority::new(), Authority::new(), Authority::new());
    let folder = Folder::new("rotated-certificate");
    let (chain, key) = old.client(&PKCS_ECDSA_P256_SHA256);
    let files = (
        folder.write("tls.crt", &chain),
        folder.write("tls.key", &key),
    );
    let server = Server::with_tls(Some(authority.server_for("127.0.0.1", &old)), script);
    let config = Config::new(server.https())
        .ca_pem(authority.pem.clone())
        .client_certificate_files(&files.0, &files.1);
    let client = Client::new(config).unwrap();
    let stop = Stopper::new();
    let mut watch = client
        .request(&Request::get("/watch"), &stop)
        .unwrap()
        .into_body();
    let mut event = [0; 5];
    watch.read_exact(&mut event).unwrap();
    get(&client).unwrap();

    let (chain, key) = new.client(&PKCS_ECDSA_P256_SHA256);
    server.set_tls(authority.server_for("127.0.0.1", &new));
    // While the key file does not match the new certificate, or is missing, the client keeps the
    // old pair and its open connection.
    fs::write(&files.0, &chain).unwrap();
    get(&client).unwrap();
    fs::remove_file(&files.1).unwrap();
    get(&client).unwrap();
    assert_eq!(server.accepted(), 2);
    fs::write(&files.1, &key).unwrap();
    get(&client).unwrap();
    assert_eq!(server.accepted(), 3);
    assert!(
        !stop.is_stopped() && watch.read(&mut []).is_ok(),
        "the watch must stay open"
    );
}

/// The files are laid out like a volume of a kubelet: certificate, key and token are links into
/// `..data`. `..data` is itself a link, which is replaced in one step.
#[cfg(unix)]
#[test]
fn atomically_replaced_credentials_are_used_together() {
    let folder = Folder::new("swapped");
    let (authority, clients) = (Authority::new(), [Authority::new(), Authority::new()]);
    for (version, client) in clients.iter().enumerate() {
        let (chain, key) = client.client(&PKCS_ECDSA_P256_SHA256);
        fs::create_dir(folder.0.join(version.to_string())).unwrap();
        folder.write(&format!("{version}/tls.crt"), &chain);
        folder.write(&format!("{version}/tls.key"), &key);
        folder.write(&format!("{version}/token"), &format!("token-{version}"));
    }
    let swap = |version: usize| {
        let new = folder.0.join("..new");
        std::os::unix::fs::symlink(version.to_string(), &new).unwrap();
        fs::rename(new, folder.0.join("..data")).unwrap();
    };
    swap(0);
    let [chain, key, token] = ["tls.crt", "tls.key", "token"].map(|name| {
        std::os::unix::fs::symlink(format!("..data/{name}"), folder.0.join(name)).unwrap();
        folder.0.join(name)
    });
    let server = Server::with_tls(Some(authority.server_for("127.0.0.1", &clients[0])), script);
    let config = Config::new(server.https()).ca_pem(authority.pem.clone());
    let client = Client::new(
        config
            .client_certificate_files(chain, key)
            .token_file(token),
    )
    .unwrap();
    for version in [0, 1, 0] {
        swap(version);
        server.set_tls(authority.server_for("127.0.0.1", &clients[version]));
        get(&client).unwrap();
        let request = loop {
            if let ServerEvent::Request(request) = server.next() {
                break request;
            }
        };
        assert!(
            request.contains(&format!("Bearer token-{version}\r\n")),
            "{request}"
        );
    }
    assert_eq!(server.accepted(), 3);
}

#[test]
fn changed_token_is_tried_once_after_401() {
    let folder = Folder::new("rotated-token");
    let file = folder.write("token", "old");
    let rotated = file.clone();
    let server = Server::start(move |request| {
        if request.contains("Bearer new\r\n") {
            return Reply::Write(reply("200 OK", "", "{}"));
        }
        fs::write(&rotated, "new").unwrap();
        Reply::Write(reply("401 Unauthorized", "", "{}"))
    });
    let client = Client::new(Config::new(server.url()).token_file(&file)).unwrap();
    // The client also sends a POST again, because a request with a rejected token had no effect.
    let request = Request::post("/things").body("the body");
    client
        .request(&request, &Stop::never())
        .unwrap()
        .bytes()
        .unwrap();
    for token in ["old", "new"] {
        let request = server.request();
        assert!(
            request.contains(&format!("Bearer {token}\r\n")) && request.ends_with("the body"),
            "{request}"
        );
    }
    assert_eq!(server.accepted(), 1);
}

/// Any response with the status code 401 triggers the retry, whatever its reason, as in client-go's
/// plugins. The component that rejects a token may not use the reasons of the API.
#[test]
fn token_is_reread_and_retried_on_401_of_any_reason() {
    for reason in ["Unknown", "Expired"] {
        let folder = Folder::new("odd-401");
        let file = folder.write("token", "old");
        let rotated = file.clone();
        let server = Server::start(move |request| {
            if request.contains("Bearer new\r\n") {
                return Reply::Write(reply("200 OK", "", "{}"));
            }
            fs::write(&rotated, "new").unwrap();
            Reply::Write(reply(
                "401 Unauthorized",
                "",
                &format!(r#"{{"kind":"Status","reason":"{reason}","code":401}}"#),
            ))
        });
        get(&Client::new(Config::new(server.url()).token_file(&file)).unwrap()).unwrap();
    }
}

#[test]
fn changed_certificate_is_tried_once_after_401() {
    let (authority, old, new) = (Authority::new(), Authority::new(), Authority::new());
    let folder = Folder::new("refused-certificate");
    let (chain, key) = old.client(&PKCS_ECDSA_P256_SHA256);
    let files = (
        folder.write("tls.crt", &chain),
        folder.write("tls.key", &key),
    );
    let (chain, key) = new.client(&PKCS_ECDSA_P256_SHA256);
    // The server requests no client certificate, so TLS succeeds with either. It replaces the
    // client's files during the first request.
    let (rotated, times) = (files.clone(), AtomicUsize::new(0));
    let server = Server::with_tls(Some(authority.server("127.0.0.1")), move |_| {
        if times.fetch_add(1, Ordering::SeqCst) > 0 {
            return Reply::Write(reply("200 OK", "", "{}"));
        }
        fs::write(&rotated.0, &chain).unwrap();
        fs::write(&rotated.1, &key).unwrap();
        Reply::Write(reply("401 Unauthorized", "", "{}"))
    });
    let config = Config::new(server.https()).ca_pem(authority.pem.clone());
    let client = Client::new(config.client_certificate_files(&files.0, &files.1)).unwrap();
    get(&client).unwrap();
    assert_eq!(server.accepted(), 2);
}

#[test]
fn persistent_401_is_returned() {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let server = Server::start(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        Reply::Write(reply("401 Unauthorized", "", "{}"))
    });
    let folder = Folder::new("same-token");
    let file = folder.write("token", "same");
    for config in [
        Config::new(server.url()),
        Config::new(server.url()).token_file(file),
    ] {
        let error = get(&Client::new(config).unwrap()).unwrap_err();
        assert!(error.is_unauthorized(), "{error}");
    }
    assert_eq!(count.load(Ordering::SeqCst), 2);

    // The token changes with each request. The client sends a request again only once.
    let file = folder.write("token", "0");
    let (rotated, counter) = (file.clone(), count.clone());
    let server = Server::start(move |_| {
        let count = counter.fetch_add(1, Ordering::SeqCst);
        fs::write(&rotated, count.to_string()).unwrap();
        Reply::Write(reply("401 Unauthorized", "", "{}"))
    });
    let client = Client::new(Config::new(server.url()).token_file(file)).unwrap();
    assert!(get(&client).unwrap_err().is_unauthorized());
    assert_eq!(count.load(Ordering::SeqCst), 4);
}

/// A pipe or an endless file in place of a credential file is an error. A read of the pipe would
/// block, and no stop could end it. The endless file would fill the memory.
#[cfg(unix)]
#[test]
fn irregular_or_too_large_credential_file_is_rejected() {
    let folder = Folder::new("no-file");
    let pipe = folder.0.join("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let huge = folder.0.join("huge");
    fs::File::create(&huge).unwrap().set_len(1 << 40).unwrap();
    let server = Server::answering("{}");
    let token = folder.write("token", "good");
    let client = Client::new(Config::new(server.url()).token_file(&token)).unwrap();
    let authority = Authority::new();
    let tls = Server::with_tls(Some(authority.server("127.0.0.1")), script);
    let ca = folder.write("ca.crt", &authority.pem);
    let secure = Client::new(Config::new(tls.https()).ca_file(&ca)).unwrap();
    let bad = [
        (pipe, ": not a regular file"),
        (folder.0.clone(), ": not a regular file"),
        ("/dev/zero".into(), ": not a regular file"),
        (huge, ": larger than 4 MiB"),
    ];
    for (path, expected) in &bad {
        for config in [
            Config::new(server.url()).token_file(path),
            Config::new("https://a").ca_file(path),
            Config::new("https://a").client_certificate_files(path, path),
        ] {
            let error = Client::new(config).unwrap_err();
            assert!(
                error.is_config() && error.to_string().contains(expected),
                "{error}"
            );
        }
        for file in [&token, &ca] {
            fs::remove_file(file).unwrap();
            std::os::unix::fs::symlink(path, file).unwrap();
        }
        get(&client).unwrap();
        get(&secure).unwrap();
    }
}
