//! The random keys of hashes, which a simulation seeds.

#[cfg(simulation)]
#[path = "../../tests/simulation/hash.rs"]
mod seeded;

#[cfg(simulation)]
pub(crate) use seeded::wait_began;
#[cfg(simulation)]
pub use seeded::{RandomState, on_wait, seed};
#[cfg(not(simulation))]
pub(crate) use std::hash::RandomState;
