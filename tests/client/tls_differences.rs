//! The differences from kubectl that the page on authentication lists, and texts that must not
//! mislead. What kubectl does was tried with Go 1.26.

use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use k8s_informer::client::KubeconfigOptions;
use k8s_informer::{Client, Config, Error};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, CustomExtension, DnType, IsCa, KeyPair,
    SanType, SigningKey,
};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme,
};

use super::tls::{provider, server, tls};
use super::tls_cases::{assert_verdict, closed_handshake, get, issuer, signed_by};

type Issuer = CertifiedIssuer<'static, KeyPair>;

const SEQUENCE: u8 = 0x30;
const BIT_STRING: u8 = 3;
const OID: u8 = 6;

/// Encodes a DER element.
fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = match content.len() {
        length @ 0..=0x7f => vec![length as u8],
        length @ 0x80..=0xff => vec![0x81, length as u8],
        length => vec![0x82, (length >> 8) as u8, length as u8],
    };
    [&[tag], &*length, content].concat()
}

/// Splits the content of a DER sequence into its elements.
fn elements(sequence: &[u8]) -> Vec<Vec<u8>> {
    let header = |bytes: &[u8]| match bytes[1] {
        short @ 0..=0x7f => (2, usize::from(short)),
        0x81 => (3, usize::from(bytes[2])),
        _ => (4, usize::from(bytes[2]) << 8 | usize::from(bytes[3])),
    };
    let mut rest = &sequence[header(sequence).0..];
    let mut found = Vec::new();
    while !rest.is_empty() {
        let (start, length) = header(rest);
        let (element, after) = rest.split_at(start + length);
        found.push(element.to_vec());
        rest = after;
    }
    found
}

fn pem(certificate: &[u8]) -> String {
    let text = BASE64_STANDARD.encode(certificate);
    format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
}

// The positions of fields in a certificate.
const VALIDITY: usize = 4;
const KEY: usize = 6;

/// Changes fields of a certificate, and signs it again with this key.
fn changed(certificate: &Issuer, signer: &KeyPair, change: impl Fn(&mut Vec<Vec<u8>>)) -> String {
    let mut parts = elements(certificate.der());
    let mut fields = elements(&parts[0]);
    change(&mut fields);
    parts[0] = der(SEQUENCE, &fields.concat());
    let signature = signer.sign(&parts[0]).unwrap();
    parts[2] = der(BIT_STRING, &[&[0], &*signature].concat());
    pem(&der(SEQUENCE, &parts.concat()))
}

fn unique_id(fields: &mut Vec<Vec<u8>>) {
    fields.insert(KEY + 1, der(0x81, &[0, 7]));
}

fn dates(from: &'static str, until: &'static str) -> impl Fn(&mut Vec<Vec<u8>>) {
    move |fields| {
        // Times with years of two digits have another tag.
        let time = |time: &str| {
            let has_short_year = time.split(['Z', '+']).next().unwrap().len() <= 12;
            der(if has_short_year { 0x17 } else { 0x18 }, time.as_bytes())
        };
        fields[VALIDITY] = der(SEQUENCE, &[time(from), time(until)].concat());
    }
}

/// Requests a server with this chain and key.
fn verdict(chain: &str, key: &KeyPair, ca: &str) -> Result<(), Error> {
    let server = server(tls(chain, &key.serialize_pem(), None));
    get(Config::new(server.https()).ca_pem(ca))
}

fn intermediate(root: &Issuer) -> Issuer {
    signed_by(root, |it| {
        it.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        it.distinguished_name
            .push(DnType::CommonName, "the intermediate");
    })
}

