//! Child processes.
//!
//! Every program leads its own process group: Ctrl-C at the terminal reaches only the runner, which ends the groups in order, and
//! descendants end with the program. A program gets SIGTERM and, ten seconds later, SIGKILL; dropping a [`Running`] kills it.

use std::io::Read;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use pilotlight_report::output;
use pilotlight_sensors::clock::{self, now_ns};
use rustix::process::{Pid, Signal, kill_process_group};

use pilotlight_workloads::{Outcome, Step};

/// Polling interval of a wait.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Time from SIGTERM to SIGKILL, in nanoseconds.
const GRACE_NS: u64 = 10_000_000_000;

/// A program cannot be started or failed.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// It cannot be started.
    #[error("cannot start {program}: {error}; is it installed?")]
    Start {
        /// The program.
        program: String,
        /// The error.
        error: std::io::Error,
    },
    /// An input file of the program cannot be written.
    #[error("cannot write {path}: {error}")]
    File {
        /// Its path.
        path: PathBuf,
        /// The error.
        error: std::io::Error,
    },
    /// It failed.
    #[error("{title} {status}: {output}")]
    Failed {
        /// Its purpose, or its command line.
        title: String,
        /// How it ended.
        status: String,
        /// The end of its output.
        output: String,
    },
}

/// A running program.
#[derive(Debug)]
pub struct Running {
    /// The command line, for messages.
    pub title: String,
    group: Pid,
    ended: Receiver<(ExitStatus, u64)>,
    finished: Option<(ExitStatus, u64)>,
    readers: Vec<JoinHandle<Vec<u8>>>,
    /// Start on the monotonic clock, in nanoseconds.
    pub began_ns: u64,
    began_wall_ns: u64,
}

impl Running {
    /// Writes the files of a step and starts its program.
    ///
    /// # Errors
    /// If a file cannot be written or the program cannot be started.
    pub fn start(step: &Step, scratch: &Path) -> Result<Self, StepError> {
        for (path, text) in &step.files {
            output::write(path, text).map_err(|error| StepError::File { path: path.clone(), error })?;
        }
        let title = title(step);
        let program = step.argv.first().map(|program| program.to_string_lossy().into_owned()).unwrap_or_default();
        let mut command = Command::new(&program);
        command.args(step.argv.iter().skip(1)).envs(step.env.iter().map(|(key, value)| (key, value)));
        command.current_dir(step.folder.as_deref().unwrap_or(scratch)).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let clock = clock::read();
        let began_ns = now_ns();
        let child = command.spawn().map_err(|error| StepError::Start { program, error })?;
        Ok(Self::watch(child, title, began_ns, clock.wall_offset_ns))
    }

    fn watch(mut child: Child, title: String, began_ns: u64, wall_offset_ns: i64) -> Self {
        let group = Pid::from_child(&child);
        let readers = [reader(child.stdout.take()), reader(child.stderr.take())].into_iter().flatten().collect();
        let (sender, ended) = channel();
        thread::spawn(move || wait(child, &sender));
        let began_wall_ns = began_ns.saturating_add_signed(wall_offset_ns);
        Self { title, group, ended, finished: None, readers, began_ns, began_wall_ns }
    }

