//! A logger that makes requests with the client that logs, as one that ships logs does, hangs nobody.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::sync::mpsc::channel;
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use k8s_informer::{Client, Config, Request, Stop};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};

static CLIENT: OnceLock<Client> = OnceLock::new();
static LOGGED: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Asking;

impl log::Log for Asking {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.target().starts_with("k8s_informer")
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata())
            && let Some(client) = CLIENT.get()
        {
            LOGGED.lock().unwrap().push(record.args().to_string());
            client.request(&Request::get("/version"), &Stop::new()).unwrap_err();
        }
    }

    fn flush(&self) {}
}

#[test]
fn a_logger_may_use_the_client_that_logs() {
    let folder = std::env::temp_dir().join(format!("k8s-informer-logger-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let (ca, token) = (folder.join("ca.crt"), folder.join("token"));
    let authority = || {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
    };
    fs::write(&ca, authority()).unwrap();
    fs::write(&token, "token").unwrap();
    // Nobody listens there, which is all the same.
    let config = Config::new("https://127.0.0.1:1").no_proxy().ca_file(&ca).token_file(&token);
    CLIENT.get_or_init(|| Client::new(config).unwrap());
    log::set_logger(&Asking).unwrap();
    log::set_max_level(log::LevelFilter::Trace);

    for (ca_now, token_now, expected) in [
        (authority(), "token", "certificates have changed"),
        (authority(), "", "is empty; using the last good token"),
        ("no PEM".to_owned(), "token", "using what was there before"),
    ] {
        fs::write(&ca, ca_now).unwrap();
        fs::write(&token, token_now).unwrap();
        let (done, answered) = channel();
        thread::spawn(move || {
            let client = CLIENT.get().unwrap();
            done.send(client.request(&Request::get("/version"), &Stop::new()).is_err()).unwrap();
        });
        assert!(answered.recv_timeout(Duration::from_secs(20)).expect("it hangs"), "{expected}");
        let logged = std::mem::take(&mut *LOGGED.lock().unwrap());
        assert_eq!(logged.iter().filter(|line| line.contains(expected)).count(), 1, "{logged:?}");
    }
    fs::remove_dir_all(&folder).unwrap();
}
