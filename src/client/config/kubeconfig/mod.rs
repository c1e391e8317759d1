//! kubeconfig files: how several become one, and what a context in them means as a [`Config`].

mod file;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use base64::Engine;

use self::file::{Cluster, Context, File, User, parse};
use super::super::material::{Material, Secret, config_error};
use super::Config;
use crate::error::Error;

/// See [`Config::from_kubeconfig`].
pub(super) fn from_file(path: &Path, context: Option<&str>) -> Result<Config, Error> {
    let merged = Kubeconfig::load(&[path.to_owned()])?;
    if merged.is_missing() {
        return Err(config_error(format!("{}: there is no such file", path.display())));
    }
    merged.config(context)
}

/// All files together. The first one that names an entry, or sets a value, wins.
#[derive(Default)]
pub(super) struct Kubeconfig {
    /// Those that exist.
    files: Vec<PathBuf>,
    current_context: Option<String>,
    clusters: Vec<Entry<Cluster>>,
    users: Vec<Entry<User>>,
    contexts: Vec<Entry<Context>>,
}

struct Entry<T> {
    name: String,
    /// What relative paths in it are relative to.
    folder: PathBuf,
    value: T,
}

impl Kubeconfig {
    /// Reads and merges; files that are not there are skipped.
    pub(super) fn load(files: &[PathBuf]) -> Result<Self, Error> {
        let mut merged = Self::default();
        for path in files {
            let text = match fs::read_to_string(path) {
                Ok(text) => text,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    return Err(config_error(format!("{}: is not UTF-8 text", path.display())));
                }
                Err(error) => return Err(config_error(format!("{}: {error}", path.display()))),
            };
            let file =
                parse(&text).map_err(|problem| config_error(format!("{}: {problem}", path.display())))?;
            merged
                .add(path, file)
                .map_err(|problem| config_error(format!("{}: {problem}", path.display())))?;
        }
        Ok(merged)
    }

    fn add(&mut self, path: &Path, file: Option<File>) -> Result<(), String> {
        self.files.push(path.to_owned());
        let Some(File { kind, current_context, clusters, users, contexts }) = file else { return Ok(()) };
        if let Some(kind) = filled(&kind)
            && kind != "Config"
        {
            return Err("is not a kubeconfig: its kind is not Config".to_owned());
        }
        if self.current_context.is_none() {
            self.current_context = filled(&current_context).map(str::to_owned);
        }
        let folder = path.parent().unwrap_or_else(|| Path::new(""));
        let clusters = clusters.unwrap_or_default().into_iter().map(|named| (named.name, named.cluster));
        merge("cluster", &mut self.clusters, clusters, folder)?;
        let users = users.unwrap_or_default().into_iter().map(|named| (named.name, named.user));
        merge("user", &mut self.users, users, folder)?;
        let contexts = contexts.unwrap_or_default().into_iter().map(|named| (named.name, named.context));
        merge("context", &mut self.contexts, contexts, folder)
    }

    /// Whether none of the files exists.
    pub(super) fn is_missing(&self) -> bool {
        self.files.is_empty()
    }

    /// Whether there is nothing to find in them.
    pub(super) fn is_empty(&self) -> bool {
        self.clusters.is_empty()
            && self.users.is_empty()
            && self.contexts.is_empty()
            && self.current_context.is_none()
    }

    /// What a context means; the current one if none is given.
    pub(super) fn config(&self, context: Option<&str>) -> Result<Config, Error> {
        let files: Vec<_> = self.files.iter().map(|file| file.display().to_string()).collect();
        self.resolve(context).map_err(|problem| config_error(format!("{}: {problem}", files.join(", "))))
    }

    fn resolve(&self, context: Option<&str>) -> Result<Config, String> {
        let Some(name) = context.or(self.current_context.as_deref()) else {
            return Err(format!("no current-context is set; {}", known("contexts", &self.contexts)));
        };
        let context = &find("context", name, &self.contexts)?.value;
        let Some(cluster) = filled(&context.cluster) else {
            return Err(format!("the context {name:?} names no cluster"));
        };
        let cluster = find("cluster", cluster, &self.clusters)?;
        let mut config = cluster.config()?;
        // A context without a user is anonymous.
        if let Some(user) = filled(&context.user) {
            find("user", user, &self.users)?.apply(&mut config)?;
        }
        if let Some(namespace) = filled(&context.namespace) {
            config.default_namespace = namespace.to_owned();
        }
        Ok(config)
    }
}