    /// Waits until the program ends. If `end` returns a reason, ends the program and returns the reason.
    ///
    /// # Errors
    /// The reason.
    pub fn wait<R>(&mut self, mut end: impl FnMut() -> Option<R>) -> Result<(), R> {
        while self.finished.is_none() {
            if let Some(reason) = end() {
                self.end();
                return Err(reason);
            }
            match self.ended.recv_timeout(POLL_INTERVAL) {
                Ok(finished) => self.finished = Some(finished),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        Ok(())
    }

    /// Its process ID.
    pub fn pid(&self) -> u32 {
        self.group.as_raw_nonzero().get().unsigned_abs()
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        if self.finished.is_none() {
            self.finished = self.ended.try_recv().ok();
        }
        self.finished.is_some()
    }

    /// Ends it and its descendants.
    pub fn end(&mut self) {
        self.signal(Signal::TERM);
        let until_ns = now_ns() + GRACE_NS;
        while !self.has_ended() && now_ns() < until_ns {
            thread::sleep(POLL_INTERVAL / 4);
        }
        self.signal(Signal::KILL);
        if self.finished.is_none() {
            self.finished = self.ended.recv().ok();
        }
    }

    /// Its outcome. Remaining processes of its group are killed.
    #[must_use]
    pub fn outcome(mut self) -> Outcome {
        self.signal(Signal::KILL);
        if self.finished.is_none() {
            self.finished = self.ended.recv().ok();
        }
        let mut texts = self.readers.drain(..).map(|reader| reader.join().unwrap_or_default());
        let (stdout, stderr) = (texts.next().unwrap_or_default(), texts.next().unwrap_or_default());
        drop(texts);
        let (status, to_ns) = self.finished.map_or((None, now_ns()), |(status, to_ns)| (status.code(), to_ns));
        Outcome { status, stdout, stderr, span_ns: (self.began_ns, to_ns), began_wall_ns: self.began_wall_ns }
    }

    /// The group may have members after the leader has ended.
    fn signal(&self, signal: Signal) {
        let _ = kill_process_group(self.group, signal);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.has_ended() {
            self.signal(Signal::KILL);
        }
    }
}

fn reader(from: Option<impl Read + Send + 'static>) -> Option<JoinHandle<Vec<u8>>> {
    let mut from = from?;
    Some(thread::spawn(move || {
        let mut bytes = Vec::new();
        // On an error the bytes read so far are kept.
        let _ = from.read_to_end(&mut bytes);
        bytes
    }))
}

fn wait(mut child: Child, sender: &Sender<(ExitStatus, u64)>) {
    if let Ok(status) = child.wait() {
        let _ = sender.send((status, now_ns()));
    }
}

/// A step in shell syntax.
#[must_use]
pub fn title(step: &Step) -> String {
    let word = |word: &std::ffi::OsString| {
        let word = word.to_string_lossy();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+./,:@%".contains(c);
        if !word.is_empty() && word.chars().all(plain) {
            word.into_owned()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    };
    step.argv.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// Checks the exit status of a step.
///
/// # Errors
/// If it is not 0.
pub fn expect_success(step: &Step, outcome: &Outcome) -> Result<(), StepError> {
    if outcome.status == Some(0) {
        return Ok(());
    }
    let title = if step.why.is_empty() { title(step) } else { format!("{} ({})", step.why, title(step)) };
    let status =
        outcome.status.map_or("was killed by a signal".into(), |status| format!("exited with status {status}"));
    let output = if outcome.stderr.trim_ascii().is_empty() { &outcome.stdout } else { &outcome.stderr };
    let output = String::from_utf8_lossy(&output[output.len().saturating_sub(1_000)..]).trim().to_owned();
    Err(StepError::Failed { title, status, output: if output.is_empty() { "no output".into() } else { output } })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(script: &str) -> Step {
        Step { argv: ["sh", "-c", script].map(Into::into).to_vec(), ..Step::default() }
    }

    fn start(script: &str) -> Running {
        Running::start(&step(script), Path::new("/tmp")).unwrap()
    }

    #[test]
    fn the_outcome_has_output_status_and_time() {
        let mut running = start("echo out; echo err >&2; sleep 0.1; exit 3");
        running.wait(|| None::<()>).unwrap();
        let outcome = running.outcome();
        assert_eq!(
            (outcome.status, outcome.stdout.as_slice(), outcome.stderr.as_slice()),
            (Some(3), b"out\n".as_slice(), b"err\n".as_slice())
        );
        assert!(outcome.span_ns.1 - outcome.span_ns.0 >= 100_000_000);
        let error = expect_success(&step("x"), &outcome).unwrap_err().to_string();
        assert!(error.contains("status 3") && error.contains("err"), "{error}");
    }

    #[test]
    fn descendants_end_with_the_program() {
        let folder = tempfile::tempdir().unwrap();
        let mark = folder.path().join("alive");
        let script = format!("(sleep 0.6; touch {}) & sleep 30", mark.display());
        let mut running = start(&script);
        let began = now_ns();
        let ended = running.wait(|| (now_ns() > began + 100_000_000).then_some("enough"));
        assert_eq!(ended, Err("enough"));
        assert_eq!(running.outcome().status, None, "killed by a signal");
        thread::sleep(Duration::from_millis(800));
        assert!(!mark.exists());
    }

    #[test]
    fn the_error_names_a_missing_program() {
        let step = Step { argv: vec!["no-such-program-here".into()], ..Step::default() };
        let error = Running::start(&step, Path::new("/tmp")).unwrap_err().to_string();
        assert!(error.contains("no-such-program-here") && error.contains("installed"), "{error}");
    }

    #[test]
    fn titles_are_valid_shell_syntax() {
        assert_eq!(title(&step("echo 'x'")), r"sh -c 'echo '\''x'\'''");
    }
}
