//! Parses the output of a credential plugin: the `ExecCredential` on its standard output. Except
//! for known API versions, no message quotes this output.

use std::fmt;
use std::time::SystemTime;

use serde_json::{Map, Value};

use crate::base::text::Reason;
use crate::client::credential_data::Secret;
use crate::time::UnixTime;

/// All supported values of `apiVersion`.
pub(super) const API_VERSIONS: [&str; 2] = [
    "client.authentication.k8s.io/v1",
    "client.authentication.k8s.io/v1beta1",
];

type Object = Map<String, Value>;

/// The `status` of the output of one run: a token, a certificate, or both. It is shared, and
/// compared by address: see [`Plugin::reject`](super::Plugin::reject).
#[derive(Debug)]
pub(in crate::client) struct Credential {
    pub(in crate::client) token: Option<Secret>,
    pub(in crate::client) certificate: Option<Identity>,
    pub(in crate::client) expires: Option<SystemTime>,
}

/// A client certificate (a chain, leaf first) and its key, both PEM and not validated yet.
#[derive(PartialEq)]
pub(in crate::client) struct Identity {
    pub(in crate::client) chain: Vec<u8>,
    pub(in crate::client) key: Vec<u8>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Parses the output. An error message completes a sentence that starts with "exec plugin x".
pub(super) fn parse(output: &[u8], api_version: &str) -> Result<Credential, Reason> {
    let credential = decode(output)?;
    // As in client-go, a missing kind is accepted, but a missing version is not.
    if text(&credential, "kind")?.is_some_and(|kind| kind != "ExecCredential") {
        return Err("returned an object that is not an ExecCredential".into());
    }
    match text(&credential, "apiVersion")? {
        Some(returned) if returned == api_version => {}
        returned => {
            let returned = match returned {
                None => "none",
                // Quotes only known versions, because an unknown value could be a secret.
                Some(known) if API_VERSIONS.contains(&known) => known,
                Some("client.authentication.k8s.io/v1alpha1") => {
                    "client.authentication.k8s.io/v1alpha1"
                }
                Some(_) => "another one",
            };
            return Err(format!(
                "is configured to use apiVersion {api_version}, but returned {returned}"
            )
            .into());
        }
    }
    let status = match credential.get("status") {
        None | Some(Value::Null) => return Err("returned no status".into()),
        Some(Value::Object(status)) => status,
        Some(_) => return Err("returned a status that is not an object".into()),
    };
    let token = text(status, "token")?.map(|token| Secret(token.to_owned()));
    let pem = |name| text(status, name).map(|pem| pem.map(|pem| pem.as_bytes().to_vec()));
    let certificate = match (pem("clientCertificateData")?, pem("clientKeyData")?) {
        (Some(chain), Some(key)) => Some(Identity { chain, key }),
        (None, None) if token.is_none() => {
            return Err("returned neither a token nor a certificate".into());
        }
        (None, None) => None,
        (Some(_), None) => return Err("returned a certificate without its key".into()),
        (None, Some(_)) => return Err("returned a key without its certificate".into()),
    };
    let expires = match status.get("expirationTimestamp") {
        None | Some(Value::Null) => None,
        Some(time) => expiry(time.as_str().unwrap_or_default())?,
    };
    Ok(Credential {
        token,
        certificate,
        expires,
    })
}

/// Returns a string field. An empty string counts as absent.
fn text<'a>(object: &'a Object, name: &str) -> Result<Option<&'a str>, Reason> {
    match object.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str()).filter(|text| !text.is_empty())),
        Some(_) => Err(format!("returned a {name} that is not a string").into()),
    }
}

/// Decodes JSON if the output starts with `{`, and YAML otherwise, as in client-go. Without the
/// feature `kubeconfig`, only JSON is supported.
fn decode(output: &[u8]) -> Result<Object, Reason> {
    if output.trim_ascii_start().is_empty() {
        return Err("returned nothing".into());
    }
    #[cfg(feature = "kubeconfig")]
    if !output.trim_ascii_start().starts_with(b"{") {
        return yaml(output);
    }
    serde_json::from_slice(output).map_err(|error| {
        format!(
            "returned invalid JSON at line {}, column {}",
            error.line(),
            error.column()
        )
        .into()
    })
}

#[cfg(feature = "kubeconfig")]
fn yaml(output: &[u8]) -> Result<Object, Reason> {
    let text = str::from_utf8(output).map_err(|_| "returned output that is not UTF-8")?;
    crate::client::yaml::decode(text).map_err(|problem| {
        let place = problem.place();
        format!("returned output that is neither a JSON nor a YAML ExecCredential{place}").into()
    })
}

