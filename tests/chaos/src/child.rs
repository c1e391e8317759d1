//! A process of this program with another mode.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Ends with its standard input, and is killed when it is dropped.
pub(crate) struct ChildProcess {
    process: Child,
    input: Option<ChildStdin>,
}

impl ChildProcess {
    /// Starts this program. `on_line` gets each line of its standard output.
    pub(crate) fn start(
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
        mut on_line: impl FnMut(String) + Send + 'static,
    ) -> Self {
        let mut process = Command::new(std::env::current_exe().expect("this program"))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let output = process.stdout.take().expect("a pipe");
        let input = process.stdin.take();
        thread::spawn(move || {
            let lines = BufReader::new(output).lines();
            lines.map_while(Result::ok).for_each(&mut on_line);
        });
        Self { process, input }
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Writes a line to its standard input.
    pub(crate) fn send(&mut self, line: &str) {
        if let Some(input) = &mut self.input {
            let _ = writeln!(input, "{line}");
        }
    }

    pub(crate) fn signal(&self, signal: &str) {
        let id = self.id().to_string();
        let status = Command::new("kill").args([signal, &id]).status();
        assert!(
            status.is_ok_and(|status| status.success()),
            "kill {signal} failed"
        );
    }

    /// Returns the status after the end.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.process.try_wait().expect("a status")
    }

    /// Closes its standard input and waits for the end. Returns `None` if it was killed because it
    /// did not end in time.
    pub(crate) fn stop(mut self, patience: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + patience;
        self.input = None;
        while Instant::now() < deadline {
            if let Some(status) = self.ended() {
                return Some(status);
            }
            thread::sleep(Duration::from_millis(20));
        }
        None
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
