use std::time::Duration;

use k8s_informer::{Client, Config, Stop, Stopper};
use k8s_informer_controller::leader_election::{
    LeaderElectionOptions, LeaderElector, Lease, LeaseLock, Lock, Record,
};
use k8s_informer_testing::{ApiServer, FakeClock};
use serde_json::{Value, json};

use super::lock::{Server, TestLock};
use crate::server::Server as HttpServer;

#[test]
fn le1_times_that_cannot_work_are_rejected() {
    let ms = Duration::from_millis;
    for (lease, renew, retry, problem) in [
        (
            2_900,
            1_500,
            1_000,
            "the lease duration (2.9s) must be a whole number of seconds from 1 to 2147483647",
        ),
        (
            0,
            1_500,
            1_000,
            "the lease duration (0ns) must be a whole number of seconds from 1 to 2147483647",
        ),
        (
            15_000,
            10_000,
            999,
            "the retry period (999ms) must be at least 1s",
        ),
        (
            15_000,
            2_400,
            2_000,
            "the renew deadline (2.4s) must be more than 1.2 retry periods (2s)",
        ),
        (
            12_000,
            10_000,
            2_000,
            "the lease duration (12s) must be more than the renew deadline (10s) and the retry period (2s) together",
        ),
        (
            9_000,
            10_000,
            2_000,
            "the lease duration (9s) must be more than the renew deadline (10s) and the retry period (2s) together",
        ),
    ] {
        let lock = TestLock::new(&Server::new(), &FakeClock::new(), "a");
        let options = LeaderElectionOptions::new()
            .lease_duration(ms(lease))
            .renew_deadline(ms(renew))
            .retry_period(ms(retry));
        let error = LeaderElector::new(lock, options).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("leader election default/test: {problem}")
        );
    }
    let lock = TestLock::new(&Server::new(), &FakeClock::new(), "a");
    let options = LeaderElectionOptions::new()
        .lease_duration(ms(13_000))
        .renew_deadline(ms(10_999))
        .retry_period(ms(2_000));
    assert!(LeaderElector::new(lock, options).is_ok());
    let lock = TestLock::new(&Server::new(), &FakeClock::new(), "");
    let error = LeaderElector::new(lock, LeaderElectionOptions::new()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "leader election default/test: the identity of the lock is empty"
    );
}

#[test]
fn update_of_a_lease_without_metadata_is_an_error() {
    let client = Client::new(Config::new("http://127.0.0.1:1")).unwrap();
    let lock = LeaseLock::new(&client, "default", "a").label("team", "a");
    let mut lease = Lease::default();
    lease.object = "{}".to_owned();
    assert!(
        lock.update(&Record::default(), &lease, &Stop::never())
            .is_err()
    );
}

/// The metadata are those of the last response, so a change that this candidate has not read is a
/// conflict.
#[test]
fn le16_update_keeps_metadata_and_sets_its_labels() {
    const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let server = ApiServer::start().unwrap();
    let client = Client::new(Config::new(server.url())).unwrap();
    let metadata = || server.get(&format!("{LEASES}/a")).unwrap()["metadata"].take();
    let foreign = json!({
        "name": "a", "labels": {"foreign": "x", "team": "b"}, "annotations": {"note": "y"},
    });
    server.create(LEASES, json!({"metadata": foreign})).unwrap();
    let plain = LeaseLock::new(&client, "default", "a");
    let labelled = LeaseLock::new(&client, "default", "a").label("team", "a");
    for (lock, team) in [(&plain, "b"), (&labelled, "a")] {
        let read = lock.get(&Stop::never()).unwrap();
        let mut record = Record::default();
        record.lease_duration_seconds = 15;
        let written = lock.update(&record, &read, &Stop::never()).unwrap();
        // The next update is based on the response to this one.
        lock.update(&record, &written, &Stop::never()).unwrap();
        let metadata = metadata();
        assert_eq!(metadata["labels"], json!({"foreign": "x", "team": team}));
        assert_eq!(metadata["annotations"], json!({"note": "y"}));
        let error = lock.update(&record, &read, &Stop::never()).unwrap_err();
        assert!(error.is_conflict(), "{error}");
    }
    // A label that was removed is set again.
    let removed = json!({"metadata": {"labels": {"team": null}}});
    server.patch(&format!("{LEASES}/a"), removed).unwrap();
    let read = labelled.get(&Stop::never()).unwrap();
    assert_eq!(read.record.lease_duration_seconds, 15);
    labelled
        .update(&read.record, &read, &Stop::never())
        .unwrap();
    assert_eq!(metadata()["labels"], json!({"foreign": "x", "team": "a"}));
}

/// client-go always sends both times, and its zero time is `null`.
#[test]
fn el12_times_that_are_not_set_are_written_as_null() {
    let lease = r#"{"metadata": {"name": "a", "uid": "u", "resourceVersion": "7"},
        "spec": {"holderIdentity": "a", "acquireTime": null, "renewTime": "0001-01-01T00:00:00Z"}}"#;
    let server = HttpServer::answering(lease);
    let client = Client::new(Config::new(server.url())).unwrap();
    let lock = LeaseLock::new(&client, "default", "a");
    let stop = Stopper::new();
    let read = lock.get(&stop).unwrap();
    lock.update(&read.record, &read, &stop).unwrap();
    lock.create(&Record::default(), &stop).unwrap();
    let requests = std::iter::repeat_with(|| server.request());
    let bodies = requests.skip(1).take(2).map(|request| {
        let body = &request[request.find('{').unwrap()..];
        serde_json::from_str::<Value>(body).unwrap()
    });
    for body in bodies {
        for time in ["acquireTime", "renewTime"] {
            assert_eq!(body["spec"].get(time), Some(&Value::Null), "{body}");
        }
    }
}

#[test]
fn times_of_a_lease_are_written_back_as_they_were() {
    const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let server = ApiServer::start().unwrap();
    let lock = LeaseLock::new(
        &Client::new(Config::new(server.url())).unwrap(),
        "default",
        "a",
    );
    for (time, micros) in [
        ("9999-12-31T23:59:59.999999Z", 253_402_300_799_999_999),
        ("1969-12-31T23:59:59.500000Z", -500_000),
        ("1601-01-01T00:00:00.000000Z", -11_644_473_600_000_000),
        ("2024-01-02T03:04:05.000006Z", 1_704_164_645_000_006),
    ] {
        let spec = json!({"holderIdentity": "b", "leaseDurationSeconds": 15, "acquireTime": time, "renewTime": time});
        let lease = json!({"metadata": {"name": "a"}, "spec": spec});
        server.create(LEASES, lease).unwrap();
        let lease = lock.get(&Stop::never()).unwrap();
        assert_eq!(lease.record.acquire_time, Some(micros), "{time}");
        let mut record = lease.record.clone();
        record.transitions += 1;
        lock.update(&record, &lease, &Stop::never()).unwrap();
        let path = format!("{LEASES}/a");
        let spec = &server.get(&path).unwrap()["spec"];
        assert_eq!(
            (&spec["acquireTime"], &spec["renewTime"]),
            (&json!(time), &json!(time))
        );
        server.delete(&path).unwrap();
    }
}
