//! Runs programs in turn, each in its own process, against one server. `benches/peers` includes this
//! file, to measure kube-rs in the same way.

use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::common::pods::VERSIONS;
use crate::common::replay::{self, Replay};
use crate::meter::Reading;

/// A measured program.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    /// The program that does the same without a controller.
    pub(crate) base: Option<&'static str>,
    pub(crate) parts: &'static [Part],
    /// Starts the program and blocks. The process ends on its own after the measurement.
    pub(crate) run: Run,
}

pub(crate) type Run = fn(Arc<Task>) -> Result<(), Box<dyn Error>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) enum Part {
    /// CPU time of calls that do nothing.
    Cpu,
    /// Memory of keys that wait.
    Waiting,
    /// Context switches without events.
    Idle,
    /// Instructions of calls that do nothing, under valgrind.
    Counts,
}

/// The task of a measured process, and the progress of its program.
pub(crate) struct Task {
    pub(crate) url: String,
    pub(crate) part: Part,
    pub(crate) objects: usize,
    /// The version of the object in the last event.
    pub(crate) last_version: String,
    calls: AtomicU64,
    has_last_version: AtomicBool,
    goal: OnceLock<Box<dyn Fn() -> bool + Send + Sync>>,
}

impl Task {
    /// Reports a call for an object in this version.
    pub(crate) fn called(&self, version: &str) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if version == self.last_version {
            self.reached();
        }
    }

    /// Reports the last version.
    pub(crate) fn reached(&self) {
        self.has_last_version.store(true, Ordering::Relaxed);
    }

    /// Reports the initial list of a program without calls.
    pub(crate) fn listed(&self) {
        self.calls.fetch_add(self.objects as u64, Ordering::Relaxed);
    }

    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Sets the condition that ends the first phase. By default it ends when there were as many
    /// calls as objects.
    pub(crate) fn set_goal(&self, goal: impl Fn() -> bool + Send + Sync + 'static) {
        let is_set = self.goal.set(Box::new(goal)).is_ok();
        assert!(is_set, "a program has one goal");
    }

    fn is_goal_reached(&self) -> bool {
        match self.goal.get() {
            Some(goal) => goal(),
            None => self.calls() >= self.objects as u64,
        }
    }

    /// Blocks until the condition holds and there are no more calls.
    fn wait_until(&self, condition: impl Fn(&Self) -> bool) {
        loop {
            let calls = self.calls();
            thread::sleep(POLL);
            if condition(self) && self.calls() == calls {
                return;
            }
        }
    }
}

/// The polls of the measuring thread cost less than a thousandth of the figures.
const POLL: Duration = Duration::from_millis(50);

/// The figures of one process. In the first phase, it lists all objects and is called for each. The
/// others are of the second phase.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
struct Report {
    events: usize,
    calls: u64,
    /// The CPU time of the first phase.
    first_cpu_seconds: f64,
    cpu_seconds: f64,
    /// Voluntary context switches of all threads.
    wakeups: u64,
    /// Involuntary context switches of all threads.
    preemptions: u64,
    threads: usize,
    /// Anonymous resident memory after the first phase.
    resident: u64,
    /// The sizes of all live allocations after the first phase, if the allocator counts them.
    heap: Option<u64>,
    instructions: f64,
}

/// The first argument of a measured process. Its other arguments are the program, the part, the URL
/// of the server, and the numbers of objects, events and idle seconds.
const ARGUMENT: &str = "--measured";

/// The line that a measured process prints before the second phase.
const READY: &str = "ready";

/// The events per second of the paced run, and its duration.
const RATE: usize = 1000;
const PACED_SECONDS: usize = 5;

struct Settings {
    objects: usize,
    events: usize,
    paced: usize,
    keys: usize,
    idle_seconds: f64,
    counted: usize,
    runs: usize,
}