impl<T> Entry<T> {
    /// From its `-data` field, which wins as in kubectl, or from its file.
    fn material(
        &self,
        owner: &str,
        field: &str,
        data: &Option<String>,
        file: &Option<String>,
    ) -> Result<Option<Material>, String> {
        if let Some(data) = filled(data) {
            let what = format!("{field}-data of {owner} {:?}", self.name);
            // A block scalar has line breaks.
            let data: Vec<u8> = data.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
            return match base64::engine::general_purpose::STANDARD.decode(data) {
                Ok(bytes) => Ok(Some(Material::bytes(what, bytes))),
                Err(_) => Err(format!("{what} is not base64")),
            };
        }
        let file = filled(file);
        Ok(file.map(|file| {
            Material::file(format!("{field} of {owner} {:?}", self.name), self.folder.join(file))
        }))
    }
}

impl Entry<Cluster> {
    fn config(&self) -> Result<Config, String> {
        // Destructured so that a new field can't be forgotten.
        let Cluster {
            server,
            certificate_authority,
            certificate_authority_data,
            insecure_skip_tls_verify,
            tls_server_name,
            proxy_url,
        } = &self.value;
        if proxy_url.0 {
            return Err(format!("the cluster {:?} has a proxy-url, which is not supported", self.name));
        }
        let Some(server) = filled(server) else {
            return Err(format!("the cluster {:?} has no server", self.name));
        };
        let mut config = Config::new(server);
        config.ca = self.material(
            "cluster",
            "certificate-authority",
            certificate_authority_data,
            certificate_authority,
        )?;
        config.insecure = insecure_skip_tls_verify.unwrap_or_default();
        config.tls_server_name = filled(tls_server_name).map(str::to_owned);
        Ok(config)
    }
}

impl Entry<User> {
    fn apply(&self, config: &mut Config) -> Result<(), String> {
        let User {
            client_certificate,
            client_certificate_data,
            client_key,
            client_key_data,
            token,
            token_file,
            exec,
            auth_provider,
            username,
            password,
            impersonate,
            as_uid,
            as_groups,
            as_user_extra,
        } = &self.value;
        for (field, presence) in [
            ("exec", exec),
            ("auth-provider", auth_provider),
            ("username", username),
            ("password", password),
            ("as", impersonate),
            ("as-uid", as_uid),
            ("as-groups", as_groups),
            ("as-user-extra", as_user_extra),
        ] {
            if presence.0 {
                return Err(format!(
                    "the user {:?} authenticates with {field}, which is not supported",
                    self.name
                ));
            }
        }
        config.client_certificate =
            self.material("user", "client-certificate", client_certificate_data, client_certificate)?;
        config.client_key = self.material("user", "client-key", client_key_data, client_key)?;
        config.token = filled(token).map(|token| Secret(token.to_owned()));
        config.token_file = filled(token_file).map(|file| self.folder.join(file));
        Ok(())
    }
}

/// The text, if there is any.
fn filled(text: &Option<String>) -> Option<&str> {
    text.as_deref().filter(|text| !text.is_empty())
}

fn merge<T: Default>(
    what: &str,
    entries: &mut Vec<Entry<T>>,
    named: impl Iterator<Item = (Option<String>, Option<T>)>,
    folder: &Path,
) -> Result<(), String> {
    let before = entries.len();
    for (name, value) in named {
        let name = name.unwrap_or_default();
        let same = |entry: &Entry<T>| entry.name == name;
        if entries[before..].iter().any(same) {
            return Err(format!("the {what} {name:?} is there twice"));
        }
        if !entries[..before].iter().any(same) {
            entries.push(Entry { name, folder: folder.to_owned(), value: value.unwrap_or_default() });
        }
    }
    Ok(())
}

