//! Waits for child processes with a timeout, and reads their output and resource usage.

use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

/// Largest output of a program, in bytes.
const MAX_OUTPUT: usize = 1 << 20;

/// Resource usage of a process and of the children that it waited for (getrusage(2)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time in user space, in nanoseconds.
    pub user_ns: u64,
    /// CPU time in the kernel, in nanoseconds.
    pub system_ns: u64,
    /// Page faults, with and without I/O.
    pub page_faults: u64,
    /// Context switches, voluntary and not.
    pub context_switches: u64,
}

/// Waits up to `timeout` for the end of a child; `None` if it still runs.
///
/// # Errors
/// It cannot be waited for.
pub fn wait_for(child: &Child, timeout: Duration) -> io::Result<Option<(ExitStatus, Usage)>> {
    match ended(child, Instant::now() + timeout) {
        Ok(()) => wait(child).map(Some),
        Err(error) if error.kind() == io::ErrorKind::TimedOut => Ok(None),
        Err(error) => Err(error),
    }
}

/// Result of a program.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    /// CPU time of it and its children, in nanoseconds.
    pub(crate) cpu_ns: u64,
}

/// Runs `arguments`; kills its process group after `timeout`.
///
/// # Errors
/// It cannot be started, times out, or prints too much.
pub(crate) fn run(arguments: &[String], timeout: Duration) -> io::Result<Ended> {
    let (program, rest) = arguments
        .split_first()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no program is configured"))?;
    let mut command = Command::new(program);
    command.args(rest).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
    let mut child = command.spawn()?;
    let until = Instant::now() + timeout;
    let output = collect(&mut child, until).and_then(|output| ended(&child, until).map(|()| output));
    if output.is_err() {
        kill(&child);
    }
    let (status, usage) = wait(&child)?;
    let cpu_ns = usage.user_ns + usage.system_ns;
    Ok(Ended { status, stdout: String::from_utf8_lossy(&output?).into_owned(), cpu_ns })
}

fn collect(child: &mut Child, until: Instant) -> io::Result<Vec<u8>> {
    let mut stdout = child.stdout.take().ok_or_else(|| io::Error::other("no standard output"))?;
    let (mut all, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        if !super::wait(&stdout, until)? {
            return Err(too_long());
        }
        let length = stdout.read(&mut buffer)?;
        if length == 0 {
            return Ok(all);
        }
        all.extend_from_slice(&buffer[..length]);
        if all.len() > MAX_OUTPUT {
            return Err(io::Error::other("the output of the program is too long"));
        }
    }
}

fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the program timed out")
}

/// Waits for its end, which may be later than the end of its output.
fn ended(child: &Child, until: Instant) -> io::Result<()> {
    let pid = Pid::from_raw(child.id() as i32).ok_or(io::ErrorKind::InvalidInput)?;
    let handle = pidfd_open(pid, PidfdFlags::empty())?;
    if super::wait(&handle, until)? { Ok(()) } else { Err(too_long()) }
}

fn kill(child: &Child) {
    if let Some(group) = Pid::from_raw(child.id() as i32) {
        let _ = kill_process_group(group, Signal::KILL);
    }
}

fn wait(child: &Child) -> io::Result<(ExitStatus, Usage)> {
    let mut status = 0;
    // SAFETY: `rusage` consists of integers, for which zeroes are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both are ours and outlive the call; the child has not been waited for, so its number is still its own.
        let result = unsafe { libc::wait4(child.id() as libc::pid_t, &raw mut status, 0, &raw mut usage) };
        if result >= 0 {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000;
    let count = |of: libc::c_long| u64::try_from(of).unwrap_or(0);
    let usage = Usage {
        user_ns: ns(usage.ru_utime),
        system_ns: ns(usage.ru_stime),
        page_faults: count(usage.ru_minflt) + count(usage.ru_majflt),
        context_switches: count(usage.ru_nvcsw) + count(usage.ru_nivcsw),
    };
    Ok((ExitStatus::from_raw(status), usage))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, timeout: Duration) -> io::Result<Ended> {
        run(&["/bin/sh".into(), "-c".into(), script.into()], timeout)
    }

    #[test]
    fn output_status_and_cpu_time_come_back() {
        let ended = shell("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo 42; exit 3", Duration::from_secs(20))
            .unwrap();
        assert_eq!((ended.stdout.as_str(), ended.status.code()), ("42\n", Some(3)));
        assert!(ended.cpu_ns > 0, "{ended:?}");
    }

    #[test]
    #[expect(clippy::zombie_processes, reason = "`wait_for` waits for it")]
    fn a_child_is_waited_for_and_its_cpu_time_reported() {
        let mut command = Command::new("/bin/sh");
        let script = "read line; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; exit 3";
        let mut child = command.args(["-c", script]).stdin(Stdio::piped()).spawn().unwrap();
        assert!(wait_for(&child, Duration::ZERO).unwrap().is_none(), "it waits for its input");
        drop(child.stdin.take());
        let (status, usage) = wait_for(&child, Duration::from_secs(60)).unwrap().unwrap();
        assert_eq!(status.code(), Some(3));
        assert!(usage.user_ns > 0 && usage.page_faults > 0 && usage.context_switches > 0, "{usage:?}");
    }

    #[test]
    fn a_timeout_kills_the_process_group() {
        let started = Instant::now();
        let late = shell("sleep 60 & sleep 60", Duration::from_millis(50)).unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
        let silent = shell("echo 5; exec >&-; sleep 60", Duration::from_millis(500)).unwrap_err();
        assert_eq!(silent.kind(), io::ErrorKind::TimedOut, "it has said all and does not end");
        assert!(started.elapsed() < Duration::from_secs(20));
    }
}
