//! Changes the user of a process for good, in all its threads.

use std::fs;
use std::io;
use std::path::Path;

use anyhow::{Context as _, bail};
use rustix::process::{DumpableBehavior, Gid, Uid, getegid, getgroups, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set, set_capabilities, set_no_new_privs, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};

use super::account::Account;

/// Gives all privileges up, and checks each thread.
///
/// # Errors
/// The system refuses, or a thread still has privileges.
pub(super) fn surrender(account: &Account) -> anyhow::Result<()> {
    set_user(account).with_context(|| {
        format!(
            "cannot change the user to {} (it takes CAP_SETUID and CAP_SETGID): omit `user` in [security] (--user) where a unit or a \
             container sets the user",
            account.name
        )
    })?;
    let nothing = CapabilitySet::empty();
    let nothing = CapabilitySets { effective: nothing, permitted: nothing, inheritable: nothing };
    let _ = clear_ambient_capability_set(); // the change of user has done so where the kernel has such a set
    set_capabilities(None, nothing).context("cannot clear the capabilities")?;
    set_no_new_privs(true).context("cannot set no_new_privs")?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable).context("cannot forbid core dumps")?;
    check_threads(account)
}

/// Calls `f` with the rights to files that `account` will have, in this thread alone: these system calls change one thread. The
/// saved user stays root, so that they can be undone.
///
/// # Errors
/// As of `f`, or the system does not let this process change its user.
pub(super) fn with_rights_of<T>(account: &Account, f: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let groups = getgroups()?;
    let (uid, gid, own_gid) = (Uid::from_raw(account.uid), Gid::from_raw(account.gid), getegid());
    let change = || {
        set_thread_groups(&[])?;
        set_thread_res_gid(None, gid, None)?;
        set_thread_res_uid(None, uid, None)
    };
    let result = change().map_err(io::Error::from).and_then(|()| f());
    // If this fails, root has fewer rights than before.
    let _ = set_thread_res_uid(None, Uid::ROOT, None);
    let _ = set_thread_res_gid(None, own_gid, None);
    let _ = set_thread_groups(&groups);
    result
}

/// The C library makes these calls in every thread, as POSIX demands (nptl(7)); a plain system call would change one thread. With
/// the user, the kernel clears each thread's permitted and effective capabilities (capabilities(7)).
fn set_user(account: &Account) -> io::Result<()> {
    let (uid, gid) = (account.uid, account.gid);
    // SAFETY: an empty list of groups has no memory.
    checked(unsafe { libc::setgroups(0, std::ptr::null()) })?;
    // SAFETY: numbers only.
    checked(unsafe { libc::setresgid(gid, gid, gid) })?;
    // SAFETY: numbers only.
    checked(unsafe { libc::setresuid(uid, uid, uid) })
}

fn checked(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn check_threads(account: &Account) -> anyhow::Result<()> {
    let tasks = fs::read_dir("/proc/self/task").context("cannot list the threads of the server")?;
    for task in tasks {
        let path = task?.path().join("status");
        let status = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        check_status(&status, account, &path)?;
    }
    Ok(())
}

/// Checks a thread's `status` (proc_pid_status(5)).
fn check_status(status: &str, account: &Account, path: &Path) -> anyhow::Result<()> {
    let (uid, gid) = (account.uid.to_string(), account.gid.to_string());
    let is_right = |line: &str| {
        let Some((name, value)) = line.split_once(':') else { return true };
        let mut words = value.split_whitespace();
        match name {
            "Uid" => words.all(|word| word == uid),
            "Gid" => words.all(|word| word == gid),
            "Groups" => words.next().is_none(),
            "CapInh" | "CapPrm" | "CapEff" | "CapAmb" => words.all(|word| word.bytes().all(|digit| digit == b'0')),
            "NoNewPrivs" => words.eq(["1"]),
            _ => true,
        }
    };
    match status.lines().find(|line| !is_right(line)) {
        Some(line) if line.starts_with("CapInh") => bail!(
            "the server was started with inheritable capabilities, which its threads keep ({}: {line}): start it without (`capsh --inh= --`)",
            path.display()
        ),
        Some(line) => {
            bail!("a thread of the server has kept privileges ({}: {line}): it does not serve", path.display())
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_with_privileges_is_found() {
        let account = Account { name: "a".to_owned(), uid: 7, gid: 8 };
        let good = "Name:\tlog\nUid:\t7\t7\t7\t7\nGid:\t8\t8\t8\t8\nGroups:\t \nCapInh:\t0000\nCapPrm:\t0000\nCapEff:\t0000\n\
                    CapBnd:\t01ff\nCapAmb:\t0000\nNoNewPrivs:\t1\n";
        let check = |status: &str| check_status(status, &account, Path::new("status"));
        check(good).unwrap();
        for (from, to) in [
            ("Uid:\t7\t7", "Uid:\t7\t0"),
            ("Gid:\t8\t8\t8\t8", "Gid:\t8\t8\t8\t0"),
            ("Groups:\t ", "Groups:\t4"),
            ("CapInh:\t0000", "CapInh:\t0001"),
            ("CapPrm:\t0000", "CapPrm:\t0001"),
            ("CapEff:\t0000", "CapEff:\t2000"),
            ("CapAmb:\t0000", "CapAmb:\t0001"),
            ("NoNewPrivs:\t1", "NoNewPrivs:\t0"),
        ] {
            let error = check(&good.replace(from, to)).unwrap_err().to_string();
            assert!(error.contains(to.trim()), "{error}");
        }
    }
}
