//! A seccomp filter for the whole server: the system calls it may make.
//!
//! **Problem.** An attacker who runs code in the server through a fault can make every system call. Serving needs few of them.
//!
//! **Algorithm.** The filter is installed before the first connection is accepted, for every thread; threads started later inherit it.
//! System calls that are not listed kill the process (seccomp(2), `SECCOMP_RET_KILL_PROCESS`), or are logged by the kernel. io_uring is not
//! listed: requests to an io_uring bypass seccomp, and the target uses Linux AIO. Nor are execve, ptrace, mount, bpf and kernel modules.
//!
//! **Properties.** No program can be executed, privileges cannot be gained (`no_new_privs`), and the filter cannot be removed.

mod helper;

use std::collections::BTreeMap;
use std::env::consts::ARCH;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use anyhow::{Context as _, bail};
use libc::c_long;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter_all_threads};
use tracing::warn;

/// Handling of system calls that are not listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seccomp {
    /// They kill the server.
    Kill,
    /// They are executed and logged by the kernel.
    Log,
    /// There is no filter.
    Off,
}

impl Seccomp {
    /// From the configuration.
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        match text {
            "kill" => Ok(Self::Kill),
            "log" => Ok(Self::Log),
            "off" => Ok(Self::Off),
            _ => bail!("expected kill, log or off"),
        }
    }
}

/// Installs the configured filter; by default the one that kills, and none with a warning where the kernel has no filters.
///
/// # Errors
/// The configured filter cannot be installed.
pub(crate) fn start(configured: Option<Seccomp>) -> anyhow::Result<()> {
    unless_missing(configured, install(configured.unwrap_or(Seccomp::Kill)))
}

/// Installs the configured filter of the helper process (`privileges`), as [`start`] does that of the server.
///
/// # Errors
/// As of [`start`].
pub(crate) fn start_in_helper(configured: Option<Seccomp>) -> anyhow::Result<()> {
    unless_missing(configured, install_list(configured.unwrap_or(Seccomp::Kill), helper::ALLOWED.iter()))
}

/// Whether this process may have a filter, and so cannot change its user for an open(2).
pub(crate) fn is_installed() -> bool {
    INSTALLED.load(Relaxed)
}

static INSTALLED: AtomicBool = AtomicBool::new(false);

fn unless_missing(configured: Option<Seccomp>, result: anyhow::Result<()>) -> anyhow::Result<()> {
    match (configured, result) {
        (None, Err(error)) => {
            warn!("the server runs without a seccomp filter: {error:#}");
            Ok(())
        }
        (_, result) => result,
    }
}

/// Installs the filter for all threads of this process, permanently.
///
/// # Errors
/// The kernel has no seccomp filters (`CONFIG_SECCOMP_FILTER`), or a thread already has another filter.
fn install(seccomp: Seccomp) -> anyhow::Result<()> {
    install_list(seccomp, ALLOWED.iter().chain(LEGACY))
}

fn install_list<'a>(seccomp: Seccomp, allowed: impl Iterator<Item = &'a c_long>) -> anyhow::Result<()> {
    let otherwise = match seccomp {
        Seccomp::Kill => SeccompAction::KillProcess,
        Seccomp::Log => SeccompAction::Log,
        Seccomp::Off => return Ok(()),
    };
    INSTALLED.store(true, Relaxed); // before: another thread may be about to make a call
    let program = program(otherwise, allowed).context("the seccomp filter")?;
    apply_filter_all_threads(&program)
        .context("cannot install a seccomp filter; if this kernel has none, set [security] seccomp = \"off\"")
}

fn program<'a>(otherwise: SeccompAction, allowed: impl Iterator<Item = &'a c_long>) -> anyhow::Result<BpfProgram> {
    let rules: BTreeMap<c_long, _> = allowed.map(|&call| (call, Vec::new())).collect();
    let filter = SeccompFilter::new(rules, otherwise, SeccompAction::Allow, ARCH.try_into()?)?;
    Ok(filter.try_into()?)
}

