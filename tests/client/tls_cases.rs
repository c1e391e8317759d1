//! Certificates that kubectl and webpki judge differently. The files of `tests/data/tls` were made
//! with other tools, the others are generated here.

use std::collections::HashMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use k8s_informer::client::Request;
use k8s_informer::{Client, Config, Error, Stop};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, CustomExtension, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme, SupportedCipherSuite,
};

use super::config::{INSTALL_PROVIDER, run_child_process};
use super::folder::Folder;
use super::server::Server;
use super::tls::{provider, server, tls, tls_with};
use super::tunnels::{Kind, Tunnels};

fn is_chacha(suite: &SupportedCipherSuite) -> bool {
    format!("{suite:?}").contains("CHACHA20")
}

/// Installs a provider for the whole process. Its only cipher suites are those with ChaCha20.
pub(crate) fn install_provider() {
    let mut chacha = provider();
    Arc::make_mut(&mut chacha).cipher_suites.retain(is_chacha);
    Arc::unwrap_or_clone(chacha).install_default().unwrap();
}

pub(super) fn get(config: Config) -> Result<(), Error> {
    let client = Client::new(config)?;
    let response = client.request(&Request::get("/version"), &Stop::never())?;
    assert_eq!(response.bytes()?, b"{}");
    Ok(())
}

/// Checks the verdict: `None` for accepted, or a part of the error.
pub(super) fn assert_verdict(case: &str, verdict: Result<(), Error>, expected: Option<&str>) {
    match (verdict, expected) {
        (Ok(()), None) => {}
        (Err(error), Some(expected)) => {
            assert!(error.is_tls() || error.is_config(), "{case}: {error}");
            let error = error.to_string();
            assert!(error.contains(expected), "{case}: {error}");
            assert!(!error.contains("Other("), "{case}: {error}");
        }
        (verdict, expected) => panic!("{case}: {verdict:?}, expected {expected:?}"),
    }
}

#[test]
fn recorded_cases_have_the_right_verdict() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tls");
    let cases = fs::read_to_string(folder.join("cases.tsv")).unwrap();
    for line in cases.lines().filter(|line| !line.starts_with('#')) {
        let [case, ring, aws_lc_rs, text] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        let folder = folder.join(case);
        let file = |name: &str| fs::read_to_string(folder.join(name)).ok();
        let (chain, key) = (file("server.crt").unwrap(), file("server.key").unwrap());
        let server = server(tls(&chain, &key, file("client-ca.crt").as_deref()));
        let mut config = match case {
            "cn-only" => Config::new(server.https().replace("127.0.0.1", "localhost")),
            _ => Config::new(server.https()),
        };
        if folder.join("ca.crt").exists() {
            config = config.ca_file(folder.join("ca.crt"));
        }
        if folder.join("client.crt").exists() {
            config = config
                .client_certificate_files(folder.join("client.crt"), folder.join("client.key"));
        }
        let right = if cfg!(feature = "aws-lc-rs") {
            aws_lc_rs
        } else {
            ring
        };
        let expected = (right == "refuse").then_some(text);
        let verdict = match case {
            "insecure-v1" => get(config.insecure_skip_tls_verify(true)),
            // The authorities are read from the environment.
            "system-folder" => {
                let output =
                    get_in_child_process(&server, &[("SSL_CERT_DIR", &folder.join("certs"))]);
                assert!(output.contains("ANSWERED"), "{output}");
                continue;
            }
            _ => get(config),
        };
        assert_verdict(case, verdict, expected);
    }
}

/// Requests `/version` in a child process with these variables. Returns its output.
fn get_in_child_process(server: &Server, variables: &[(&str, &Path)]) -> String {
    let folder = Folder::new(&format!("child-{}", server.address.port()));
    let config = folder.write(
        "config",
        &format!(
            r#"{{"current-context": "c", "contexts": [{{"name": "c", "context": {{"cluster": "c"}}}}],
            "clusters": [{{"name": "c", "cluster": {{"server": "{}"}}}}]}}"#,
            server.https()
        ),
    );
    let variables = variables.iter().copied();
    run_child_process(variables.chain([("KUBECONFIG", config.as_path())]))
}

