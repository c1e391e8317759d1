use std::path::Path;

use serde_json::json;

use super::{Kubeconfig, KubeconfigOptions};
use crate::client::config::environment::Environment;
use crate::client::config::{Config, InteractiveMode, ProxyChoice};

const MINIMAL: &str = "
current-context: here
contexts: [{name: here, context: {cluster: c, user: u, namespace: team}}]
clusters: [{name: c, cluster: {server: 'https://api:6443'}}]
";

/// Loads `text` as if it were the file `/home/config`.
fn one(text: &str) -> Result<Config, String> {
    with(&KubeconfigOptions::new(), text)
}

fn with(options: &KubeconfigOptions, text: &str) -> Result<Config, String> {
    options.load_bytes(text, "/home").map_err(|error| {
        assert!(error.is_config());
        let error = error.to_string();
        error
            .strip_prefix("configuration: kubeconfig: ")
            .unwrap_or(&error)
            .to_owned()
    })
}

fn with_user(user: &str) -> Result<Config, String> {
    one(&format!("{MINIMAL}users: [{{name: u, user: {user}}}]"))
}

fn with_cluster(cluster: &str) -> Result<Config, String> {
    one(&MINIMAL
        .replace("server: 'https://api:6443'", cluster)
        .replace("user: u, ", ""))
}

fn empty_environment() -> Environment {
    Environment {
        kubeconfig: None,
        home: None,
        service_host: None,
        service_port: None,
        pod_namespace: None,
        service_account: "/nowhere".into(),
    }
}

fn debug(value: Option<impl std::fmt::Debug>) -> String {
    format!("{:?}", value.unwrap())
}

#[test]
fn overrides_replace_parts_of_the_context() {
    let text = "
current-context: a
contexts:
- {name: a, context: {cluster: a, user: a, namespace: team-a}}
- {name: b, context: {cluster: b, user: b}}
clusters:
- {name: a, cluster: {server: 'https://a', tls-server-name: name-of-a}}
- {name: b, cluster: {server: 'https://b'}}
users:
- {name: a, user: {token: token-of-a}}
- {name: b, user: {token: token-of-b}}
";
    let resolved = |options: KubeconfigOptions| {
        let config = with(&options, text).unwrap();
        (
            config.server.0,
            config.token.unwrap().0,
            config.default_namespace,
        )
    };
    let is = |server: &str, token: &str, namespace: &str| {
        (server.into(), token.into(), namespace.into())
    };
    let options = KubeconfigOptions::new;
    assert_eq!(resolved(options()), is("https://a", "token-of-a", "team-a"));
    assert_eq!(
        resolved(options().context("b")),
        is("https://b", "token-of-b", "default")
    );
    assert_eq!(
        resolved(options().cluster("b")),
        is("https://b", "token-of-a", "team-a")
    );
    assert_eq!(
        resolved(options().user("b")),
        is("https://a", "token-of-b", "team-a")
    );
    assert_eq!(
        resolved(options().namespace("other")),
        is("https://a", "token-of-a", "other")
    );
    assert_eq!(
        resolved(options().context("b").namespace("o").server("https://x")),
        is("https://x", "token-of-b", "o")
    );
    // An empty override counts as not set.
    assert_eq!(
        resolved(
            options()
                .context("")
                .cluster("")
                .user("")
                .namespace("")
                .server("")
        ),
        is("https://a", "token-of-a", "team-a")
    );
    assert_eq!(
        server_name(&with(&options(), text).unwrap()),
        Some("name-of-a")
    );
    let moved = with(&options().server("https://b"), text).unwrap();
    assert_eq!(
        server_name(&moved),
        None,
        "tls-server-name belongs to the server that was overridden"
    );
    for (options, expected) in [
        (
            options().context("x"),
            r#"there is no context "x"; the contexts are "a", "b""#,
        ),
        (
            options().cluster("x"),
            r#"there is no cluster "x"; the clusters are "a", "b""#,
        ),
        (
            options().user("x"),
            r#"there is no user "x"; the users are "a", "b""#,
        ),
    ] {
        assert_eq!(with(&options, text).unwrap_err(), expected);
    }
    assert_eq!(
        with(&options().server("https://x"), "").unwrap().server.0,
        "https://x"
    );
}

