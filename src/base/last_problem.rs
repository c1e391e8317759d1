use std::fmt::Display;

/// The last problem of something that repeats, such as requests or reads of a file. Each problem is
/// one line in the log, until another one follows or it ends.
///
/// This is plain data for use under a lock. Log after the unlock.
#[derive(Clone, Debug)]
pub struct LastProblem<T>(Option<T>);

impl<T> LastProblem<T> {
    /// Returns the problem, if it has not ended.
    pub fn get(&self) -> Option<&T> {
        self.0.as_ref()
    }

    /// Forgets the problem, because it has ended.
    pub fn ended(&mut self) {
        self.0 = None;
    }
}

impl<T: Display> LastProblem<T> {
    /// Records a problem. Returns whether it is a line in the log: its text differs from that of the
    /// last one.
    pub fn occurred(&mut self, problem: T) -> bool {
        let text = problem.to_string();
        let last = self.0.replace(problem);
        last.is_none_or(|last| last.to_string() != text)
    }
}

impl<T> Default for LastProblem<T> {
    fn default() -> Self {
        Self(None)
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::*;

    #[test]
    fn problem_is_new_until_it_repeats() {
        let mut last = LastProblem::default();
        assert_eq!(last.get(), None);
        assert!(last.occurred("refused"));
        assert!(!last.occurred("refused"));
        assert!(last.occurred("timeout"));
        assert_eq!(last.get(), Some(&"timeout"));
        last.ended();
        assert!(last.occurred("timeout"));
    }
}
