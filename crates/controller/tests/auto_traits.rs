//! The auto traits of all public types.

#[path = "../../../tests/auto_traits/check.rs"]
pub(crate) mod check;

use k8s_informer::DynamicObject;
use k8s_informer_controller::{
    Applied, ApplyOptions, AwaitedWrite, Condition, ConditionStatus, Conditions, Context,
    Controller, ControllerBuilder, ControllerError, ControllerErrorKind, ControllerStatus, Counter,
    Failure, Gauge, Histogram, LastFailure, Manager, ManagerBuilder, MetricsRegistry, Next,
    OwnerError, Predicate, RemovalOutcome, RemoveFinalizersError, RemovedFinalizers, ShardBy,
    SourceWait, events, leader_election, metrics,
};

use self::check::{assert_complete, types};

type T = DynamicObject;

/// Builders with an `FnOnce` of the user.
fn send_only() -> Vec<String> {
    types![send:
        events::EventRecorderBuilder,
        ControllerBuilder<T>,
        ManagerBuilder,
    ]
}

#[test]
fn public_types_are_send_and_sync() {
    let sync = types![sync:
        Applied,
        ConditionStatus,
        ControllerError,
        ControllerErrorKind,
        Next,
        ShardBy,
        events::EventError,
        events::EventType,
        events::EventDraft<'static>,
        events::EventRecorder,
        events::EventStats,
        leader_election::Ended<()>,
        leader_election::LeaderElectionError,
        leader_election::LeaderElector,
        leader_election::LeaderElectionOptions,
        leader_election::Leading,
        leader_election::Lease,
        leader_election::LeaseLock,
        leader_election::Record,
        leader_election::Token,
        metrics::LastState,
        metrics::ReconcileResult,
        ApplyOptions,
        AwaitedWrite,
        Condition,
        Conditions,
        Context,
        Controller<T>,
        ControllerStatus,
        Counter,
        Failure,
        Gauge,
        Histogram,
        LastFailure,
        Manager,
        MetricsRegistry,
        OwnerError,
        Predicate<T>,
        RemovalOutcome,
        RemoveFinalizersError,
        RemovedFinalizers,
        SourceWait,
    ];
    let api = include_str!("../../../docs/public-api-k8s-informer-controller.txt");
    assert_complete(api, send_only().into_iter().chain(sync));
}
