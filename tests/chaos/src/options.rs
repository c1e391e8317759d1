//! The options of a run: pairs of a name and a value.

use std::hash::{BuildHasher, RandomState};
use std::process::ExitCode;
use std::str::FromStr;

/// An option of the command line.
pub(crate) struct Argument<'a> {
    pub(crate) name: &'a str,
    pub(crate) value: &'a str,
}

impl<'a> Argument<'a> {
    /// Returns the options of a command line.
    pub(crate) fn all(arguments: &'a [String]) -> Result<Vec<Self>, String> {
        let arguments = arguments.chunks(2).map(|pair| match pair {
            [name, value] => Ok(Self { name, value }),
            _ => Err(format!("{} needs a value", pair[0])),
        });
        arguments.collect()
    }

    pub(crate) fn number<N: FromStr>(&self) -> Result<N, String> {
        let number = self.value.parse();
        number.map_err(|_| format!("{} needs a number", self.name))
    }

    /// Returns the value, which must be one of these.
    pub(crate) fn one_of(&self, values: &[&str]) -> Result<String, String> {
        match values.contains(&self.value) {
            true => Ok(self.value.to_owned()),
            false => self.unknown(),
        }
    }

    /// Returns the error of an unknown option or value.
    pub(crate) fn unknown<R>(&self) -> Result<R, String> {
        Err(format!(
            "unknown option or value: {} {}",
            self.name, self.value
        ))
    }
}

/// Returns the seed of a run without this option.
pub(crate) fn random_seed() -> u64 {
    RandomState::new().hash_one(0) % 1_000_000
}

/// Fails if the objects are too few for the checks.
pub(crate) fn check_objects(objects: usize) -> Result<(), String> {
    match objects {
        0..100 => Err("--objects needs at least 100".to_owned()),
        _ => Ok(()),
    }
}

/// Returns the status of a run that has passed, failed, or has wrong options.
pub(crate) fn exit_code(result: Result<bool, String>) -> ExitCode {
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}