#[test]
fn pem_headers_of_a_client_identity_are_ignored() {
    let issuer = issuer(|_| {});
    let leaf = signed_by(&issuer, |_| {});
    let (chain, key) = (leaf.pem(), leaf.key().serialize_pem());
    let server = server(tls(&chain, &key, Some(&issuer.pem())));
    let config = Config::new(server.https()).ca_pem(issuer.pem());
    let with = |pem: &str, headers: &str| pem.replacen("-----\n", &format!("-----\n{headers}"), 1);
    for headers in [
        "Name: value\n\n",
        "Name: value\nkey-id : a:b, c==\nEmpty:\n\n",
        // Go needs no blank line.
        "Name: value\n",
    ] {
        let (chain, key) = (with(&chain, headers), with(&key, headers));
        for line_break in ["\n", "\r\n"] {
            let in_lines = |pem: &str| pem.replace('\n', line_break);
            let config = config.clone();
            get(config.client_certificate_pem(in_lines(&chain), in_lines(&key))).unwrap();
        }
    }
    let encrypted = "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\n";
    let config = config.client_certificate_pem(&*chain, with(&key, encrypted));
    let error = Client::new(config).unwrap_err().to_string();
    assert!(
        error.ends_with("the client key: encrypted keys are not supported"),
        "{error}"
    );
}

/// As in kubectl: Go skips them among authorities.
#[test]
fn authority_with_pem_headers_is_skipped() {
    let issuer = issuer(|_| {});
    let leaf = signed_by(&issuer, |_| {});
    let with_header = issuer
        .pem()
        .replacen("-----\n", "-----\nName: value\n\n", 1);
    assert_verdict(
        "alone",
        verdict(&leaf.pem(), leaf.key(), &with_header),
        Some("the CA: block 1: has headers before its content, which an authority must not have"),
    );
    let both = with_header + &issuer.pem();
    assert_verdict("both", verdict(&leaf.pem(), leaf.key(), &both), None);
}

#[test]
fn block_of_a_client_chain_that_is_no_certificate_is_skipped() {
    let issuer = issuer(|_| {});
    let leaf = signed_by(&issuer, |_| {});
    let (chain, key) = (leaf.pem(), leaf.key().serialize_pem());
    let server = server(tls(&chain, &key, Some(&issuer.pem())));
    let config = Config::new(server.https()).ca_pem(issuer.pem());
    for chain in [pem(b"junk") + &chain, chain + &pem(b"junk")] {
        get(config.clone().client_certificate_pem(chain, &*key)).unwrap();
    }
}

#[test]
fn dates_before_1970_or_not_der_are_refused() {
    let root = issuer(|_| {});
    let leaf = signed_by(&root, |_| {});
    let above = intermediate(&root);
    let below = signed_by(&above, |_| {});
    let text = "has a date before 1970, without seconds or in another time zone than UTC";
    for (from, until, expected) in [
        ("200101000000Z", "400101000000Z", None),
        ("20200101000000Z", "20400101000000Z", None),
        // Go's zero NotBefore.
        ("00010101000000Z", "400101000000Z", Some(text)),
        ("600101000000Z", "400101000000Z", Some(text)),
        ("2001010000Z", "400101000000Z", Some(text)),
        ("200101000000+0100", "400101000000Z", Some(text)),
        ("200101000000Z", "20400101000000+0100", Some(text)),
    ] {
        let changed_leaf = changed(&leaf, root.key(), dates(from, until));
        let refused = verdict(&changed_leaf, leaf.key(), &root.pem());
        assert_verdict(from, refused, expected);
        let changed_above = changed(&above, root.key(), dates(from, until));
        let refused = verdict(&(below.pem() + &changed_above), below.key(), &root.pem());
        assert_verdict(from, refused, expected);
    }
    // The dates of a configured certificate can be so, but not in another time zone.
    for (from, expected) in [
        ("00010101000000Z", None),
        ("600101000000Z", None),
        ("2001010000Z", None),
        ("200101000000+0100", Some("has no valid dates")),
    ] {
        let changed_root = changed(&root, root.key(), dates(from, "400101000000Z"));
        let refused = verdict(&leaf.pem(), leaf.key(), &changed_root);
        assert_verdict(from, refused, expected);
        let changed_leaf = changed(&leaf, root.key(), dates(from, "400101000000Z"));
        let refused = verdict(&changed_leaf, leaf.key(), &changed_leaf);
        assert_verdict(from, refused, expected);
    }
}

