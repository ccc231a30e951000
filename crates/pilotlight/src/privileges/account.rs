//! The user and group that a server runs as after its start.

use std::ffi::CString;
use std::io;

use anyhow::{Context as _, anyhow, bail};

use crate::admin::group::Group;

/// A user and a group, neither of them root's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    /// The user as written: a name or a number.
    pub(crate) name: String,
    /// Its number.
    pub(crate) uid: u32,
    /// The number of the group.
    pub(crate) gid: u32,
}

/// Bytes for an entry of the user database, at first and at most.
const ENTRY: std::ops::RangeInclusive<usize> = 1024..=1 << 20;

impl Account {
    /// The account of a user (name or number), with `group` (name or number) or else the user's own group.
    ///
    /// # Errors
    /// There is no such user or group, or one of them is root's.
    pub(crate) fn find(user: &str, group: Option<&str>) -> anyhow::Result<Self> {
        let entry = entry(user).map_err(|error| anyhow!("the user `{user}` is not known: {error}"))?;
        let number = user.parse().ok();
        let uid = entry.map(|(uid, _)| uid).or(number).with_context(|| format!("there is no user `{user}`"))?;
        let gid = match (group, entry) {
            (Some(group), _) => gid_of(group)?,
            (None, Some((_, gid))) => gid,
            (None, None) => bail!("there is no user {uid}, so its group must be set with `group`"),
        };
        if uid == 0 || gid == 0 {
            bail!("root keeps its privileges: name another user and group, such as nobody");
        }
        Ok(Self { name: user.to_owned(), uid, gid })
    }
}

fn gid_of(group: &str) -> anyhow::Result<u32> {
    let found = Group::named(group).map_err(|error| anyhow!("the group `{group}` is not known: {error}"))?;
    let gid = found.map(|group| group.gid).or_else(|| group.parse().ok());
    gid.with_context(|| format!("there is no group `{group}`"))
}

/// User and group of an entry of the user database, by name or number.
fn entry(user: &str) -> io::Result<Option<(u32, u32)>> {
    let Ok(name) = CString::new(user) else { return Ok(None) };
    let number: Option<libc::uid_t> = user.parse().ok();
    let mut bytes = *ENTRY.start();
    loop {
        let mut buffer = vec![0; bytes];
        // SAFETY: a `passwd` is numbers and pointers, for which zeroes are valid.
        let mut found: libc::passwd = unsafe { std::mem::zeroed() };
        let mut result: *mut libc::passwd = std::ptr::null_mut();
        let (found_at, room) = (&raw mut found, (buffer.as_mut_ptr(), buffer.len()));
        let failed = match number {
            // SAFETY: all pointers are to values that outlive the call; the buffer has the given length.
            Some(uid) => unsafe { libc::getpwuid_r(uid, found_at, room.0, room.1, &raw mut result) },
            // SAFETY: as above; the name ends with a zero.
            None => unsafe { libc::getpwnam_r(name.as_ptr(), found_at, room.0, room.1, &raw mut result) },
        };
        match failed {
            0 if result.is_null() => return Ok(None),
            0 => return Ok(Some((found.pw_uid, found.pw_gid))),
            libc::ENOENT | libc::ESRCH => return Ok(None), // getpwnam(3): some databases return these for missing users
            libc::EINTR => {}
            libc::ERANGE if bytes < *ENTRY.end() => bytes *= 4,
            other => return Err(io::Error::from_raw_os_error(other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_groups_have_names_or_numbers() {
        let refused = |user, group| Account::find(user, group).unwrap_err().to_string();
        assert!(refused("root", None).contains("root keeps its privileges"));
        assert!(Account::find("0", Some("4000")).is_err() && Account::find("4000", Some("0")).is_err());
        assert!(refused("no-such-user", None).contains("there is no user"));
        assert!(refused("4000000", None).contains("`group`"));
        assert!(refused("4000000", Some("no-such-group")).contains("there is no group"));
        let found = Account::find("4000000", Some("4000001")).unwrap();
        assert_eq!((found.uid, found.gid), (4_000_000, 4_000_001));
    }
}