/// The `main` of a program that compares `programs`. `heap` returns the size of all live
/// allocations.
pub(crate) fn main(programs: &[Program], heap: Option<fn() -> u64>) {
    if replay::serve_if_child() {
        return;
    }
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| word != "--bench")
        .collect();
    if words.first().is_some_and(|word| word == ARGUMENT) {
        return measured(programs, heap, &words[1..]);
    }
    let is_given = |name: &str| words.iter().any(|word| word == name);
    let test = is_given("--test");
    let number = |name: &str, large: f64, small: f64| -> f64 {
        let given = words.iter().skip_while(|word| *word != name).nth(1);
        given.map_or(if test { small } else { large }, |text| {
            text.parse().expect("a number")
        })
    };
    let settings = Settings {
        objects: number("--objects", 10_000.0, 200.0) as usize,
        events: number("--events", 100_000.0, 1_000.0) as usize,
        paced: number("--paced", (RATE * PACED_SECONDS) as f64, 100.0) as usize,
        keys: number("--keys", 100_000.0, 200.0) as usize,
        idle_seconds: number("--idle", 60.0, 0.2),
        counted: 5_000,
        runs: number("--runs", 5.0, 1.0).max(1.0) as usize,
    };
    let names = ["cpu", "waiting", "idle", "counts"];
    // The part `counts` runs only if it is named.
    let is_selected = |name: &str| match names.iter().any(|name| is_given(name)) {
        true => is_given(name),
        false => name != "counts",
    };
    describe_machine(&settings);
    if is_selected("cpu") {
        cpu(programs, &settings);
    }
    if is_selected("waiting") {
        waiting(programs, &settings);
    }
    if is_selected("idle") {
        idle(programs, &settings);
    }
    if is_selected("counts") {
        counts(programs, &settings);
    }
}

fn describe_machine(settings: &Settings) {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let model = cpu.lines().find(|line| line.starts_with("model name"));
    let model = model.and_then(|line| line.split_once(": "));
    println!(
        "{} runs; {} CPUs ({}), Linux {}, load {}",
        settings.runs,
        thread::available_parallelism().map_or(0, usize::from),
        model.map_or("?", |(_, model)| model),
        read("/proc/sys/kernel/osrelease").trim(),
        read("/proc/loadavg").trim(),
    );
}

/// The reports of the programs, one for each run.
type Reports<'a> = Vec<(&'a Program, Vec<Report>)>;

fn cpu(programs: &[Program], settings: &Settings) {
    let mut server = Replay::spawn_config_maps(settings.objects);
    for (events, rate) in [(settings.events, 0), (settings.paced, RATE)] {
        let reports = in_turn(programs, Part::Cpu, settings.runs, |program| {
            server.reset();
            let load = Load {
                objects: settings.objects,
                events,
                idle_seconds: 0.0,
            };
            let mut child = Measured::start(&[], program, Part::Cpu, &server.url, load);
            server.send_updates(events, rate);
            child.report()
        });
        let pace = match rate {
            0 => "as fast as they are read".to_owned(),
            rate => format!("{rate} a second"),
        };
        println!(
            "\n{} ConfigMaps in the cache, {events} updates, {pace}\n\n\
             | | first list and calls, CPU s | calls | CPU µs an event | beyond the informer | CPU µs a call | \
             wake-ups an event |\n\
             |---|--:|--:|--:|--:|--:|--:|",
            settings.objects
        );
        let an_event = |report: &Report| report.cpu_seconds * 1e6 / report.events as f64;
        for (program, own) in &reports {
            let has_calls = own.iter().all(|report| report.calls > 0);
            println!(
                "| {} | {} | {} | {} | {} | {} | {} |",
                program.name,
                range(own.iter().map(|report| report.first_cpu_seconds), 2),
                if_true(has_calls, || range(
                    own.iter().map(|report| report.calls as f64),
                    0
                )),
                range(own.iter().map(an_event), 1),
                beyond_base(&reports, program, own, an_event, 1),
                if_true(has_calls, || range(
                    own.iter()
                        .map(|report| report.cpu_seconds * 1e6 / report.calls as f64),
                    1
                )),
                range(
                    own.iter()
                        .map(|report| report.wakeups as f64 / report.events as f64),
                    2
                ),
            );
        }
    }
}