#[test]
fn kubeconfig_missing_entry_error_lists_existing_names() {
    assert_eq!(
        one(MINIMAL).unwrap_err(),
        r#"there is no user "u"; there are no users"#
    );
    let none = "contexts: [{name: a}, {name: b}]";
    assert_eq!(
        one(none).unwrap_err(),
        r#"no current-context is set; the contexts are "a", "b""#
    );
    let a = KubeconfigOptions::new().context("a");
    assert_eq!(
        with(&a, none).unwrap_err(),
        r#"the context "a" has no cluster"#
    );
    assert_eq!(
        with_cluster("server: ''").unwrap_err(),
        r#"the cluster "c" has no server"#
    );
    assert_eq!(
        one("").unwrap_err(),
        "no current-context is set; there are no contexts"
    );
    let other = MINIMAL.replace("cluster: c,", "cluster: d,");
    assert_eq!(
        one(&other).unwrap_err(),
        r#"there is no cluster "d"; the clusters are "c""#
    );
    let names: Vec<_> = (0..30)
        .map(|number| format!("{{name: n{number}}}"))
        .collect();
    let many = one(&format!(
        "current-context: x\ncontexts: [{}]",
        names.join(", ")
    ))
    .unwrap_err();
    assert!(many.ends_with(r#""n18", "n19" and 10 more"#), "{many}");
}

#[test]
fn kubeconfig_resolves_paths_and_rejects_two_key_sources() {
    let config =
        with_user("{client-certificate: ../a, client-key-data: 'Y2VydA==', tokenFile: ./t}")
            .unwrap();
    assert_eq!(debug(config.client_certificate), r#""/a""#);
    let key = config.client_key.unwrap();
    assert_eq!(key.to_string(), r#"client-key-data of user "u""#);
    assert_eq!(config.token_file.unwrap(), Path::new("/home/t"));
    assert_eq!(config.default_namespace, "team");
    let config =
        with_cluster("server: 'https://a', certificate-authority: /pki/../ca.crt").unwrap();
    assert_eq!(
        debug(config.ca),
        r#""/pki/../ca.crt""#,
        "an absolute path is kept as written"
    );
    for (user, expected) in [
        (
            "{client-certificate: a, client-certificate-data: 'YQ==', client-key: k}",
            "the user \"u\" has both client-certificate and client-certificate-data",
        ),
        (
            "{client-certificate: a, client-key: k, client-key-data: 'YQ=='}",
            "the user \"u\" has both client-key and client-key-data",
        ),
        (
            "{client-certificate: a}",
            "the user \"u\" has a client-certificate but neither client-key nor client-key-data",
        ),
        (
            "{client-certificate-data: 'a b'}",
            "client-certificate-data of user \"u\" is not base64",
        ),
    ] {
        assert_eq!(with_user(user).unwrap_err(), expected);
    }
    assert!(
        with_user("{client-key-data: s3cret!}")
            .unwrap()
            .client_key
            .is_none(),
        "a key without a certificate is ignored"
    );
    // As in Go, line breaks and the unused bits at the end are ignored.
    let config =
        with_user("{client-certificate-data: \"a2\\n\\r\\nV5\", client-key-data: YR==}").unwrap();
    assert_eq!(
        (debug(config.client_certificate), debug(config.client_key)),
        ("3 bytes".into(), "1 bytes".into())
    );
    assert_eq!(
        with_cluster(
            "server: 'https://a', certificate-authority: a, certificate-authority-data: 'YQ=='"
        )
        .unwrap_err(),
        "the cluster \"c\" has both certificate-authority and certificate-authority-data"
    );
}

#[test]
fn user_credentials_are_parsed() {
    let config = with_user("{token: s3cret, tokenFile: t}").unwrap();
    assert_eq!(config.token.unwrap().0, "s3cret");
    assert!(
        config.token_file.is_some(),
        "`Auth` decides which one is used"
    );
    let (user, password) = with_user("{username: admin, password: s3cret}")
        .unwrap()
        .basic
        .unwrap();
    assert_eq!((user.as_str(), password.0.as_str()), ("admin", "s3cret"));
    assert!(
        with_user("{password: s3cret}").unwrap().basic.is_none(),
        "a password without a user name is ignored"
    );
    assert_eq!(
        with_user("{token: s3cret, username: admin}").unwrap_err(),
        "the user \"u\" has both a token and a username or password: only one of them is allowed"
    );
    let token =
        with_user("{auth-provider: {name: oidc, config: {id-token: s3cret, client-id: a}}}")
            .unwrap()
            .id_token;
    let token = token.unwrap();
    assert_eq!(
        (token.what.as_str(), token.token.0.as_str()),
        ("the id-token of user \"u\"", "s3cret")
    );
    for (provider, expected) in [
        (
            "{name: oidc}",
            "without an id-token, and this crate does not fetch one",
        ),
        ("{name: oidc, config: {id-token: ''}}", "kubelogin"),
        (
            "{name: gcp, config: {access-token: s3cret, expiry: 2020-01-01T00:00:00Z}}",
            "gke-gcloud-auth-plugin",
        ),
        (
            "{name: azure}",
            "has the auth-provider azure, which Kubernetes has removed: use the exec plugin kubelogin",
        ),
        (
            "{name: openstack}",
            "has the auth-provider \"openstack\", which is not supported",
        ),
        ("{}", "has the auth-provider \"\", which is not supported"),
    ] {
        let error = with_user(&format!("{{auth-provider: {provider}}}")).unwrap_err();
        assert!(
            error.starts_with("the user \"u\" has") && error.contains(expected),
            "{error}"
        );
        assert!(!error.contains("s3cret"), "{error}");
    }
}

#[test]
fn impersonation_fields_are_parsed() {
    let all =
        "{as: jane, as-uid: '7', as-groups: [a, b], as-user-extra: {k: [v, w], l: [], m: null}}";
    let jane = with_user(all).unwrap().impersonation.unwrap();
    assert_eq!(
        (jane.user.as_str(), jane.uid.as_deref()),
        ("jane", Some("7"))
    );
    assert_eq!(jane.groups, ["a", "b"]);
    assert_eq!(
        jane.extra,
        [("k".into(), "v".into()), ("k".into(), "w".into())]
    );
    for without in [
        "{as-uid: '7'}",
        "{as-groups: [a]}",
        "{as-user-extra: {k: []}}",
    ] {
        let error = with_user(without).unwrap_err();
        assert!(
            error.starts_with("the user \"u\" has as-uid, as-groups or as-user-extra, but no as"),
            "{error}"
        );
    }
    assert!(
        with_user("{as: '', as-uid: '', as-groups: [], as-user-extra: {}}")
            .unwrap()
            .impersonation
            .is_none()
    );
}

#[test]
fn exec_plugin_and_cluster_extension_are_parsed() {
    let text = "
current-context: here
contexts: [{name: here, context: {cluster: c, user: u}}]
clusters:
- name: c
  cluster:
    server: https://api
    extensions:
    - {name: other, extension: 1}
    - {name: client.authentication.k8s.io/exec, extension: {audience: s3cret, more: [1, true, null]}}
users:
- name: u
  user:
    exec:
      command: bin/../plugin
      args: [get, '1', null]
      env: [{name: A, value: s3cret}, {name: B}]
      apiVersion: client.authentication.k8s.io/v1
      interactiveMode: Never
      provideClusterInfo: yes
      installHint: \"\\e[1minstall\\nit\"
";
    let config = one(text).unwrap();
    assert!(!format!("{config:?}").contains("s3cret"));
    let plugin = config.exec.unwrap();
    assert_eq!(plugin.command, Path::new("/home/plugin"));
    assert_eq!(plugin.args, ["get", "1", ""]);
    assert_eq!(
        plugin.env,
        [("A".into(), "s3cret".into()), ("B".into(), String::new())]
    );
    assert_eq!(plugin.api_version, "client.authentication.k8s.io/v1");
    assert_eq!(plugin.interactive_mode, InteractiveMode::Never);
    assert!(plugin.provide_cluster_info);
    assert_eq!(plugin.install_hint, "\u{1b}[1minstall\nit");
    assert_eq!(
        plugin.cluster_config,
        Some(json!({"audience": "s3cret", "more": [1, true, null]}))
    );

    let plugin =
        |exec: &str| with_user(&format!("{{exec: {exec}}}")).map(|config| config.exec.unwrap());
    let beta = plugin("{command: aws, apiVersion: client.authentication.k8s.io/v1beta1}").unwrap();
    assert_eq!(beta.command, Path::new("aws"), "looked up in PATH");
    assert_eq!(beta.interactive_mode, InteractiveMode::IfAvailable);
    for (exec, expected) in [
        ("{}", "without a command"),
        ("{command: s3cret}", "without an apiVersion"),
        (
            "{command: s3cret, apiVersion: client.authentication.k8s.io/v1}",
            "without an interactiveMode",
        ),
        (
            "{command: s3cret, apiVersion: a, interactiveMode: s3cret}",
            "unknown interactiveMode: use Never, IfAvailable or Always",
        ),
        (
            "{command: s3cret, apiVersion: a, interactiveMode: Never, env: [{value: s3cret}]}",
            "has no name",
        ),
        (
            "{command: s3cret, apiVersion: a, interactiveMode: Never, env: [null]}",
            "has no name",
        ),
    ] {
        let error = plugin(exec).unwrap_err();
        assert!(
            error.starts_with("the user \"u\" has exec") && error.contains(expected),
            "{error}"
        );
        assert!(!error.contains("s3cret"), "{error}");
    }
    assert_eq!(
        with_user("{exec: {}, auth-provider: {}}").unwrap_err(),
        "the user \"u\" has both exec and auth-provider: only one of them is allowed"
    );
    assert!(with_user("{exec: null}").unwrap().exec.is_none());
}

fn server_name(config: &Config) -> Option<&str> {
    let setting = config.tls_server_name.as_ref();
    setting.map(|setting| &*setting.name)
}

#[test]
fn cluster_connection_settings_are_parsed() {
    let config = with_cluster(
        "server: 'https://a', proxy-url: 'SOCKS5://u:s3cret@p:1080', disable-compression: true, \
         tls-server-name: b",
    )
    .unwrap();
    assert!(!format!("{config:?}").contains("s3cret"));
    assert!(matches!(&config.proxy, ProxyChoice::Url(url) if url.0 == "SOCKS5://u:s3cret@p:1080"));
    assert!(!config.compression);
    assert_eq!(server_name(&config), Some("b"));
    let config = with_cluster("server: 'https://a', proxy-url: ''").unwrap();
    assert!(config.compression && matches!(config.proxy, ProxyChoice::Environment));
    for url in [
        "s3cret",
        "p:3128",
        "ftp://s3cret",
        "//u:s3cret@p",
        "socks5h://p",
    ] {
        let error = with_cluster(&format!("server: 'https://a', proxy-url: '{url}'")).unwrap_err();
        assert_eq!(
            error,
            "the proxy-url of the cluster \"c\" does not begin with http://, https:// or socks5://"
        );
    }
}

#[test]
fn kubeconfig_without_tls_sends_credentials_to_loopback_only() {
    let text = |server: &str| {
        format!(
            "{}users: [{{name: u, user: {{token: s3cret, client-certificate-data: YQ==, \
             client-key-data: YQ==, as: jane}}}}]",
            MINIMAL.replace(
                "https://api:6443'",
                &format!(
                    "{server}', certificate-authority-data: YQ==, insecure-skip-tls-verify: true"
                )
            )
        )
    };
    for server in ["http://api:6443", "api:6443", "HTTP://api"] {
        let config = one(&text(server)).unwrap();
        assert!(
            config.token.is_none() && !config.has_tls_settings(),
            "{config:?}"
        );
        assert!(config.impersonation.is_some());
    }
    for server in ["http://127.0.0.1:8080/a", "localhost:8080", "http://[::1]"] {
        let config = one(&text(server)).unwrap();
        assert!(
            config.token.is_some() && !config.has_tls_settings(),
            "{config:?}"
        );
    }
    for server in [
        "http://127.0.0.1.example.com",
        "http://localhost@example.com",
        "http://0.0.0.0",
        // This spelling does not bypass the environment's proxy, so the server does not count as
        // local.
        "http://LOCALHOST",
        // With a proxy, these addresses mean the machine of the proxy.
        "http://127.0.0.1:8080', proxy-url: 'http://proxy:3128",
        "http://localhost', proxy-url: 'socks5://proxy",
    ] {
        assert!(one(&text(server)).unwrap().token.is_none(), "{server}");
    }
    let config = one(&text("HTTPS://api")).unwrap();
    assert!(config.token.is_some() && config.ca.is_some() && config.insecure);
}

#[test]
fn in_pod_context_without_namespace_has_namespace_of_the_pod() {
    let folder =
        std::env::temp_dir().join(format!("k8s-informer-kubeconfig-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("token"), "x").unwrap();
    std::fs::write(folder.join("namespace"), "pods").unwrap();
    let path = folder.join("config");
    std::fs::write(&path, format!("{MINIMAL}users: [{{name: u}}]")).unwrap();
    let mut environment = empty_environment();
    environment.service_account = folder.clone();
    let load = |options: KubeconfigOptions, environment: &Environment| {
        let config = options.load_from(environment).unwrap();
        (config.server.0, config.default_namespace)
    };
    let is = |server: &str, namespace: &str| (server.to_owned(), namespace.to_owned());
    let explicit = || KubeconfigOptions::new().path(&path);
    let text = std::fs::read_to_string(&path)
        .unwrap()
        .replace(", namespace: team", "");
    assert_eq!(
        load(explicit(), &environment),
        is("https://api:6443", "team")
    );
    std::fs::write(&path, text).unwrap();
    assert_eq!(
        load(explicit(), &environment),
        is("https://api:6443", "default"),
        "outside a pod"
    );
    environment.service_host = Some("10.0.0.1".to_owned());
    environment.service_port = Some("443".to_owned());
    assert_eq!(
        load(explicit(), &environment),
        is("https://api:6443", "pods")
    );
    assert_eq!(
        load(explicit().namespace("mine"), &environment),
        is("https://api:6443", "mine")
    );
    environment.pod_namespace = Some("downward".to_owned());
    assert_eq!(
        load(explicit(), &environment),
        is("https://api:6443", "downward")
    );

    // If no file sets a current context, the pod's service account is used. With an explicit path
    // or context, this is an error.
    std::fs::write(&path, MINIMAL.replace("current-context: here", "")).unwrap();
    let several = || KubeconfigOptions::new().paths([&path, &folder.join("missing")]);
    assert_eq!(
        load(several(), &environment),
        is("https://10.0.0.1:443", "downward")
    );
    assert_eq!(
        load(several().server("https://x").namespace("y"), &environment),
        is("https://x", "y")
    );
    let error = explicit().load_from(&environment).unwrap_err().to_string();
    assert!(
        error.ends_with("/config: no current-context is set; the contexts are \"here\""),
        "{error}"
    );
    let error = several()
        .context("x")
        .load_from(&environment)
        .unwrap_err()
        .to_string();
    assert!(
        error.ends_with("/config: there is no context \"x\"; the contexts are \"here\""),
        "{error}"
    );
    let missing = KubeconfigOptions::new().paths(["/nowhere/a", "/nowhere/b"]);
    assert_eq!(
        load(missing.clone(), &environment),
        is("https://10.0.0.1:443", "downward")
    );
    let error = missing
        .context("x")
        .load_from(&environment)
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "configuration: kubeconfig (/nowhere/a, /nowhere/b): there is no context \"x\"; there are no contexts"
    );
    let none = || KubeconfigOptions::new().paths(["/nowhere/a"]);
    assert_eq!(
        load(none().server("").namespace("").user(""), &environment),
        is("https://10.0.0.1:443", "downward")
    );
    let error = none()
        .user("x")
        .load_from(&environment)
        .unwrap_err()
        .to_string();
    assert!(
        error.ends_with(": there is no user \"x\"; there are no users"),
        "{error}"
    );
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn kubeconfig_forms_of_kubectl_are_accepted() {
    let json = r#"{
	"kind": "Config", "apiVersion": "v1", "preferences": {}, "extensions": [{"name": 1}],
	"current-context": "a", "users": null,
	"contexts": [{"name": "a", "context": {"cluster": "c", "extensions": [{}]}}],
	"clusters": [{"name": "c", "cluster": {"server": "https://api", "insecure-skip-tls-verify": true}}]
}"#;
    assert!(one(json).unwrap().insecure);
    let token = |user: &str| with_user(user).unwrap().token.map(|token| token.0);
    for text in ["12e", "1:30", "2024-01-01", "!!str 12", "'12'", "0123abc"] {
        let plain = text.trim_start_matches("!!str ").trim_matches('\'');
        assert_eq!(token(&format!("{{token: {text}}}")).as_deref(), Some(plain));
    }
    assert_eq!(token("{token: ~}"), None);
    assert_eq!(token("{<<: {token: a}, as: b}").as_deref(), Some("a"));
    let with_nulls = format!("{MINIMAL}users: [null, {{}}, {{name: u, user: null}}]");
    assert!(one(&with_nulls).is_err(), "two users have no name");
    assert!(one(&with_nulls.replace(", {}", "")).is_ok());
    // A context with an empty name is the default if there is no current context.
    let nameless = MINIMAL
        .replace("name: here,", "")
        .replace("current-context: here", "")
        .replace("user: u, ", "");
    assert_eq!(one(&nameless).unwrap().server.0, "https://api:6443");
    let text = format!("{MINIMAL}users: [{{name: u, user: null}}]\n");
    for text in [
        format!("\u{feff}---{}", text.replace('\n', "\r\n")),
        format!("{text}---\n"),
        format!("{text}...\n"),
        format!("\n# comment\n{text}  \n"),
    ] {
        assert_eq!(one(&text).unwrap().server.0, "https://api:6443");
    }
    for bytes in [u16::to_le_bytes, u16::to_be_bytes] {
        let bytes: Vec<u8> = format!("\u{feff}{text}")
            .encode_utf16()
            .flat_map(bytes)
            .collect();
        assert_eq!(
            KubeconfigOptions::new()
                .load_bytes(bytes, "")
                .unwrap()
                .server
                .0,
            "https://api:6443"
        );
    }
    for empty in [
        "",
        " \n",
        "\u{feff}",
        "---\n",
        "null",
        "# none",
        "{}",
        "kind: Config",
        "clusters: []\nusers: null",
    ] {
        let kubeconfig = Kubeconfig::parse(empty, "").unwrap();
        assert_eq!(
            (kubeconfig.contexts().count(), kubeconfig.current_context()),
            (0, None),
            "{empty:?}"
        );
    }
}

/// How kubectl reads a scalar.
#[derive(Debug, PartialEq)]
enum Read {
    Text(String),
    Null,
    /// A number, or a tag that does not match.
    Error,
    Flag(bool),
}

/// The verdicts of clientcmd 0.37. Each group has the same one.
fn scalars() -> Vec<(&'static str, Read)> {
    let texts = "nUll NuLL nULL tRUE TrUe yEs nO oN oFF fALSE _1 . .. .iNF .nAN 1e999 0b2 0o8 0x 0xg 1:30 2024-01-01 \
                 2001-12-14t21:59:43.10-05:00 12e e3 + -x -- = 1.2.3 10.0.0.1 1e 1e+ 0x1p3 infinity inf NaN nan ._5 .e1 \
                 +-1 0x+1 12abc 0123abc null#x ~x none";
    let flags =
        "y Y yes Yes YES true True TRUE on On ON n N no No NO false False FALSE off Off OFF";
    let errors = "0 7 -7 +7 0777 0o14 0O14 0x1F 0X1f 0b11 -0b11 1_000 1__0 0x_1f 1e3 1E3 1.5 .5 5. -.5 +.5 1.e3 .inf \
                  .Inf .INF +.inf -.inf .nan .NaN .NAN 99999999999999999999 18446744073709551616 -9223372036854775809 08 \
                  09 00 12e3 0.0 -0 1e+3 1E-3 1_ 0_7 -_1";
    let words = |words: &'static str| words.split_whitespace();
    let text = |text: &str| Read::Text(text.to_owned());
    let mut all: Vec<_> = words(texts).map(|word| (word, text(word))).collect();
    all.extend(words("~ null Null NULL").map(|word| (word, Read::Null)));
    let is_true = |word: &str| "yYtT".contains(&word[..1]) || word.eq_ignore_ascii_case("on");
    all.extend(words(flags).map(|word| (word, Read::Flag(is_true(word)))));
    all.extend(words(errors).map(|word| (word, Read::Error)));
    all.extend([
        ("", Read::Null),
        ("!!null \"\"", Read::Null),
        ("!!bool \"true\"", Read::Flag(true)),
        ("!!bool tRUE", Read::Error),
        ("!!int x", Read::Error),
        ("!!null x", Read::Error),
        ("!!float 1", Read::Error),
        ("!!binary x", Read::Error),
        ("!!binary aGk=", text("hi")),
        // Python writes bytes in this form, and Go ignores the last bits.
        ("!!binary |\n      aG\n      l=\n", text("hi")),
        ("\"a\nb\"", text("a b")),
        ("!!str 12", text("12")),
        ("!!str null", text("null")),
        ("! 12", text("12")),
        ("!custom yes", text("yes")),
        ("\"12\"", text("12")),
        ("'null'", text("null")),
        ("\"nUll\"", text("nUll")),
        ("2001-12-14 21:59:43", text("2001-12-14 21:59:43")),
    ]);
    all
}

#[test]
fn scalars_are_read_as_by_kubectl() {
    for (text, read) in scalars() {
        // As a token.
        let user = format!("{MINIMAL}users:\n- name: u\n  user:\n    token: {text}\n");
        let token = one(&user).map(|config| config.token.map(|token| token.0));
        match &read {
            Read::Text(text) => assert_eq!(token.unwrap().as_ref(), Some(text)),
            Read::Null => assert_eq!(token.unwrap(), None, "{text}"),
            Read::Error | Read::Flag(_) => assert!(token.is_err(), "{text}"),
        }
        // As a flag, which must not be guessed.
        let cluster = format!(
            "current-context: x\ncontexts: [{{name: x, context: {{cluster: c}}}}]\nclusters:\n- name: c\n  \
             cluster:\n    server: https://a\n    insecure-skip-tls-verify: {text}\n"
        );
        let flag = one(&cluster).map(|config| config.insecure);
        match &read {
            Read::Null => assert!(!flag.unwrap(), "{text}"),
            Read::Flag(expected) => assert_eq!(flag.unwrap(), *expected, "{text}"),
            Read::Error | Read::Text(_) => assert!(flag.is_err(), "{text}"),
        }
    }
}

#[test]
fn end_of_a_kubeconfig_is_read_as_by_kubectl() {
    let user = format!("{MINIMAL}users:\n- name: u\n  user:\n    token: |");
    for (end, token) in [
        ("\n      a", "a"),
        ("\n      a\n", "a\n"),
        ("+\n      a\n\n", "a\n\n"),
        ("-\n      a\n---\n# end\n", "a"),
        ("-\n      a\n--- # end", "a"),
        ("-\n      a\n...\n---\n", "a"),
    ] {
        let config = one(&format!("{user}{end}")).unwrap();
        assert_eq!(config.token.unwrap().0, token, "{end:?}");
    }
}

#[test]
fn odd_spellings_are_texts_in_every_field() {
    for word in ["nUll", "tRUE", "yEs", "oFF"] {
        let user = format!(
            "{{as: {word}, as-uid: {word}, as-groups: [{word}], as-user-extra: {{{word}: [{word}]}}, exec: {{command: \
             {word}, args: [{word}], env: [{{name: {word}, value: {word}}}], installHint: {word}, interactiveMode: \
             Never, apiVersion: client.authentication.k8s.io/v1}}}}"
        );
        let config = with_user(&user).unwrap();
        let word = word.to_owned();
        let exec = config.exec.unwrap();
        assert_eq!(
            (exec.command.to_str(), &exec.args[0]),
            (Some(&*word), &word)
        );
        assert_eq!(exec.env, [(word.clone(), word.clone())]);
        assert_eq!(exec.install_hint, word);
        let impersonation = config.impersonation.unwrap();
        assert_eq!(
            (&impersonation.user, impersonation.uid.as_ref()),
            (&word, Some(&word))
        );
        assert_eq!(impersonation.groups, [&*word]);
        assert_eq!(impersonation.extra, [(word.clone(), word.clone())]);
        let names = MINIMAL.replace("here", &word).replace("team", &word);
        let names = names.replace("cluster: c,", &format!("cluster: {word},"));
        let names = names.replace("name: c,", &format!("name: {word},"));
        let config = one(&names.replace("user: u, ", "")).unwrap();
        assert_eq!(config.default_namespace, word);
    }
}

#[test]
fn keys_of_extensions_become_texts() {
    let extension = "{8080: web, -0x10: a, 1.5: b, 1e21: c, 1e6: d, 0.00001: e, yes: f, tRUE: g, .inf: h, 2024-01-01: i, \
                     deep: [{1: x}], null-value: null}";
    let expected = json!({"8080": "web", "-16": "a", "1.5": "b", "1e+21": "c", "1e+06": "d", "1e-05": "e", "true": "f",
        "tRUE": "g", ".inf": "h", "2024-01-01": "i", "deep": [{"1": "x"}], "null-value": null});
    let plugin = "{exec: {command: c, apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, \
                  provideClusterInfo: true}}";
    let text = MINIMAL.replace(
        "server:",
        &format!("extensions: [{{name: client.authentication.k8s.io/exec, extension: {extension}}}], server:"),
    );
    let config = one(&format!("{text}users: [{{name: u, user: {plugin}}}]")).unwrap();
    assert_eq!(config.exec.unwrap().cluster_config, Some(expected));

    // Also where nothing reads them, and in an entry that no context uses.
    let any = format!("extensions: [{{name: x, extension: {extension}}}]");
    let text = MINIMAL
        .replace("cluster: c,", &format!("cluster: c, {any},"))
        .replace(
            "clusters: [",
            &format!("clusters: [{{name: other, cluster: {{{any}}}}}, "),
        );
    let text =
        format!("{text}users: [{{name: u, user: {{{any}}}}}]\npreferences: {{{any}}}\n{any}\n");
    assert_eq!(one(&text).unwrap().server.0, "https://api:6443");
    for key in ["~", "null", "[a]", "{a: b}"] {
        let text =
            format!("{MINIMAL}users: [{{name: u, user: {{}}}}]\npreferences: {{? {key} : x}}");
        let problem = one(&text).map(drop).unwrap_err();
        assert!(
            problem.starts_with("a key that is not a string, a number or a boolean at line"),
            "{problem}"
        );
    }
}

#[test]
fn merge_keys_follow_kubectl() {
    let token = |user: &str| with_user(user).unwrap().token.map(|token| token.0);
    for (user, expected) in [
        ("{<<: {token: a}, token: b}", Some("b")),
        // As in kubectl, the later one of the two counts.
        ("{token: b, <<: {token: a}}", Some("a")),
        ("{<<: [{token: a}, {token: b}]}", Some("a")),
        ("{<<: {<<: {token: a}}}", Some("a")),
        ("{'<<': {token: a}}", None),
        ("{!!str <<: {token: a}}", None),
        ("{!!merge <<: {token: a}}", Some("a")),
    ] {
        assert_eq!(token(user).as_deref(), expected, "{user}");
    }
    for user in [
        "{<<: x}",
        "{<<: null}",
        "{<<: [x]}",
        "{<<: {}, token: a, token: b}",
    ] {
        assert!(with_user(user).is_err(), "{user}");
    }
}

#[test]
fn at_sign_is_rejected_only_in_the_host_of_the_server() {
    let url = |url: &str| {
        let config = Config::new(url);
        crate::client::config::server_url(&config).map(|url| url.to_string())
    };
    for good in [
        "https://a:6443/x@y",
        "https://a/@",
        "https://[::1]:6443/a/@b:c",
    ] {
        assert_eq!(url(good).unwrap(), good);
    }
    assert_eq!(url("a:6443/x@y").unwrap(), "http://a:6443/x@y");
    for (bad, problem) in [
        ("https://u:s3cret@a", "a user name or password"),
        ("https://s3cret@a/x", "a user name or password"),
        ("s3cret@a/x@y", "a user name or password"),
        ("https://a/x?y@s3cret", "a query or a fragment"),
        ("https://a/#s3cret@y", "a query or a fragment"),
        ("https://u:s3cr/et@a", "not a valid server URL"),
        ("//u:s3cr/et@a", "not a valid server URL"),
    ] {
        let error = url(bad).unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
        assert!(!error.contains("s3cr"), "{error}");
        assert!(!format!("{:?}", Config::new(bad)).contains("s3cr"));
    }
}
