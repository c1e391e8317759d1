use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

/// Runs a server until it ends, or until the pipe to the shell is closed: by `Process`, or by the
/// system when the test process ends in any way. The shell then kills the server, and removes its
/// folder unless it has received a line.
///
/// The subshell only kills a server that the shell has not waited for, so the id of the process
/// cannot belong to another one.
const SCRIPT: &str = r#"
folder=$1; shift
exec 3<&0
"$@" </dev/null 3<&- & server=$!
exec 2>/dev/null
(read -r keep <&3; trap '' TERM; kill -KILL "$server"; [ "$keep" ]) & reader=$!
wait "$server"; status=$?
kill "$reader"; wait "$reader"
[ $? -ne 1 ] || rm -rf "$folder"
exit "$status"
"#;

/// A server that is killed when this value is dropped or when this process ends.
pub(super) struct Process(Child);

impl Process {
    /// Starts `program` in `folder`. The shell appends its output to `log`.
    pub(super) fn start(
        program: &Path,
        arguments: Vec<String>,
        folder: &Path,
        log: &Path,
    ) -> io::Result<Self> {
        let log = File::options().create(true).append(true).open(log)?;
        let mut shell = Command::new("sh");
        // Signals for the group of the test process, such as Ctrl-C, must not end the shell first.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut shell, 0);
        shell
            .args(["-c", SCRIPT, "sh"])
            .args([folder, &std::path::absolute(program)?])
            .args(arguments)
            .env("NO_PROXY", "*")
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log);
        shell.spawn().map(Self)
    }

    /// Returns how the server has ended, if it has.
    pub(super) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.0.try_wait()
    }

    /// Keeps the folder when the server is killed.
    pub(super) fn keep_files(&self) {
        if let Some(mut pipe) = self.0.stdin.as_ref() {
            // It fails if the server has ended. The shell then keeps the folder anyway.
            let _ = pipe.write_all(b"keep\n");
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // `wait` closes the pipe first.
        let _ = self.0.wait();
    }
}
