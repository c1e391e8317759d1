//! Kubeconfigs of common tools, and invalid ones. The files in tests/data/kubeconfigs contain
//! made-up certificates, and `s3cret` in place of every secret.

use std::fs;
use std::path::{Path, PathBuf};

use k8s_informer::client::{Kubeconfig, KubeconfigOptions};
use k8s_informer::{Client, Config, Error};

use super::folder::Folder;

fn sample_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/kubeconfigs")
        .join(format!("{name}.yaml"))
}

/// Returns the debug output of the configuration and its client. Asserts that it contains no
/// secret.
fn shown(config: Config) -> String {
    let shown = format!("{config:?}");
    let client = Client::new(config).unwrap_or_else(|error| panic!("{error}: {shown}"));
    let shown = format!(
        "{} {} {shown} {client:?}",
        client.server(),
        client.default_namespace()
    );
    assert!(!shown.contains("s3cret"), "{shown}");
    shown
}

fn plugin(text: &str) -> String {
    format!("exec: Some(ExecConfig {{ command: {text}")
}

#[test]
fn kubeconfigs_of_common_tools_are_read() {
    let beta =
        "api_version: \"client.authentication.k8s.io/v1beta1\", interactive_mode: IfAvailable";
    let certificate = "client_certificate: Some(615 bytes), client_key: Some(241 bytes)";
    let ca = "ca: Some(583 bytes)";
    for (name, context, expected) in [
        (
            "eks",
            None,
            vec![
                "https://0123456789abcdef0123456789abcdef.gr7.eu-central-1.eks.amazonaws.com default Config",
                &plugin(r#""aws", args: 8 arguments, env: ["AWS_PROFILE"], "#),
                beta,
                ca,
                "token: None",
            ],
        ),
        (
            "gke",
            None,
            vec![
                "https://34.89.0.1 ",
                &plugin("\"gke-gcloud-auth-plugin\", args: 0 arguments"),
                beta,
                ca,
                "info: true",
            ],
        ),
        (
            "aks",
            None,
            vec![
                &plugin("\"kubelogin\", args: 11 arguments, env: [], "),
                beta,
                ca,
                "azmk8s.io:443 ",
            ],
        ),
        (
            "aks",
            Some("prod-admin"),
            vec![certificate, "token: Some(***)", "exec: None", ca],
        ),
        (
            "kind",
            None,
            vec!["https://127.0.0.1:41283 ", certificate, ca, "token: None"],
        ),
        (
            "k3s",
            None,
            vec!["https://127.0.0.1:6443 default ", certificate, ca],
        ),
        (
            "openshift",
            None,
            vec![
                "https://api.ocp.example.com:6443 shop ",
                "token: Some(***)",
                "insecure: false",
                ca,
            ],
        ),
        (
            "openshift",
            Some("default/api-crc-testing:6443/kubeadmin"),
            vec![
                "https://api.crc.testing:6443 default ",
                "insecure: true",
                "ca: None",
                "token: Some(***)",
            ],
        ),
        (
            "openshift",
            Some("/api-ocp-example-com:6443/jane@example.com"),
            vec![":6443 default ", "token: Some(***)"],
        ),
        (
            "rancher",
            None,
            vec![
                "https://rancher.example.com/k8s/clusters/c-m-abcdefgh default ",
                ca,
                "token: Some(***)",
            ],
        ),
        (
            "rancher",
            Some("prod-node1"),
            vec!["https://10.1.2.3:6443 ", ca, "token: Some(***)"],
        ),
        (
            "digitalocean",
            None,
            vec![&plugin("\"doctl\", args: 7 arguments"), beta, ca],
        ),
        (
            "oke",
            None,
            vec![
                "https://130.61.0.1:6443 ",
                &plugin("\"oci\", args: 7 arguments"),
                beta,
                ca,
            ],
        ),
        (
            "teleport",
            None,
            vec![
                "https://teleport.example.com",
                "tls_server_name: Some(\"kube-teleport-proxy-alpn.teleport.example.com\")",
                &plugin("\"/usr/local/bin/tsh\", args: 5 arguments"),
                beta,
            ],
        ),
        (
            "oidc",
            None,
            vec![
                "what: \"the id-token of user \\\"session\\\"\"",
                "proxy: Url(***)",
                "compression: false",
            ],
        ),
        (
            "oidc",
            Some("kubelogin"),
            vec![&plugin("\"kubectl\", args: 5 arguments"), "k8s.io/v1\", "],
        ),
        (
            "oidc",
            Some("support"),
            vec![
                "k8s.example.com:6443 shop ",
                "basic: Some((\"support\", ***))",
                "user: \"jane@example.com\", uid: Some(\"1001\")",
                "groups: [\"developers\", \"system:authenticated\"]",
                "extra: [(\"scopes\", \"view\"), (\"scopes\", \"list\")]",
            ],
        ),
    ] {
        let shown = shown(Config::from_kubeconfig(sample_path(name), context).unwrap())
            .replace("ABCDEF", "abcdef");
        for expected in expected {
            assert!(
                shown.contains(expected),
                "{name} {context:?}: {expected}: {shown}"
            );
        }
    }
    for (name, context, expected) in [
        ("gke-of-2021", None, "gke-gcloud-auth-plugin"),
        ("aks", Some("prod-legacy"), "kubelogin convert-kubeconfig"),
        (
            "oidc",
            Some("logged-out"),
            "the user \"logged-out\" has the auth-provider oidc without an id-token",
        ),
    ] {
        let error = Config::from_kubeconfig(sample_path(name), context).unwrap_err();
        assert!(
            error.is_config() && error.to_string().contains(expected),
            "{error}"
        );
        assert!(!format!("{error} {error:?}").contains("s3cret"), "{error}");
    }
}

#[test]
fn relative_paths_resolve_against_each_kubeconfig() {
    let folder = Folder::new("shapes");
    let write = |path: &str, text: &str| {
        fs::create_dir_all(folder.0.join(path).parent().unwrap()).unwrap();
        folder.write(path, text)
    };
    let base64 = |name: &str, field: &str| -> String {
        let text = fs::read_to_string(sample_path(name)).unwrap();
        let line = text
            .lines()
            .find_map(|line| line.trim().strip_prefix(&format!("{field}-data: ")))
            .unwrap();
        let mut pem = String::new();
        for chunk in line.as_bytes().chunks(4) {
            let of = |byte: &u8| {
                b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
                    .iter()
                    .position(|a| a == byte)
            };
            let bits = chunk
                .iter()
                .fold(0, |bits, byte| bits << 6 | of(byte).unwrap_or(0) as u32);
            pem.extend(
                bits.to_be_bytes()[1..]
                    .iter()
                    .filter(|byte| **byte != 0)
                    .map(|byte| char::from(*byte)),
            );
        }
        pem
    };
    let (ca, certificate, key) = (
        base64("kind", "certificate-authority"),
        base64("kind", "client-certificate"),
        base64("kind", "client-key"),
    );

    // minikube writes file paths that are absolute, or relative to the kubeconfig.
    let home = folder.0.display().to_string();
    let text = fs::read_to_string(sample_path("minikube")).unwrap();
    let path = write(".kube/config", &text.replace("/home/jane", &home));
    write(".minikube/ca.crt", &ca);
    write(".kube/profiles/minikube/client.crt", &certificate);
    let error = Client::new(Config::from_kubeconfig(&path, None).unwrap())
        .unwrap_err()
        .to_string();
    let missing = format!(
        "client-key of user \"minikube\" ({home}/.minikube/profiles/minikube/client.key): "
    );
    assert!(error.contains(&missing), "{error}");
    write(".minikube/profiles/minikube/client.key", &key);
    let minikube = shown(Config::from_kubeconfig(&path, None).unwrap());
    assert!(
        minikube.contains("https://192.168.49.2:8443 default "),
        "{minikube}"
    );

    // A token in a file, as in a pod.
    let path = write(
        "pod",
        &fs::read_to_string(sample_path("service-account")).unwrap(),
    );
    write("serviceaccount/ca.crt", &ca);
    write("serviceaccount/token", "s3cret\n");
    let pod = shown(Config::from_kubeconfig(&path, None).unwrap());
    assert!(
        pod.contains("https://kubernetes.default.svc kube-system "),
        "{pod}"
    );
    assert!(
        pod.contains(&format!(
            "token_file: Some(\"{home}/serviceaccount/token\")"
        )),
        "{pod}"
    );

    // Two files in different folders. The first file takes precedence.
    let first = write(
        "mine/config",
        &fs::read_to_string(sample_path("merged-1")).unwrap(),
    );
    let second = write(
        "company/config",
        &fs::read_to_string(sample_path("merged-2")).unwrap(),
    );
    for (path, text) in [
        ("mine/me.crt", &certificate),
        ("mine/me.key", &key),
        ("company/shared-ca.crt", &ca),
    ] {
        write(path, text);
    }
    let both = KubeconfigOptions::new().paths([&first, &folder.0.join("missing"), &second]);
    let merged = shown(both.load().unwrap());
    assert!(
        merged.contains("https://shared.example.com playground "),
        "{merged}"
    );
    assert!(
        merged.contains("token: None") && merged.contains(&format!("{home}/mine/me.key")),
        "{merged}"
    );
    assert!(
        merged.contains(&format!("ca: Some(\"{home}/company/shared-ca.crt\")")),
        "{merged}"
    );
    let shared = shown(both.clone().context("shared").load().unwrap());
    assert!(
        shared.contains("https://shared.example.com default ")
            && shared.contains("token: Some(***)"),
        "{shared}"
    );
    let kubeconfig = both.read().unwrap();
    assert_eq!(kubeconfig.current_context(), Some("mine"));
    assert_eq!(
        kubeconfig.contexts().collect::<Vec<_>>(),
        ["mine", "shared"]
    );
    let swapped = KubeconfigOptions::new()
        .paths([second, first])
        .context("mine")
        .load()
        .unwrap_err();
    assert!(
        swapped
            .to_string()
            .contains("there is no cluster \"nowhere\""),
        "{swapped}"
    );
}

fn parse_error(text: impl AsRef<[u8]>) -> String {
    let parsed: Result<Kubeconfig, Error> = Kubeconfig::parse(text.as_ref(), "");
    let error = parsed.expect_err("the kubeconfig was accepted");
    assert!(error.is_config());
    let text = format!("{error} {error:?}");
    assert!(!text.contains("s3cret"), "{text}");
    error.to_string()
}

#[test]
fn ambiguous_kubeconfig_is_rejected() {
    for (text, expected) in [
        (
            "users: [{name: a, user: {token: s3cret}}, {name: a}]",
            "the user \"a\" is defined twice",
        ),
        (
            "clusters: [{name: a}, {name: a}]",
            "the cluster \"a\" is defined twice",
        ),
        (
            "contexts: [{name: a}, {name: a}]",
            "the context \"a\" is defined twice",
        ),
        (
            "current-context: a\ncurrent-context: s3cret",
            "duplicate key at line 2, column 1",
        ),
        (
            "users: [{name: a, user: {token: a, token: s3cret}}]",
            "duplicate key at line 1, column 36",
        ),
        (
            "kind: Config\n---\ncurrent-context: s3cret",
            "more than one YAML document at line 3, column 1",
        ),
    ] {
        let error = parse_error(text);
        assert!(error.ends_with(expected), "{text}: {error}");
    }
}

#[test]
fn invalid_kubeconfig_error_has_position_but_no_content() {
    for (text, expected) in [
        ("users: [s3cret", "at line 1, column 8"),
        (
            "users:\n- name: a\n  user:\n    token: [s3cret]\n",
            "expected a string at line 4, column 12",
        ),
        (
            "users:\n- name: a\n  user: s3cret\n",
            "expected a map at line 3, column 9",
        ),
        (
            "clusters: s3cret",
            "expected a sequence at line 1, column 11",
        ),
        (
            "clusters:\n- cluster:\n    insecure-skip-tls-verify: s3cret\n",
            "expected a boolean at line 3, column 31",
        ),
        (
            "clusters:\n- cluster:\n    disable-compression: 'true'\n",
            "expected a boolean at line 3, column 26",
        ),
        (
            "users: [{user: {token: 12345}}]",
            "where a string is expected: quote it at line 1, column 24",
        ),
        (
            "users: [{user: {token: yes}}]",
            "where a string is expected: quote it at line 1, column 24",
        ),
        (
            "users: [{user: {exec: {args: [1]}}}]",
            "where a string is expected: quote it at line 1, column 31",
        ),
        (
            "users: [{user: {as-user-extra: {a: s3cret}}}]",
            "expected a sequence at line 1, column 36",
        ),
        (
            "users: [{user: {auth-provider: {config: [s3cret]}}}]",
            "at line 1, column 41",
        ),
        (
            "users: {s3cret: 1}",
            "expected a sequence at line 1, column 8",
        ),
        ("s3cret", "expected a map at line 1, column 1"),
        ("[s3cret]", "expected a map at line 1, column 1"),
        ("users: *s3cret", "at line 1, column 8"),
        ("users: &a [*a]", "at line 1"),
        ("users: \"s3cret", "at line 1, column 8"),
        ("users:\n\t- name: s3cret", "at line 2, column 2"),
        ("users: !!s3cret {}", "at line 1"),
        ("<<: s3cret", "at line 1"),
        ("\u{1}s3cret: {", "at line 1"),
        (
            "-----BEGIN CERTIFICATE-----\ns3cret\n",
            "at line 1, column 1",
        ),
        ("kind: s3cret", "not a kubeconfig: the kind is not Config"),
        (
            "apiVersion: s3cret",
            "not a kubeconfig: the apiVersion is not v1",
        ),
    ] {
        let error = parse_error(text);
        assert!(error.contains(expected), "{text:?}: {error}");
    }
    assert!(
        parse_error(b"kind: Config\nusers: \xff\xfes3cret").ends_with(": line 2 is not UTF-8 text")
    );
    assert!(
        parse_error(b"\xff\xfes\x003cret")
            .ends_with(": a UTF-16 byte order mark, but no valid UTF-16 text")
    );
    assert!(
        parse_error(b"\xfe\xff\xd8\0\0a")
            .ends_with(": a UTF-16 byte order mark, but no valid UTF-16 text")
    );
    parse_error(b"k\0i\0n\0d\0:\0s\x003\0c\0r\0e\0t\0");
    parse_error(b"\x7fELF\x02\x01\x01\0\0\0\0\0s3cret");
}

#[test]
fn too_large_or_deep_kubeconfig_is_rejected() {
    let bomb = |levels: usize, width: usize| {
        let mut bomb = format!("a0: &a0 [{}]\n", vec!["s3cret"; width].join(", "));
        for level in 1..levels {
            let aliases = vec![format!("*a{}", level - 1); width].join(", ");
            bomb.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
        }
        bomb
    };
    let too_much = "too much nesting, or too many aliases or values for a kubeconfig at line";
    assert!(
        parse_error(bomb(12, 9)).contains(too_much),
        "{}",
        parse_error(bomb(12, 9))
    );
    parse_error(bomb(40, 2));
    // A list that is open while the next one is read counts, too.
    let many = vec!["a"; 10_000].join(", ");
    let open = |level: usize| format!("{0}- *a\n{0}-\n", "  ".repeat(level));
    let nested: String = (0..60).map(open).collect();
    let error = parse_error(format!("a: &a [{many}]\nb:\n{nested}]"));
    assert!(error.contains(too_much), "{error}");
    for deep in [
        "[".repeat(100_000),
        "{a: ".repeat(100_000),
        "- ".repeat(100_000),
        format!("a: {}", "[".repeat(500)),
    ] {
        parse_error(deep);
    }
    let many = "x:\n".to_owned() + &"- a\n".repeat(300_000);
    assert!(
        parse_error(&many).contains(too_much),
        "{}",
        parse_error(&many)
    );

    let large = |size: usize| format!("# {}\nkind: Config\n", "s3cret ".repeat(size / 7));
    assert!(Kubeconfig::parse(large(1 << 20), "").is_ok());
    let error = parse_error(large(10_000_000));
    assert!(
        error.ends_with(": larger than 8 MiB, too large for a kubeconfig"),
        "{error}"
    );
    let folder = Folder::new("large");
    let path = folder.write("config", &large(10_000_000));
    let error = Config::from_kubeconfig(&path, None)
        .unwrap_err()
        .to_string();
    assert!(
        error.ends_with("/config: larger than 8 MiB, too large for a kubeconfig"),
        "{error}"
    );
    // An endless file is not read to its end.
    #[cfg(unix)]
    assert!(
        Config::from_kubeconfig("/dev/zero", None)
            .unwrap_err()
            .to_string()
            .contains("larger than 8 MiB")
    );
}

/// Aliases that repeat a long text, directly, as a key, in a map, and by merging such a map.
#[test]
fn kubeconfig_aliases_repeat_limited_text() {
    let long = "s3cret".repeat(20_000);
    let (start, times) = (
        format!("text: &text {long}\nmap: &map {{? *text : 1}}\n"),
        100,
    );
    let list = |item: &str| format!("{start}list: [{}]", vec![item; times].join(", "));
    let merges = format!(
        "{start}list:\n{}",
        "- {<<: *map}\n- {<<: [*map, {<<: *map}]}\n".repeat(times / 3)
    );
    // Each map is open while the next one is read.
    let nested = format!("{start}map: {}", "{<<: *map, a: ".repeat(times));
    let too_much = ": aliases repeat too much text for a kubeconfig at line";
    for text in [
        list("*text"),
        list("{? *text : 1}"),
        list("*map"),
        merges,
        nested,
    ] {
        let error = parse_error(&text);
        assert!(
            error.contains(too_much),
            "{}: {error}",
            &text[text.len() - 40..]
        );
    }
    // The number of aliases alone does not matter, and neither does long text without aliases.
    let short = format!(
        "text: &text short\nlist: [{}]",
        vec!["*text"; 100_000].join(", ")
    );
    let no_alias = format!("{start}list: [{}]", vec![&*long; 60].join(", "));
    let some = format!("{start}list: [{}]", vec!["*text"; 60].join(", "));
    for text in [short, no_alias, some] {
        Kubeconfig::parse(text, "").unwrap();
    }
}

#[test]
fn kubeconfig_with_thousand_clusters_is_read() {
    let kind = fs::read_to_string(sample_path("kind")).unwrap();
    let section = |from: &str, to: &str| {
        kind.split_once(from)
            .unwrap()
            .1
            .split_once(to)
            .unwrap()
            .0
            .to_owned()
    };
    let all = |section: &str| -> String {
        (0..1000)
            .map(|number| section.replace("kind-kind", &format!("kind-{number}")))
            .collect()
    };
    let text = format!(
        "clusters:\n{}contexts:\n{}users:\n{}",
        all(&section("clusters:\n", "contexts:\n")),
        all(&section("contexts:\n", "current-context:")),
        all(kind.split_once("users:\n").unwrap().1)
    );
    assert!(text.len() > 1 << 20);
    assert_eq!(
        Kubeconfig::parse(&text, "").unwrap().contexts().count(),
        1000
    );
    let config = KubeconfigOptions::new()
        .context("kind-999")
        .load_bytes(&text, "")
        .unwrap();
    assert!(shown(config).contains("https://127.0.0.1:41283 "));
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % limit as u64) as usize
    }
}

