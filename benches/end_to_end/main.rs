//! The cost of a whole informer, from its socket to its handlers. Each case runs in its own process
//! with the code of `examples/measure`, against a [server](common::replay) in another process. It
//! runs only on Linux, because it reads `/proc`.
//!
//! ```text
//! cargo bench --bench end_to_end                        # 20,000 Pods, 50,000 events; five minutes
//! cargo bench --bench end_to_end -- events custom dynamic  # only this part and these types
//! cargo bench --bench end_to_end -- --pods 5000 --events 10000 --runs 1
//! cargo bench --bench end_to_end -- counts --pods 2000 --events 5000
//! MEASURED_PROGRAM=target/old/end_to_end cargo bench --bench end_to_end -- counts # of another build
//! ```
//!
//! The parts are sync, events, relist, fan-out and idle. The types are k8s-openapi, custom and
//! dynamic. Each figure is the median of the runs. The part `counts` runs only if you name it. It
//! counts instructions and allocations under valgrind, so the load of the machine does not affect
//! it. *Bare* is a loop with the minimum work for the same bytes: [`common::bare`].

#[path = "../common/mod.rs"]
mod common;
mod measured;

/// The example without its command line and its table. Not everything is used here.
#[allow(dead_code)]
#[path = "../../examples/measure/src"]
mod measure {
    pub(crate) mod count;
    pub(crate) mod custom;
    pub(crate) mod latency;
    pub(crate) mod meter;
    pub(crate) mod report;
    pub(crate) mod run;
    pub(crate) mod types;
}

use common::replay::{Replay, serve_if_child};
use measure::report::{Latency, Report};
use measured::{Case, Who};

const PARTS: [&str; 5] = ["sync", "events", "relist", "fan-out", "idle"];
const TYPES: [&str; 3] = ["k8s-openapi", "custom", "dynamic"];

/// The number of events per second in the latency measurement.
const RATE: usize = 1000;

const KIB: f64 = 1024.0;
const MIB: f64 = KIB * KIB;

