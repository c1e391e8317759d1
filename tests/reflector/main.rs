//! The reflector's rules, driven through a scripted lister-watcher and a fake clock.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod life;
mod lists;
mod silence;
mod support;
mod watch_list_failures;
mod watch_lists;
mod watches;
