use std::error::Error;
use std::fmt;

use k8s_informer::__private::debug_as_display;

/// The error of a [`ControllerTest`](crate::ControllerTest).
///
/// `Display` names the controller and what does not settle, and lists the last failures.
///
/// ```
/// use k8s_informer::informer::Source;
/// use k8s_informer_controller::Failure;
/// use k8s_informer_testing::ControllerTest;
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use serde_json::json;
///
/// let mut test = ControllerTest::new(Source::of::<ConfigMap>(), |controller| {
///     controller.by(|_, _| Err(Failure::new("no such bucket")))
/// })?;
/// test.server().create("/api/v1/namespaces/default/configmaps", json!({"metadata": {"name": "a"}}))?;
/// let error = test.run_until_idle().unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "controller \"configmaps\": not idle after 100 calls for default/a\n\
///      the last call for default/a, attempt 100, failed: no such bucket"
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct ControllerTestError {
    message: String,
}

impl ControllerTestError {
    pub(super) fn new(message: impl fmt::Display) -> Self {
        Self {
            message: message.to_string(),
        }
    }
}

impl fmt::Display for ControllerTestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for ControllerTestError {}

debug_as_display!(ControllerTestError);
