//! Groups of the system: their numbers, and those of the peer of a socket.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// A group that may read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    /// Its name.
    pub(crate) name: String,
    /// Its number.
    pub(crate) gid: u32,
}

/// Bytes for the members of a group, at first and at most.
const MEMBERS: std::ops::RangeInclusive<usize> = 4096..=1 << 24;

impl Group {
    /// The group of this name, if there is one.
    ///
    /// # Errors
    /// If the group database cannot be read.
    pub(crate) fn named(name: &str) -> io::Result<Option<Self>> {
        let Ok(c_name) = CString::new(name) else { return Ok(None) };
        let mut bytes = *MEMBERS.start();
        loop {
            let mut buffer = vec![0; bytes];
            // SAFETY: a `group` is numbers and pointers, for which zeroes are valid.
            let mut found: libc::group = unsafe { std::mem::zeroed() };
            let mut result: *mut libc::group = std::ptr::null_mut();
            // SAFETY: the name ends with a zero; all pointers are to values that outlive the call; the buffer has the given length.
            let failed = unsafe {
                libc::getgrnam_r(c_name.as_ptr(), &raw mut found, buffer.as_mut_ptr(), buffer.len(), &raw mut result)
            };
            match failed {
                0 if result.is_null() => return Ok(None),
                0 => return Ok(Some(Self { name: name.to_owned(), gid: found.gr_gid })),
                libc::ENOENT | libc::ESRCH => return Ok(None), // getgrnam(3): some databases return these for missing groups
                libc::EINTR => {}
                libc::ERANGE if bytes < *MEMBERS.end() => bytes *= 4,
                other => return Err(io::Error::from_raw_os_error(other)),
            }
        }
    }
}

/// The supplementary groups that a Unix socket's peer had when it connected (`SO_PEERGROUPS`, socket(7)).
///
/// # Errors
/// If the kernel does not support it (before Linux 4.13).
pub(crate) fn of_peer(socket: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    let mut groups: Vec<libc::gid_t> = vec![0; 64];
    loop {
        let mut length = size_of_val(groups.as_slice()) as libc::socklen_t;
        let (level, option) = (libc::SOL_SOCKET, libc::SO_PEERGROUPS);
        // SAFETY: the buffer has `length` bytes, and both outlive the call.
        let result =
            unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, groups.as_mut_ptr().cast(), &raw mut length) };
        let needed = length as usize / size_of::<libc::gid_t>();
        match result {
            0 => {
                groups.truncate(needed);
                return Ok(groups);
            }
            _ => match io::Error::last_os_error() {
                error if error.raw_os_error() == Some(libc::ERANGE) && needed > groups.len() => {
                    groups.resize(needed, 0)
                }
                error => return Err(error),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn groups_have_numbers_and_peers_have_groups() {
        assert_eq!(Group::named("root").unwrap(), Some(Group { name: "root".to_owned(), gid: 0 }));
        assert_eq!(Group::named("no-such-group").unwrap(), None);
        assert_eq!(Group::named("a\0b").unwrap(), None);
        let (one, _other) = UnixStream::pair().unwrap();
        let mut own: Vec<u32> = rustix::process::getgroups().unwrap().iter().map(|group| group.as_raw()).collect();
        let mut found = of_peer(one.as_fd()).unwrap();
        own.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, own);
    }
}
