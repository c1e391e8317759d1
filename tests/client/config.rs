//! Configurations from files and from code.

use std::fs;
use std::path::Path;
use std::process::Command;

use k8s_informer::client::{KubeconfigOptions, Request};
use k8s_informer::{Client, Config, Stop};

use super::folder::Folder;
use super::server::{Reply, Server, reply};
use super::tls::Authority;

fn kubeconfig(server: &str, user: &str) -> String {
    format!(
        "apiVersion: v1
kind: Config
current-context: here
contexts:
- {{name: here, context: {{cluster: c, user: u, namespace: team}}}}
- {{name: there, context: {{cluster: d, user: u}}}}
clusters:
- {{name: c, cluster: {{server: '{server}'}}}}
- {{name: d, cluster: {{server: 'http://there:1'}}}}
users:
- {{name: u, user: {user}}}
"
    )
}

#[test]
fn kubeconfig_context_selects_server_and_namespace() {
    let folder = Folder::new("contexts");
    let path = folder.write("config", &kubeconfig("http://here:1/", "{token: s3cret}"));
    let config = Config::from_kubeconfig(&path, None).unwrap();
    assert!(!format!("{config:?}").contains("s3cret"), "{config:?}");
    let client = Client::new(config).unwrap();
    assert_eq!(
        (client.server(), client.default_namespace()),
        ("http://here:1", "team")
    );
    assert!(!format!("{client:?}").contains("s3cret"), "{client:?}");
    let client = Client::new(Config::from_kubeconfig(&path, Some("there")).unwrap()).unwrap();
    assert_eq!(
        (client.server(), client.default_namespace()),
        ("http://there:1", "default")
    );

    let error = Config::from_kubeconfig(&path, Some("nope")).unwrap_err();
    assert!(error.is_config());
    let expected = format!(
        "configuration: {}: there is no context \"nope\"; the contexts are \"here\", \"there\"",
        path.display()
    );
    assert_eq!(error.to_string(), expected);
    let missing = Config::from_kubeconfig(folder.0.join("none"), None)
        .unwrap_err()
        .to_string();
    assert!(
        missing.contains("/none: there is no such file"),
        "{missing}"
    );
    let binary = folder.0.join("binary");
    fs::write(&binary, b"users: \xff\xfes3cret").unwrap();
    let error = Config::from_kubeconfig(&binary, None)
        .unwrap_err()
        .to_string();
    assert!(error.contains("is not UTF-8"), "{error}");
    assert!(
        Config::from_kubeconfig(&folder.0, None)
            .unwrap_err()
            .is_config(),
        "a directory must be rejected"
    );
}

#[test]
fn unsupported_auth_provider_is_rejected_by_name() {
    let folder = Folder::new("provider");
    let user = "{token: s3cret, auth-provider: {name: openstack, config: {password: s3cret}}}";
    let path = folder.write("config", &kubeconfig("https://here", user));
    let error = Config::from_kubeconfig(&path, None).unwrap_err();
    assert!(error.is_config());
    let error = format!("{error} {error:?}");
    assert!(
        error
            .contains("the user \"u\" has the auth-provider \"openstack\", which is not supported"),
        "{error}"
    );
    assert!(!error.contains("s3cret"), "{error}");
}

#[test]
fn invalid_kubeconfig_material_names_its_entry() {
    let folder = Folder::new("material");
    let user = "{client-certificate: pki/none.crt, client-key-data: czNjcmV0}";
    let path = folder.write(
        "config",
        &kubeconfig("https://here", user).replace(
            "'https://here'",
            "'https://here', certificate-authority-data: czNjcmV0",
        ),
    );
    let error = Client::new(Config::from_kubeconfig(&path, None).unwrap())
        .unwrap_err()
        .to_string();
    let file = folder.0.join("pki/none.crt");
    assert!(
        error.contains(&format!(
            "client-certificate of user \"u\" ({}): ",
            file.display()
        )),
        "{error}"
    );
    fs::create_dir_all(folder.0.join("pki")).unwrap();
    folder.write("pki/none.crt", "");
    let error = Client::new(Config::from_kubeconfig(&path, None).unwrap())
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "configuration: certificate-authority-data of cluster \"c\": no certificate in PEM form"
    );
}

