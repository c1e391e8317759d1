//! The lock on an API server.

use k8s_informer::{Client, Config, Stop};
use k8s_informer_controller::leader_election::{LeaseLock, Lock, Record};
use k8s_informer_testing::{ApiServer, Fault, Verb};

fn held_by(holder: &str) -> Record {
    let mut record = Record::default();
    record.holder = Some(holder.to_owned());
    record.lease_duration_seconds = 15;
    record
}

/// client-go's lock keeps what it has tried to write until the next attempt.
#[test]
fn le18_failed_writes_leave_nothing_in_the_lock() {
    let server = ApiServer::start().unwrap();
    let client = Client::new(Config::new(server.url())).unwrap();
    let (lock, stop) = (LeaseLock::new(&client, "default", "a"), Stop::never());
    let holder = || lock.get(&stop).unwrap().record.holder;
    let fail = |verb| server.fail_next(Fault::status(500).resource("leases").on(verb).times(1));

    fail(Verb::Create);
    lock.create(&held_by("failed"), &stop).unwrap_err();
    assert!(lock.get(&stop).unwrap_err().is_not_found());
    let created = lock.create(&held_by("first"), &stop).unwrap();
    assert_eq!(holder().as_deref(), Some("first"));

    fail(Verb::Update);
    lock.update(&held_by("failed"), &created, &stop)
        .unwrap_err();
    assert_eq!(holder().as_deref(), Some("first"));
    let updated = lock.update(&held_by("second"), &created, &stop).unwrap();
    assert_eq!(updated.record.holder.as_deref(), Some("second"));
    assert_eq!(holder().as_deref(), Some("second"));
}
