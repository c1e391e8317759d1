//! Runs programs, one after the other, against a server with 100 ConfigMaps, and prints the memory and
//! threads of each one. `../../run` calls it.
//!
//! ```text
//! memory RUNS COMMAND...    each COMMAND is a path and its arguments, separated by spaces
//! ```
//!
//! It prints `COMMAND|SERVER|VmRSS|RssAnon|THREADS`, the memory in kB, as medians of all runs. If
//! `KUBEBUILDER_ASSETS` names a kube-apiserver, the programs also run as in a Pod of its cluster, over
//! TLS. This needs Linux with user namespaces.

use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use k8s_informer::Stop;
use k8s_informer::client::Request;
use k8s_informer_testing::{ApiServer, RealApiServer};
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const TOKEN: &str = "of-the-agent";

/// The time that a program has after its sync to become idle.
const SETTLE: Duration = Duration::from_secs(2);

/// Runs its arguments with the service account in the folder `$0`, where a Pod has it.
const AS_IN_A_POD: &str = r#"mount -t tmpfs none /run &&
  mkdir -p /run/secrets/kubernetes.io/serviceaccount &&
  cp "$0"/* /run/secrets/kubernetes.io/serviceaccount && exec "$@""#;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let runs: usize = arguments
        .next()
        .ok_or("usage: memory RUNS COMMAND...")?
        .parse()?;
    let commands: Vec<String> = arguments.collect();

    let server = ApiServer::start()?;
    for n in 0..100 {
        server.create(MAPS, config_map(n))?;
    }
    for command in &commands {
        let start = || {
            program(command)
                .arg(server.url())
                .stdout(Stdio::piped())
                .spawn()
        };
        println!("{command}|plain|{}", medians(runs, start)?);
    }

    if !RealApiServer::is_configured() {
        return Ok(());
    }
    let server = RealApiServer::builder().token(TOKEN).start()?;
    for n in 0..100 {
        let request = Request::post(MAPS).json(&config_map(n))?;
        server.client().request(&request, &Stop::never())?;
    }
    let account = server.folder().join("account");
    fs::create_dir(&account)?;
    fs::write(account.join("token"), TOKEN)?;
    fs::write(account.join("namespace"), "default")?;
    fs::copy(
        server.folder().join("apiserver.crt"),
        account.join("ca.crt"),
    )?;
    let (_, port) = server
        .client()
        .server()
        .rsplit_once(':')
        .ok_or("the URL has no port")?;
    for command in &commands {
        let start = || {
            as_in_a_pod(command, &account, port)
                .stdout(Stdio::piped())
                .spawn()
        };
        println!("{command}|TLS|{}", medians(runs, start)?);
    }
    Ok(())
}

/// Four values of 100 bytes.
fn config_map(n: usize) -> Value {
    let value = "x".repeat(100);
    json!({
        "metadata": {"name": format!("settings-{n:03}")},
        "data": {"first": value, "second": value, "third": value, "fourth": value},
    })
}

fn program(command: &str) -> Command {
    let mut words = command.split(' ');
    let mut program = Command::new(words.next().unwrap_or_default());
    program.args(words);
    program
}

fn as_in_a_pod(command: &str, account: &Path, port: &str) -> Command {
    let mut program = Command::new("unshare");
    program
        .args([
            "--user",
            "--map-root-user",
            "--mount",
            "sh",
            "-c",
            AS_IN_A_POD,
        ])
        .arg(account)
        .args(command.split(' '))
        .env("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        .env("KUBERNETES_SERVICE_PORT", port)
        .env_remove("KUBECONFIG")
        .env("HOME", "/nonexistent");
    program
}

fn medians(
    runs: usize,
    start: impl Fn() -> std::io::Result<Child>,
) -> Result<String, Box<dyn Error>> {
    let mut figures = [const { Vec::new() }; 3];
    for _ in 0..runs {
        let mut child = start()?;
        let measured = measure(&mut child);
        child.kill()?;
        child.wait()?;
        for (all, figure) in figures.iter_mut().zip(measured?) {
            all.push(figure);
        }
    }
    let medians = figures.map(|mut all| {
        all.sort_unstable();
        all[all.len() / 2].to_string()
    });
    Ok(medians.join("|"))
}

/// Waits until the program has synced, and reads its figures.
fn measure(child: &mut Child) -> Result<[usize; 3], Box<dyn Error>> {
    let output = child.stdout.as_mut().ok_or("the output is not captured")?;
    for line in BufReader::new(output).lines() {
        let line = line?;
        if line == "synced 100" {
            thread::sleep(SETTLE);
            let status = fs::read_to_string(format!("/proc/{}/status", child.id()))?;
            return Ok(["VmRSS:", "RssAnon:", "Threads:"].map(|field| number(&status, field)));
        }
        if line.starts_with("synced") {
            return Err(line.into());
        }
    }
    Err("the program ended before its sync".into())
}

fn number(status: &str, field: &str) -> usize {
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let word = line.and_then(|line| line.split_whitespace().next());
    word.and_then(|word| word.parse().ok()).unwrap_or(0)
}
