//! Shows the Pods of a real cluster as a table that follows their changes.

use std::env;
use std::error::Error;
use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use console::Term;
use k8s_informer::informer::FactoryOptions;
use k8s_informer::reflector::{ReflectorState, ReflectorStatus};
use k8s_informer::{Client, Object, SharedIndexInformer, SharedInformerFactory, Stop};

use crate::pod::{Pod, TITLES, cells, head, row};
use crate::screen::{View, draw};

/// The minimum time between two redraws of the screen.
const FRAME: Duration = Duration::from_millis(100);

/// Whether standard output is a terminal that can be redrawn.
pub(crate) fn has_screen() -> bool {
    io::stdout().is_terminal() && env::var_os("TERM").is_none_or(|terminal| terminal != "dumb")
}

pub(crate) fn run(namespace: Option<String>) -> Result<(), Box<dyn Error>> {
    let stop = Stop::on_signals()?;
    let client = Client::try_default()?;
    // "Ctrl-C" comes first: a long server address must not push it off the screen.
    let title = format!("Press Ctrl-C to stop. Server: {}", client.server());
    let scope = namespace
        .as_ref()
        .map_or("all namespaces".to_owned(), |name| {
            format!("namespace {name}")
        });

    let mut options = FactoryOptions::new();
    if let Some(namespace) = namespace {
        options = options.namespace(namespace);
    }
    let factory = SharedInformerFactory::with_options(client, options);
    let pods = factory.informer::<Pod>();
    let (sender, changes) = mpsc::channel();
    pods.add_event_handler(|handler| {
        let report = move |change: String| drop(sender.send(change));
        let (added, updated, deleted) = (report.clone(), report.clone(), report);
        handler
            .on_add(move |pod, _| added(format!("+ {}", row(pod))))
            .on_update(move |_, pod| updated(format!("~ {}", row(pod))))
            .on_delete(move |pod| {
                deleted(format!(
                    "- {}/{}",
                    pod.namespace().escape_debug(),
                    pod.name().escape_debug()
                ));
            })
    })?;
    factory.start(&stop)?;

    // Ctrl-C is not an error: it ends this program normally, even before the first list.
    let show = if has_screen() { table } else { lines };
    let shown = show([&title, &scope], &pods, &changes, &stop);
    factory.shut_down(None)?;
    shown?;
    println!("{}", pods.status());
    Ok(())
}

/// Draws the cache until `stop` is signalled. The status line shows the progress of the first list,
/// or why it fails.
fn table(
    [title, scope]: [&str; 2],
    pods: &SharedIndexInformer<Pod>,
    changes: &Receiver<String>,
    stop: &Stop,
) -> io::Result<()> {
    let (terminal, mut out) = (Term::stdout(), io::stdout());
    let size = || {
        let (height, width) = terminal.size_checked().unwrap_or((24, 80));
        (usize::from(height), usize::from(width))
    };
    // Scrolls the current content of the terminal away instead of overwriting it.
    out.write_all("\n".repeat(size().0).as_bytes())?;
    let (mut all, mut recent, mut screen) = (Vec::new(), String::new(), String::new());
    loop {
        if let Some(change) = changes.try_iter().last() {
            recent = change.split_whitespace().collect::<Vec<_>>().join(" ");
            all = pods.lister().list();
            all.sort_by(|a, b| (a.namespace(), a.name()).cmp(&(b.namespace(), b.name())));
        }
        let summary = match pods.store_resource_version() {
            None => format!("Pods of {scope}: the cache is still empty"),
            Some(version) => format!(
                "{} Pods of {scope} in the cache, at version {version}",
                all.len()
            ),
        };
        let status = match pods.status() {
            // Show only the error: a small screen has no space for more.
            ReflectorStatus {
                state: ReflectorState::BackingOff,
                last_error: Some(error),
                ..
            } => {
                format!("retrying: {error}")
            }
            status => status.to_string(),
        };
        let header = [title.to_owned(), summary];
        let view = View {
            header: &header,
            status: &status,
            recent: &recent,
            titles: TITLES,
        };
        // The terminal may have been resized since the last redraw.
        let (height, width) = size();
        let next = draw(&view, all.iter().map(|pod| cells(pod)), height, width);
        if next != screen {
            screen = next;
            out.write_all(screen.as_bytes())?;
            out.flush()?;
        }
        if stop.wait_timeout(FRAME) {
            return writeln!(out);
        }
    }
}

/// Prints one line per change. This is the output when standard output is not a terminal.
fn lines(
    [title, scope]: [&str; 2],
    pods: &SharedIndexInformer<Pod>,
    changes: &Receiver<String>,
    stop: &Stop,
) -> io::Result<()> {
    let mut out = io::stdout();
    writeln!(out, "{title}")?;
    if pods.synced().wait_or_stop(None, stop).is_ok() {
        writeln!(
            out,
            "Synced: {} Pods of {scope}",
            pods.lister().list().len()
        )?;
    }
    writeln!(out, "  {}", head())?;
    while !stop.is_stopped() {
        if let Ok(change) = changes.recv_timeout(FRAME) {
            writeln!(out, "{change}")?;
        }
    }
    Ok(())
}
