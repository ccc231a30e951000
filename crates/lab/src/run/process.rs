//! Programs that are started, watched and always ended.
//!
//! Every program leads a process group of its own, so that a Ctrl-C at the terminal reaches only the runner, which then ends the groups
//! in its own order; and so that what a program has started ends with it. A program ends on SIGTERM or, ten seconds later, on SIGKILL; a
//! [`Running`] that is dropped is ended on the spot.

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

/// How often a wait looks whether it should end.
const LOOK: Duration = Duration::from_millis(20);
/// How long a program has to end after SIGTERM, in nanoseconds.
const GRACE_NS: u64 = 10_000_000_000;

/// A program cannot be started, or did not do what was expected of it.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// It cannot be started.
    #[error("cannot start {program}: {error}; is it installed?")]
    Start {
        /// The program.
        program: String,
        /// What the system said.
        error: std::io::Error,
    },
    /// A file that it needs cannot be written.
    #[error("cannot write {path}: {error}")]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// It failed.
    #[error("{what} {how}: {said}")]
    Failed {
        /// What it was for, or the program.
        what: String,
        /// How it ended.
        how: String,
        /// The end of what it said.
        said: String,
    },
}

/// A program that runs.
#[derive(Debug)]
pub struct Running {
    /// The program and its arguments, for people.
    pub title: String,
    group: Pid,
    ended: Receiver<(ExitStatus, u64)>,
    finished: Option<(ExitStatus, u64)>,
    readers: Vec<JoinHandle<Vec<u8>>>,
    /// When it was started, on the monotonic clock, in nanoseconds.
    pub began_ns: u64,
    began_wall_ns: u64,
}

impl Running {
    /// Starts a step; its files are written first.
    ///
    /// # Errors
    /// If a file cannot be written or the program not started.
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
        let (tell, ended) = channel();
        thread::spawn(move || wait(child, &tell));
        let began_wall_ns = began_ns.saturating_add_signed(wall_offset_ns);
        Self { title, group, ended, finished: None, readers, began_ns, began_wall_ns }
    }

    /// Waits until it ends, or until `end` says why it should: then it is ended, and the reason returned.
    ///
    /// # Errors
    /// The reason.
    pub fn wait<R>(&mut self, mut end: impl FnMut() -> Option<R>) -> Result<(), R> {
        while self.finished.is_none() {
            if let Some(reason) = end() {
                self.end();
                return Err(reason);
            }
            match self.ended.recv_timeout(LOOK) {
                Ok(finished) => self.finished = Some(finished),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        Ok(())
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.group.as_raw_nonzero().get().unsigned_abs()
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        if self.finished.is_none() {
            self.finished = self.ended.try_recv().ok();
        }
        self.finished.is_some()
    }

    /// Ends it with everything that it has started.
    pub fn end(&mut self) {
        self.signal(Signal::TERM);
        let until_ns = now_ns() + GRACE_NS;
        while !self.has_ended() && now_ns() < until_ns {
            thread::sleep(LOOK / 4);
        }
        self.signal(Signal::KILL);
        if self.finished.is_none() {
            self.finished = self.ended.recv().ok();
        }
    }

    /// What came of it; what it left running is ended.
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

    /// Its group may have members after it has ended; if not, nobody gets the signal.
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
        // What was read before an error is all there is.
        let _ = from.read_to_end(&mut bytes);
        bytes
    }))
}

fn wait(mut child: Child, tell: &Sender<(ExitStatus, u64)>) {
    if let Ok(status) = child.wait() {
        let _ = tell.send((status, now_ns()));
    }
}

/// A step as a person would type it.
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

/// A step that was to succeed.
///
/// # Errors
/// If it did not.
pub fn expect_success(step: &Step, outcome: &Outcome) -> Result<(), StepError> {
    if outcome.status == Some(0) {
        return Ok(());
    }
    let what = if step.why.is_empty() { title(step) } else { format!("{} ({})", step.why, title(step)) };
    let how = outcome.status.map_or("was ended by a signal".into(), |status| format!("ended with status {status}"));
    let said = if outcome.stderr.trim_ascii().is_empty() { &outcome.stdout } else { &outcome.stderr };
    let said = String::from_utf8_lossy(&said[said.len().saturating_sub(1_000)..]).trim().to_owned();
    Err(StepError::Failed { what, how, said: if said.is_empty() { "it said nothing".into() } else { said } })
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
    fn what_it_printed_and_how_long_it_took() {
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
    fn what_it_has_started_ends_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let mark = folder.path().join("alive");
        let script = format!("(sleep 0.6; touch {}) & sleep 30", mark.display());
        let mut running = start(&script);
        let began = now_ns();
        let ended = running.wait(|| (now_ns() > began + 100_000_000).then_some("enough"));
        assert_eq!(ended, Err("enough"));
        assert_eq!(running.outcome().status, None, "by a signal");
        thread::sleep(Duration::from_millis(800));
        assert!(!mark.exists());
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let step = Step { argv: vec!["no-such-program-here".into()], ..Step::default() };
        let error = Running::start(&step, Path::new("/tmp")).unwrap_err().to_string();
        assert!(error.contains("no-such-program-here") && error.contains("installed"), "{error}");
    }

    #[test]
    fn titles_can_be_typed() {
        assert_eq!(title(&step("echo 'x'")), r"sh -c 'echo '\''x'\'''");
    }
}