fn waiting(programs: &[Program], settings: &Settings) {
    let mut server = Replay::spawn_config_maps(settings.keys);
    let reports = in_turn(programs, Part::Waiting, settings.runs, |program| {
        server.reset();
        let load = Load {
            objects: settings.keys,
            events: 0,
            idle_seconds: 0.0,
        };
        Measured::start(&[], program, Part::Waiting, &server.url, load).report()
    });
    let keys = settings.keys as f64;
    println!(
        "\n{keys} keys of 34 bytes; bytes a key beyond the informer and its cache\n\n\
         | | allocated | resident |\n|---|--:|--:|"
    );
    let resident = |report: &Report| report.resident as f64 / keys;
    let heap = |report: &Report| report.heap.unwrap_or(0) as f64 / keys;
    let is_counted = |own: &[Report]| own.iter().all(|report| report.heap.is_some());
    for (program, own) in &reports {
        if program.base.is_none() {
            println!(
                "| {}: the cache | {} | {} |",
                program.name,
                if_true(is_counted(own), || range(own.iter().map(heap), 0)),
                range(own.iter().map(resident), 0)
            );
            continue;
        }
        println!(
            "| {} | {} | {} |",
            program.name,
            if_true(is_counted(own), || beyond_base(
                &reports, program, own, heap, 0
            )),
            beyond_base(&reports, program, own, resident, 0),
        );
    }
}

/// Runs all programs at the same time, because they use no CPU.
fn idle(programs: &[Program], settings: &Settings) {
    // A tenth of the objects, because they do nothing.
    let objects = settings.objects.div_ceil(10);
    let server = Replay::spawn_config_maps(objects);
    let load = Load {
        objects,
        events: 0,
        idle_seconds: settings.idle_seconds,
    };
    let of_part = programs
        .iter()
        .filter(|program| program.parts.contains(&Part::Idle));
    let started: Vec<(&Program, Vec<Measured>)> = of_part
        .map(|program| {
            let run = |_| Measured::start(&[], program, Part::Idle, &server.url, load);
            (program, (0..settings.runs).map(run).collect())
        })
        .collect();
    println!(
        "\n{objects} ConfigMaps in the cache, idle for {} s; the voluntary switches include one of the measuring thread\n\n\
         | | threads | voluntary | involuntary | CPU ms |\n|---|--:|--:|--:|--:|",
        settings.idle_seconds
    );
    for (program, children) in started {
        let own: Vec<Report> = children
            .into_iter()
            .map(|mut child| child.report())
            .collect();
        println!(
            "| {} | {} | {} | {} | {} |",
            program.name,
            range(own.iter().map(|report| report.threads as f64), 0),
            range(own.iter().map(|report| report.wakeups as f64), 0),
            range(own.iter().map(|report| report.preemptions as f64), 0),
            range(own.iter().map(|report| report.cpu_seconds * 1e3), 2),
        );
    }
}

/// Counts instructions under valgrind. The first phase and the start are subtracted.
fn counts(programs: &[Program], settings: &Settings) {
    let objects = settings.counted;
    let mut server = Replay::spawn_config_maps(objects);
    let tool = [
        "valgrind",
        "--tool=callgrind",
        "--callgrind-out-file=/dev/null",
    ];
    let reports = in_turn(programs, Part::Counts, 1, |program| {
        let [none, some] = [0, settings.counted].map(|events| {
            server.reset();
            let load = Load {
                objects,
                events,
                idle_seconds: 0.0,
            };
            let mut child = Measured::start(&tool, program, Part::Counts, &server.url, load);
            server.send_updates(events, 0);
            child.report()
        });
        Report {
            instructions: some.instructions - none.instructions,
            ..some
        }
    });
    println!(
        "\n{objects} ConfigMaps in the cache, {} updates, under valgrind\n\n\
         | | calls | instructions an event | beyond the informer |\n|---|--:|--:|--:|",
        settings.counted
    );
    let an_event = |report: &Report| report.instructions / report.events as f64;
    for (program, own) in &reports {
        println!(
            "| {} | {} | {} | {} |",
            program.name,
            range(own.iter().map(|report| report.calls as f64), 0),
            range(own.iter().map(an_event), 0),
            beyond_base(&reports, program, own, an_event, 0),
        );
    }
}

