use std::sync::Arc;

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
    pub(super) field_manager: Option<Arc<str>>,
    pub(super) field_validation: Option<FieldValidation>,
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
