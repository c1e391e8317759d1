//! Runs candidates against an API server inside this program. Each candidate is a process, so one
//! of them can be killed.

use std::env;
use std::error::Error;
use std::io::{self, BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use k8s_informer::{Client, Config, Stopper};
use k8s_informer_controller::leader_election::LeaseLock;
use k8s_informer_testing::ApiServer;

use crate::LEASE;
use crate::candidate::{self, LEADS, Speed};

/// The timeout of each step. It is much longer than any step takes.
const PATIENCE: Duration = Duration::from_secs(30);

const NAMESPACE: &str = "default";

pub(crate) fn run() -> Result<(), Box<dyn Error>> {
    let server = ApiServer::start()?;
    println!("API server inside this program: {}\n", server.url());
    let mut stage = Stage::new(server.url());

    println!("Start two candidates, each in its own process:");
    stage.start("a")?;
    stage.start("b")?;
    let (first, _) = stage.wait_for_leader()?;
    stage.wait_for(&first, "step 2")?;

    println!("Kill {first}. Its Lease expires 5 seconds after the last renewal that was seen:");
    stage.remove(&first)?.kill()?;
    let (second, time) = stage.wait_for_leader()?;
    println!("  -> {second} took over after {:.1} s", time.as_secs_f64());

    stage.wait_for(&second, "step 2")?;
    println!("Start another candidate, and stop {second} in order. It releases the Lease:");
    stage.start("c")?;
    stage.wait_for("c", &format!("the leader is {second}"))?;
    stage.remove(&second)?.stop()?;
    let (third, time) = stage.wait_for_leader()?;
    println!("  -> {third} took over after {:.1} s", time.as_secs_f64());

    stage.wait_for(&third, "step 2")?;
    println!("Stop {third}:");
    stage.remove(&third)?.stop()?;
    let lease = server.get(&format!(
        "/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{LEASE}"
    ))?;
    let spec = &lease["spec"];
    println!("\nThe Lease at the end: {spec}");
    if (first == second, second == third) != (false, false) {
        return Err(format!("the leaders were {first}, {second} and {third}").into());
    }
    if spec["holderIdentity"] != "" {
        return Err("the Lease was not released".into());
    }
    Ok(())
}

/// Runs one of the processes: a candidate that stops when its standard input ends.
pub(crate) fn candidate(identity: &str, server: &str) -> Result<(), Box<dyn Error>> {
    let stop = Stopper::new();
    let input_ended = stop.clone();
    thread::spawn(move || {
        // An error also ends the input.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        input_ended.stop();
    });
    let client = Client::new(Config::new(server))?;
    let lock = LeaseLock::new(&client, NAMESPACE, LEASE).identity(identity);
    candidate::run(lock, Speed::Demo, &stop)
}

/// The processes, and the lines that they print.
struct Stage {
    server: String,
    candidates: Vec<Candidate>,
    sender: Sender<(String, String)>,
    lines: Receiver<(String, String)>,
}

impl Stage {
    fn new(server: String) -> Self {
        let (sender, lines) = mpsc::channel();
        Self {
            server,
            candidates: Vec::new(),
            sender,
            lines,
        }
    }

    fn start(&mut self, name: &str) -> Result<(), Box<dyn Error>> {
        let mut process = Command::new(env::current_exe()?)
            .args(["--candidate", name, &self.server])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = process.stdout.take().ok_or("no standard output")?;
        let (sender, from) = (self.sender.clone(), name.to_owned());
        let output = thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                println!("  {from}: {line}");
                // The receiver is dropped when the demo ends.
                let _ = sender.send((from.clone(), line));
            }
        });
        self.candidates.push(Candidate {
            name: name.to_owned(),
            process,
            output: Some(output),
        });
        Ok(())
    }

    fn remove(&mut self, name: &str) -> Result<Candidate, Box<dyn Error>> {
        let found = self.candidates.iter().position(|c| c.name == name);
        let found = found.ok_or_else(|| format!("{name} does not run"))?;
        Ok(self.candidates.remove(found))
    }

    /// Waits until a candidate leads. Returns its name, and how long that took.
    fn wait_for_leader(&self) -> Result<(String, Duration), Box<dyn Error>> {
        let start = Instant::now();
        let (name, _) = self.line(|_, line| line.starts_with(LEADS))?;
        Ok((name, start.elapsed()))
    }

    fn wait_for(&self, name: &str, text: &str) -> Result<(), Box<dyn Error>> {
        self.line(|from, line| from == name && line == text)?;
        Ok(())
    }

    /// Returns the next line that is `wanted`.
    fn line(
        &self,
        wanted: impl Fn(&str, &str) -> bool,
    ) -> Result<(String, String), Box<dyn Error>> {
        loop {
            let line = self.lines.recv_timeout(PATIENCE);
            let (from, line) = line.map_err(|_| "timed out waiting for a candidate")?;
            if wanted(&from, &line) {
                return Ok((from, line));
            }
        }
    }
}

/// A process. It is killed when this is dropped.
struct Candidate {
    name: String,
    process: Child,
    /// Prints what the process prints.
    output: Option<JoinHandle<()>>,
}

impl Candidate {
    /// Ends the process without a chance to release the Lease.
    fn kill(mut self) -> io::Result<()> {
        self.process.kill()?;
        self.process.wait().map(drop)
    }

    /// Stops the candidate in order, and waits for its end.
    fn stop(mut self) -> Result<(), Box<dyn Error>> {
        drop(self.process.stdin.take());
        let status = self.process.wait()?;
        if let Some(output) = self.output.take() {
            output.join().map_err(|_| "the output can't be read")?;
        }
        match status.success() {
            true => Ok(()),
            false => Err(format!("{} ended with {status}", self.name).into()),
        }
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
