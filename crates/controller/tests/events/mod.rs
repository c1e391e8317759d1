//! The event recorder, with a scripted sink and with a scripted server.

mod clocks;
mod logs;
mod outage;
mod recorder;
mod requests;
mod series;
pub(crate) mod sink;
mod validation;