fn main() {
    if serve_if_child() || measured::run_if_child() {
        return;
    }
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
        .collect();
    let is_selected = |name: &str| arguments.iter().any(|argument| argument == name);
    let test = is_selected("--test");
    let number = |name: &str, large: usize, small: usize| {
        let given = arguments
            .iter()
            .skip_while(|argument| *argument != name)
            .nth(1);
        given.map_or(if test { small } else { large }, |text| {
            text.parse().expect("a number")
        })
    };
    let selected = |names: &[&'static str]| -> Vec<&'static str> {
        let some: Vec<_> = names
            .iter()
            .copied()
            .filter(|name| is_selected(name))
            .collect();
        if some.is_empty() {
            names.to_vec()
        } else {
            some
        }
    };
    let types = selected(&TYPES);
    let pods = number("--pods", 20_000, 200);
    let mut bench = Bench {
        replay: Replay::spawn(pods),
        pods,
        events: number("--events", 50_000, 500),
        paced: number("--paced", 5_000, 100),
        idle_seconds: if test { 0.2 } else { 10.0 },
        runs: number("--runs", 3, 1),
    };
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("{pods} Pods, {} runs per case; load {load}", bench.runs);
    if is_selected("counts") {
        return bench.counts(&types);
    }
    for part in selected(&PARTS) {
        match part {
            "sync" => bench.sync(&types),
            "events" => bench.events(&types),
            "relist" => bench.relist(&types),
            "fan-out" => bench.fan_out(),
            _ => bench.idle(),
        }
    }
}

struct Bench {
    replay: Replay,
    pods: usize,
    events: usize,
    /// The number of events in the latency measurement.
    paced: usize,
    idle_seconds: f64,
    runs: usize,
}

impl Bench {
    fn sync(&mut self, types: &[&str]) {
        println!(
            "\nThe first list, by a watch-list. Bare: a loop that decodes and keeps the same objects."
        );
        println!(
            "{:12} {:>7} {:>8} {:>7} {:>7} | {:>9} {:>6} | {:>9} {:>6}",
            "", "CPU s", "bare", "ratio", "wall s", "KiB a Pod", "bare", "MiB", "peak"
        );
        for r#type in types {
            let [ours, bare] = self.in_turn([Who::Informer, Who::Bare], r#type, 0);
            let kib =
                |reports: &[Report]| median(reports, |it| cache(it) / it.objects as f64 / KIB);
            let [cpu, bare_cpu] = [&ours, &bare].map(|all| median(all, |it| it.sync_cpu_seconds));
            println!(
                "{type:12} {cpu:7.3} {bare_cpu:8.3} {:7.2} {:7.2} | {:9.2} {:6.2} | {:9.1} {:6.3}",
                cpu / bare_cpu,
                median(&ours, |it| it.sync_seconds),
                kib(&ours),
                kib(&bare),
                median(&ours, |it| cache(it) / MIB),
                median(&ours, |it| (cache(it)
                    + (it.peak_bytes - it.resident_bytes) as f64)
                    / cache(it)),
            );
        }
    }

    fn events(&mut self, types: &[&str]) {
        println!(
            "\n{} events at full speed, {} events at {RATE} per second.",
            self.events, self.paced
        );
        println!(
            "{:12} {:>7} {:>7} {:>7} {:>7} {:>7} {:>8} {:>8} | {:>7} {:>7} {:>7} {:>7} {:>8}",
            "",
            "CPU us",
            "bare",
            "ratio",
            "keeping",
            "ratio",
            "per s",
            "wake-ups",
            "p50 us",
            "p90",
            "p99",
            "max",
            "wake-ups"
        );
        for r#type in types {
            let who = [Who::Informer, Who::Bare, Who::Keeping];
            let [ours, bare, keeping] = self.in_turn(who, r#type, self.events);
            let micros = |reports: &[Report]| {
                median(reports, |it| it.events_cpu_seconds * 1e6 / it.events as f64)
            };
            let case = Case {
                events: Some(self.paced),
                latency: true,
                ..Case::new(Who::Informer, r#type)
            };
            let paced = self.case(&case, |bench| bench.replay.send_events(bench.paced, RATE));
            let latency = |which: fn(&Latency) -> f64| {
                median(&paced, |it| {
                    which(it.latency.as_ref().expect("paced events have send times"))
                })
            };
            println!(
                "{type:12} {:7.2} {:7.2} {:7.2} {:7.2} {:7.2} {:8.0} {:8.3} | {:7.0} {:7.0} {:7.0} {:7.0} {:8.2}",
                micros(&ours),
                micros(&bare),
                micros(&ours) / micros(&bare),
                micros(&keeping),
                micros(&ours) / micros(&keeping),
                median(&ours, |it| it.events as f64 / it.events_seconds),
                median(&ours, |it| it.wakeups as f64 / it.events as f64),
                latency(|it| it.p50_us),
                latency(|it| it.p90_us),
                latency(|it| it.p99_us),
                latency(|it| it.max_us),
                median(&paced, |it| it.wakeups as f64 / it.events as f64),
            );
        }
    }

    /// Runs the informer and the bare loops in turn.
    fn in_turn<const N: usize>(
        &mut self,
        all: [Who; N],
        r#type: &str,
        events: usize,
    ) -> [Vec<Report>; N] {
        let mut reports = [const { Vec::new() }; N];
        for _ in 0..self.runs {
            for (reports, who) in reports.iter_mut().zip(all) {
                let case = Case {
                    events: Some(events),
                    ..Case::new(who, r#type)
                };
                reports.push(self.once(&case, |bench| bench.replay.send_events(events, 0)));
            }
        }
        reports
    }

    fn relist(&mut self, types: &[&str]) {
        println!("\nA relist in which one object in a hundred has changed.");
        println!(
            "{:12} {:>12} {:>12} {:>7} | {:>12}",
            "", "first CPU s", "relist CPU s", "share", "peak MiB +"
        );
        for r#type in types {
            // A relist leads to one notification for each Pod, even if the Pod has not changed.
            let case = Case {
                events: Some(self.pods),
                ..Case::new(Who::Informer, r#type)
            };
            let reports = self.case(&case, |bench| bench.replay.expire());
            println!(
                "{type:12} {:12.3} {:12.3} {:7.2} | {:12.1}",
                median(&reports, |it| it.sync_cpu_seconds),
                median(&reports, |it| it.events_cpu_seconds),
                median(&reports, |it| it.events_cpu_seconds / it.sync_cpu_seconds),
                median(&reports, |it| (it.peak_after_bytes - it.peak_bytes) as f64
                    / MIB),
            );
        }
    }

    fn fan_out(&mut self) {
        println!(
            "\n{} events of custom structs, delivered to several handlers.",
            self.events
        );
        println!(
            "{:12} {:>8} {:>17} {:>17}",
            "handlers", "threads", "CPU us / notif.", "wake-ups / notif."
        );
        for handlers in [1, 4, 16] {
            let case = Case {
                events: Some(self.events),
                handlers,
                ..Case::new(Who::Informer, "custom")
            };
            let reports = self.case(&case, |bench| bench.replay.send_events(bench.events, 0));
            let notifications = (self.events * handlers) as f64;
            println!(
                "{handlers:<12} {:8} {:17.2} {:17.3}",
                reports[0].threads,
                median(&reports, |it| it.events_cpu_seconds * 1e6 / notifications),
                median(&reports, |it| it.wakeups as f64 / notifications),
            );
        }
    }

    /// Counts instructions and allocations, per Pod of the first list and per event.
    fn counts(&mut self, types: &[&str]) {
        println!("\nUnder valgrind. The cost of events is the difference to a run without events.");
        println!(
            "{:12} {:>15} {:>15} | {:>15} {:>15}",
            "", "instr. / Pod", "instr. / event", "allocs / Pod", "allocs / event"
        );
        for r#type in types {
            let [instructions, allocations] = [
                (
                    ["--tool=callgrind", "--callgrind-out-file=/dev/null"],
                    "Collected :",
                ),
                (["--tool=memcheck", "--leak-check=no"], "total heap usage:"),
            ]
            .map(|(tool, before)| {
                let [none, some] = [0, self.events].map(|events| {
                    let case = Case {
                        events: Some(events),
                        ..Case::new(Who::Informer, r#type)
                    };
                    self.replay.reset();
                    let url = self.replay.url.clone();
                    let then = || self.replay.send_events(events, 0);
                    number_after(before, &case.measure_under(&tool, &url, then).1)
                });
                [none / self.pods as f64, (some - none) / self.events as f64]
            });
            println!(
                "{type:12} {:15.0} {:15.0} | {:15.1} {:15.1}",
                instructions[0], instructions[1], allocations[0], allocations[1]
            );
        }
    }

    fn idle(&mut self) {
        println!("\nIdle for {} s.", self.idle_seconds);
        let case = Case {
            seconds: Some(self.idle_seconds),
            ..Case::new(Who::Informer, "custom")
        };
        let reports = self.case(&case, |_| {});
        let wakeups = median(&reports, |it| it.wakeups as f64 / it.waited_seconds);
        println!("wake-ups per second, including one of the measuring thread: {wakeups:.2}");
        // With one object, nearly all memory is overhead.
        let all = std::mem::replace(&mut self.replay, Replay::spawn(1));
        let reports = self.case(&case, |_| {});
        println!(
            "memory of an informer with one object: {:.0} KiB",
            median(&reports, |it| cache(it) / KIB)
        );
        self.replay = all;
    }

    fn case(&mut self, case: &Case<'_>, mut then: impl FnMut(&mut Self)) -> Vec<Report> {
        (0..self.runs).map(|_| self.once(case, &mut then)).collect()
    }

    /// Runs a case once. `then` is called after the sync.
    fn once(&mut self, case: &Case<'_>, then: impl FnOnce(&mut Self)) -> Report {
        self.replay.reset();
        let url = self.replay.url.clone();
        let report = case.measure(&url, || then(self));
        assert_eq!(report.unreadable, 0);
        report
    }
}

/// Returns the number that follows `before` in a report of valgrind.
fn number_after(before: &str, report: &str) -> f64 {
    let number = report.split(before).nth(1).and_then(|rest| {
        let digits = rest.split_whitespace().next()?.replace(',', "");
        digits.parse().ok()
    });
    number.unwrap_or_else(|| panic!("the output of valgrind has no {before:?}: {report}"))
}

/// Returns the memory growth since the start.
fn cache(report: &Report) -> f64 {
    report
        .resident_bytes
        .saturating_sub(report.resident_before_bytes) as f64
}

fn median(reports: &[Report], figure: impl Fn(&Report) -> f64) -> f64 {
    let mut figures: Vec<f64> = reports.iter().map(figure).collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