/// An authority or a self-signed certificate.
pub(super) fn issuer(
    adjust: impl FnOnce(&mut CertificateParams),
) -> CertifiedIssuer<'static, KeyPair> {
    issuer_with(KeyPair::generate().unwrap(), adjust)
}

fn issuer_with(
    key: KeyPair,
    adjust: impl FnOnce(&mut CertificateParams),
) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
        .distinguished_name
        .push(DnType::CommonName, "the issuer");
    adjust(&mut params);
    CertifiedIssuer::self_signed(params, key).unwrap()
}

fn same_key(of: &CertifiedIssuer<'static, KeyPair>) -> KeyPair {
    KeyPair::from_pem(&of.key().serialize_pem()).unwrap()
}

pub(super) fn signed_by(
    issuer: &CertifiedIssuer<'static, KeyPair>,
    adjust: impl FnOnce(&mut CertificateParams),
) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params
        .distinguished_name
        .push(DnType::CommonName, "the signed");
    adjust(&mut params);
    CertifiedIssuer::signed_by(params, KeyPair::generate().unwrap(), issuer).unwrap()
}

/// Requests a server with this chain, first directly, then as a proxy. Checks that both verdicts are
/// the same.
fn verdict(
    leaf: &CertifiedIssuer<'static, KeyPair>,
    intermediate: Option<&CertifiedIssuer<'static, KeyPair>>,
    ca: &str,
) -> Result<(), Error> {
    let chain = leaf.pem() + &intermediate.map(|it| it.pem()).unwrap_or_default();
    let tls = tls(&chain, &leaf.key().serialize_pem(), None);
    let direct = get(Config::new(server(tls.clone()).https()).ca_pem(ca));
    let plain = Server::answering("{}");
    let proxy = Tunnels::new(Kind::ConnectOverTls(tls));
    let proxied = get(Config::new(plain.url()).ca_pem(ca).proxy_url(proxy.url()));
    match (&direct, &proxied) {
        (Ok(()), Ok(())) => {}
        (Err(direct), Err(proxied)) => {
            let text = |error: &Error| error.to_string().rsplit_once("TLS: ").unwrap().1.to_owned();
            let proxied = text(proxied).replace("the proxy", "the server");
            if !proxied.contains("the authorities of the system")
                && !proxied.contains("another name")
            {
                assert_eq!(text(direct), proxied);
            }
        }
        _ => panic!("{direct:?}, through the proxy {proxied:?}"),
    }
    direct
}

fn unknown_critical(params: &mut CertificateParams) {
    let mut extension = CustomExtension::from_oid_content(&[1, 2, 3, 4], vec![5, 0]);
    extension.set_criticality(true);
    params.custom_extensions.push(extension);
}

type Adjust = fn(&mut CertificateParams);

