use std::io::{Read, Write};
use std::sync::Arc;

use k8s_informer::client::Request;
use k8s_informer::{Client, Config, Error, Stop};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, SignatureAlgorithm,
};
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};

use super::server::{Reply, Server, reply};

pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, "test CA");
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    /// Returns the chain and key for a server with this name, or for a client.
    fn sign(
        &self,
        name: &str,
        key: KeyPair,
        adjust: impl FnOnce(&mut CertificateParams),
    ) -> (String, String) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        adjust(&mut params);
        (
            params.signed_by(&key, &self.issuer).unwrap().pem(),
            key.serialize_pem(),
        )
    }

    pub(crate) fn client(&self, algorithm: &'static SignatureAlgorithm) -> (String, String) {
        self.client_with(KeyPair::generate_for(algorithm).unwrap())
    }

    fn client_with(&self, key: KeyPair) -> (String, String) {
        self.sign("admin", key, |params| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        })
    }

    pub(crate) fn server(&self, name: &str) -> Arc<ServerConfig> {
        server_config(self.sign(name, KeyPair::generate().unwrap(), |_| {}), None)
    }

    /// A server that requires a client certificate of the authority `clients`.
    pub(crate) fn server_for(&self, name: &str, clients: &Self) -> Arc<ServerConfig> {
        server_config(
            self.sign(name, KeyPair::generate().unwrap(), |_| {}),
            Some(clients),
        )
    }
}

fn server_config((chain, key): (String, String), clients: Option<&Authority>) -> Arc<ServerConfig> {
    tls(&chain, &key, clients.map(|clients| &*clients.pem))
}

/// The provider of the servers. It supports the same keys as that of the client.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    #[cfg(feature = "aws-lc-rs")]
    return Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    #[cfg(not(feature = "aws-lc-rs"))]
    Arc::new(rustls::crypto::ring::default_provider())
}

/// A server with this chain and key. They are not checked. With `clients`, it requires client
/// certificates of this authority.
pub(crate) fn tls(chain: &str, key: &str, clients: Option<&str>) -> Arc<ServerConfig> {
    tls_with(provider(), chain, key, clients)
}

pub(crate) fn tls_with(
    provider: Arc<CryptoProvider>,
    chain: &str,
    key: &str,
    clients: Option<&str>,
) -> Arc<ServerConfig> {
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let key = provider.key_provider.load_private_key(key).unwrap();
    let chain = CertificateDer::pem_slice_iter(chain.as_bytes());
    let identity = CertifiedKey::new(chain.collect::<Result<_, _>>().unwrap(), key);
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(clients) => {
            let mut roots = rustls::RootCertStore::empty();
            let clients = CertificateDer::from_pem_slice(clients.as_bytes()).unwrap();
            roots.add(clients).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    Arc::new(builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(identity))))
}

pub(crate) fn server(tls: Arc<ServerConfig>) -> Server {
    Server::with_tls(Some(tls), |_| Reply::Write(reply("200 OK", "", "{}")))
}

fn get(config: Config) -> Result<Vec<u8>, Error> {
    Client::new(config)?
        .request(&Request::get("/version"), &Stop::never())?
        .bytes()
}

fn tls_error(config: Config) -> String {
    let error = get(config).unwrap_err();
    assert!(
        error.is_tls() && error.is_connection() && !error.is_config(),
        "{error:?}"
    );
    let error = error.to_string();
    assert!(error.contains("GET https://127.0.0.1:"), "{error}");
    error
}

#[test]
fn server_with_trusted_ca_is_accepted() {
    let authority = Authority::new();
    let server = server(authority.server("127.0.0.1"));
    let client = Client::new(Config::new(server.https()).ca_pem(authority.pem.clone())).unwrap();
    for _ in 0..3 {
        client
            .request(&Request::get("/version"), &Stop::never())
            .unwrap()
            .bytes()
            .unwrap();
    }
    assert_eq!(server.accepted(), 1, "the connection must be reused");
    // Without a scheme, the URL is https, because there is a CA.
    let bare = server.https().replace("https://", "");
    get(Config::new(bare).ca_pem(authority.pem)).unwrap();
}

