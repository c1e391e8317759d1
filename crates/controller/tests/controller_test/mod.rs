//! `ControllerTest`: a controller on the embedded server, in virtual time.

mod events;
mod faults;
mod optional;
mod problems;
mod runs;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use k8s_informer::client::api::Patch;
use k8s_informer::informer::Source;
use k8s_informer::object::FullObjectMeta;
use k8s_informer::{Object, impl_full_metadata, impl_object};
use k8s_informer_controller::{
    Context, Controller, ControllerBuilder, ControllerError, Failure, Next,
};
use k8s_informer_testing::{ApiResource, ApiServer, ControllerTest};
use k8s_openapi::api::core::v1::ConfigMap;
use serde::Deserialize;
use serde_json::json;

type TestResult = Result<(), Box<dyn Error>>;

const TEAMS: &str = "/apis/example.com/v1/namespaces/default/teams";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const MINUTE: Duration = Duration::from_secs(60);

#[derive(Deserialize)]
struct Team {
    metadata: FullObjectMeta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    members: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    members: usize,
}

impl_object!(Team, "example.com/v1", "Team", "teams", Namespaced);
impl_full_metadata!(Team);

/// The controller that most tests use: a ConfigMap for each member, and their number in the status.
fn team(builder: ControllerBuilder<Team>) -> Result<Controller<Team>, ControllerError> {
    builder.owns(Source::of::<ConfigMap>()).by(reconcile)
}

fn reconcile(cx: &Context, team: &Arc<Team>) -> Result<Next, Failure> {
    let children = cx.children::<ConfigMap>()?;
    for member in &team.spec.members {
        let name = format!("{}-{member}", cx.name());
        if !children.iter().any(|child| child.name() == name) {
            let child = cx.owned(json!({"metadata": {"name": name}}))?;
            cx.api::<ConfigMap>(Some(cx.namespace()))
                .create(&child, cx.stop())?;
        }
    }
    if team.status.members != team.spec.members.len() {
        let status = json!({"status": {"members": team.spec.members.len()}});
        let teams = cx.api::<Team>(Some(cx.namespace()));
        teams
            .status()
            .patch(cx.name(), &Patch::merge(status), cx.stop())?;
    }
    Ok(Next::After(10 * MINUTE))
}

fn server() -> ApiServer {
    let teams = ApiResource::new("example.com", "v1", "teams", "Team");
    let server = ApiServer::builder().resource(teams);
    server.garbage_collection(true).start().unwrap()
}

fn test_of(
    build: impl Fn(ControllerBuilder<Team>) -> Result<Controller<Team>, ControllerError>
    + Send
    + 'static,
) -> ControllerTest<Team> {
    ControllerTest::with_server(server(), Source::of::<Team>(), build).unwrap()
}

fn create_team(test: &ControllerTest<Team>, name: &str, members: &[&str]) {
    let team = json!({"metadata": {"name": name}, "spec": {"members": members}});
    test.server().create(TEAMS, team).unwrap();
}

fn maps(test: &ControllerTest<Team>) -> Vec<String> {
    let list = test.server().list(MAPS).unwrap();
    let items = list["items"].as_array().unwrap();
    let name = |map: &serde_json::Value| map["metadata"]["name"].as_str().unwrap().to_owned();
    items.iter().map(name).collect()
}
