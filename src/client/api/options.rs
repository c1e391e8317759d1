use std::sync::Arc;

use super::Api;
use crate::client::Request;

/// What the server does about fields of an object that it does not know, or that are there twice.
/// client-go's `metav1.FieldValidation…`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FieldValidation {
    /// They are dropped, and nothing is said.
    Ignore,
    /// They are dropped, and the answer warns of them: what API servers do unless told otherwise.
    Warn,
    /// The request fails.
    Strict,
}

impl FieldValidation {
    /// As it stands in a query.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Ignore => "Ignore",
            Self::Warn => "Warn",
            Self::Strict => "Strict",
        }
    }
}

/// What goes with every write.
#[derive(Clone, Debug, Default)]
pub(super) struct WriteOptions {
    pub(super) dry_run: bool,
    field_manager: Option<Arc<str>>,
    field_validation: Option<FieldValidation>,
}

impl WriteOptions {
    /// The same, but of this manager.
    pub(super) fn of_manager(&self, field_manager: &str) -> Self {
        Self {
            field_manager: Some(field_manager.into()),
            ..self.clone()
        }
    }

    /// Puts them into the query.
    pub(super) fn add_to(&self, mut request: Request) -> Request {
        // Destructured so that a new field can't be forgotten.
        let Self {
            dry_run,
            field_manager,
            field_validation,
        } = self;
        if let Some(field_manager) = field_manager {
            request = request.query("fieldManager", field_manager);
        }
        if let Some(field_validation) = field_validation {
            request = request.query("fieldValidation", field_validation.as_str());
        }
        if *dry_run {
            request.query("dryRun", "All")
        } else {
            request
        }
    }
}

impl<T> Api<T> {
    /// The same, but nothing that it writes or deletes is stored: the server does all else, and answers as if
    /// it were. client-go's `DryRun: []string{metav1.DryRunAll}`.
    ///
    /// ```
    /// # use k8s_informer::testing::ApiServer;
    /// # use k8s_informer::{Client, Config, Object, Stop};
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # let server = ApiServer::start()?;
    /// # let client = Client::new(Config::new(server.url()))?;
    /// let (maps, stop) = (client.api::<ConfigMap>(Some("default")), Stop::new());
    /// let map = maps.dry_run().create(&serde_json::json!({"metadata": {"name": "a"}}), &stop)?;
    /// assert_eq!(map.name(), "a");
    /// assert!(maps.get("a", &stop).unwrap_err().is_not_found());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn dry_run(&self) -> Self {
        self.with(|options| options.dry_run = true)
    }

    /// The same, but what it writes is written in this name, which `managedFields` then have; the server
    /// takes it from the User-Agent otherwise. The manager of a [`Patch::apply`](crate::client::api::Patch::apply) is its
    /// own. client-go's `FieldManager`.
    ///
    /// ```
    /// # use k8s_informer::testing::ApiServer;
    /// # use k8s_informer::{Client, Config, Stop};
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # let server = ApiServer::start()?;
    /// # let client = Client::new(Config::new(server.url()))?;
    /// let (maps, stop) = (client.api::<ConfigMap>(Some("default")), Stop::new());
    /// maps.field_manager("my-tool").create(&serde_json::json!({"metadata": {"name": "a"}}), &stop)?;
    /// assert_eq!(server.requests()[0].param("fieldManager"), Some("my-tool"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn field_manager(&self, name: impl AsRef<str>) -> Self {
        self.with(|options| options.field_manager = Some(name.as_ref().into()))
    }

    /// The same, but the server does this about fields that it does not know of what is created, replaced or
    /// patched. client-go's `FieldValidation`.
    ///
    /// ```
    /// # use k8s_informer::testing::ApiServer;
    /// # use k8s_informer::{Client, Config, Stop};
    /// # use k8s_informer::client::api::FieldValidation;
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # let server = ApiServer::start()?;
    /// # let client = Client::new(Config::new(server.url()))?;
    /// let (maps, stop) = (client.api::<ConfigMap>(Some("default")), Stop::new());
    /// let misspelt = serde_json::json!({"metadata": {"name": "a"}, "date": {"x": "1"}});
    /// let error = maps.field_validation(FieldValidation::Strict).create(&misspelt, &stop).unwrap_err();
    /// assert!(error.is_bad_request() && error.to_string().contains("unknown field \"date\""));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn field_validation(&self, validation: FieldValidation) -> Self {
        self.with(|options| options.field_validation = Some(validation))
    }

    fn with(&self, change: impl FnOnce(&mut WriteOptions)) -> Self {
        let mut api = self.clone();
        change(&mut api.options);
        api
    }
}