#[test]
fn server_with_unknown_ca_is_rejected() {
    let server = server(Authority::new().server("127.0.0.1"));
    let error = tls_error(Config::new(server.https()).ca_pem(Authority::new().pem));
    assert!(
        error.contains("the server's certificate is not signed by a trusted authority"),
        "{error}"
    );
    // The two authorities above have the same name, which is common when there are two clusters.
    // This authority has another name.
    let stranger = KeyPair::generate().unwrap();
    let stranger = CertificateParams::new(vec!["stranger".to_owned()])
        .unwrap()
        .self_signed(&stranger)
        .unwrap();
    let error = tls_error(Config::new(server.https()).ca_pem(stranger.pem()));
    assert!(
        error.contains("the server's certificate is not signed by a trusted authority"),
        "{error}"
    );
}

#[test]
fn server_with_wrong_name_is_rejected() {
    let authority = Authority::new();
    let server = server(authority.server("kube.example"));
    let config = Config::new(server.https()).ca_pem(authority.pem.clone());
    let error = tls_error(config.clone());
    assert!(error.contains("tls-server-name"), "{error}");
    assert!(
        error.contains("kube.example"),
        "the error does not list the certificate's names: {error}"
    );
    get(config.clone().tls_server_name("kube.example")).unwrap();
    assert!(tls_error(config.tls_server_name("other.example")).contains("tls-server-name"));
}