#[test]
fn unique_ids_are_refused() {
    let root = issuer(|_| {});
    let leaf = signed_by(&root, |_| {});
    let text = "has an issuerUniqueID or a subjectUniqueID, which is not supported";
    let with_id = changed(&leaf, root.key(), unique_id);
    let refused = verdict(&with_id, leaf.key(), &root.pem());
    assert_verdict(
        "leaf",
        refused,
        Some(&format!("the server's certificate {text}")),
    );
    let above = intermediate(&root);
    let below = signed_by(&above, |_| {});
    let with_id = changed(&above, root.key(), unique_id);
    let refused = verdict(&(below.pem() + &with_id), below.key(), &root.pem());
    let expected =
        format!("the authority \"the intermediate\" above the server's certificate {text}");
    assert_verdict("intermediate", refused, Some(&expected));
    let with_id = changed(&root, root.key(), unique_id);
    let refused = verdict(&leaf.pem(), leaf.key(), &with_id);
    assert_verdict("root", refused, Some(&format!("the CA: block 1: {text}")));
}

#[test]
fn directory_name_constraints_need_not_be_critical() {
    // A directory name with the common name of the certificates below.
    let name = "the signed";
    let attribute = [der(OID, &[0x55, 4, 3]), der(0x0c, name.as_bytes())].concat();
    let name = der(SEQUENCE, &der(0x31, &der(SEQUENCE, &attribute)));
    let subtree = der(SEQUENCE, &der(0xa4, &name));
    for kind in [0xa0, 0xa1] {
        let content = der(SEQUENCE, &der(kind, &subtree));
        let root = issuer(|it| {
            let extension = CustomExtension::from_oid_content(&[2, 5, 29, 30], content);
            it.custom_extensions.push(extension);
        });
        let leaf = signed_by(&root, |_| {});
        assert_verdict(
            "directory name",
            verdict(&leaf.pem(), leaf.key(), &root.pem()),
            Some("has a name that an authority above it must not sign (nameConstraints)"),
        );
    }
}

#[test]
fn more_than_100_authorities_of_one_name_are_refused() {
    let others: String = (0..100).map(|_| issuer(|_| {}).pem()).collect();
    let root = issuer(|_| {});
    let leaf = signed_by(&root, |_| {});
    let refused = verdict(&leaf.pem(), leaf.key(), &(others.clone() + &root.pem()));
    assert_verdict("after them", refused, Some("authorities of one name"));
    let accepted = verdict(&leaf.pem(), leaf.key(), &(root.pem() + &others));
    assert_verdict("before them", accepted, None);
}

#[test]
fn key_exchange_offers_neither_p521_nor_ml_kem_with_ring() {
    let (hello, _) = closed_handshake();
    // The extension, the lengths, X25519, P-256, P-384. With aws-lc-rs, X25519MLKEM768 (11ec) is the
    // first or the last one.
    let with_ring: &[&[u8]] = &[&[0, 10, 0, 8, 0, 6, 0, 29, 0, 23, 0, 24]];
    let with_aws_lc_rs: &[&[u8]] = &[
        &[0, 10, 0, 10, 0, 8, 0x11, 0xec, 0, 29, 0, 23, 0, 24],
        &[0, 10, 0, 10, 0, 8, 0, 29, 0, 23, 0, 24, 0x11, 0xec],
    ];
    let expected = match cfg!(feature = "aws-lc-rs") {
        true => with_aws_lc_rs,
        false => with_ring,
    };
    let offers = |groups: &&[u8]| hello.windows(groups.len()).any(|bytes| bytes == *groups);
    assert!(expected.iter().any(offers), "{hello:x?}");
}

