//! The Pods of a real cluster, as a table that changes as they do.

use std::error::Error;
use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use k8s_informer::{Client, Object, SharedIndexInformer, SharedInformerFactory, Stop};

use crate::pod::{Pod, head, row};

/// How often the screen is drawn at most, and how soon a stop is noticed while nothing happens.
const FRAME: Duration = Duration::from_millis(100);

/// How many Pods are shown.
const ROWS: usize = 40;

pub(crate) fn run(namespace: Option<String>) -> Result<(), Box<dyn Error>> {
    let stop = Stop::on_signals()?;
    let client = Client::try_default()?;
    println!("Pods of {}; Ctrl-C ends it", client.server());

    let mut factory = SharedInformerFactory::builder(client);
    if let Some(namespace) = namespace {
        factory = factory.namespace(namespace);
    }
    let factory = factory.build();
    let pods = factory.informer::<Pod>();
    let (changed, changes) = mpsc::channel();
    pods.add_event_handler(|handler| {
        let tell = move |change: String| drop(changed.send(change));
        let (added, updated, deleted) = (tell.clone(), tell.clone(), tell);
        handler
            .on_add(move |pod, _| added(format!("+ {}", row(pod))))
            .on_update(move |_, pod| updated(format!("~ {}", row(pod))))
            .on_delete(move |gone| deleted(format!("- {}/{}", gone.namespace(), gone.name())))
    })?;
    factory.start(&stop)?;

    if wait_for_sync(&pods, &stop) {
        if io::stdout().is_terminal() {
            table(&pods, &changes, &stop)?
        } else {
            lines(&changes, &stop)
        }
    }
    factory.shutdown();
    println!("stopped");
    Ok(())
}

/// Shows how the initial list comes in, and what keeps it from coming. False if it was stopped before.
fn wait_for_sync(pods: &SharedIndexInformer<Pod>, stop: &Stop) -> bool {
    // Where the objects come by a watch nobody knows how many they are before the last one.
    let style = |template| {
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
    };
    let bar = ProgressBar::no_length().with_style(style("{spinner} {pos} Pods {msg}"));
    while !pods.synced().wait_timeout(FRAME) {
        if stop.is_stopped() {
            bar.finish_and_clear();
            return false;
        }
        let status = pods.status();
        if let Some(expected) = status.expected {
            bar.set_length(expected as u64);
            bar.set_style(style("{wide_bar} {pos}/{len} {msg}"));
        }
        bar.set_position(status.received as u64);
        bar.set_message(
            status
                .last_error
                .map(|error| error.to_string())
                .unwrap_or_default(),
        );
    }
    bar.finish_and_clear();
    println!("synced: {} Pods", pods.lister().list().len());
    true
}

/// Draws the cache whenever something has changed.
fn table(
    pods: &SharedIndexInformer<Pod>,
    changes: &mpsc::Receiver<String>,
    stop: &Stop,
) -> io::Result<()> {
    let mut recent = String::new();
    while !stop.is_stopped() {
        let mut all = pods.lister().list();
        all.sort_by(|a, b| (a.namespace(), a.name()).cmp(&(b.namespace(), b.name())));
        let status = pods.status();

        let mut screen = String::from("\x1b[H\x1b[2J");
        screen += &format!(
            "{} Pods, version {}, {:?}\n\n",
            all.len(),
            status.resource_version,
            status.state
        );
        screen += &format!("{}\n", head());
        for pod in all.iter().take(ROWS) {
            screen += &format!("{}\n", row(pod));
        }
        if all.len() > ROWS {
            screen += &format!("… and {} more\n", all.len() - ROWS);
        }
        screen += &format!("\n{recent}\n");
        if let Some(error) = status.last_error {
            screen += &format!("last error: {error}\n");
        }
        io::stdout().write_all(screen.as_bytes())?;
        io::stdout().flush()?;

        while !stop.is_stopped() {
            match changes.recv_timeout(FRAME) {
                Ok(change) => {
                    recent = changes.try_iter().last().unwrap_or(change);
                    break;
                }
                Err(RecvTimeoutError::Timeout) if pods.status().state == status.state => {}
                Err(_) => break,
            }
        }
    }
    Ok(())
}

/// Without a terminal: a line for each event.
fn lines(changes: &mpsc::Receiver<String>, stop: &Stop) {
    println!("  {}", head());
    while !stop.is_stopped() {
        if let Ok(change) = changes.recv_timeout(FRAME) {
            println!("{change}");
        }
    }
}
