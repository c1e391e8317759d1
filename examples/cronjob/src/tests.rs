//! Tests of the controller on an API server inside this program, in virtual time.

use std::time::{Duration, UNIX_EPOCH};

use k8s_informer::informer::Source;
use k8s_informer::time::Clock;
use k8s_informer_testing::{ApiServer, ControllerTest, Fault, Verb};
use serde_json::{Value, json};

use super::api::CronJob;
use super::controller::{JOB_CREATION_FAILED, SCHEDULED_AT, build};

const CRON_JOBS: &str = "/apis/batch.tutorial.kubebuilder.io/v1/namespaces/default/cronjobs";
const CRON_JOB: &str = "/apis/batch.tutorial.kubebuilder.io/v1/namespaces/default/cronjobs/test";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const KEY: &str = "default/test";

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// The controller, with a clock that starts at a full minute.
struct Test {
    controller: ControllerTest<CronJob>,
    /// The time at which the CronJob is created, in seconds since 1970. The server uses the real
    /// time, so its `creationTimestamp` is up to a minute earlier.
    start: u64,
}

impl Test {
    fn new() -> Self {
        let server = ApiServer::builder()
            .garbage_collection(true)
            .start()
            .unwrap();
        let crd = serde_json::from_str(include_str!("../crd.json")).unwrap();
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        server.create(definitions, crd).unwrap();
        let controller = ControllerTest::with_server(server, Source::of::<CronJob>(), build);
        let controller = controller.unwrap();
        let now = controller
            .clock()
            .wall_clock()
            .duration_since(UNIX_EPOCH)
            .unwrap();
        let start = (now.as_secs() / 60 + 1) * 60;
        controller.clock().suspend(Duration::from_secs(start) - now);
        Self { controller, start }
    }

    /// Creates a CronJob that runs once an hour, first in ten minutes, and runs the controller until
    /// it is idle.
    fn hourly(mut spec: Value) -> Self {
        let mut test = Self::new();
        spec["schedule"] = test.at_minute(10).into();
        test.create(spec);
        test
    }

    fn create(&mut self, mut spec: Value) {
        let template = json!({
            "metadata": { "labels": { "app": "hello" }, "annotations": { "note": "kept" } },
            "spec": { "unknown": 1, "template": { "spec": { "restartPolicy": "OnFailure" } } },
        });
        spec["jobTemplate"] = template;
        let cron_job = json!({ "metadata": { "name": "test" }, "spec": spec });
        self.server().create(CRON_JOBS, cron_job).unwrap();
        self.run();
    }

    /// Returns the schedule of the minute of each hour that is `minutes` after the start.
    fn at_minute(&self, minutes: u64) -> String {
        format!("{} * * * *", (self.start / 60 + minutes) % 60)
    }

    /// Returns the name of the Job of a run, this number of minutes after the start.
    fn job_at(&self, minutes: u64) -> String {
        format!("test-{}", self.start + 60 * minutes)
    }

    fn server(&self) -> &ApiServer {
        self.controller.server()
    }

    fn run(&mut self) {
        self.controller.run_until_idle().unwrap();
    }

    /// Passes time, and runs what becomes due.
    fn pass(&mut self, time: Duration) {
        self.controller.advance(time).unwrap();
    }

    /// Passes time in which the controller does not run.
    fn pass_without_controller(&mut self, time: Duration) {
        self.controller.clock().suspend(time);
        self.controller.restart().unwrap();
        self.run();
    }

    fn spec(&mut self, change: Value) {
        self.server()
            .patch(CRON_JOB, json!({ "spec": change }))
            .unwrap();
        self.run();
    }

    /// Sets the condition that ends a Job, at this minute after the start.
    fn end(&mut self, job: &str, condition: &str, minutes: u64) {
        let start = k8s_openapi::jiff::Timestamp::from_second((self.start + 60 * minutes) as i64);
        let status = json!({
            "startTime": start.unwrap().to_string(),
            "conditions": [{ "type": "Suspended", "status": "False" }, { "type": condition, "status": "True" }],
        });
        let path = format!("{JOBS}/{job}/status");
        self.server()
            .patch(&path, json!({ "status": status }))
            .unwrap();
        self.run();
    }

    /// Returns the writes since the last call, without those of the status.
    fn writes(&mut self) -> Vec<String> {
        let writes = self
            .controller
            .writes()
            .into_iter()
            .map(|write| write.to_string());
        writes
            .filter(|write| !write.contains("cronjobs/status"))
            .collect()
    }