/// kubectl accepts the names that are exactly those of the certificate.
#[test]
fn odd_server_names_are_refused() {
    let hosts = ["a-.example", "-a.example", "a..example", "node.1"];
    for (name, hint) in [
        ("*.example", "; set a name that the wildcard matches"),
        ("bücher.example", ", such as xn--…"),
        ("a b", ""),
        ("a:1", ""),
    ]
    .into_iter()
    .chain(hosts.map(|name| (name, "")))
    {
        let problem = format!(
            "{name:?} is not a valid server name for a certificate: it must be an address, or a \
             DNS name in ASCII{hint}"
        );
        // The setting is named, in a kubeconfig with its cluster.
        let kubeconfig = format!(
            r#"{{"current-context": "c", "contexts": [{{"name": "c", "context": {{"cluster": "near"}}}}],
            "clusters": [{{"name": "near", "cluster": {{"server": "https://a", "tls-server-name": "{name}",
            "insecure-skip-tls-verify": true}}}}]}}"#
        );
        let config = KubeconfigOptions::new().load_bytes(kubeconfig, "").unwrap();
        for (config, setting) in [
            (config, "tls-server-name of cluster \"near\""),
            (
                Config::new("https://a")
                    .insecure_skip_tls_verify(true)
                    .tls_server_name(name),
                "tls-server-name",
            ),
        ] {
            let error = Client::new(config).unwrap_err();
            let expected = format!("configuration: {setting}: {problem}");
            assert!(error.is_config());
            assert_eq!(error.to_string(), expected);
        }
    }
    for host in hosts {
        let config = Config::new(format!("https://{host}:6443")).insecure_skip_tls_verify(true);
        let error = Client::new(config).unwrap_err().to_string();
        let expected = format!("the host of the server's URL: {host:?} is not a valid server name");
        assert!(error.contains(&expected), "{error}");
    }
}

#[test]
fn unicode_host_names_the_form_to_write() {
    for url in [
        "https://bücher.example",
        "http://bücher.example:80/x",
        "bücher.example:6443",
    ] {
        let error = Client::new(Config::new(url)).unwrap_err();
        let expected =
            format!("the host of the server's URL {url:?} is not ASCII; write it as xn--…");
        assert!(
            error.is_config() && error.to_string().contains(&expected),
            "{error}"
        );
    }
    let config = Config::new("https://a").insecure_skip_tls_verify(true);
    let error = Client::new(config.proxy_url("https://s3cret:x@prôxy:1")).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("the proxy's URL has a host that is not ASCII; write it as xn--…"));
    assert!(!error.contains("s3cret"), "{error}");
    Client::new(Config::new("https://xn--bcher-kva.example").insecure_skip_tls_verify(true))
        .unwrap();
}

#[test]
fn advised_server_name_matches_the_certificate() {
    let root = issuer(|_| {});
    let with_names = |names: &[&str]| {
        signed_by(&root, |it| {
            let names = names.iter().map(|name| match name.parse() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => SanType::DnsName((*name).try_into().unwrap()),
            });
            it.subject_alt_names = names.collect();
        })
    };
    for (names, advice) in [
        (
            &["a.example", "10.0.0.1"][..],
            "set tls-server-name to one of them",
        ),
        (
            &["*.kube.example"],
            "set tls-server-name to a name that matches, such as kubernetes.kube.example",
        ),
        (
            &["*.kube.example", "kube.example"],
            "set tls-server-name to a name that matches, such as kube.example",
        ),
        (
            &["*.local", "*.kube.example"],
            "set tls-server-name to a name that matches, such as kubernetes.kube.example",
        ),
        (&["*.local"], "issue it again with the SAN \"127.0.0.1\""),
    ] {
        let leaf = with_names(names);
        let server = server(tls(&leaf.pem(), &leaf.key().serialize_pem(), None));
        let config = Config::new(server.https()).ca_pem(root.pem());
        let error = get(config.clone()).unwrap_err().to_string();
        let (_, remedy) = error.split_once("If this is the right host, ").unwrap();
        assert_eq!(remedy, advice);
        // The advice works.
        if let Some((_, name)) = remedy.split_once("such as ") {
            get(config.tls_server_name(name)).unwrap();
        }
    }
}

