//! Bearer tokens and impersonation.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::log::RequestRecord;
use super::resources::{ApiResource, Route, Sub};
use super::status::StatusError;

/// The access rules. If no tokens are set, all requests are allowed.
#[derive(Default)]
pub(crate) struct Auth {
    /// Maps each token to the name of a user without rights, or to `None` for all rights. No other
    /// lock is taken while this lock is held.
    tokens: Mutex<Option<HashMap<String, Option<String>>>>,
}

impl Auth {
    /// Grants all rights only to these tokens from now on. Tokens that were registered without
    /// rights are not affected.
    pub(crate) fn allow_only(&self, tokens: impl IntoIterator<Item = String>) {
        let mut known = self.tokens.lock();
        let known = known.get_or_insert_default();
        known.retain(|_, user| user.is_some());
        known.extend(tokens.into_iter().map(|token| (token, None)));
    }

    pub(crate) fn add_without_rights(&self, token: String, user: String) {
        self.tokens
            .lock()
            .get_or_insert_default()
            .insert(token, Some(user));
    }

    pub(crate) fn check(&self, request: &RequestRecord, route: &Route) -> Result<(), StatusError> {
        let tokens = self.tokens.lock();
        let Some(tokens) = tokens.as_ref() else {
            return Ok(());
        };
        let bearer = request
            .header("authorization")
            .and_then(|value| value.split_once(' '));
        let token = bearer
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
            .map(|(_, token)| token.trim());
        // A token with all rights may impersonate any user. An impersonated user has rights only as
        // a member of the group `system:masters`.
        let acts_as = request.header("impersonate-user");
        let acts_as =
            acts_as.filter(|_| request.header("impersonate-group") != Some("system:masters"));
        let user = match token.map(|token| tokens.get(token)) {
            Some(None) => return Err(StatusError::plain(401, None)),
            Some(Some(None)) => match acts_as {
                None => return Ok(()),
                Some(user) => user,
            },
            Some(Some(Some(user))) => user,
            None => "system:anonymous",
        };
        let target = match route {
            Route::Version | Route::Health => return Ok(()),
            Route::Object(target) => target,
            // Every authenticated user may use discovery.
            Route::Discovery { .. } if user != "system:anonymous" => return Ok(()),
            Route::Discovery { .. } | Route::NoSuchResource | Route::NotFound => {
                let why = format!(
                    "forbidden: User \"{user}\" cannot get path \"{}\"",
                    request.path()
                );
                return Err(StatusError::plain(403, Some(why)));
            }
        };
        let ApiResource { group, plural, .. } = &*target.resource;
        let place = match &target.namespace {
            Some(namespace) => format!("in the namespace \"{namespace}\""),
            None => "at the cluster scope".to_owned(),
        };
        let verb = request.verb().name();
        let part = match target.sub {
            None if target.status => "/status",
            None => "",
            Some(Sub::Scale) => "/scale",
            Some(Sub::Eviction) => "/eviction",
        };
        let why = format!(
            "User \"{user}\" cannot {verb} resource \"{plural}{part}\" in API group \"{group}\" {place}"
        );
        Err(StatusError::forbidden(
            target.name.as_deref().unwrap_or_default(),
            group,
            plural,
            &why,
        ))
    }
}