/// Runs the programs of a part in turn, so that changes of the machine affect all of them.
fn in_turn<'a>(
    programs: &'a [Program],
    part: Part,
    runs: usize,
    mut run: impl FnMut(&Program) -> Report,
) -> Reports<'a> {
    let of_part = programs
        .iter()
        .filter(|program| program.parts.contains(&part));
    let mut reports: Reports<'a> = of_part.map(|program| (program, Vec::new())).collect();
    for _ in 0..runs {
        for (program, own) in &mut reports {
            own.push(run(program));
        }
    }
    reports
}

/// Returns the differences to the base of a program, run by run.
fn beyond_base(
    all: &Reports<'_>,
    program: &Program,
    own: &[Report],
    figure: impl Fn(&Report) -> f64,
    decimals: usize,
) -> String {
    let base = all
        .iter()
        .find(|(other, _)| Some(other.name) == program.base);
    let differences = |(_, base): &(&Program, Vec<Report>)| {
        let pairs = own.iter().zip(base);
        range(
            pairs.map(|(own, base)| figure(own) - figure(base)),
            decimals,
        )
    };
    base.map(differences).unwrap_or_default()
}

/// Returns the median and the range of figures.
fn range(figures: impl Iterator<Item = f64>, decimals: usize) -> String {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    let text = |figure: f64| format!("{figure:.decimals$}");
    let [first, median, last] = [0, figures.len() / 2, figures.len() - 1].map(|at| figures[at]);
    match text(first) == text(last) {
        true => text(median),
        false => format!("{} ({} to {})", text(median), text(first), text(last)),
    }
}

fn if_true(condition: bool, text: impl FnOnce() -> String) -> String {
    match condition {
        true => text(),
        false => String::new(),
    }
}

#[derive(Clone, Copy)]
struct Load {
    objects: usize,
    events: usize,
    idle_seconds: f64,
}