#[test]
fn token_file_is_reread_and_last_good_token_kept() {
    let folder = Folder::new("token");
    let file = folder.write("token", "first\n");
    let authority = Authority::new();
    let server = Server::with_tls(Some(authority.server("127.0.0.1")), |_| {
        Reply::Write(reply("200 OK", "", "{}"))
    });
    folder.write("ca.crt", &authority.pem);
    let text = kubeconfig(&server.https(), "{token: inline, tokenFile: token}");
    let text = text.replace(
        "cluster: {server",
        "cluster: {certificate-authority: ca.crt, server",
    );
    let path = folder.write("config", &text);
    let client = Client::new(Config::from_kubeconfig(&path, None).unwrap()).unwrap();
    let sent = || {
        client
            .request(&Request::get("/"), &Stop::never())
            .unwrap()
            .bytes()
            .unwrap();
        let request = server.request();
        request
            .lines()
            .find_map(|line| line.strip_prefix("authorization: Bearer "))
            .unwrap()
            .to_owned()
    };
    assert_eq!(sent(), "first", "the token file must take precedence");
    fs::write(&file, "second").unwrap();
    assert_eq!(sent(), "second");
    for broken in ["", "two words", "line\nbreak"] {
        fs::write(&file, broken).unwrap();
        assert_eq!(sent(), "second", "the last good token must stay in use");
    }
    fs::remove_file(&file).unwrap();
    assert_eq!(sent(), "second");
    fs::write(&file, "third").unwrap();
    assert_eq!(sent(), "third");
    assert_eq!(server.accepted(), 1);
}

#[test]
fn missing_token_file_is_an_error_without_inline_token() {
    let server = Server::answering("{}");
    let config = Config::new(server.url()).token_file("/nowhere/token");
    let error = Client::new(config.clone()).unwrap_err();
    assert!(
        error.is_config() && error.to_string().contains("/nowhere/token"),
        "{error}"
    );
    let client = Client::new(config.token("inline")).unwrap();
    client.request(&Request::get("/"), &Stop::never()).unwrap();
    assert!(
        server
            .request()
            .contains("authorization: Bearer inline\r\n")
    );
}

#[test]
fn invalid_server_or_token_is_rejected_without_secret() {
    for (config, expected) in [
        (Config::new(""), "the server's URL is empty"),
        (Config::new("ftp://a"), "is not a valid server URL"),
        (Config::new("http://"), "is not a"),
        (Config::new("http://a b"), "is not a valid server URL"),
        // An invalid port is an error. It is not replaced by the default port.
        (Config::new("https://a:65536"), "is not a valid server URL"),
        (Config::new("https://a:+443"), "is not a valid server URL"),
        (Config::new("https://[::1]:0"), "is not a valid server URL"),
        (
            Config::new("https://user:s3cret@host"),
            "contains a user name or password",
        ),
        (Config::new("https://host?token=s3cret"), "has a query"),
        (
            Config::new("http://a").token("s3cret\r\nX: y"),
            "the token contains whitespace",
        ),
        (Config::new("http://a").user_agent("a\nb"), "the user agent"),
        (
            Config::new("http://a").client_certificate_pem("s3cret", "s3cret"),
            "needs an https server",
        ),
    ] {
        let error = Client::new(config).unwrap_err();
        assert!(error.is_config(), "{error:?}");
        let text = format!("{error} {error:?}");
        assert!(text.contains(expected), "{expected}: {text}");
        assert!(!text.contains("s3cret"), "{text}");
    }
}

