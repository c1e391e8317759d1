//! A thousand stops at random moments leave nothing behind.

use std::thread;
use std::time::{Duration, Instant};

use super::server::{SOON, ignores_shutdowns};
use super::states::{Random, Scene, State, moments};
use crate::own_process;

const STOPS: usize = 1000;

/// Each of these takes up to 50 ms.
const STOPS_WITHOUT_SHUTDOWNS: usize = 70;

/// The number of threads and sockets of this process.
fn thread_and_socket_counts() -> (usize, usize) {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().count();
    let files = std::fs::read_dir("/proc/self/fd").unwrap();
    let is_socket = |file: std::io::Result<std::fs::DirEntry>| {
        // The descriptor may be closed since it was listed.
        std::fs::read_link(file.unwrap().path())
            .is_ok_and(|to| to.to_string_lossy().starts_with("socket:"))
    };
    (
        threads,
        files
            .filter_map(|file| is_socket(file).then_some(()))
            .count(),
    )
}

/// Waits until the process has exactly the `expected` threads and sockets. A joined thread stays in
/// the list of `/proc` for a moment.
fn wait_for_counts(expected: (usize, usize)) {
    let deadline = Instant::now() + SOON;
    while thread_and_socket_counts() != expected {
        assert!(
            Instant::now() < deadline,
            "found {:?} threads and sockets, expected {expected:?}",
            thread_and_socket_counts()
        );
        thread::yield_now();
    }
}

#[test]
fn thousand_stops_at_random_moments_leak_nothing() {
    // The test runs in its own process, because other tests also have threads and sockets.
    let test = "thousand_stops_at_random_moments_leak_nothing";
    if !own_process::is_alone(module_path!(), test) {
        return;
    }
    let count = match ignores_shutdowns() {
        true => STOPS_WITHOUT_SHUTDOWNS,
        false => STOPS,
    };
    let before = thread_and_socket_counts();
    let mut random = Random(7);
    let mut stops = 0;
    for (index, state) in State::ALL.into_iter().enumerate() {
        let scene = Scene::new(state);
        // Spreads the stops over the states as evenly as possible.
        let until = count * (index + 1) / State::ALL.len();
        let more = until - stops;
        let worst = moments(&mut random)
            .take(more)
            .map(|moment| scene.stop_at(moment))
            .max();
        stops = until;
        println!(
            "{state:?}: {more} stops, the slowest took {:?}",
            worst.unwrap_or(Duration::ZERO)
        );
        drop(scene);
        wait_for_counts(before);
    }
    assert_eq!(stops, count);
}