/// A measured process in its second phase.
struct Measured {
    name: &'static str,
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Measured {
    /// Starts a program, and waits until its first phase has ended.
    fn start(wrapper: &[&str], program: &Program, part: Part, url: &str, load: Load) -> Self {
        eprintln!("{}", program.name);
        let this = std::env::current_exe().expect("Linux");
        let this = this.to_str().expect("the path is UTF-8");
        let words = [wrapper, &[this, ARGUMENT, program.name]].concat();
        let mut child = Command::new(words[0])
            .args(&words[1..])
            .arg(serde_json::to_string(&part).expect("it can be serialized"))
            .arg(url)
            .args([load.objects, load.events].map(|number| number.to_string()))
            .arg(load.idle_seconds.to_string())
            .stdout(Stdio::piped())
            .stderr(match wrapper {
                [] => Stdio::inherit(),
                _ => Stdio::piped(),
            })
            .spawn()
            .unwrap_or_else(|error| panic!("can't run {}: {error}", words[0]));
        let lines = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
        let mut this = Self {
            name: program.name,
            child,
            lines,
        };
        assert_eq!(this.line(), READY);
        this
    }

    fn report(&mut self) -> Report {
        let mut report: Report = serde_json::from_str(&self.line()).expect("a report");
        if let Some(mut stderr) = self.child.stderr.take() {
            let mut text = String::new();
            stderr.read_to_string(&mut text).expect("UTF-8");
            let counted = text.split("Collected :").nth(1);
            let counted = counted.and_then(|rest| rest.split_whitespace().next());
            report.instructions = counted
                .and_then(|number| number.parse().ok())
                .unwrap_or_else(|| panic!("valgrind counted nothing: {text}"));
        }
        self.child.wait().expect("the process ends");
        report
    }

    fn line(&mut self) -> String {
        let line = self.lines.next().and_then(Result::ok);
        line.unwrap_or_else(|| panic!("the process of {:?} failed", self.name))
    }
}

/// Runs a measured process.
fn measured(programs: &[Program], heap: Option<fn() -> u64>, words: &[String]) {
    let [name, part, url, objects, events, idle_seconds] = words else {
        panic!("expected 6 arguments: {words:?}")
    };
    let program = programs.iter().find(|program| program.name == name);
    let program = program.expect("the program exists");
    let events: usize = events.parse().expect("a number");
    let first: usize = VERSIONS[0].parse().expect("a number");
    let task = Arc::new(Task {
        url: url.clone(),
        part: serde_json::from_str(part).expect("a part"),
        objects: objects.parse().expect("a number"),
        last_version: (first + events).to_string(),
        calls: AtomicU64::new(0),
        has_last_version: AtomicBool::new(false),
        goal: OnceLock::new(),
    });
    let idle = Duration::from_secs_f64(idle_seconds.parse().expect("a number"));
    let measuring = Arc::clone(&task);
    thread::spawn(move || {
        let report = measure(&measuring, events, idle, heap);
        println!("{}", serde_json::to_string(&report).expect("a report"));
        std::process::exit(0);
    });
    (program.run)(task).expect("the program runs");
}

fn measure(task: &Task, events: usize, idle: Duration, heap: Option<fn() -> u64>) -> Report {
    task.wait_until(Task::is_goal_reached);
    if matches!(task.part, Part::Waiting | Part::Idle) {
        // What follows the last call or the sync has ended.
        settle();
    }
    let heap = heap.map(|heap| heap());
    let (calls, preempted, begin) = (task.calls(), preemptions(), Reading::now());
    println!("{READY}");
    match task.part {
        Part::Idle => thread::sleep(idle),
        _ if events > 0 => {
            task.wait_until(|task| task.has_last_version.load(Ordering::Relaxed));
        }
        _ => {}
    }
    let end = Reading::now();
    Report {
        events,
        calls: task.calls() - calls,
        first_cpu_seconds: begin.cpu.as_secs_f64(),
        cpu_seconds: end.cpu.saturating_sub(begin.cpu).as_secs_f64(),
        wakeups: end.wakeups.saturating_sub(begin.wakeups),
        preemptions: preemptions().saturating_sub(preempted),
        threads: end.threads,
        resident: begin.resident,
        heap,
        instructions: 0.0,
    }
}

/// Blocks until all other threads have been waiting for a while. A thread that waits for a processor
/// is not waiting in this sense.
fn settle() {
    let mut quiet = 0;
    while quiet < 10 {
        thread::sleep(POLL);
        let threads = fs::read_dir("/proc/self/task").expect("Linux").flatten();
        let busy = threads.filter(|thread| {
            let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            // The state follows the name.
            stat.rsplit(") ")
                .next()
                .is_some_and(|rest| !rest.starts_with('S'))
        });
        // This thread runs.
        quiet = if busy.count() <= 1 { quiet + 1 } else { 0 };
    }
}

/// Returns the involuntary context switches of all threads.
fn preemptions() -> u64 {
    let threads = fs::read_dir("/proc/self/task").expect("Linux").flatten();
    let of_thread = |thread: fs::DirEntry| -> u64 {
        let status = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"));
        line.and_then(|number| number.trim().parse().ok())
            .unwrap_or(0)
    };
    threads.map(of_thread).sum()
}
