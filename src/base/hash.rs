//! The random keys of hashes, which a simulation seeds.

#[cfg(simulation)]
#[path = "../../tests/simulation/hash.rs"]
mod seeded;

#[cfg(simulation)]
pub use seeded::{RandomState, seed};
#[cfg(not(simulation))]
pub(crate) use std::hash::RandomState;