#[test]
fn randomly_corrupted_kubeconfig_does_not_show_secrets() {
    const CORRUPTIONS: [&str; 16] = [
        "", "\"", "'", "[", "}", ": ", "- ", "\n", "\t", "&a ", "*a", "!!int ", "? ", "#", "\u{0}",
        "|\n",
    ];
    let mut random = Random(7);
    let (mut good, mut bad) = (0, 0);
    for name in [
        "eks",
        "gke-of-2021",
        "aks",
        "openshift",
        "rancher",
        "oke",
        "oidc",
        "merged-2",
    ] {
        let text = fs::read_to_string(sample_path(name)).unwrap();
        let contexts: Vec<_> = Kubeconfig::parse(&text, "")
            .unwrap()
            .contexts()
            .map(str::to_owned)
            .collect();
        for _ in 0..40 {
            let mut text = text.clone();
            for _ in 0..=random.below(2) {
                let (from, length) = (random.below(text.len()), random.below(12));
                let to = (from + length).min(text.len());
                text.replace_range(from..to, CORRUPTIONS[random.below(CORRUPTIONS.len())]);
            }
            for context in &contexts {
                match KubeconfigOptions::new()
                    .context(context)
                    .load_bytes(&text, "")
                {
                    Ok(config) => {
                        good += 1;
                        // User names and the server URL are not secrets, so they may be shown.
                        let shown = format!("{config:?}");
                        assert!(!shown.contains("s3cret"), "{shown}");
                    }
                    Err(error) => {
                        bad += 1;
                        let shown = format!("{error} {error:?}");
                        assert!(error.is_config() && !shown.contains("s3cret"), "{shown}");
                    }
                }
            }
        }
    }
    assert!(good > 50 && bad > 50, "{good} good, {bad} bad");
}
