/// The user to act as: kubectl's `--as`, `--as-uid`, `--as-group` and `--as-user-extra`. The
/// client-go counterpart is `rest.ImpersonationConfig`.
///
/// The server checks whether the authenticated user may `impersonate` this user and each of the
/// groups. It does not look up the groups of the impersonated user. Only the groups given here
/// apply.
///
/// ```
/// use k8s_informer::client::Impersonation;
/// use k8s_informer::reflector::ListOptions;
/// use k8s_informer::{Client, Config, Stop};
/// use k8s_informer_testing::ApiServer;
/// use k8s_openapi::api::core::v1::Secret;
///
/// let server = ApiServer::builder().token("admin's").start()?;
/// let jane = Impersonation::user("jane").group("developers").extra("scopes", "view");
/// let client = Client::new(Config::new(server.url()).token("admin's").impersonate(jane))?;
/// let secrets = client.api::<Secret>(Some("default"));
/// let error = secrets.list(&ListOptions::default(), &Stop::never()).unwrap_err();
/// assert!(error.is_forbidden() && error.to_string().contains("User \"jane\" cannot list"), "{error}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Impersonation {
    pub(in crate::client) user: String,
    pub(in crate::client) uid: Option<String>,
    pub(in crate::client) groups: Vec<String>,
    /// A key can occur more than once.
    pub(in crate::client) extra: Vec<(String, String)>,
}

impl Impersonation {
    /// Acts as the user with this name. The name of a service account is
    /// `system:serviceaccount:NAMESPACE:NAME`.
    pub fn user(name: impl Into<String>) -> Self {
        Self {
            user: name.into(),
            uid: None,
            groups: Vec::new(),
            extra: Vec::new(),
        }
    }

    /// Sets the UID of the user.
    pub fn uid(mut self, uid: impl Into<String>) -> Self {
        self.uid = Some(uid.into());
        self
    }

    /// Adds a group of the user.
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.groups.push(group.into());
        self
    }

    /// Adds an extra attribute of the user. Keys are converted to lower case.
    pub fn extra(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.extra.push((key.into(), value.into()));
        self
    }
}