/// The algorithms and keys of `SubjectPublicKeyInfo`, and their descriptions.
fn unsupported_keys() -> Vec<(&'static str, Vec<u8>)> {
    const EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];
    const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
    let info = |algorithm: &[u8], parameters: Vec<u8>, point: &[u8]| {
        let algorithm = der(SEQUENCE, &[der(OID, algorithm), parameters].concat());
        let bits = der(BIT_STRING, &[&[0], point].concat());
        der(SEQUENCE, &[algorithm, bits].concat())
    };
    let (point, compressed) = ([4; 65], [2; 33]);
    vec![
        (
            "a key on the curve P-224, which is not supported",
            info(EC, der(OID, &[0x2b, 0x81, 4, 0, 0x21]), &[4; 57]),
        ),
        (
            "a key on the curve secp256k1, which is not supported",
            info(EC, der(OID, &[0x2b, 0x81, 4, 0, 0x0a]), &point),
        ),
        (
            "a key on a curve that is not supported",
            info(EC, der(OID, &[0x2b, 0x24, 3, 3, 2, 8, 1, 1, 7]), &point),
        ),
        (
            "an EC key with explicit parameters of its curve, which is not supported",
            info(EC, der(SEQUENCE, &[2, 1, 1]), &point),
        ),
        (
            "an EC key in compressed form, which is not supported",
            info(EC, der(OID, P256), &compressed),
        ),
        (
            "an RSA key for PSS signatures only, which is not supported",
            info(
                &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 10],
                Vec::new(),
                &[3; 270],
            ),
        ),
        (
            "a key of a kind that is not supported",
            info(&[0x2b, 0x65, 0x71], Vec::new(), &[5; 57]),
        ),
    ]
}

#[test]
fn unsupported_kind_of_key_is_named() {
    let root = issuer(|_| {});
    let leaf = signed_by(&root, |_| {});
    let above = intermediate(&root);
    let below = signed_by(&above, |_| {});
    for (kind, key) in unsupported_keys() {
        let set = |fields: &mut Vec<Vec<u8>>| fields[KEY] = key.clone();
        // Of a trusted authority, and of one that is sent.
        let ca = changed(&root, root.key(), set);
        let refused = verdict(&leaf.pem(), leaf.key(), &ca);
        let expected =
            format!("the authority \"the issuer\" above the server's certificate has {kind}");
        assert_verdict(kind, refused, Some(&expected));
        let sent = changed(&above, root.key(), set);
        let refused = verdict(&(below.pem() + &sent), below.key(), &root.pem());
        let expected =
            format!("the authority \"the intermediate\" above the server's certificate has {kind}");
        assert_verdict(kind, refused, Some(&expected));
        // Of the server, whose certificate is signed by an authority or configured.
        let own = changed(&leaf, root.key(), set);
        for ca in [root.pem(), own.clone()] {
            let refused = verdict(&own, leaf.key(), &ca);
            let expected = format!("the server's certificate has {kind}");
            assert_verdict(kind, refused, Some(&expected));
        }
    }
    // Another key of a supported kind.
    let stranger = KeyPair::generate().unwrap();
    assert_verdict(
        "another key",
        verdict(&leaf.pem(), &stranger, &root.pem()),
        Some("the server does not have the key of its certificate"),
    );
}

