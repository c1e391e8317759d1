//! The times of the runs.

use cronexpr::{FallbackTimezoneOption, ParseOptions, parse_crontab_with};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::api::CronJob;

/// The number of missed runs above which the clock is probably wrong.
const MOST_MISSED: usize = 100;

/// When a CronJob starts Jobs.
pub(crate) enum Plan {
    Suspended,
    /// There is no next run until the CronJob changes.
    Stuck {
        reason: &'static str,
        message: String,
    },
    Scheduled {
        due: Option<Timestamp>,
        next: Timestamp,
    },
}

/// Finds the latest run that is due, and the next one. Earlier runs are lost. A run whose starting
/// deadline has passed is not due.
pub(crate) fn plan(cron_job: &CronJob, last_run: Option<&Time>, now: Timestamp) -> Plan {
    let spec = &cron_job.spec;
    let invalid = |error: cronexpr::Error| Plan::Stuck {
        reason: "InvalidSchedule",
        message: format!("the schedule {:?} is invalid: {error}", spec.schedule),
    };
    let mut options = ParseOptions::default();
    options.fallback_timezone_option = FallbackTimezoneOption::UTC;
    let crontab = match parse_crontab_with(&spec.schedule, options) {
        Ok(crontab) => crontab,
        Err(error) => return invalid(error),
    };
    let created = cron_job.metadata.creation_timestamp.as_deref();
    let created = created.and_then(|created| created.parse().ok());
    let mut after = last_run.map_or(created.unwrap_or(now), |last_run| last_run.0);
    if let Some(seconds) = spec.starting_deadline_seconds {
        let too_late = now.checked_sub(SignedDuration::from_secs(seconds));
        after = after.max(too_late.unwrap_or(Timestamp::MIN));
    }
    let (mut due, mut missed, mut time) = (None, 0, after.min(now));
    loop {
        time = match crontab.find_next(time) {
            Ok(next) => next.timestamp(),
            Err(error) => return invalid(error),
        };
        if time > now {
            return Plan::Scheduled { due, next: time };
        }
        (due, missed) = (Some(time), missed + 1);
        if missed > MOST_MISSED {
            return Plan::Stuck {
                reason: "TooManyMissedRuns",
                message: format!(
                    "more than {MOST_MISSED} runs were missed: set or decrease \
                     spec.startingDeadlineSeconds, or check the clocks"
                ),
            };
        }
    }
}
