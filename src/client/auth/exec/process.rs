//! Runs a plugin as a child process and kills it if the run ends early.

use std::env;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::{display_name, exec_info};
use crate::base::deadline::Deadline;
use crate::base::text::EscapedText;
use crate::client::config::ExecConfig;
use crate::client::credential_data::credentials_error;
use crate::error::Error;
use crate::log;
use crate::stop::Stop;

/// The maximum size of a plugin's output. A token has a few kB, a certificate chain about ten.
pub(super) const OUTPUT_LIMIT: usize = 1024 * 1024;

/// The result of a run for metrics: an exit code and client-go's name for the result.
pub(super) type CallStatus = (i32, &'static str);

const NO_ERROR: CallStatus = (0, "no_error");
const NOT_FOUND: CallStatus = (1, "plugin_not_found_error");
const INTERNAL_ERROR: CallStatus = (1, "client_internal_error");
const EXECUTION_ERROR: &str = "plugin_execution_error";
/// Go's exit code for a process that was terminated by a signal.
const NO_EXIT_CODE: i32 = -1;

/// Runs the plugin and returns its standard output.
///
/// Blocks until the process exits, for at most `limit` or until the stop. Then calls `report` with
/// the [`CallStatus`], unless the run was stopped.
pub(super) fn run(
    config: &ExecConfig,
    info: &str,
    interactive: bool,
    limit: Option<Duration>,
    stop: &Stop,
    report: impl Fn(CallStatus),
) -> Result<Vec<u8>, Error> {
    let begun = Instant::now();
    // The process has ended or was killed before the logger and the metrics, which can block.
    let (status, output) = output(config, info, interactive, limit, stop);
    let name = display_name(config);
    match &output {
        Ok(_) => log::debug!("{name} ran for {:?}", begun.elapsed()),
        Err(error) if error.is_timeout() => log::warn!("{error}"),
        Err(_) => {}
    }
    status.map(report);
    output
}

fn output(
    config: &ExecConfig,
    info: &str,
    interactive: bool,
    limit: Option<Duration>,
    stop: &Stop,
) -> (Option<CallStatus>, Result<Vec<u8>, Error>) {
    let name = display_name(config);
    let failed = |status, problem: String| (Some(status), Err(credentials_error(problem)));
    let deadline = Deadline::after(limit);
    let mut command = match command(config, info, interactive) {
        Ok(command) => command,
        Err(error) => return (Some(NOT_FOUND), Err(error)),
    };
    let mut child = match command.spawn() {
        Ok(child) => Running(Some(child)),
        Err(error) if error.kind() == io::ErrorKind::NotFound && cfg!(not(unix)) => {
            return (Some(NOT_FOUND), Err(missing(config)));
        }
        Err(error) => return failed(INTERNAL_ERROR, format!("{name} can't be run: {error}")),
    };
    let ended = child
        .output(deadline, stop)
        .and_then(|output| match output {
            Ok(bytes) if bytes.len() <= OUTPUT_LIMIT => {
                let exit = child.exit(deadline, stop)?;
                Ok(exit.map(|status| (bytes, Some(status))))
            }
            output => Ok(output.map(|bytes| (bytes, None))),
        });
    match ended {
        Err(error) => failed(
            INTERNAL_ERROR,
            format!("can't read the output of {name}: {error}"),
        ),
        Ok(Err(WaitError::Stopped)) => (None, Err(Error::stopped())),
        Ok(Err(WaitError::TimedOut)) => {
            let problem = match child.has_exited() {
                true => "has exited, but a process that it started still holds its output open",
                false => "did not exit in time and was killed",
            };
            let limit = limit.unwrap_or_default();
            let error = Error::timeout(format!("{name} {problem}: the limit is {limit:?}"));
            (Some((NO_EXIT_CODE, EXECUTION_ERROR)), Err(error))
        }
        Ok(Ok((_, None))) => failed(
            (NO_EXIT_CODE, EXECUTION_ERROR),
            format!("{name} returned more than {OUTPUT_LIMIT} bytes"),
        ),
        Ok(Ok((bytes, Some(status)))) => match status.code() {
            _ if status.success() => (Some(NO_ERROR), Ok(bytes)),
            Some(code) => failed(
                (code, EXECUTION_ERROR),
                format!("{name} failed with exit code {code}"),
            ),
            None => failed(
                (NO_EXIT_CODE, EXECUTION_ERROR),
                format!("{name} was terminated by a {status}"),
            ),
        },
    }
}

fn command(config: &ExecConfig, info: &str, interactive: bool) -> Result<Command, Error> {
    let program = find(&config.command).ok_or_else(|| missing(config))?;
    let mut command = Command::new(program);
    #[cfg(unix)]
    std::os::unix::process::CommandExt::arg0(&mut command, &config.command);
    command.args(&config.args);
    // Standard error and the other environment variables are inherited.
    command
        .envs(config.env.iter().map(|(name, value)| (name, value)))
        .env(exec_info::VARIABLE, info);
    command
        .stdin(if interactive {
            Stdio::inherit()
        } else {
            Stdio::null()
        })
        .stdout(Stdio::piped());
    Ok(command)
}

fn missing(config: &ExecConfig) -> Error {
    let name = display_name(config);
    let hint = &config.install_hint;
    let problem = match config.command.components().count() {
        ..=1 => "there is no executable of this name in PATH",
        _ => "there is no executable at this path",
    };
    if hint.is_empty() {
        return credentials_error(format!("{name}: {problem}"));
    }
    let hint = EscapedText(hint.trim());
    credentials_error(format!("{name}: {problem}; {hint}"))
}

/// Finds the executable. As in Go, the lookup uses the `PATH` of this process, not that of the
/// plugin, and never the working directory.
#[cfg(unix)]
fn find(command: &Path) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::PermissionsExt;

    let executable = |path: &PathBuf| {
        path.metadata()
            .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    if command.as_os_str().as_bytes().contains(&b'/') {
        return Some(command.to_owned()).filter(executable);
    }
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(command))
        .find(executable)
}