#[test]
fn authority_is_checked_like_other_certificates() {
    let cases: [(&str, Adjust, Option<&str>); 10] = [
        ("plain", |_| {}, None),
        (
            "no basicConstraints",
            |it| it.is_ca = IsCa::NoCa,
            Some("(no basicConstraints)"),
        ),
        (
            "CA:FALSE",
            |it| it.is_ca = IsCa::ExplicitNoCa,
            Some("(CA:FALSE)"),
        ),
        (
            "keyCertSign",
            |it| it.key_usages = vec![KeyUsagePurpose::KeyCertSign],
            None,
        ),
        (
            "no keyCertSign",
            |it| it.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::CrlSign],
            Some("keyUsage without keyCertSign"),
        ),
        (
            "for servers and clients",
            |it| {
                let (server, client) = (
                    ExtendedKeyUsagePurpose::ServerAuth,
                    ExtendedKeyUsagePurpose::ClientAuth,
                );
                it.extended_key_usages = vec![client, server];
            },
            None,
        ),
        (
            "for any",
            |it| it.extended_key_usages = vec![ExtendedKeyUsagePurpose::Any],
            None,
        ),
        (
            "only for clients",
            |it| it.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth],
            Some("extendedKeyUsage without serverAuth"),
        ),
        (
            "expired",
            |it| it.not_after = rcgen::date_time_ymd(2020, 2, 3),
            Some(
                "the authority \"the issuer\" above the server's certificate, from the CA, has expired on 2020-02-03T00:00:00Z",
            ),
        ),
        (
            "not valid yet",
            |it| it.not_before = rcgen::date_time_ymd(2901, 1, 1),
            Some("is not valid yet, but from 2901-01-01T00:00:00Z on"),
        ),
    ];
    for (case, adjust, expected) in cases {
        let issuer = issuer(adjust);
        let leaf = signed_by(&issuer, |_| {});
        assert_verdict(case, verdict(&leaf, None, &issuer.pem()), expected);
        // An intermediate certificate. It is not sent by the issuer, so it has no other problem.
        let root = self::issuer(|it| it.distinguished_name.push(DnType::CommonName, "root"));
        let intermediate = signed_by(&root, |it| {
            it.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            adjust(it);
        });
        let leaf = signed_by(&intermediate, |_| {});
        let chain = verdict(&leaf, Some(&intermediate), &root.pem());
        // webpki accepts no other usage for intermediate certificates.
        let expected = expected
            .map(|_| "certificate")
            .or((case == "for any").then_some("certificate"));
        assert_verdict(case, chain, expected);
    }
    let critical = issuer(unknown_critical);
    assert_verdict(
        "critical extension",
        verdict(&signed_by(&critical, |_| {}), None, &critical.pem()),
        Some("has a critical extension that is not supported"),
    );
}

#[test]
fn authority_path_length_is_respected() {
    for (limit, expected) in [
        (0, Some("allows fewer intermediate certificates (pathlen)")),
        (1, None),
    ] {
        let root = issuer(|it| it.is_ca = IsCa::Ca(BasicConstraints::Constrained(limit)));
        let intermediate = signed_by(&root, |it| {
            it.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        });
        let leaf = signed_by(&intermediate, |_| {});
        assert_verdict(
            "pathlen",
            verdict(&leaf, Some(&intermediate), &root.pem()),
            expected,
        );
        assert_verdict(
            "direct",
            verdict(&signed_by(&root, |_| {}), None, &root.pem()),
            None,
        );
    }
}

/// One of two configured authorities with the same name and key is enough.
#[test]
fn renewed_authority_next_to_expired_one_is_used() {
    let valid = issuer(|_| {});
    let expired = issuer_with(same_key(&valid), |it| {
        it.not_after = rcgen::date_time_ymd(2020, 1, 1);
    });
    let expired = expired.pem();
    let leaf = signed_by(&valid, |_| {});
    assert_verdict(
        "expired",
        verdict(&leaf, None, &expired),
        Some("has expired on"),
    );
    assert_verdict(
        "both",
        verdict(&leaf, None, &(expired + &valid.pem())),
        None,
    );
}

#[test]
fn configured_server_certificate_is_accepted_exactly() {
    let cases: [(&str, Adjust, Option<&str>); 7] = [
        ("CA:TRUE", |_| {}, None),
        ("no basicConstraints", |it| it.is_ca = IsCa::NoCa, None),
        (
            "another name",
            |it| {
                it.subject_alt_names =
                    vec![rcgen::SanType::DnsName("a.example".try_into().unwrap())];
            },
            Some("is for another name: not for 127.0.0.1, but for DNS:a.example"),
        ),
        ("no name", |it| it.subject_alt_names.clear(), Some("SAN")),
        (
            "expired",
            |it| it.not_after = rcgen::date_time_ymd(2020, 1, 1),
            Some("the server's certificate has expired on 2020-01-01T00:00:00Z"),
        ),
        (
            "only for clients",
            |it| it.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth],
            Some("extendedKeyUsage without serverAuth"),
        ),
        (
            "critical extension",
            unknown_critical,
            Some("critical extension"),
        ),
    ];
    for (case, adjust, expected) in cases {
        let itself = issuer(adjust);
        assert_verdict(case, verdict(&itself, None, &itself.pem()), expected);
        // Also next to its issuer, and signed by it.
        let signed = signed_by(&issuer(|_| {}), adjust);
        assert_verdict(case, verdict(&signed, None, &signed.pem()), expected);
    }
    // Another certificate with the same key, and the same certificate with another key.
    let (pinned, other) = (issuer(|it| it.is_ca = IsCa::ExplicitNoCa), issuer(|_| {}));
    let again = issuer_with(same_key(&pinned), |it| it.serial_number = Some(7.into()));
    let refused = verdict(&again, None, &pinned.pem());
    assert_verdict("the same key", refused, Some("CA:FALSE"));
    let server = server(tls(&pinned.pem(), &other.key().serialize_pem(), None));
    let refused = get(Config::new(server.https()).ca_pem(pinned.pem()));
    assert_verdict(
        "another key",
        refused,
        Some("the server does not have the key of its certificate"),
    );
}

