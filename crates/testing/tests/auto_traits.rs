//! The auto traits of all public types.

#[path = "../../../tests/auto_traits/check.rs"]
pub(crate) mod check;

use k8s_informer::DynamicObject;
use k8s_informer_testing::{
    Answer, ApiResource, ApiServer, ApiServerBuilder, Backup, ControllerTest, ControllerTestError,
    FakeClock, FakeControllerSource, Fault, RealApiServer, RealApiServerBuilder, RequestRecord,
    ScriptedListerWatcher, ScriptedRequest, StatusError, Verb, WriteRecord,
};

use self::check::{assert_complete, types};

type T = DynamicObject;

#[test]
fn public_types_are_send_and_sync() {
    let sync = types![sync:
        Verb,
        Answer,
        ApiResource,
        ApiServer,
        ApiServerBuilder,
        Backup,
        ControllerTestError,
        FakeClock,
        FakeControllerSource,
        Fault,
        RealApiServer,
        RealApiServerBuilder,
        RequestRecord,
        ScriptedListerWatcher,
        ScriptedRequest,
        StatusError,
        WriteRecord,
    ];
    // It has a function of the test that builds the controller.
    let send = types![send: ControllerTest<T>];
    let api = include_str!("../../../docs/public-api-k8s-informer-testing.txt");
    assert_complete(api, send.into_iter().chain(sync));
}
