//! Medians of the runs, and how they stand to the first case's.

use serde::Serialize;

use crate::measure::report::{Latency, Report};

/// Of one case. What it does not have is `None`.
#[derive(Serialize)]
pub(crate) struct Figures {
    case: &'static str,
    objects: usize,
    sync_seconds: Option<f64>,
    /// From the start of the process on.
    sync_cpu_seconds: Option<f64>,
    kilobytes_an_object: Option<f64>,
    /// Resident memory once it had synced, and the most until then.
    resident_megabytes: Option<f64>,
    peak_megabytes: Option<f64>,
    peak_to_steady: Option<f64>,
    cpu_us_an_event: Option<f64>,
    wakeups_an_event: Option<f64>,
    resident_after_megabytes: Option<f64>,
    /// At a thousand events a second.
    p50_us: Option<f64>,
    p90_us: Option<f64>,
    p99_us: Option<f64>,
    max_us: Option<f64>,
    paced_cpu_us_an_event: Option<f64>,
    paced_wakeups_an_event: Option<f64>,
    threads: Option<f64>,
}

const MEGABYTE: f64 = 1e6;

impl Figures {
    /// Of each run there is one report of events as fast as they are read, and of informers one of paced ones.
    pub(crate) fn new(case: &'static str, bare: bool, runs: &[(Report, Option<Report>)]) -> Self {
        let saturated =
            |figure: &dyn Fn(&Report) -> f64| median(runs.iter().map(|run| figure(&run.0)));
        let paced = |figure: &dyn Fn(&Report) -> f64| {
            median(runs.iter().filter_map(|run| run.1.as_ref()).map(figure))
        };
        // Both have synced the same way. A loop around a socket caches nothing.
        let sync = |figure: &dyn Fn(&Report) -> f64| {
            let both = runs
                .iter()
                .flat_map(|run| [Some(&run.0), run.1.as_ref()])
                .flatten();
            median(both.filter(|_| !bare).map(figure))
        };
        let latency = |figure: fn(&Latency) -> f64| {
            median(
                runs.iter()
                    .filter_map(|run| run.1.as_ref()?.latency.as_ref().map(figure)),
            )
        };
        let grown = |report: &Report| {
            report
                .resident_bytes
                .saturating_sub(report.resident_before_bytes) as f64
        };
        let each = |total: f64, events: u64| {
            if events == 0 {
                0.0
            } else {
                total / events as f64
            }
        };
        Self {
            case,
            objects: runs[0].0.objects,
            sync_seconds: sync(&|report| report.sync_seconds),
            sync_cpu_seconds: sync(&|report| report.sync_cpu_seconds),
            kilobytes_an_object: sync(&|report| each(grown(report) / 1e3, report.objects as u64)),
            resident_megabytes: sync(&|report| report.resident_bytes as f64 / MEGABYTE),
            peak_megabytes: sync(&|report| report.peak_bytes as f64 / MEGABYTE),
            peak_to_steady: sync(&|report| each(report.peak_bytes as f64, report.resident_bytes)),
            cpu_us_an_event: saturated(&|report| {
                each(report.events_cpu_seconds * 1e6, report.events)
            }),
            wakeups_an_event: saturated(&|report| each(report.wakeups as f64, report.events)),
            resident_after_megabytes: saturated(&|report| {
                report.resident_after_bytes as f64 / MEGABYTE
            }),
            p50_us: latency(|latency| latency.p50_us),
            p90_us: latency(|latency| latency.p90_us),
            p99_us: latency(|latency| latency.p99_us),
            max_us: latency(|latency| latency.max_us),
            paced_cpu_us_an_event: paced(&|report| {
                each(report.events_cpu_seconds * 1e6, report.events)
            }),
            paced_wakeups_an_event: paced(&|report| each(report.wakeups as f64, report.events)),
            threads: sync(&|report| report.threads as f64),
        }
    }
}

fn median(figures: impl Iterator<Item = f64>) -> Option<f64> {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied()
}

/// Two tables as of Markdown, figures and ratios, then one line of JSON for each case.
pub(crate) fn print(all: &[Figures]) {
    println!(
        "\n| | sync s | sync CPU s | kB a Pod | peak / steady | us an event | wake-ups | after, MB | \
         p50 / p90 / p99 / max us | us paced | wake-ups | threads |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    );
    for figures in all {
        let latency = [
            figures.p50_us,
            figures.p90_us,
            figures.p99_us,
            figures.max_us,
        ];
        println!(
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            figures.case,
            show(figures.sync_seconds, 2),
            show(figures.sync_cpu_seconds, 2),
            show(figures.kilobytes_an_object, 1),
            show(figures.peak_to_steady, 2),
            show(figures.cpu_us_an_event, 1),
            show(figures.wakeups_an_event, 2),
            show(figures.resident_after_megabytes, 0),
            latency.map(|figure| show(figure, 0)).join(" / "),
            show(figures.paced_cpu_us_an_event, 1),
            show(figures.paced_wakeups_an_event, 2),
            show(figures.threads, 0),
        );
    }
    let first = &all[0];
    println!(
        "\n| as a share of {} | events CPU | sync CPU | memory a Pod | paced CPU | p50 | p99 |\n\
         |---|--:|--:|--:|--:|--:|--:|",
        first.case
    );
    for figures in all {
        let ratios: [fn(&Figures) -> Option<f64>; 6] = [
            |figures| figures.cpu_us_an_event,
            |figures| figures.sync_cpu_seconds,
            |figures| figures.kilobytes_an_object,
            |figures| figures.paced_cpu_us_an_event,
            |figures| figures.p50_us,
            |figures| figures.p99_us,
        ];
        let ratio = |figure: fn(&Figures) -> Option<f64>| Some(figure(figures)? / figure(first)?);
        println!(
            "| {} | {} |",
            figures.case,
            ratios.map(|figure| show(ratio(figure), 3)).join(" | ")
        );
    }
    println!();
    for figures in all {
        println!("{}", serde_json::to_string(figures).expect("numbers"));
    }
}

fn show(figure: Option<f64>, decimals: usize) -> String {
    figure
        .map(|figure| format!("{figure:.decimals$}"))
        .unwrap_or_default()
}