#[test]
fn ipv4_address_equals_its_ipv6_form() {
    let issuer = issuer(|_| {});
    for (host, name) in [
        ("[::ffff:127.0.0.1]", "127.0.0.1"),
        ("127.0.0.1", "::ffff:127.0.0.1"),
    ] {
        let leaf = signed_by(&issuer, |it| {
            it.subject_alt_names = vec![rcgen::SanType::IpAddress(name.parse().unwrap())];
        });
        let server = server(tls(&leaf.pem(), &leaf.key().serialize_pem(), None));
        let url = format!("https://{host}:{}", server.address.port());
        get(Config::new(url).ca_pem(issuer.pem())).unwrap();
    }
}

#[test]
fn broken_pem_block_is_skipped() {
    let issuer = issuer(|_| {});
    let leaf = signed_by(&issuer, |_| {});
    let server = server(tls(&leaf.pem(), &leaf.key().serialize_pem(), None));
    let good = issuer.pem();
    let no_base64 = "-----BEGIN CERTIFICATE-----\n%\n-----END CERTIFICATE-----\n";
    let no_certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let cut = &good[..good.len() / 2];
    for broken in [no_base64, no_certificate, cut, "-----BEGIN CERTIFICATE\n"] {
        for ca in [
            format!("{broken}\n{good}"),
            format!("{good}{broken}"),
            format!("{good}{broken}\n{good}"),
        ] {
            get(Config::new(server.https()).ca_pem(ca)).unwrap();
        }
        let error = Client::new(Config::new("https://a").ca_pem(broken)).unwrap_err();
        assert!(error.is_config(), "{error}");
    }
    // The same with a chain of a client.
    let (leaf, key) = (leaf.pem(), leaf.key().serialize_pem());
    let server = self::server(tls(&leaf, &key, Some(&issuer.pem())));
    let config = Config::new(server.https()).ca_pem(issuer.pem());
    get(config.client_certificate_pem(format!("{no_base64}{leaf}{cut}"), key)).unwrap();
}