#[test]
fn config_debug_shows_no_secret() {
    let config = Config::new("https://a")
        .token("s3cret")
        .client_certificate_pem("s3cret", "s3cret")
        .ca_pem("s3cret")
        .token_file("/run/token");
    let shown = format!("{config:#?}");
    assert!(
        !shown.contains("s3cret") && !shown.contains("115"),
        "{shown}"
    );
    assert!(
        shown.contains("/run/token") && shown.contains("***") && shown.contains("6 bytes"),
        "{shown}"
    );
    // The debug output of an invalid configuration shows no secret either.
    for server in [
        "https://me:s3cret@a",
        "https://me:a/s3cret@b",
        "https://a?s3cret",
        "https://a#s3cret",
    ] {
        let shown = format!(
            "{:?} {:?}",
            Config::new(server),
            KubeconfigOptions::new().server(server)
        );
        assert!(!shown.contains("s3cret"), "{shown}");
    }
    assert!(
        format!("{:?}", Config::new("https://a:6443/b")).contains("server: \"https://a:6443/b\"")
    );
}

/// Marks a run of this program as the child process of a test.
const CHILD: &str = "K8S_INFORMER_TEST_CHILD";

/// Makes the child process install a TLS provider.
pub(crate) const INSTALL_PROVIDER: &str = "K8S_INFORMER_TEST_INSTALL_PROVIDER";

fn print_the_default() {
    if std::env::var_os(INSTALL_PROVIDER).is_some() {
        super::tls_cases::install_provider();
    }
    match Client::try_default() {
        Ok(client) => {
            println!("FOUND {} {}", client.server(), client.default_namespace());
            if let Err(error) = client.request(&Request::get("/version"), &Stop::never()) {
                println!("{error}");
            } else {
                println!("ANSWERED");
            }
        }
        Err(error) => println!("FAILED {error}"),
    }
}

/// Runs this program as a child process with this environment. The child runs only the test that
/// checks [`CHILD`]. Returns its output: the default client, and whether the server answered.
pub(crate) fn run_child_process<'a>(
    environment: impl IntoIterator<Item = (&'a str, &'a Path)>,
) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([
        "--exact",
        "client::config::try_default_finds_kubeconfig_of_the_process",
        "--nocapture",
    ]);
    command.env_clear().envs(environment).env(CHILD, "1");
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

#[test]
fn system_cas_are_trusted_without_a_ca() {
    let folder = Folder::new("system");
    let authority = Authority::new();
    let server = Server::with_tls(Some(authority.server("127.0.0.1")), |_| {
        Reply::Write(reply("200 OK", "", "{}"))
    });
    let config = folder.write("config", &kubeconfig(&server.https(), "{}"));
    let bundle = folder.write("bundle.pem", &authority.pem);
    let output = run_child_process([("KUBECONFIG", config.as_path()), ("SSL_CERT_FILE", &bundle)]);
    assert!(output.contains("ANSWERED"), "{output}");
    // The system does not trust this authority.
    let output = run_child_process([("KUBECONFIG", config.as_path())]);
    assert!(
        output.contains("not signed by a trusted authority")
            || output.contains("no certificate authority"),
        "{output}"
    );
}

#[test]
fn try_default_finds_kubeconfig_of_the_process() {
    if std::env::var_os(CHILD).is_some() {
        return print_the_default();
    }
    let folder = Folder::new("process");
    let run = |kubeconfig: Option<&Path>, home: &Path| {
        run_child_process(
            kubeconfig
                .map(|list| ("KUBECONFIG", list))
                .into_iter()
                .chain([("HOME", home)]),
        )
    };
    let output = run(None, &folder.0);
    assert!(
        output.contains("FAILED configuration: no cluster configuration found: ~/.kube/config"),
        "{output}"
    );
    assert!(
        output.contains("in-cluster: KUBERNETES_SERVICE_HOST is not set"),
        "{output}"
    );
    fs::create_dir(folder.0.join(".kube")).unwrap();
    folder.write(".kube/config", &kubeconfig("http://home", "{}"));
    assert!(run(None, &folder.0).contains("FOUND http://home team"));
    let other = folder.write("other", &kubeconfig("http://other", "{}"));
    let list = std::env::join_paths([&folder.0.join("none"), &other]).unwrap();
    assert!(run(Some(Path::new(&list)), &folder.0).contains("FOUND http://other team"));
}