    #[track_caller]
    fn assert_creates(&mut self, minutes: &[u64]) {
        let create = |minutes: &u64| format!("create jobs default/{}", self.job_at(*minutes));
        let expected: Vec<_> = minutes.iter().map(create).collect();
        assert_eq!(self.writes(), expected);
    }

    fn status(&self) -> Value {
        self.server().get(CRON_JOB).unwrap()["status"].clone()
    }

    /// Checks a condition, in the form `Degraded=False AsExpected`.
    #[track_caller]
    fn assert_condition(&self, expected: &str) {
        let status = self.status();
        let conditions = status["conditions"].as_array().unwrap().iter();
        let text = |of: &Value, field: &str| of[field].as_str().unwrap().to_owned();
        let all: Vec<_> = conditions
            .map(|of| {
                format!(
                    "{}={} {}",
                    text(of, "type"),
                    text(of, "status"),
                    text(of, "reason")
                )
            })
            .collect();
        assert!(all.iter().any(|condition| condition == expected), "{all:?}");
    }

    fn active(&self) -> Vec<String> {
        let status = self.status();
        let active = status["active"].as_array().into_iter().flatten();
        active
            .map(|job| job["name"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Returns the last run, in minutes after the start.
    fn last_run(&self) -> Option<i64> {
        let time = self.status()["lastScheduleTime"].as_str()?.to_owned();
        let time: k8s_openapi::jiff::Timestamp = time.parse().unwrap();
        Some((time.as_second() - self.start as i64) / 60)
    }
}

#[test]
fn job_is_created_at_the_time_of_its_run() {
    let mut test = Test::hourly(json!({}));
    test.pass(10 * MINUTE - SECOND);
    test.assert_creates(&[]);
    assert_eq!(test.last_run(), None);
    test.pass(SECOND);
    test.assert_creates(&[10]);

    let cron_job = test.server().get(CRON_JOB).unwrap();
    let job = test
        .server()
        .get(&format!("{JOBS}/{}", test.job_at(10)))
        .unwrap();
    let metadata = &job["metadata"];
    let scheduled = metadata["annotations"][SCHEDULED_AT].as_str().unwrap();
    let scheduled: k8s_openapi::jiff::Timestamp = scheduled.parse().unwrap();
    assert_eq!(scheduled.as_second() as u64, test.start + 600);
    assert_eq!(metadata["annotations"]["note"], "kept");
    assert_eq!(metadata["labels"], json!({ "app": "hello" }));
    let owner = &metadata["ownerReferences"][0];
    assert_eq!(owner["uid"], cron_job["metadata"]["uid"]);
    assert_eq!(
        (&owner["kind"], &owner["controller"]),
        (&json!("CronJob"), &json!(true))
    );
    assert_eq!(
        job["spec"]["unknown"], 1,
        "fields that the program does not know are kept"
    );
}

#[test]
fn every_hour_has_its_job() {
    let mut test = Test::hourly(json!({}));
    test.pass(3 * HOUR);
    test.assert_creates(&[10, 70, 130]);
    assert_eq!(
        test.active(),
        [10, 70, 130].map(|minutes| test.job_at(minutes))
    );
    assert_eq!(test.last_run(), Some(130));
    test.assert_condition("Progressing=True JobsActive");
    test.assert_condition("Available=True JobsActive");
    test.assert_condition("Degraded=False AsExpected");
}

#[test]
fn ended_jobs_are_not_active() {
    let mut test = Test::hourly(json!({}));
    test.assert_condition("Progressing=False NoJobsActive");
    test.pass(2 * HOUR);
    let (first, second) = (test.job_at(10), test.job_at(70));
    test.end(&first, "Complete", 10);
    assert_eq!(test.active(), [&*second]);
    test.end(&second, "Complete", 70);
    assert!(test.active().is_empty());
    test.assert_condition("Progressing=False NoJobsActive");
    test.assert_condition("Available=True AllJobsCompleted");
    assert_eq!(test.last_run(), Some(70));
}

#[test]
fn failed_job_degrades_the_cron_job() {
    let mut test = Test::hourly(json!({ "failedJobsHistoryLimit": 1 }));
    test.pass(HOUR);
    let job = test.job_at(10);
    test.end(&job, "Failed", 10);
    test.assert_condition("Available=False JobsFailed");
    test.assert_condition("Degraded=True JobsFailed");
    test.server().delete(&format!("{JOBS}/{job}")).unwrap();
    test.run();
    test.assert_condition("Available=True AllJobsCompleted");
    test.assert_condition("Degraded=False AsExpected");
}

#[test]
fn history_keeps_the_jobs_that_started_last() {
    for (limit, condition) in [
        ("failedJobsHistoryLimit", "Failed"),
        ("successfulJobsHistoryLimit", "Complete"),
    ] {
        let mut test = Test::hourly(json!({ limit: 2 }));
        test.pass(4 * HOUR);
        test.writes();
        // The second Job started last.
        for (minutes, started) in [(10, 20), (70, 220), (130, 130)] {
            let job = test.job_at(minutes);
            test.end(&job, condition, started);
        }
        let oldest = format!("delete jobs default/{}", test.job_at(10));
        assert_eq!(test.writes(), [oldest], "{limit}");
        let last = test.job_at(190);
        test.end(&last, condition, 190);
        let oldest = format!("delete jobs default/{}", test.job_at(130));
        assert_eq!(test.writes(), [oldest], "{limit}");
    }
}

#[test]
fn jobs_are_kept_without_a_history_limit() {
    let mut test = Test::hourly(json!({}));
    test.pass(3 * HOUR);
    for (minutes, condition) in [(10, "Failed"), (70, "Complete"), (130, "Failed")] {
        let job = test.job_at(minutes);
        test.end(&job, condition, minutes);
    }
    test.assert_creates(&[10, 70, 130]);
}

#[test]
fn history_of_zero_does_not_repeat_a_run() {
    let mut test = Test::hourly(json!({ "successfulJobsHistoryLimit": 0 }));
    test.pass(HOUR);
    test.writes();
    let job = test.job_at(10);
    test.end(&job, "Complete", 10);
    assert_eq!(test.writes(), [format!("delete jobs default/{job}")]);
    assert_eq!(test.last_run(), Some(10));
    test.controller.restart().unwrap();
    test.run();
    test.assert_creates(&[]);
    test.pass(HOUR);
    test.assert_creates(&[70]);
}

#[test]
fn old_job_that_cannot_be_deleted_is_tried_again() {
    let mut test = Test::hourly(json!({ "successfulJobsHistoryLimit": 0 }));
    test.pass(HOUR);
    test.writes();
    test.server().fail_next(Fault::status(500).on(Verb::Delete));
    let job = test.job_at(10);
    test.end(&job, "Complete", 10);
    assert!(test.controller.controller().last_failure(KEY).is_none());
    test.pass(HOUR);
    let create = format!("create jobs default/{}", test.job_at(70));
    assert_eq!(
        test.writes(),
        [format!("delete jobs default/{job}"), create]
    );
}

#[test]
fn suspended_cron_job_starts_no_jobs() {
    let mut test = Test::hourly(json!({ "suspend": true, "successfulJobsHistoryLimit": 0 }));
    test.assert_condition("Available=False Suspended");
    test.pass(3 * HOUR);
    test.assert_creates(&[]);
    // The latest of the missed runs starts.
    test.spec(json!({ "suspend": false }));
    test.assert_creates(&[130]);
    test.spec(json!({ "suspend": true }));
    let job = test.job_at(130);
    test.end(&job, "Complete", 180);
    assert_eq!(
        test.writes(),
        [format!("delete jobs default/{job}")],
        "old Jobs are deleted"
    );
}

#[test]
fn invalid_schedule_waits_for_a_change() {
    let mut test = Test::new();
    test.create(json!({ "schedule": "61 * * * *" }));
    test.assert_condition("Degraded=True InvalidSchedule");
    let calls = test.controller.calls(KEY);
    test.pass(24 * HOUR);
    assert_eq!(test.controller.calls(KEY), calls);
    test.spec(json!({ "schedule": "0 0 30 2 *" }));
    test.assert_condition("Degraded=True InvalidSchedule");
    let valid = test.at_minute(10);
    test.spec(json!({ "schedule": valid, "startingDeadlineSeconds": 60 }));
    test.assert_condition("Degraded=False AsExpected");
    test.pass(HOUR);
    assert_eq!(test.writes().len(), 1);
}

#[test]
fn only_the_latest_missed_run_starts() {
    let mut test = Test::hourly(json!({}));
    test.pass_without_controller(5 * HOUR);
    test.assert_creates(&[250]);
    assert_eq!(test.last_run(), Some(250));
    test.pass(HOUR);
    test.assert_creates(&[310]);
}

#[test]
fn too_many_missed_runs_need_a_starting_deadline() {
    let mut test = Test::new();
    test.create(json!({ "schedule": "* * * * *" }));
    test.writes();
    test.pass_without_controller(200 * MINUTE);
    test.assert_condition("Degraded=True TooManyMissedRuns");
    test.pass(HOUR);
    test.assert_creates(&[]);
    test.spec(json!({ "startingDeadlineSeconds": 90 }));
    test.assert_creates(&[260]);
    test.assert_condition("Degraded=False AsExpected");
}

#[test]
fn run_after_its_starting_deadline_is_skipped() {
    let mut test = Test::hourly(json!({ "startingDeadlineSeconds": 60 }));
    test.pass_without_controller(11 * MINUTE);
    test.assert_creates(&[]);
    test.pass_without_controller(59 * MINUTE + 59 * SECOND);
    test.assert_creates(&[70]);
}

#[test]
fn starting_deadline_of_any_length_is_accepted() {
    let mut test = Test::hourly(json!({ "startingDeadlineSeconds": i64::MAX }));
    test.pass(HOUR);
    test.assert_creates(&[10]);
}

#[test]
fn forbid_waits_for_the_active_job() {
    let mut test = Test::hourly(json!({ "concurrencyPolicy": "Forbid" }));
    test.pass(2 * HOUR);
    test.assert_creates(&[10]);
    let job = test.job_at(10);
    test.end(&job, "Failed", 10);
    test.assert_creates(&[70]);
}

#[test]
fn forbidden_run_is_lost_after_its_starting_deadline() {
    let spec = json!({ "concurrencyPolicy": "Forbid", "startingDeadlineSeconds": 60 });
    let mut test = Test::hourly(spec);
    test.pass(2 * HOUR);
    let job = test.job_at(10);
    test.end(&job, "Complete", 10);
    test.assert_creates(&[10]);
    test.pass(HOUR);
    test.assert_creates(&[130]);
}

#[test]
fn replace_deletes_the_active_jobs() {
    let mut test = Test::hourly(json!({}));
    test.pass(2 * HOUR);
    test.writes();
    test.spec(json!({ "concurrencyPolicy": "Replace" }));
    test.pass(HOUR);
    let expected = [
        format!("delete jobs default/{}", test.job_at(10)),
        format!("delete jobs default/{}", test.job_at(70)),
        format!("create jobs default/{}", test.job_at(130)),
    ];
    assert_eq!(test.writes(), expected);
    assert_eq!(test.active(), [test.job_at(130)]);
}

#[test]
fn replace_creates_nothing_before_the_deletions() {
    let mut test = Test::hourly(json!({ "concurrencyPolicy": "Replace" }));
    test.pass(HOUR);
    test.writes();
    test.server()
        .fail_next(Fault::status(500).on(Verb::Delete).times(3));
    test.pass(HOUR);
    assert_eq!(test.server().pending_faults(), 0);
    let expected = [
        format!("delete jobs default/{}", test.job_at(10)),
        format!("create jobs default/{}", test.job_at(70)),
    ];
    assert_eq!(test.writes(), expected);
}

#[test]
fn failed_creation_is_retried_and_reported_once() {
    let mut test = Test::hourly(json!({}));
    test.controller.writes();
    let forbidden = Fault::status(403).on(Verb::Create).resource("jobs");
    test.server().fail_next(forbidden.always());
    let error = test.controller.advance(HOUR).unwrap_err().to_string();
    assert!(error.contains("not idle after 100 calls"), "{error}");
    test.assert_condition(&format!("Degraded=True {JOB_CREATION_FAILED}"));
    assert_eq!(
        test.controller.writes(),
        ["patch cronjobs/status default/test"]
    );

    test.server().clear_faults();
    test.run();
    assert_eq!(test.writes().len(), 1);
    test.assert_condition("Degraded=False AsExpected");
}

#[test]
fn lost_response_of_a_creation_causes_no_second_job() {
    let mut test = Test::hourly(json!({}));
    let lost = Fault::reset().after_bytes(0).on(Verb::Create);
    test.server().fail_next(lost);
    test.pass(HOUR);
    test.controller.restart().unwrap();
    test.run();
    assert_eq!(
        test.server().list(JOBS).unwrap()["items"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    assert_eq!(test.last_run(), Some(10));
}

#[test]
fn unchanged_cron_job_writes_nothing() {
    let mut test = Test::hourly(json!({}));
    test.pass(HOUR);
    test.controller.writes();
    test.controller.restart().unwrap();
    test.run();
    assert!(test.controller.writes().is_empty());
}

/// A Job of the CronJob with this annotation.
fn job_scheduled_at(test: &Test, time: &str) {
    let cron_job = test.server().get(CRON_JOB).unwrap();
    let owner = json!({
        "apiVersion": cron_job["apiVersion"], "kind": "CronJob", "name": "test",
        "uid": cron_job["metadata"]["uid"], "controller": true,
    });
    let metadata = json!({
        "name": "other", "ownerReferences": [owner], "annotations": { SCHEDULED_AT: time },
    });
    test.server()
        .create(JOBS, json!({ "metadata": metadata }))
        .unwrap();
}

#[test]
fn unreadable_time_of_a_job_is_ignored() {
    let mut test = Test::hourly(json!({}));
    job_scheduled_at(&test, "yesterday");
    test.pass(HOUR);
    test.assert_creates(&[10]);
    assert_eq!(test.active(), ["other".to_owned(), test.job_at(10)]);
}

/// The clock was ahead when the Job was created.
#[test]
fn run_in_the_future_does_not_stop_the_schedule() {
    let mut test = Test::hourly(json!({}));
    job_scheduled_at(&test, "2999-01-01T00:00:00Z");
    test.pass(2 * HOUR);
    test.assert_creates(&[10, 70]);
    assert_eq!(test.last_run(), Some(70));
}

/// The clock was ahead when the status was written. The run of the first call is lost, because that
/// call moves the time to the present.
#[test]
fn status_from_the_future_does_not_stop_the_schedule() {
    let mut test = Test::hourly(json!({}));
    let ahead = json!({"status": {"lastScheduleTime": "2999-01-01T00:00:00Z"}});
    test.server()
        .patch(&format!("{CRON_JOB}/status"), ahead)
        .unwrap();
    test.pass(2 * HOUR);
    test.assert_creates(&[70]);
    assert_eq!(test.last_run(), Some(70));
}

#[test]
fn jobs_of_others_are_ignored() {
    let mut test = Test::hourly(json!({ "concurrencyPolicy": "Forbid" }));
    let job = json!({ "metadata": { "name": "test-1", "annotations": { SCHEDULED_AT: "2100-01-01T00:00:00Z" } } });
    test.server().create(JOBS, job).unwrap();
    test.pass(HOUR);
    test.assert_creates(&[10]);
    assert_eq!(test.active(), [test.job_at(10)]);
}

#[test]
fn deleted_cron_job_takes_its_jobs_with_it() {
    let mut test = Test::hourly(json!({}));
    test.pass(2 * HOUR);
    test.server().delete(CRON_JOB).unwrap();
    test.run();
    assert!(
        test.server().list(JOBS).unwrap()["items"]
            .as_array()
            .unwrap()
            .is_empty()
    );
    test.writes();
    test.pass(2 * HOUR);
    test.assert_creates(&[]);
}

/// The properties for which the crate was chosen.
#[test]
fn schedules_have_the_syntax_of_a_crontab() {
    // 2026-01-01 is a Thursday.
    let next = |schedule: &str| {
        let mut options = cronexpr::ParseOptions::default();
        options.fallback_timezone_option = cronexpr::FallbackTimezoneOption::UTC;
        let crontab = cronexpr::parse_crontab_with(schedule, options).unwrap();
        crontab
            .find_next("2026-01-01T12:00:00Z")
            .unwrap()
            .timestamp()
            .to_string()
    };
    for (schedule, expected) in [
        ("0 0 * * 0", "2026-01-04T00:00:00Z"),
        ("0 0 * * 7", "2026-01-04T00:00:00Z"),
        ("0 0 * * mon", "2026-01-05T00:00:00Z"),
        ("0 0 13 * 5", "2026-01-02T00:00:00Z"),
        ("*/15 9-17 * * 1-5", "2026-01-01T12:15:00Z"),
        ("0 0 29 2 *", "2028-02-29T00:00:00Z"),
        ("0 12 * * *", "2026-01-02T12:00:00Z"),
    ] {
        assert_eq!(next(schedule), expected, "{schedule}");
    }
}