/// On other systems, the operating system looks up the command.
#[cfg(not(unix))]
fn find(command: &Path) -> Option<PathBuf> {
    Some(command.to_owned())
}

/// The reason why a run ended before its process.
enum WaitError {
    Stopped,
    TimedOut,
}

impl WaitError {
    fn of(stop: &Stop) -> Self {
        if stop.is_stopped() {
            Self::Stopped
        } else {
            Self::TimedOut
        }
    }
}

/// The delays between polls of a process.
///
/// The standard library can't wait for the output or the exit of a process in a way that a stop or
/// a deadline could interrupt.
struct PollDelay {
    next: Duration,
    deadline: Option<Deadline>,
}

impl PollDelay {
    const FIRST: Duration = Duration::from_millis(1);
    const LONGEST: Duration = Duration::from_millis(20);

    fn new(deadline: Option<Deadline>) -> Self {
        Self {
            next: Self::FIRST,
            deadline,
        }
    }

    fn wait(&mut self, stop: &Stop) -> Result<(), WaitError> {
        let left = self.deadline.map_or(self.next, Deadline::rest);
        if left.is_zero() || stop.wait_timeout(self.next.min(left)) {
            return Err(WaitError::of(stop));
        }
        self.next = (self.next * 2).min(Self::LONGEST);
        Ok(())
    }
}

/// Reads the output of a process to its end, or until it exceeds the limit. Fails at the deadline
/// or when `stop` is set.
///
/// The pipe is set to non-blocking: a descendant of the process may keep it open, and a blocking
/// read would then never return. It is a pipe and not a socket, because a process can't open
/// `/dev/stdout` if that is a socket.
#[cfg(unix)]
fn read(
    mut from: ChildStdout,
    deadline: Option<Deadline>,
    stop: &Stop,
) -> io::Result<Result<Vec<u8>, WaitError>> {
    socket2::SockRef::from(&from).set_nonblocking(true)?;
    let (mut bytes, mut chunk) = (Vec::new(), vec![0; 16 << 10]);
    let mut poll_delay = PollDelay::new(deadline);
    while bytes.len() <= OUTPUT_LIMIT {
        match from.read(&mut chunk) {
            Ok(0) => break,
            Ok(length) => {
                bytes.extend_from_slice(&chunk[..length]);
                poll_delay.next = PollDelay::FIRST;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if let Err(end) = poll_delay.wait(stop) {
                    return Ok(Err(end));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Ok(bytes))
}

/// Reads the output of a process until it ends or exceeds the limit. The read runs on a thread that
/// ends with the output.
#[cfg(not(unix))]
fn read(
    from: ChildStdout,
    deadline: Option<Deadline>,
    stop: &Stop,
) -> io::Result<Result<Vec<u8>, WaitError>> {
    use std::sync::{Arc, OnceLock};

    let output = Arc::new((
        OnceLock::new(),
        crate::stop::DoneSetter::new("output of a plugin"),
    ));
    let shared = output.clone();
    thread::Builder::new()
        .name("k8s-informer exec".to_owned())
        .spawn(move || {
            let mut bytes = Vec::new();
            let read = from.take(OUTPUT_LIMIT as u64 + 1).read_to_end(&mut bytes);
            let _ = shared.0.set(read.map(|_| bytes));
            shared.1.set();
        })?;
    output.1.wait_until(deadline, stop);
    match output.0.get() {
        None => Ok(Err(WaitError::of(stop))),
        Some(Ok(bytes)) => Ok(Ok(bytes.clone())),
        Some(Err(error)) => Err(io::Error::new(error.kind(), error.to_string())),
    }
}

/// A running process. Drop kills it if it is still running, and reaps it.
struct Running(Option<Child>);

impl Running {
    fn output(
        &mut self,
        deadline: Option<Deadline>,
        stop: &Stop,
    ) -> io::Result<Result<Vec<u8>, WaitError>> {
        let output = self.0.as_mut().and_then(|child| child.stdout.take());
        read(output.ok_or(io::ErrorKind::BrokenPipe)?, deadline, stop)
    }

    fn status(&mut self) -> io::Result<Option<ExitStatus>> {
        self.0.as_mut().map_or(Ok(None), Child::try_wait)
    }

    fn has_exited(&mut self) -> bool {
        matches!(self.status(), Ok(Some(_)))
    }

    /// Waits for the exit of a process that has closed its output and so usually exits soon.
    fn exit(
        &mut self,
        deadline: Option<Deadline>,
        stop: &Stop,
    ) -> io::Result<Result<ExitStatus, WaitError>> {
        let mut poll_delay = PollDelay::new(deadline);
        loop {
            if let Some(status) = self.status()? {
                return Ok(Ok(status));
            }
            if let Err(end) = poll_delay.wait(stop) {
                return Ok(Err(end));
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.has_exited() {
            return;
        }
        let Some(mut child) = self.0.take() else {
            return;
        };
        let _ = child.kill();
        // A killed process can hang in the kernel, for example on a file system. A thread reaps it,
        // so that the caller does not wait.
        let reaper = thread::Builder::new().name("k8s-informer exec".to_owned());
        if let Err(error) = reaper.spawn(move || child.wait()) {
            log::error!("can't reap a killed exec plugin: {error}");
        }
    }
}
