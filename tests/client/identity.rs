//! Headers that identify the client.

use k8s_informer::client::{Impersonation, Request};
use k8s_informer::{Client, Config, Stop};

use super::server::Server;

/// The lines of the request head with this configuration, in order.
fn head(config: impl FnOnce(Config) -> Config) -> Vec<String> {
    let server = Server::answering("{}");
    let config = config(Config::new(server.url()));
    assert!(!format!("{config:?}").contains("s3cret"), "{config:?}");
    let client = Client::new(config).unwrap();
    client
        .request(&Request::get("/"), &Stop::never())
        .unwrap()
        .bytes()
        .unwrap();
    let mut head: Vec<_> = server.request().lines().map(str::to_owned).collect();
    head.sort();
    head
}

#[test]
fn basic_auth_sends_header_and_excludes_token() {
    // From `printf 'jane:s3cret: ü' | base64`.
    let head = head(|config| config.basic_auth("jane", "s3cret: ü"));
    assert!(
        head.contains(&"authorization: Basic amFuZTpzM2NyZXQ6IMO8".to_owned()),
        "{head:?}"
    );
    let both = Config::new("http://a")
        .basic_auth("jane", "s3cret")
        .token("s3cret");
    let error = Client::new(both).unwrap_err();
    assert!(
        error.is_config() && error.to_string().contains("can't be used together"),
        "{error}"
    );
}

#[test]
fn impersonation_headers_are_sent_with_credentials() {
    let jane = Impersonation::user("jane")
        .uid("42")
        .group("developers")
        .group("system:authenticated")
        .extra("scopes", "view")
        .extra("scopes", "edit")
        .extra("example.com/Tenant %", "ü");
    let head = head(|config| config.token("s3cret").impersonate(jane));
    let identity_headers: Vec<_> = head
        .iter()
        .filter(|line| line.starts_with("imp") || line.starts_with("auth"))
        .collect();
    assert_eq!(
        identity_headers,
        [
            "authorization: Bearer s3cret",
            "impersonate-extra-example.com%2ftenant%20%25: ü",
            "impersonate-extra-scopes: edit",
            "impersonate-extra-scopes: view",
            "impersonate-group: developers",
            "impersonate-group: system:authenticated",
            "impersonate-uid: 42",
            "impersonate-user: jane",
        ]
    );
}

#[test]
fn invalid_impersonation_values_are_rejected() {
    for (impersonation, expected) in [
        (
            Impersonation::user(""),
            "impersonation requires a user name",
        ),
        (
            Impersonation::user("a\r\nX: y"),
            "the user to impersonate contains characters",
        ),
        (Impersonation::user("a").uid("\0"), "the uid to impersonate"),
        (
            Impersonation::user("a").group("b\n"),
            "the group to impersonate",
        ),
        (
            Impersonation::user("a").extra("k", "\n"),
            "the extra to impersonate",
        ),
    ] {
        let error = Client::new(Config::new("http://a").impersonate(impersonation)).unwrap_err();
        assert!(
            error.is_config() && error.to_string().contains(expected),
            "{error}"
        );
    }
}