#[test]
fn expired_or_future_server_certificate_is_rejected() {
    let authority = Authority::new();
    for (from, to, expected) in [
        (2001, 2002, "has expired"),
        (2901, 2902, "is not valid yet"),
    ] {
        let key = KeyPair::generate().unwrap();
        let tls = server_config(
            authority.sign("127.0.0.1", key, |params| {
                params.not_before = rcgen::date_time_ymd(from, 1, 1);
                params.not_after = rcgen::date_time_ymd(to, 1, 1);
            }),
            None,
        );
        let server = server(tls);
        let error = tls_error(Config::new(server.https()).ca_pem(authority.pem.clone()));
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn insecure_skip_tls_verify_accepts_unknown_ca_and_wrong_name() {
    let server = server(Authority::new().server("other.example"));
    let config = Config::new(server.https()).insecure_skip_tls_verify(true);
    get(config.clone()).unwrap();
    let error = get(config.ca_pem(Authority::new().pem)).unwrap_err();
    assert!(error.is_config(), "{error:?}");
    assert!(
        error.to_string().contains("can't be used together"),
        "{error}"
    );
}

#[test]
fn client_keys_of_all_formats_are_accepted() {
    let authority = Authority::new();
    let server = server(authority.server_for("127.0.0.1", &authority));
    let config = Config::new(server.https()).ca_pem(authority.pem.clone());
    for algorithm in [
        &PKCS_ECDSA_P256_SHA256,
        &PKCS_ECDSA_P384_SHA384,
        &PKCS_ED25519,
    ] {
        let (chain, key) = authority.client(algorithm);
        get(config.clone().client_certificate_pem(chain, key)).unwrap();
    }
    // The formats of other tools, made with openssl for this test.
    let rsa = include_str!("keys/rsa.pkcs8.pem");
    let ec = include_str!("keys/ec.pkcs8.pem");
    for (pkcs8, key) in [
        (rsa, rsa),
        (rsa, include_str!("keys/rsa.pkcs1.pem")),
        (ec, include_str!("keys/ec.sec1.pem")),
        (ec, include_str!("keys/ec.sec1-with-parameters.pem")),
    ] {
        let (chain, _) = authority.client_with(KeyPair::from_pem(pkcs8).unwrap());
        get(config.clone().client_certificate_pem(chain, key)).unwrap();
    }
    let error = tls_error(config.clone());
    assert!(
        error.contains("requires a client certificate, and none is configured"),
        "{error}"
    );
    let (chain, key) = Authority::new().client(&PKCS_ED25519);
    tls_error(config.client_certificate_pem(chain, key));
}

#[test]
fn client_certificate_of_version_1_is_not_judged() {
    // The client certificate is of X.509 version 1 (the default of openssl). Only the server decides
    // whether it is valid.
    let v1 = include_str!("keys/ec.x509v1.crt");
    let ec = include_str!("keys/ec.pkcs8.pem");
    let config = Config::new("https://a").insecure_skip_tls_verify(true);
    Client::new(config.client_certificate_pem(v1, ec)).unwrap();
}

#[test]
fn http_and_https_mismatch_is_an_error() {
    // The server speaks plain HTTP and cannot find the end of a TLS hello. It answers after the
    // first bytes.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut [0; 16]).unwrap();
        stream
            .write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
            .unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let error = tls_error(Config::new(url).insecure_skip_tls_verify(true));
    assert!(error.contains("http:// instead of https://"), "{error}");
    let tls = server(Authority::new().server("127.0.0.1"));
    assert!(get(Config::new(tls.url())).unwrap_err().is_connection());
}

#[test]
fn invalid_tls_material_is_named_without_its_content() {
    let authority = Authority::new();
    let (chain, key) = authority.client(&PKCS_ED25519);
    let (_, other_key) = authority.client(&PKCS_ED25519);
    let config = || Config::new("https://127.0.0.1:1").ca_pem(authority.pem.clone());
    let garbage = "-----BEGIN PRIVATE KEY-----\nc2VjcmV0 s3cret!\n-----END PRIVATE KEY-----\n";
    let short = "-----BEGIN PRIVATE KEY-----\nczNjcmV0\n-----END PRIVATE KEY-----\n";
    let encrypted = garbage.replace("PRIVATE", "ENCRYPTED PRIVATE");
    for (config, expected) in [
        (
            Config::new("https://a").ca_pem("s3cret"),
            "the CA: no certificate in PEM form",
        ),
        (Config::new("https://a").ca_pem(garbage), "the CA: "),
        (
            Config::new("https://a").ca_pem(garbage.replace("PRIVATE KEY", "CERTIFICATE")),
            "the CA: ",
        ),
        (
            Config::new("https://a").ca_file("/nowhere/ca.crt"),
            "the CA (/nowhere/ca.crt): ",
        ),
        (
            config().client_certificate_pem(chain.clone(), "s3cret"),
            "the client key: no private key in PEM form",
        ),
        (
            config().client_certificate_pem(chain.clone(), garbage),
            "the client key: not valid PEM",
        ),
        (
            config().client_certificate_pem(chain.clone(), short),
            "the client key: the key is not supported",
        ),
        (
            config().client_certificate_pem(chain.clone(), encrypted),
            "encrypted keys are not supported",
        ),
        (
            config().client_certificate_pem("s3cret", key),
            "the client certificate: no certificate in PEM form",
        ),
        (
            config().client_certificate_pem(chain.clone(), other_key),
            "the client key is not the key of the client certificate",
        ),
        (
            config().client_certificate_files("/nowhere/c", "/nowhere/k"),
            "the client certificate (/nowhere/c): ",
        ),
        (
            config().tls_server_name("not a name"),
            "is not a valid server name for a certificate",
        ),
    ] {
        let shown = format!("{config:?}");
        let error = Client::new(config).unwrap_err();
        assert!(error.is_config() && !error.is_retryable(), "{error:?}");
        let text = format!("{error} {error:?} {shown}");
        assert!(text.contains(expected), "{expected}: {text}");
        for secret in ["s3cret", "c2VjcmV0", "czNjcmV0", "BEGIN"] {
            assert!(!text.contains(secret), "{text}");
        }
    }
}