#[test]
fn format_of_a_key_does_not_depend_on_its_label() {
    let (rsa, ec) = (
        include_str!("keys/rsa.pkcs8.pem"),
        include_str!("keys/ec.pkcs8.pem"),
    );
    let rsa_chain = issuer_with(KeyPair::from_pem(rsa).unwrap(), |_| {}).pem();
    let chain = include_str!("keys/ec.x509v1.crt");
    let keys = [
        (rsa, &*rsa_chain),
        (include_str!("keys/rsa.pkcs1.pem"), &rsa_chain),
        (ec, chain),
        (include_str!("keys/ec.sec1.pem"), chain),
    ];
    let config = || Config::new("https://a").insecure_skip_tls_verify(true);
    for (key, chain) in keys {
        let middle = key.split("-----").nth(2).unwrap();
        for label in [
            "PRIVATE KEY",
            "RSA PRIVATE KEY",
            "EC PRIVATE KEY",
            "ENCRYPTED PRIVATE KEY",
        ] {
            // Before the key: a certificate and a broken block.
            let key = format!(
                "{chain}-----BEGIN {label}-----\n%\n-----END {label}-----\n\
                 -----BEGIN {label}-----{middle}-----END {label}-----\n"
            );
            Client::new(config().client_certificate_pem(chain, key)).unwrap();
        }
    }
    // After the header, the content of an encrypted key is arbitrary.
    let der = rsa.split("-----").nth(2).unwrap();
    let encrypted = [
        format!(
            "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: a,b\n{der}-----END RSA PRIVATE KEY-----\n"
        ),
        // An algorithm comes first, as in a certificate.
        chain.replace("CERTIFICATE", "PRIVATE KEY"),
    ];
    for key in encrypted {
        let error = Client::new(config().client_certificate_pem(chain, key)).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("encrypted keys are not supported"),
            "{error}"
        );
    }
    let key =
        ec.to_owned() + "-----BEGIN X-----\nProc-Type: 4,ENCRYPTED\n\nAAAA\n-----END X-----\n";
    Client::new(config().client_certificate_pem(chain, key)).unwrap();
}

#[test]
fn system_authorities_come_from_file_and_folders() {
    let folder = Folder::new("system-authorities");
    let itself = issuer(|it| it.is_ca = IsCa::ExplicitNoCa);
    let server = server(tls(&itself.pem(), &itself.key().serialize_pem(), None));
    let other = issuer(|_| {});
    let missing = folder.0.join("missing.pem");
    let path = |name: &str, pem: &str| {
        fs::create_dir(folder.0.join(name)).unwrap();
        folder.write(&format!("{name}/a.pem"), pem);
        folder.0.join(name)
    };
    let (good, wrong) = (path("good", &itself.pem()), path("wrong", &other.pem()));
    let both = std::env::join_paths([&missing, &wrong, &good])
        .map(PathBuf::from)
        .unwrap();
    let file = good.join("a.pem");
    let wrong_file = wrong.join("a.pem");
    let cases: [(&[(&str, &Path)], bool); 7] = [
        // The server's certificate itself is in the file.
        (&[("SSL_CERT_FILE", &file)], true),
        (&[("SSL_CERT_DIR", &good)], true),
        (&[("SSL_CERT_DIR", &both)], true),
        (
            &[("SSL_CERT_FILE", &missing), ("SSL_CERT_DIR", &good)],
            true,
        ),
        (
            &[("SSL_CERT_FILE", &wrong_file), ("SSL_CERT_DIR", &good)],
            true,
        ),
        (
            &[("SSL_CERT_FILE", &wrong_file), ("SSL_CERT_DIR", &wrong)],
            false,
        ),
        (
            &[("SSL_CERT_FILE", &missing), ("SSL_CERT_DIR", &missing)],
            false,
        ),
    ];
    for (variables, accepted) in cases {
        let output = get_in_child_process(&server, variables);
        assert_eq!(
            output.contains("ANSWERED"),
            accepted,
            "{variables:?}: {output}"
        );
    }
}

