//! Tests that need all packages: the README's program, and the suite in `tests`, which runs against
//! the embedded API server and a real one.

/// Compiles the program in the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
