//! The time from a stop until all threads of an informer have ended. Each state gets a thousand
//! stops at random moments, with a real client and sockets. Half of the stops come up to 4 ms after
//! the start, possibly before the state is reached. The other half come up to 4 ms after the state
//! is reached.
//!
//! ```text
//! cargo bench --bench stop                        # a minute or two
//! cargo bench --bench stop -- 100 BusyWatch Head  # 100 stops, only these states
//! ```
#![allow(clippy::unwrap_used, reason = "the included test servers use unwrap")]

#[allow(dead_code)]
#[path = "../tests/client/server.rs"]
mod server;
#[path = "../tests/client/states.rs"]
mod states;

use std::time::Duration;

use states::{CALLBACK, Random, Scene, State, moments};

fn main() {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
        .collect();
    let test = arguments.iter().any(|argument| argument == "--test");
    let count: Option<usize> = arguments.iter().find_map(|argument| argument.parse().ok());
    let count = count.unwrap_or(if test { 10 } else { 1000 });
    let is_selected = |state: &State| arguments.contains(&format!("{state:?}"));
    let any = State::ALL.iter().any(is_selected);

    println!(
        "{count} stops per state. Milliseconds from the stop until all threads have ended. The callback of a slow"
    );
    println!("handler takes {CALLBACK:?}, and a stop waits for a running callback.");
    println!("{:16} {:>8} {:>8} {:>8}", "", "p50", "p95", "worst");
    let mut random = Random(7);
    for state in State::ALL
        .into_iter()
        .filter(|state| !any || is_selected(state))
    {
        let scene = Scene::new(state);
        let mut times: Vec<_> = moments(&mut random)
            .take(count)
            .map(|moment| scene.stop_at(moment))
            .collect();
        times.sort_unstable();
        let at = |percent: usize| {
            millis(times.get((count * percent / 100).min(count.saturating_sub(1))))
        };
        println!(
            "{:16} {:>8} {:>8} {:>8}",
            format!("{state:?}"),
            at(50),
            at(95),
            at(100)
        );
    }
}

fn millis(time: Option<&Duration>) -> String {
    time.map_or_else(String::new, |time| {
        format!("{:.2}", time.as_secs_f64() * 1000.0)
    })
}
