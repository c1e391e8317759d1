//! Every Namespace of a team gets a ConfigMap with the team's name. `cargo run -p controller` shows
//! it on an API server inside this program. With `-- --live` it runs on your cluster until Ctrl-C.

use k8s_informer::client::api::DeleteOptions;
use k8s_informer::informer::{InformerScope, Source};
use k8s_informer::{Client, Object, Stop};
use k8s_informer_controller::{ApplyOptions, Controller, ControllerBuilder, ControllerError, Next};
use k8s_informer_testing::ControllerTest;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use serde_json::json;

const TEAM: &str = "example.com/team";

fn team(builder: ControllerBuilder<Namespace>) -> Result<Controller<Namespace>, ControllerError> {
    let maps = InformerScope::all().field_selector("metadata.name=team");
    let builder = builder.owns(Source::of::<ConfigMap>().scope(maps));
    builder.by(|cx, namespace| {
        let maps = cx.api::<ConfigMap>(Some(cx.name()));
        match namespace.label(TEAM) {
            _ if namespace.metadata.deletion_timestamp.is_some() => {}
            Some(team) => {
                let metadata = json!({"name": "team", "namespace": cx.name()});
                let map = json!({"metadata": metadata, "data": {"team": team}});
                cx.apply_with::<ConfigMap>(map, ApplyOptions::new().force(true))?;
            }
            None if cx.children::<ConfigMap>()?.is_empty() => {}
            None => maps.delete("team", &DeleteOptions::default(), cx.stop())?,
        }
        Ok(Next::Done)
    })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    env_logger::init();
    if std::env::args().any(|argument| argument == "--live") {
        let teams = Controller::builder(&Client::try_default()?, Source::of::<Namespace>(), "team");
        return Ok(team(teams)?.run(&Stop::on_signals()?)?);
    }
    let mut test = ControllerTest::new(Source::of::<Namespace>(), team)?;
    let blue = json!({"metadata": {"name": "blue", "labels": {TEAM: "sky"}}});
    test.server().create("/api/v1/namespaces", blue)?;
    test.run_until_idle()?;
    let maps = test.server().list("/api/v1/configmaps")?;
    println!("{:?} wrote {}", test.writes(), maps["items"][0]["data"]);
    Ok(())
}
