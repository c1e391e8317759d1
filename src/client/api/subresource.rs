use serde::Serialize;

use super::{Api, refused};
use crate::client::{Request, answer};
use crate::error::Error;
use crate::object::{DynamicObject, path_segment};
use crate::stop::Stop;

impl<T> Api<T> {
    /// The path of a subresource of an object, or (`""`) of the object itself: for a [`Request`] of your own,
    /// where there is no method for it. Each part of it is checked and encoded, so that no name leads
    /// anywhere else.
    ///
    /// ```
    /// # use k8s_informer::testing::ApiServer;
    /// # use k8s_informer::{Client, Config};
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # let server = ApiServer::start()?;
    /// # let client = Client::new(Config::new(server.url()))?;
    /// let pods = client.api::<Pod>(Some("default"));
    /// assert_eq!(pods.path("web-0", "log")?, "/api/v1/namespaces/default/pods/web-0/log");
    /// assert!(pods.path("../web-0", "log").is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The name, the subresource or the namespace can't be a part of a path, or the namespace is missing.
    pub fn path(&self, name: &str, subresource: &str) -> Result<String, Error> {
        self.about(
            "name the path of",
            subresource,
            name,
            || match subresource {
                "" => self.path_of(name, ""),
                _ => self.path_of(name, &path_segment("subresource", subresource)?),
            },
        )
    }

    /// Creates what is only ever created as a subresource of an object, from anything that is one as JSON,
    /// with apiVersion and kind: the `token` of a ServiceAccount (a TokenRequest), the `binding` of a Pod.
    /// What comes back is what the server makes of it. client-go's `CreateToken`, `Bind`, and `Create` of the
    /// dynamic client with subresources.
    ///
    /// ```no_run
    /// use k8s_informer::{Client, Stop};
    /// use k8s_openapi::api::core::v1::ServiceAccount;
    ///
    /// let (client, stop) = (Client::try_default()?, Stop::new());
    /// let request = serde_json::json!({
    ///     "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600},
    /// });
    /// let accounts = client.api::<ServiceAccount>(Some("default"));
    /// let answer = accounts.create_subresource("default", "token", &request, &stop)?;
    /// let token = answer.pointer("/status/token").and_then(|token| token.as_str());
    /// assert!(token.is_some());
    /// # Ok::<(), k8s_informer::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`is_not_found`](Error::is_not_found) if the object is not there, or has no such subresource;
    /// [`is_invalid`](Error::is_invalid) if the server finds something wrong with the body.
    pub fn create_subresource<B: Serialize + ?Sized>(
        &self,
        name: &str,
        subresource: &str,
        body: &B,
        stop: &Stop,
    ) -> Result<DynamicObject, Error> {
        self.about("create", subresource, name, || {
            if subresource.is_empty() {
                return Err(refused("no subresource is named"));
            }
            let path = self.path_of(name, &path_segment("subresource", subresource)?)?;
            let request = self.options.add_to(Request::post(path).json(body)?);
            let response = self.client.request(&request, stop)?;
            let context = response.body.context.clone();
            answer::check_json(&response.headers)
                .map_err(|error| error.context(context.to_string()))?;
            response.json()
        })
    }
}
