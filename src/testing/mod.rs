//! For tests.

mod clock;
mod scripted;

pub use clock::FakeClock;
pub use scripted::{Answer, Request, ScriptedListerWatcher};