const ALLOWED: &[c_long] = &[
    // memory
    libc::SYS_brk,
    libc::SYS_madvise,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munlock,
    libc::SYS_munmap,
    libc::SYS_membarrier,
    // threads
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getcpu,
    libc::SYS_get_robust_list,
    libc::SYS_gettid,
    libc::SYS_prctl,
    libc::SYS_rseq,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    // signals
    libc::SYS_kill,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sigaltstack,
    libc::SYS_tgkill,
    libc::SYS_tkill,
    // time
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_nanosleep,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_gettime,
    libc::SYS_timerfd_settime,
    // reads and writes
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_lseek,
    libc::SYS_fallocate,
    libc::SYS_fdatasync,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_sync_file_range,
    libc::SYS_fadvise64,
    libc::SYS_io_cancel,
    libc::SYS_io_destroy,
    libc::SYS_io_getevents,
    libc::SYS_io_setup,
    libc::SYS_io_submit,
    // files: configuration, media, cgroups, what the kernel reports
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_fcntl,
    libc::SYS_flock,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_ioctl,
    libc::SYS_linkat,
    libc::SYS_mkdirat,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_readlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_umask,
    libc::SYS_unlinkat,
    // sockets and events
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_listen,
    libc::SYS_pipe2,
    libc::SYS_ppoll,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_socket,
    libc::SYS_socketpair,
    // the process and the machine
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getpgid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_getuid,
    libc::SYS_perf_event_open, // RAPL without powercap
    libc::SYS_prlimit64,
    libc::SYS_sysinfo,
    libc::SYS_uname,
];

/// System calls that only x86-64 has; a C library may make them in place of newer ones.
#[cfg(target_arch = "x86_64")]
const LEGACY: &[c_long] = &[
    libc::SYS_access,
    libc::SYS_arch_prctl,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_dup2,
    libc::SYS_epoll_wait,
    libc::SYS_getpgrp,
    libc::SYS_getrlimit,
    libc::SYS_link,
    libc::SYS_lstat,
    libc::SYS_mkdir,
    libc::SYS_open,
    libc::SYS_pause,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_rename,
    libc::SYS_rmdir,
    libc::SYS_stat,
    libc::SYS_time,
    libc::SYS_unlink,
];
#[cfg(not(target_arch = "x86_64"))]
const LEGACY: &[c_long] = &[];

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use super::*;

    #[test]
    fn values_of_the_key() {
        let parse = |text| Seccomp::parse(text).unwrap();
        assert_eq!(["kill", "log", "off"].map(parse), [Seccomp::Kill, Seccomp::Log, Seccomp::Off]);
        assert!(Seccomp::parse("on").unwrap_err().to_string().contains("kill, log or off"));
    }

    /// What a child process does under the filter, as its variable names it.
    const CHILD: &str = "PILOTLIGHT_TEST_SECCOMP";

    /// The signal that has ended a child that does `what`, if one has.
    fn signal_of(what: &str) -> Option<i32> {
        let mut child = Command::new(std::env::current_exe().unwrap());
        let only = ["--exact", "seccomp::tests::child", "--ignored", "--quiet"];
        let output = child.args(only).env(CHILD, what).output().unwrap();
        let signal = output.status.signal();
        assert!(signal.is_some() || output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
        signal
    }

    #[test]
    fn system_calls_that_are_not_listed_kill_the_process() {
        assert_eq!(signal_of("read"), None, "listed");
        assert_eq!(signal_of("read in a helper"), None, "listed");
        for what in ["io_uring", "execute", "io_uring in an older thread", "socket in a helper"] {
            assert_eq!(signal_of(what), Some(libc::SIGSYS), "{what}");
        }
        assert_eq!(signal_of("log"), None, "executed and logged");
    }

    #[test]
    #[ignore = "a child process of another test"]
    fn child() {
        let Ok(what) = std::env::var(CHILD) else { return };
        let io_uring = || _ = crate::doctor::has_io_uring();
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let older = std::thread::spawn(move || wait.recv().is_ok().then(io_uring));
        match what.as_str() {
            "log" => install(Seccomp::Log).unwrap(),
            "socket in a helper" | "read in a helper" => start_in_helper(Some(Seccomp::Kill)).unwrap(),
            _ => install(Seccomp::Kill).unwrap(),
        }
        match what.as_str() {
            "read" | "read in a helper" => drop(std::fs::read("/proc/self/status").unwrap()),
            "socket in a helper" => drop(std::net::UdpSocket::bind("127.0.0.1:0")),
            "execute" => drop(Command::new("/bin/true").status()),
            "io_uring in an older thread" => go.send(()).unwrap(),
            _ => io_uring(),
        }
        drop(go);
        older.join().unwrap();
    }
}