/// The texts for errors of the protocol, for a server and for a proxy.
#[test]
fn protocol_errors_name_cause_and_remedy() {
    let alert = |number: u8| vec![21, 3, 3, 0, 2, 2, number];
    let hello = |version: u8| {
        let mut hello = vec![22, 3, version, 0, 42, 2, 0, 0, 38, 3, version];
        hello.extend([7; 32]);
        hello.extend([0, 0, 0x2f, 0]); // TLS_RSA_WITH_AES_128_CBC_SHA
        hello
    };
    let cases = [
        (
            b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
            "PEER does not speak TLS on this port; should",
        ),
        (
            b"SSH-2.0-OpenSSH_9.6\r\n".to_vec(),
            "PEER does not speak TLS",
        ),
        (
            alert(70),
            "PEER supports neither TLS 1.2 nor TLS 1.3; it must be updated",
        ),
        (hello(2), "PEER supports neither TLS 1.2 nor TLS 1.3"),
        (
            alert(40),
            "PEER has no cipher suite, curve or key in common with this client",
        ),
        (
            alert(71),
            "PEER has no cipher suite, curve or key in common",
        ),
        (alert(112), "PEER has no certificate for the requested name"),
        (alert(120), "PEER does not offer HTTP/1.1"),
        (
            alert(80),
            "PEER ended the TLS connection (received fatal alert: InternalError)",
        ),
        (
            vec![22, 3, 3, 0, 4, 2, 0, 0, 0],
            "PEER, or a device on the path, violates the TLS protocol",
        ),
        (
            hello(3),
            "PEER, or a device on the path, violates the TLS protocol",
        ),
        (alert(42), "PEER requires a client certificate, "),
        (alert(116), "PEER requires a client certificate, "),
    ];
    for (bytes, expected) in cases {
        let url = raw_server(bytes.clone());
        let error = get(Config::new(&url).insecure_skip_tls_verify(true)).unwrap_err();
        let expected_here = format!("TLS: {}", expected.replace("PEER", "the server"));
        assert!(
            error.is_tls() && error.to_string().contains(&expected_here),
            "{error}"
        );
        let url = raw_server(bytes);
        let config = Config::new("http://kube.invalid").insecure_skip_tls_verify(true);
        let error = get(config.proxy_url(&url)).unwrap_err();
        let expected = format!(
            "the proxy {url}: TLS: {}",
            expected.replace("PEER", "the proxy")
        );
        assert!(
            error.is_tls() && error.to_string().contains(&expected),
            "{error}"
        );
    }
}

/// A server that answers the first bytes of each connection with these bytes. Returns its URL.
fn raw_server(bytes: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            if stream.read_exact(&mut [0; 16]).is_ok() && stream.write_all(&bytes).is_ok() {
                let _ = stream.read_to_end(&mut Vec::new());
            }
        }
    });
    url
}

/// Returns the first bytes that a client sends, after which the server closes the connection.
pub(super) fn closed_handshake() -> (Vec<u8>, Error) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let hello = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut hello = vec![0; 16 * 1024];
        let length = stream.read(&mut hello).unwrap();
        hello.truncate(length);
        hello
    });
    let error = get(Config::new(url).insecure_skip_tls_verify(true)).unwrap_err();
    (hello.join().unwrap(), error)
}

#[test]
fn insecure_client_offers_all_signatures_and_names_the_phase() {
    let (hello, error) = closed_handshake();
    // P-384, P-521, RSA with SHA-1.
    let schemes = [5, 3, 6, 3, 2, 1];
    assert!(hello.windows(6).any(|bytes| bytes == schemes), "{hello:?}");
    let expected = "the connection was closed during the TLS handshake";
    assert!(
        error.is_connection() && error.to_string().contains(expected),
        "{error}"
    );
}

#[test]
fn too_many_certificates_are_named() {
    let issuer = issuer(|_| {});
    let leaf = signed_by(&issuer, |_| {});
    let chain = leaf.pem() + &issuer.pem().repeat(200);
    let server = server(tls(&chain, &leaf.key().serialize_pem(), None));
    let error = get(Config::new(server.https()).ca_pem(issuer.pem())).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("sends more than 64 KiB of certificates"),
        "{error}"
    );
}

