//! What a plugin answers: the `ExecCredential` on its standard output. No message quotes any of it.

use std::fmt;
use std::time::SystemTime;

use serde::Deserialize;

use super::super::super::material::Secret;

/// The two versions that there are.
pub(super) const API_VERSIONS: [&str; 2] =
    ["client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"];

/// What stands in the `status` of an answer that is one: a token, a certificate, or both.
#[derive(Debug)]
pub(in crate::client) struct Answer {
    pub(in crate::client) token: Option<Secret>,
    pub(in crate::client) certificate: Option<Identity>,
    pub(in crate::client) expires: Option<SystemTime>,
}

/// A client certificate (a chain, leaf first) and its key, both PEM, as they came: nobody has looked into
/// them.
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

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecCredential {
    kind: Option<String>,
    api_version: Option<String>,
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
    expiration_timestamp: Option<String>,
}

/// Or what is wrong with it, to come after "exec plugin x".
pub(in crate::client) fn parse(output: &[u8], api_version: &str) -> Result<Answer, String> {
    let answer = decode(output)?;
    // client-go takes an answer without a kind for one, and one without a version not.
    if answer.kind.is_some_and(|kind| !kind.is_empty() && kind != "ExecCredential") {
        return Err("returned an object of another kind than ExecCredential".to_owned());
    }
    match answer.api_version.as_deref() {
        Some(returned) if returned == api_version => {}
        returned => {
            let returned = match returned {
                None | Some("") => "none",
                // Only what can't be anything else is quoted.
                Some(known) if API_VERSIONS.contains(&known) => known,
                Some("client.authentication.k8s.io/v1alpha1") => "client.authentication.k8s.io/v1alpha1",
                Some(_) => "another one",
            };
            return Err(format!("is configured to use apiVersion {api_version}, and returned {returned}"));
        }
    }
    let status = answer.status.ok_or("returned no status")?;
    let given = |text: Option<String>| text.filter(|text| !text.is_empty());
    let token = given(status.token).map(Secret);
    let certificate = match (given(status.client_certificate_data), given(status.client_key_data)) {
        (Some(chain), Some(key)) => Some(Identity { chain: chain.into_bytes(), key: key.into_bytes() }),
        (None, None) if token.is_none() => return Err("returned neither a token nor a certificate".to_owned()),
        (None, None) => None,
        (Some(_), None) => return Err("returned a certificate without its key".to_owned()),
        (None, Some(_)) => return Err("returned a key without its certificate".to_owned()),
    };
    let expires = status.expiration_timestamp.as_deref().map(time).transpose()?.flatten();
    Ok(Answer { token, certificate, expires })
}

/// JSON where it begins like it, and else YAML, as in client-go.
fn decode(output: &[u8]) -> Result<ExecCredential, String> {
    let text = output.trim_ascii_start();
    if text.is_empty() {
        return Err("returned nothing".to_owned());
    }
    #[cfg(feature = "kubeconfig")]
    if !text.starts_with(b"{") {
        return yaml(output);
    }
    serde_json::from_slice(output).map_err(|error| {
        let problem = match error.classify() {
            serde_json::error::Category::Data => "what is not an ExecCredential",
            _ => "what is not JSON",
        };
        format!("returned {problem} at line {}, column {}", error.line(), error.column())
    })
}

#[cfg(feature = "kubeconfig")]
fn yaml(output: &[u8]) -> Result<ExecCredential, String> {
    let text = str::from_utf8(output).map_err(|_| "returned what is not UTF-8")?;
    let options = serde_saphyr::options! { with_snippet: false };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let place = error.location().map(|at| format!(" at line {}, column {}", at.line(), at.column()));
        format!("returned what is neither JSON nor YAML of an ExecCredential{}", place.unwrap_or_default())
    })
}

/// RFC 3339. Go's zero time is none.
fn time(text: &str) -> Result<Option<SystemTime>, &'static str> {
    const ZERO: &str = "0001-01-01T00:00:00Z";
    match text.parse::<jiff::Timestamp>() {
        Ok(_) if text == ZERO => Ok(None),
        // Some systems have no time before their epoch; what expired before is as good as what did then.
        Ok(time) => Ok(Some(time.max(jiff::Timestamp::UNIX_EPOCH).into())),
        Err(_) => Err("returned an expirationTimestamp that is not a time of RFC 3339"),
    }
}
