//! What stands in one kubeconfig file.

use std::fmt;

use serde::de::{DeserializeOwned, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

pub(super) fn parse(text: &str) -> Result<Option<File>, String> {
    // An empty file is an empty kubeconfig.
    if text.trim_start_matches('\u{feff}').trim().is_empty() {
        return Ok(None);
    }
    yaml(text)
}

/// YAML 1.2, so JSON as well. The parser's messages can quote a value, and with snippets they quote lines: a
/// token must not come out, so only the place is told.
fn yaml<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_saphyr::from_str_with_options(text, serde_saphyr::options! { with_snippet: false }).map_err(
        |error| {
            let problem = match &error {
                serde_saphyr::Error::Unexpected { expected, .. } => format!("expected {expected}"),
                _ => "not YAML, or not the form of a kubeconfig".to_owned(),
            };
            match error.location() {
                Some(place) => format!("{problem} at line {}, column {}", place.line(), place.column()),
                None => problem,
            }
        },
    )
}

/// One file as it stands. Keys that are not named here are ignored, as kubectl does; `null` is the same as
/// absent.
#[derive(Deserialize)]
pub(super) struct File {
    pub(super) kind: Option<String>,
    #[serde(rename = "current-context")]
    pub(super) current_context: Option<String>,
    pub(super) clusters: Option<Vec<NamedCluster>>,
    pub(super) users: Option<Vec<NamedUser>>,
    pub(super) contexts: Option<Vec<NamedContext>>,
}

#[derive(Deserialize)]
pub(super) struct NamedCluster {
    pub(super) name: Option<String>,
    pub(super) cluster: Option<Cluster>,
}

#[derive(Deserialize)]
pub(super) struct NamedUser {
    pub(super) name: Option<String>,
    pub(super) user: Option<User>,
}

#[derive(Deserialize)]
pub(super) struct NamedContext {
    pub(super) name: Option<String>,
    pub(super) context: Option<Context>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(super) struct Cluster {
    pub(super) server: Option<String>,
    pub(super) certificate_authority: Option<String>,
    pub(super) certificate_authority_data: Option<String>,
    pub(super) insecure_skip_tls_verify: Option<bool>,
    pub(super) tls_server_name: Option<String>,
    pub(super) proxy_url: Presence,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(super) struct User {
    pub(super) client_certificate: Option<String>,
    pub(super) client_certificate_data: Option<String>,
    pub(super) client_key: Option<String>,
    pub(super) client_key_data: Option<String>,
    pub(super) token: Option<String>,
    #[serde(rename = "tokenFile")]
    pub(super) token_file: Option<String>,
    // What follows is not supported, and only looked for.
    pub(super) exec: Presence,
    pub(super) auth_provider: Presence,
    pub(super) username: Presence,
    pub(super) password: Presence,
    #[serde(rename = "as")]
    pub(super) impersonate: Presence,
    pub(super) as_uid: Presence,
    pub(super) as_groups: Presence,
    pub(super) as_user_extra: Presence,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Context {
    pub(super) cluster: Option<String>,
    pub(super) user: Option<String>,
    pub(super) namespace: Option<String>,
}

/// Whether a field says anything, whatever its form: not `null`, `""`, `[]` or `{}`.
#[derive(Default)]
pub(super) struct Presence(pub(super) bool);

impl<'de> Deserialize<'de> for Presence {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Look;
        impl<'de> Visitor<'de> for Look {
            type Value = Presence;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("anything")
            }

            fn visit_unit<E>(self) -> Result<Presence, E> {
                Ok(Presence(false))
            }

            fn visit_none<E>(self) -> Result<Presence, E> {
                Ok(Presence(false))
            }

            fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Presence, D::Error> {
                deserializer.deserialize_any(self)
            }

            fn visit_str<E>(self, text: &str) -> Result<Presence, E> {
                Ok(Presence(!text.is_empty()))
            }

            fn visit_bool<E>(self, _: bool) -> Result<Presence, E> {
                Ok(Presence(true))
            }

            fn visit_i64<E>(self, _: i64) -> Result<Presence, E> {
                Ok(Presence(true))
            }

            fn visit_u64<E>(self, _: u64) -> Result<Presence, E> {
                Ok(Presence(true))
            }

            fn visit_f64<E>(self, _: f64) -> Result<Presence, E> {
                Ok(Presence(true))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Presence, A::Error> {
                let mut any = false;
                while seq.next_element::<IgnoredAny>()?.is_some() {
                    any = true;
                }
                Ok(Presence(any))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Presence, A::Error> {
                let mut any = false;
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
                    any = true;
                }
                Ok(Presence(any))
            }
        }
        deserializer.deserialize_any(Look)
    }
}