fn find<'a, T>(what: &str, name: &str, entries: &'a [Entry<T>]) -> Result<&'a Entry<T>, String> {
    entries
        .iter()
        .find(|entry| entry.name == name)
        .ok_or_else(|| format!("there is no {what} {name:?}; {}", known(&format!("{what}s"), entries)))
}

fn known<T>(what: &str, entries: &[Entry<T>]) -> String {
    if entries.is_empty() {
        return format!("there are no {what}");
    }
    let names: Vec<_> = entries.iter().map(|entry| format!("{:?}", entry.name)).collect();
    format!("the {what} are {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As if each text stood in a file of its folder.
    fn merged(files: &[(&str, &str)]) -> Result<Kubeconfig, String> {
        let mut merged = Kubeconfig::default();
        for (path, text) in files {
            merged.add(Path::new(path), parse(text)?)?;
        }
        Ok(merged)
    }

    fn one(text: &str) -> Result<Config, String> {
        merged(&[("/home/config", text)])?.resolve(None)
    }

    const MINIMAL: &str = "
current-context: here
contexts: [{name: here, context: {cluster: c, user: u, namespace: team}}]
clusters: [{name: c, cluster: {server: 'https://api:6443'}}]
";

    fn with_user(user: &str) -> Result<Config, String> {
        one(&format!("{MINIMAL}users: [{{name: u, user: {user}}}]"))
    }

    #[test]
    fn the_first_file_wins_entry_by_entry() {
        let first = "
current-context: a
contexts:
- {name: a, context: {cluster: c, user: u}}
users:
- {name: u, user: {token: first}}
clusters: null
";
        let second = "
current-context: b
contexts:
- {name: a, context: {cluster: nowhere}}
- {name: b, context: {cluster: c}}
users:
- {name: u, user: {token: second, tokenFile: extra}}
clusters:
- {name: c, cluster: {server: 'https://second', certificate-authority: pki/ca.crt}}
";
        let merged = merged(&[("/one/config", first), ("/two/config", second)]).unwrap();
        let config = merged.resolve(None).unwrap();
        assert_eq!(config.server, "https://second");
        assert_eq!(config.token.unwrap().0, "first");
        assert_eq!(config.token_file, None, "the second file adds nothing to an entry of the first");
        assert_eq!(format!("{:?}", config.ca.unwrap()), r#""/two/pki/ca.crt""#, "relative to its own file");
        assert_eq!(config.default_namespace, "default");
        assert!(merged.resolve(Some("b")).unwrap().token.is_none(), "without a user");
    }

    #[test]
    fn what_is_not_there_is_named_with_what_is() {
        let config = merged(&[("/k", MINIMAL)]).unwrap();
        assert_eq!(
            config.resolve(Some("x")).unwrap_err(),
            r#"there is no context "x"; the contexts are "here""#
        );
        assert_eq!(config.resolve(None).unwrap_err(), r#"there is no user "u"; there are no users"#);
        let none = merged(&[("/k", "contexts: [{name: a}, {name: b}]")]).unwrap();
        assert_eq!(
            none.resolve(None).unwrap_err(),
            r#"no current-context is set; the contexts are "a", "b""#
        );
        assert_eq!(none.resolve(Some("a")).unwrap_err(), r#"the context "a" names no cluster"#);
    }

    #[test]
    fn data_wins_over_files_and_files_are_relative() {
        let config = with_user(
            "{client-certificate: a, client-certificate-data: 'Y2VydA==', client-key: k.pem, token: '', tokenFile: t}",
        )
        .unwrap();
        assert_eq!(format!("{:?}", config.client_certificate.unwrap()), "4 bytes");
        let key = config.client_key.unwrap();
        assert_eq!(key.to_string(), r#"client-key of user "u" (/home/k.pem)"#);
        assert!(config.token.is_none());
        assert_eq!(config.token_file.unwrap(), Path::new("/home/t"));
        assert_eq!(config.default_namespace, "team");
    }

    #[test]
    fn what_is_not_supported_is_refused_by_name() {
        for (field, value) in [
            ("exec", "{command: aws, 1: 2}"),
            ("auth-provider", "{name: gcp}"),
            ("username", "admin"),
            ("password", "12345"),
            ("as", "root"),
            ("as-uid", "0"),
            ("as-groups", "[a]"),
            ("as-user-extra", "{a: [b]}"),
        ] {
            let error = with_user(&format!("{{token: s3cret, {field}: {value}}}")).unwrap_err();
            assert_eq!(error, format!("the user \"u\" authenticates with {field}, which is not supported"));
            for nothing in ["null", "''", "[]", "{}"] {
                assert!(with_user(&format!("{{{field}: {nothing}}}")).is_ok(), "{field}: {nothing}");
            }
        }
        let proxy = MINIMAL.replace("'https://api:6443'", "x, proxy-url: 'http://p'");
        assert!(one(&proxy).unwrap_err().contains("has a proxy-url, which is not supported"));
        // An entry that is not used may hold anything.
        let other =
            one(&format!("{MINIMAL}users: [{{name: u}}, {{name: v, user: {{exec: {{command: x}}}}}}]"));
        assert!(other.is_ok());
    }

    #[test]
    fn what_kubectl_accepts_is_accepted() {
        let json = r#"{
	"kind": "Config", "apiVersion": "v1", "preferences": {}, "extensions": [{"name": 1}],
	"current-context": "a", "users": null,
	"contexts": [{"name": "a", "context": {"cluster": "c", "extensions": [{}]}}],
	"clusters": [{"name": "c", "cluster": {"server": "https://api", "insecure-skip-tls-verify": true}}]
}"#;
        assert!(one(json).unwrap().insecure);
        assert_eq!(with_user("{token: 12345}").unwrap().token.unwrap().0, "12345");
        let folded = "{client-key-data: \"a2\n V5\"}";
        assert_eq!(format!("{:?}", with_user(folded).unwrap().client_key.unwrap()), "3 bytes");
        let windows =
            format!("\u{feff}---{}", MINIMAL.replace('\n', "\r\n")) + "users: [{name: u, user: null}]";
        assert_eq!(one(&windows).unwrap().server, "https://api:6443");
        for empty in ["", " \n", "\u{feff}", "---\n", "{}", "kind: Config", "clusters: []\nusers: null"] {
            assert!(merged(&[("/k", empty)]).is_ok_and(|merged| merged.is_empty()), "{empty:?}");
        }
    }

    #[test]
    fn hostile_files_are_refused_without_a_word_of_what_they_hold() {
        for (text, expected) in [
            ("users: [s3cret", "at line 1, column 8"),
            (
                "users:\n- name: a\n  user:\n    token: [s3cret]\n",
                "expected string scalar at line 4, column 12",
            ),
            ("users:\n- name: a\n  user: s3cret\n", "expected mapping start at line 3, column 9"),
            ("clusters: s3cret", "expected sequence start at line 1, column 11"),
            (
                "clusters:\n- name: a\n  cluster:\n    insecure-skip-tls-verify: s3cret\n",
                "at line 4, column 31",
            ),
            ("s3cret", "expected mapping start at line 1, column 1"),
            ("users: *s3cret", "at line 1, column 8"),
            ("users: \"s3cret", "at line 1, column 8"),
            ("users: &a [*a]", "at line 1"),
            ("users: [{name: a, user: {token: s3cret}}, {name: a}]", "the user \"a\" is there twice"),
            ("kind: s3cret", "is not a kubeconfig: its kind is not Config"),
        ] {
            let error = merged(&[("/k", text)]).err().unwrap_or_else(|| panic!("{text} is accepted"));
            assert!(error.contains(expected), "{text}: {error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
        let error = with_user("{client-key-data: 's3cret!'}").unwrap_err();
        assert_eq!(error, r#"client-key-data of user "u" is not base64"#);
        let deep = "[".repeat(100_000);
        assert!(merged(&[("/k", &deep)]).is_err());
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let aliases = vec![format!("*a{}", level - 1); 9].join(", ");
            bomb.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
        }
        assert!(merged(&[("/k", &bomb)]).is_err(), "an alias bomb");
    }
}