#[test]
fn rejected_client_certificate_is_described() {
    let issuer = issuer(|_| {});
    let leaf = signed_by(&issuer, |_| {});
    let clients: HashMap<_, _> = [
        (
            "its issuer is not trusted there",
            self::issuer(|it| {
                it.distinguished_name.push(DnType::CommonName, "stranger");
            }),
        ),
        ("it has expired, or is not valid yet", self::issuer(|_| {})),
    ]
    .into();
    let trusted = &clients["it has expired, or is not valid yet"];
    let server = server(tls(
        &leaf.pem(),
        &leaf.key().serialize_pem(),
        Some(&trusted.pem()),
    ));
    for (reason, authority) in &clients {
        let identity = signed_by(authority, |it| {
            it.distinguished_name.push(DnType::CommonName, "admin");
            it.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
            let year = if reason.contains("expired") {
                2020
            } else {
                2999
            };
            it.not_after = rcgen::date_time_ymd(year, 1, 1);
        });
        let folder = Folder::new("rejected-identity");
        let files = (
            folder.write("a.crt", &identity.pem()),
            folder.write("a.key", &identity.key().serialize_pem()),
        );
        let config = Config::new(server.https()).ca_pem(issuer.pem());
        let error = get(config.client_certificate_files(&files.0, &files.1)).unwrap_err();
        let (issuer, year) = match reason.contains("issuer") {
            true => ("stranger", 2999),
            false => ("the issuer", 2020),
        };
        let expected = format!(
            "the server rejects the client certificate \"admin\" (from the client certificate ({}), \
             issued by \"{issuer}\", valid until {year}-01-01T00:00:00Z): {reason}",
            files.0.display()
        );
        assert!(
            error.is_tls() && error.to_string().contains(&expected),
            "{error}"
        );
    }
    let config = Config::new(server.https()).ca_pem(issuer.pem());
    let expected = "the server requires a client certificate, and none is configured";
    let error = get(config.clone()).unwrap_err();
    assert!(error.to_string().contains(expected), "{error}");
    // The server closes the connection while the client writes. Its alert is read nevertheless.
    let request = Request::post("/").body(vec![b' '; 64 << 20]);
    let client = Client::new(config).unwrap();
    let error = client.request(&request, &Stop::never()).unwrap_err();
    assert!(error.to_string().contains(expected), "{error}");
}

/// Requests a client certificate for these signatures, and rejects it without a reason.
#[derive(Debug)]
struct RejectAll(Vec<SignatureScheme>);

impl ClientCertVerifier for RejectAll {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        // rustls sends the alert HandshakeFailure, as OpenSSL does for a missing certificate.
        Err(rustls::Error::General("rejected".to_owned()))
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.clone()
    }
}

#[test]
fn handshake_failure_after_request_names_the_certificate() {
    let itself = issuer(|it| it.is_ca = IsCa::ExplicitNoCa);
    let (chain, key) = (itself.pem(), itself.key().serialize_pem());
    for (scheme, expected) in [
        (
            SignatureScheme::ECDSA_NISTP256_SHA256,
            "the server rejects the client certificate \"the issuer\" (from the client certificate, ",
        ),
        (
            SignatureScheme::ED25519,
            "the server accepts no signature of the key of the client certificate \"the issuer\" (from",
        ),
    ] {
        let verifier = Arc::new(RejectAll(vec![scheme]));
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier);
        let certificate = CertificateDer::from_pem_slice(chain.as_bytes()).unwrap();
        let key_der = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        let server = server(Arc::new(
            builder
                .with_single_cert(vec![certificate], key_der)
                .unwrap(),
        ));
        let config = Config::new(server.https()).ca_pem(&*chain);
        let error = get(config.client_certificate_pem(&*chain, &*key)).unwrap_err();
        assert!(
            error.is_tls() && error.to_string().contains(expected),
            "{error}"
        );
    }
}

/// The installed provider has only cipher suites that the server does not have.
#[test]
fn installed_provider_comes_before_the_features() {
    let itself = issuer(|it| it.is_ca = IsCa::ExplicitNoCa);
    let folder = Folder::new("installed-provider");
    let file = folder.write("ca.crt", &itself.pem());
    let mut aes = provider();
    Arc::make_mut(&mut aes)
        .cipher_suites
        .retain(|suite| !is_chacha(suite));
    let key = itself.key().serialize_pem();
    let server = server(tls_with(aes, &itself.pem(), &key, None));
    let authorities = ("SSL_CERT_FILE", file.as_path());
    let output = get_in_child_process(&server, &[authorities]);
    assert!(output.contains("ANSWERED"), "{output}");
    let install = (INSTALL_PROVIDER, Path::new("1"));
    let output = get_in_child_process(&server, &[authorities, install]);
    let expected = "has no cipher suite, curve or key in common";
    assert!(output.contains(expected), "{output}");
}
