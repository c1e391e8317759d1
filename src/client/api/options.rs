use std::sync::Arc;

use super::Api;
use crate::client::Request;

/// How the server treats fields of an object that are unknown or duplicated. The client-go
/// counterparts are the `metav1.FieldValidation…` constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FieldValidation {
    /// Drops the fields without a warning.
    Ignore,
    /// Drops the fields, and returns a warning for each. This is the default of API servers.
    Warn,
    /// Rejects the request.
    Strict,
}

impl FieldValidation {
    /// The value of the query parameter.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Ignore => "Ignore",
            Self::Warn => "Warn",
            Self::Strict => "Strict",
        }
    }
}

/// Options that are sent with every write.
#[derive(Clone, Debug, Default)]
pub(super) struct WriteOptions {
    pub(super) dry_run: bool,
    field_manager: Option<Arc<str>>,
    field_validation: Option<FieldValidation>,
}

impl WriteOptions {
    /// Returns a copy with this field manager.
    pub(super) fn with_field_manager(&self, field_manager: &str) -> Self {
        Self {
            field_manager: Some(field_manager.into()),
            ..self.clone()
        }
    }

    /// Adds the options to the query of a request.
    pub(super) fn add_to(&self, mut request: Request) -> Request {
        // Destructured, so that the compiler reports a new field that is not handled here.
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
    /// Returns an `Api` whose writes and deletions are not stored.
    ///
    /// The server executes all other steps of a request, and responds as if it had stored the
    /// result. The client-go counterpart is `DryRun: []string{metav1.DryRunAll}`.
    ///
    /// ```
    /// # use k8s_informer::{Client, Config, Object, Stop};
    /// # use k8s_informer_testing::ApiServer;
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # let server = ApiServer::start()?;
    /// # let client = Client::new(Config::new(server.url()))?;
    /// let (maps, stop) = (client.api::<ConfigMap>(Some("default")), Stop::never());
    /// let map = maps.dry_run().create(&serde_json::json!({"metadata": {"name": "a"}}), &stop)?;
    /// assert_eq!(map.name(), "a");
    /// assert!(maps.get("a", &stop).unwrap_err().is_not_found());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn dry_run(&self) -> Self {
        self.with(|options| options.dry_run = true)
    }

    /// Returns an `Api` that writes as this field manager.
    ///
    /// The server records the name in `managedFields`. By default it takes the name from the
    /// [user agent](crate::Config::user_agent), which a client sets once for all requests.
    /// [`Patch::apply`](crate::client::api::Patch::apply) uses the manager of the patch instead.
    /// The client-go counterpart is `FieldManager`.
    ///
    /// ```
    /// # use k8s_informer::{Client, Config, Stop};
    /// # use k8s_informer_testing::ApiServer;
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # let server = ApiServer::start()?;
    /// # let client = Client::new(Config::new(server.url()))?;
    /// let (maps, stop) = (client.api::<ConfigMap>(Some("default")), Stop::never());
    /// maps.field_manager("my-tool").create(&serde_json::json!({"metadata": {"name": "a"}}), &stop)?;
    /// assert_eq!(server.requests()[0].param("fieldManager"), Some("my-tool"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn field_manager(&self, name: impl AsRef<str>) -> Self {
        self.with(|options| options.field_manager = Some(name.as_ref().into()))
    }

    /// Returns an `Api` that creates, replaces and patches with this [`FieldValidation`]. The
    /// client-go counterpart is `FieldValidation`.
    ///
    /// ```
    /// # use k8s_informer::client::api::FieldValidation;
    /// # use k8s_informer::{Client, Config, Stop};
    /// # use k8s_informer_testing::ApiServer;
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # let server = ApiServer::start()?;
    /// # let client = Client::new(Config::new(server.url()))?;
    /// let (maps, stop) = (client.api::<ConfigMap>(Some("default")), Stop::never());
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