#[test]
fn authority_that_is_sent_first_is_named() {
    let root = issuer(|it| it.subject_alt_names.clear());
    let above = intermediate(&root);
    let leaf = signed_by(&above, |_| {});
    let first = |name: &str| {
        format!("the server sends the certificate of the authority \"{name}\" first. It must send")
    };
    let (root_first, above_first) = (first("the issuer"), first("the intermediate"));
    for (chain, ca, expected) in [
        (above.pem() + &leaf.pem(), root.pem(), &above_first),
        (
            above.pem() + &leaf.pem() + &root.pem(),
            root.pem(),
            &above_first,
        ),
        (
            root.pem() + &above.pem() + &leaf.pem(),
            root.pem(),
            &root_first,
        ),
        (
            root.pem() + &leaf.pem() + &above.pem(),
            above.pem(),
            &root_first,
        ),
    ] {
        assert_verdict("first", verdict(&chain, leaf.key(), &ca), Some(expected));
    }
    // In any other order after the first one, and with certificates that have no meaning.
    let stray = signed_by(&root, |_| {});
    let chain = leaf.pem() + &stray.pem() + &root.pem() + &above.pem();
    assert_verdict("order", verdict(&chain, leaf.key(), &root.pem()), None);
    // They are not what is wrong with the certificate.
    let authority = intermediate(&root);
    let refused = verdict(
        &(authority.pem() + &stray.pem()),
        authority.key(),
        &root.pem(),
    );
    assert_verdict(
        "stray",
        refused,
        Some("the server's certificate is a CA certificate (CA:TRUE)"),
    );
}

#[test]
fn client_key_of_a_certificate_of_version_1_is_compared() {
    let v1 = include_str!("keys/ec.x509v1.crt");
    let config = || Config::new("https://a").insecure_skip_tls_verify(true);
    let right = include_str!("keys/ec.pkcs8.pem");
    Client::new(config().client_certificate_pem(v1, right)).unwrap();
    let other = KeyPair::generate().unwrap().serialize_pem();
    for other in [&*other, include_str!("keys/rsa.pkcs8.pem")] {
        let error = Client::new(config().client_certificate_pem(v1, other)).unwrap_err();
        let expected = "the client key is not the key of the client certificate";
        assert!(error.to_string().ends_with(expected), "{error}");
    }
    // The key may be the right one, in another form.
    let itself = issuer(|_| {});
    let (_, compressed) = unsupported_keys().remove(4);
    let chain = changed(&itself, itself.key(), |fields| {
        fields[KEY] = compressed.clone();
    });
    let key = itself.key().serialize_pem();
    let error = Client::new(config().client_certificate_pem(chain, key)).unwrap_err();
    let expected = "the client certificate has an EC key in compressed form";
    assert!(error.to_string().contains(expected), "{error}");
}

/// Requests a client certificate, and finds that its signature is wrong.
#[derive(Debug)]
struct WrongSignature;

impl WrongSignature {
    fn verdict() -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(CertificateError::BadSignature.into())
    }
}

impl ClientCertVerifier for WrongSignature {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Self::verdict()
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Self::verdict()
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}

#[test]
fn refused_signature_of_a_client_names_its_certificate() {
    let itself = issuer(|it: &mut CertificateParams| it.is_ca = IsCa::ExplicitNoCa);
    let (chain, key) = (itself.pem(), itself.key().serialize_pem());
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(Arc::new(WrongSignature));
    let certificate = CertificateDer::from_pem_slice(chain.as_bytes()).unwrap();
    let key_der = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let config = builder.with_single_cert(vec![certificate], key_der);
    let server = server(Arc::new(config.unwrap()));
    let config = Config::new(server.https()).ca_pem(&*chain);
    let error = get(config.client_certificate_pem(&*chain, &*key)).unwrap_err();
    let error = error.to_string();
    let (start, end) = (
        "the server rejects the client certificate \"the issuer\" (from the client certificate,",
        "): the signature is not that of its key",
    );
    assert!(error.contains(start) && error.ends_with(end), "{error}");
}
