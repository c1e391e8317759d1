use std::sync::Arc;
use std::time::Duration;

use k8s_informer::time::RateLimit;
use k8s_informer::workqueue::{
    BucketRateLimiter, ItemExponentialFailureRateLimiter, ItemFastSlowRateLimiter,
    MaxOfRateLimiter, RateLimiter, WithMaxWaitRateLimiter,
    default_controller_rate_limiter_with_clock,
};
use k8s_informer_testing::FakeClock;
use serde_json::{Value, json};

use super::Replay;
use super::object::text;

pub(crate) fn build(config: &Value) -> Box<dyn Replay> {
    let clock = FakeClock::new();
    Box::new(Subject {
        limiter: limiter(&config["limiter"], &clock),
        clock,
    })
}

pub(crate) fn limiter(config: &Value, clock: &FakeClock) -> Box<dyn RateLimiter<String>> {
    let time = |field| nanoseconds(&config[field]);
    let clock_of_it = || Arc::new(clock.clone());
    match text(&config["kind"]) {
        "item_exponential" => Box::new(ItemExponentialFailureRateLimiter::new(
            time("base_ns")..=time("max_ns"),
        )),
        "item_fast_slow" => {
            // The count in this crate cannot be negative. Zero has the same effect as a negative
            // count in client-go.
            let max_fast = config["max_fast"].as_i64().unwrap().try_into().unwrap_or(0);
            Box::new(ItemFastSlowRateLimiter::new(time("slow_ns")).fast(time("fast_ns"), max_fast))
        }
        "bucket" => {
            let burst = config["burst"].as_i64().unwrap().try_into().unwrap_or(0);
            let bucket = BucketRateLimiter::new(
                RateLimit::per_second(config["qps"].as_f64().unwrap()).burst(burst),
            );
            Box::new(bucket.with_clock(clock_of_it()))
        }
        "max_of" => {
            let limiters = config["limiters"].as_array().unwrap();
            Box::new(MaxOfRateLimiter::new(
                limiters
                    .iter()
                    .map(|config| limiter(config, clock))
                    .collect(),
            ))
        }
        "with_max_wait" => Box::new(WithMaxWaitRateLimiter::new(
            limiter(&config["limiter"], clock),
            time("max_ns"),
        )),
        "default_controller" => Box::new(default_controller_rate_limiter_with_clock(clock_of_it())),
        "default_item" => Box::new(ItemExponentialFailureRateLimiter::new(
            Duration::from_millis(1)..=Duration::from_secs(1000),
        )),
        other => panic!("limiter {other}"),
    }
}

/// Converts a time. `Duration` cannot be negative, so a negative time becomes zero, which has the
/// same effect.
fn nanoseconds(value: &Value) -> Duration {
    Duration::from_nanos(value.as_i64().unwrap().try_into().unwrap_or(0))
}

struct Subject {
    limiter: Box<dyn RateLimiter<String>>,
    clock: FakeClock,
}

impl Replay for Subject {
    fn step(&mut self, op: &str, step: &Value) -> Value {
        let item = || text(&step["item"]).to_owned();
        match op {
            "when" => json!({"ns": u64::try_from(self.limiter.when(&item()).as_nanos()).unwrap()}),
            "forget" => {
                self.limiter.forget(&item());
                json!({})
            }
            "num_requeues" => json!({"value": self.limiter.requeues(&item())}),
            "advance_ns" => {
                self.clock.advance(nanoseconds(&step["ns"]));
                json!({})
            }
            other => panic!("op {other}"),
        }
    }
}