/// An entry point for the fuzz target. Calls [`parse`] and returns the token, the chain with its
/// key, and the expiry.
#[doc(hidden)]
pub fn exec_credential(
    output: &[u8],
    api_version: &str,
) -> Result<ParsedCredential, impl fmt::Debug + fmt::Display + use<>> {
    let credential = parse(output, api_version)?;
    Ok::<_, Reason>((
        credential.token.map(|token| token.0),
        credential
            .certificate
            .map(|identity| (identity.chain, identity.key)),
        credential.expires,
    ))
}

type ParsedCredential = (
    Option<String>,
    Option<(Vec<u8>, Vec<u8>)>,
    Option<SystemTime>,
);

/// Parses an expiry. Go's zero time means that there is none.
fn expiry(text: &str) -> Result<Option<SystemTime>, Reason> {
    let time = UnixTime::parse(text)
        .map_err(|problem| format!("returned an expirationTimestamp that is {problem}"))?;
    // Times before 1970 become 1970, because some systems can't represent them. Such a credential
    // has expired either way.
    Ok(time.and_then(|time| time.max(UnixTime::EPOCH).to_system_time()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    const V1: &str = API_VERSIONS[0];
    const V1BETA1: &str = API_VERSIONS[1];

    fn credential(status: &str) -> String {
        format!(r#"{{"apiVersion":"{V1}","kind":"ExecCredential","status":{status}}}"#)
    }

    fn problem(output: &str) -> String {
        parse(output.as_bytes(), V1).unwrap_err().to_string()
    }

    #[test]
    fn plugin_token_certificate_or_both_are_parsed() {
        let both = credential(
            r#"{"token":"t","clientCertificateData":"c","clientKeyData":"k","expirationTimestamp":"2030-01-02T03:04:05.5+01:00","x":[]}"#,
        );
        let both = parse(both.as_bytes(), V1).unwrap();
        assert_eq!(both.token.unwrap().0, "t");
        assert!(
            both.certificate
                == Some(Identity {
                    chain: b"c".to_vec(),
                    key: b"k".to_vec()
                })
        );
        assert_eq!(
            both.expires,
            Some(UNIX_EPOCH + Duration::from_millis(1_893_549_845_500))
        );
        let token = credential(r#"{"token":"t","clientKeyData":"","clientCertificateData":null}"#);
        let token = parse(token.as_bytes(), V1).unwrap();
        assert!(token.certificate.is_none() && token.expires.is_none());
        let certificate =
            credential(r#"{"token":"","clientCertificateData":"c","clientKeyData":"k"}"#);
        assert!(parse(certificate.as_bytes(), V1).unwrap().token.is_none());
    }

    #[test]
    fn zero_expiry_is_none_and_invalid_expiry_is_rejected() {
        let expires = |time: &str| {
            let status = format!(r#"{{"token":"t","expirationTimestamp":{time}}}"#);
            parse(credential(&status).as_bytes(), V1).map(|credential| credential.expires)
        };
        assert_eq!(expires("null"), Ok(None));
        assert_eq!(expires(r#""0001-01-01T00:00:00Z""#), Ok(None));
        assert_eq!(expires(r#""0001-01-01T01:00:00+01:00""#), Ok(None));
        for (time, seconds) in [
            ("1903-01-01T00:00:00Z", 0),
            ("2030-01-02T3:04:05,5+01:00", 1_893_549_845),
            ("9999-12-30T22:00:01Z", 253_402_207_201),
            ("9999-12-31T23:59:59Z", 253_402_300_799),
            ("9999-12-31T23:59:59-14:00", 253_402_351_199),
        ] {
            let at = expires(&format!("{time:?}")).unwrap().unwrap();
            let since = at.duration_since(UNIX_EPOCH).unwrap();
            assert_eq!(since.as_secs(), seconds, "{time}");
        }
        for wrong in [
            "",
            "tomorrow",
            "2030-01-02",
            "2030-13-02T00:00:00Z",
            "2030-01-02t00:00:00Z",
            "2030-01-02 00:00:00Z",
            "99999-01-01T00:00:00Z",
        ] {
            let expected = "returned an expirationTimestamp that is not an RFC 3339 time";
            assert_eq!(
                expires(&format!("{wrong:?}")).unwrap_err().to_string(),
                expected,
                "{wrong}"
            );
        }
    }

    #[test]
    fn plugin_output_is_not_quoted_in_errors() {
        let kind =
            format!(r#"{{"apiVersion":"{V1}","kind":"s3cret","status":{{"token":"s3cret"}}}}"#);
        let time = "returned an expirationTimestamp that is not an RFC 3339 time";
        let data = credential(r#"{"token":["s3cret"]}"#);
        for (output, expected) in [
            ("", "returned nothing"),
            (" \n", "returned nothing"),
            (r#"{"s3cret"#, "returned invalid JSON at line 1, column 8"),
            (
                r#"{"token": s3cret}"#,
                "returned invalid JSON at line 1, column 11",
            ),
            ("{} s3cret", "returned invalid JSON at line 1, column 4"),
            (&data, "returned a token that is not a string"),
            (
                &credential(r#"["s3cret"]"#),
                "returned a status that is not an object",
            ),
            (
                &credential(r#"{"token":"t","expirationTimestamp":5}"#),
                time,
            ),
            (&kind, "returned an object that is not an ExecCredential"),
            (&credential("null"), "returned no status"),
            (
                &credential("{}"),
                "returned neither a token nor a certificate",
            ),
            (
                &credential(r#"{"token":"t","clientCertificateData":"s3cret"}"#),
                "returned a certificate without its key",
            ),
            (
                &credential(r#"{"token":"t","clientKeyData":"s3cret"}"#),
                "returned a key without its certificate",
            ),
        ] {
            assert_eq!(problem(output), expected, "{output}");
        }
        let deep = "[".repeat(100_000);
        assert!(!problem(&format!("{{\"a\":{deep}")).is_empty());
        assert!(parse(b"{\"apiVersion\":\"\xff\"}", V1).is_err());
        assert!(parse(b"\xff\xfe", V1).is_err());
        let shown = parse(
            credential(
                r#"{"token":"s3cret","clientCertificateData":"s3cret","clientKeyData":"s3cret"}"#,
            )
            .as_bytes(),
            V1,
        );
        assert!(!format!("{shown:?}").contains("s3cret"), "{shown:?}");
    }

    #[test]
    fn wrong_api_version_is_rejected_and_missing_kind_accepted() {
        let of = |version: &str| format!(r#"{{{version}"status":{{"token":"t"}}}}"#);
        let configured =
            "is configured to use apiVersion client.authentication.k8s.io/v1, but returned";
        for (version, expected) in [
            (String::new(), "none"),
            (r#""apiVersion":"","#.to_owned(), "none"),
            (format!(r#""apiVersion":"{V1BETA1}","#), V1BETA1),
            (
                format!(r#""apiVersion":"{V1}alpha1","#),
                "client.authentication.k8s.io/v1alpha1",
            ),
            (r#""apiVersion":"s3cret","#.to_owned(), "another one"),
        ] {
            assert_eq!(problem(&of(&version)), format!("{configured} {expected}"));
        }
        assert!(parse(of(&format!(r#""apiVersion":"{V1}","#)).as_bytes(), V1).is_ok());
        assert!(
            parse(
                of(&format!(r#""apiVersion":"{V1BETA1}","#)).as_bytes(),
                V1BETA1
            )
            .is_ok()
        );
    }

    #[cfg(feature = "kubeconfig")]
    #[test]
    fn yaml_output_is_parsed_and_yaml_errors_quote_no_content() {
        let yaml = format!(
            "apiVersion: {V1}\nkind: ExecCredential\nstatus:\n  token: t\n  expirationTimestamp: 2030-01-02T03:04:05Z\n"
        );
        let credential = parse(yaml.as_bytes(), V1).unwrap();
        assert_eq!(credential.token.unwrap().0, "t");
        assert!(credential.expires.is_some());
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let aliases = vec![format!("*a{}", level - 1); 9].join(", ");
            bomb.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
        }
        let deep = "[".repeat(100_000);
        for garbage in [
            "s3cret",
            "status: [s3cret",
            "Please log in: s3cret: 1",
            &bomb,
            &deep,
        ] {
            let problem = problem(garbage);
            assert!(
                problem.starts_with("returned output that is neither a JSON nor a YAML"),
                "{problem}"
            );
            assert!(!problem.contains("s3cret"), "{problem}");
        }
    }

    #[cfg(not(feature = "kubeconfig"))]
    #[test]
    fn yaml_is_rejected_without_kubeconfig_feature() {
        assert_eq!(
            problem("status: {token: t}"),
            "returned invalid JSON at line 1, column 1"
        );
    }
}
