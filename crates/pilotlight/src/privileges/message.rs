//! Messages between a server and its helper process: one packet each, of fixed form.
//!
//! | request | bytes |
//! |---|---|
//! | open | 1, purpose, the path (1 to 4095 bytes, no zero) |
//! | set a knob | 2, its number (u16), 1 or 0, the value (u64; 0 after a 0, which restores the knob) |
//! | worker threads | 3, their numbers (u32 each, 1 to 1024) |
//! | serving | 4 |
//!
//! | reply | bytes |
//! |---|---|
//! | done; the file is attached | 0 |
//! | not in the configuration | 1 |
//! | others than root can change where the path leads | 2 |
//! | the system refused | 3, the error number (i32) |
//! | the knob was refused | 4 |
//! | ready | 5, number of knobs (u16) |
//!
//! Numbers are little-endian. Every other packet is malformed: the helper ends at one.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// Longest path in bytes (`PATH_MAX` without the zero at its end).
const MAX_PATH: usize = 4095;
/// Most worker threads.
const MAX_WORKERS: usize = 1024;
/// Longest request in bytes.
pub(super) const MAX_REQUEST: usize = 2 + MAX_PATH;
/// Longest reply in bytes.
pub(super) const MAX_REPLY: usize = 5;

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To read it: the configuration, secrets, a schedule, a profile.
    Text,
    /// To look at storage: for reading and writing, a device not exclusively.
    Look,
    /// To serve a file.
    File,
    /// To serve a device.
    Device,
    /// To create a file and serve it.
    NewFile,
    /// To look at a file or device that is not written, or to serve such a file.
    ReadOnly,
    /// To serve a device that is not written.
    ReadOnlyDevice,
}

impl Purpose {
    /// Of open(2).
    pub(super) fn flags(self) -> OFlags {
        match self {
            Self::Text | Self::ReadOnly => OFlags::RDONLY,
            Self::ReadOnlyDevice => OFlags::RDONLY | OFlags::EXCL,
            Self::Look | Self::File => OFlags::RDWR,
            Self::Device => OFlags::RDWR | OFlags::EXCL, // see `pilotlight_storage::DirectOpener`
            Self::NewFile => OFlags::RDWR | OFlags::CREATE,
        }
    }
}

const PURPOSES: [Purpose; 7] = [
    Purpose::Text,
    Purpose::Look,
    Purpose::File,
    Purpose::Device,
    Purpose::NewFile,
    Purpose::ReadOnly,
    Purpose::ReadOnlyDevice,
];

/// A request to the helper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// Open a file or device.
    Open { purpose: Purpose, path: PathBuf },
    /// Set a knob, or restore it.
    Set { knob: u16, value: Option<u64> },
    /// The worker threads, by their OS numbers.
    Workers(Vec<u32>),
    /// The server serves: its sockets exist.
    Serving,
}

/// A reply of the helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Done,
    NotNamed,
    Untrusted,
    System(i32),
    Refused,
    Ready { knobs: u16 },
}

impl Request {
    /// The packet; `None` for a path or list that is too long.
    pub(super) fn encode(&self) -> Option<Vec<u8>> {
        let bytes = match self {
            Self::Open { purpose, path } => {
                let at = PURPOSES.iter().position(|other| other == purpose)? as u8;
                [&[1, at], path.as_os_str().as_bytes()].concat()
            }
            Self::Set { knob, value } => {
                let is_set = [u8::from(value.is_some())];
                [&[2][..], &knob.to_le_bytes(), &is_set, &value.unwrap_or(0).to_le_bytes()].concat()
            }
            Self::Workers(threads) => [3].into_iter().chain(threads.iter().flat_map(|id| id.to_le_bytes())).collect(),
            Self::Serving => vec![4],
        };
        (Self::decode(&bytes).as_ref() == Some(self)).then_some(bytes)
    }

    /// The request of a packet; `None` if it is malformed.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        match *bytes {
            [1, purpose, ref path @ ..] => {
                let is_valid = (1..=MAX_PATH).contains(&path.len()) && !path.contains(&0);
                let purpose = *PURPOSES.get(usize::from(purpose)).filter(|_| is_valid)?;
                Some(Self::Open { purpose, path: Path::new(OsStr::from_bytes(path)).to_owned() })
            }
            [2, low, high, is_set @ 0..=1, ref value @ ..] => {
                let value = u64::from_le_bytes(value.try_into().ok()?);
                let value = if is_set == 1 { Some(value) } else { (value == 0).then_some(None)? };
                Some(Self::Set { knob: u16::from_le_bytes([low, high]), value })
            }
            [3, ref threads @ ..] => {
                let (threads, []) = threads.as_chunks::<4>() else { return None };
                let is_valid = (1..=MAX_WORKERS).contains(&threads.len());
                is_valid.then(|| Self::Workers(threads.iter().map(|id| u32::from_le_bytes(*id)).collect()))
            }
            [4] => Some(Self::Serving),
            _ => None,
        }
    }
}

impl Reply {
    pub(super) fn encode(self) -> Vec<u8> {
        match self {
            Self::Done => vec![0],
            Self::NotNamed => vec![1],
            Self::Untrusted => vec![2],
            Self::System(error) => [&[3][..], &error.to_le_bytes()].concat(),
            Self::Refused => vec![4],
            Self::Ready { knobs } => [&[5][..], &knobs.to_le_bytes()].concat(),
        }
    }

    /// The reply of a packet; `None` if it is malformed.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        Some(match *bytes {
            [0] => Self::Done,
            [1] => Self::NotNamed,
            [2] => Self::Untrusted,
            [3, a, b, c, d] => Self::System(i32::from_le_bytes([a, b, c, d])),
            [4] => Self::Refused,
            [5, low, high] => Self::Ready { knobs: u16::from_le_bytes([low, high]) },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn malformed_requests_are_refused() {
        let long = [&[1, 0][..], &[b'a'; MAX_PATH + 1]].concat();
        let unset_value = [2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
        for bytes in [&[][..], &[0], &[1], &[1, 0], &[1, 7, b'a'], &[1, 0, b'a', 0], &long, &[2, 0, 0, 1], &unset_value]
        {
            assert_eq!(Request::decode(bytes), None, "{bytes:?}");
        }
        for bytes in [&[3][..], &[3, 1, 2, 3], &[4, 0], &[5]] {
            assert_eq!(Request::decode(bytes), None, "{bytes:?}");
        }
        let path = PathBuf::from("a".repeat(MAX_PATH + 1));
        assert_eq!(Request::Open { purpose: Purpose::Text, path }.encode(), None);
        assert_eq!(Request::Workers(Vec::new()).encode(), None);
    }

    #[test]
    fn replies_are_decoded_as_encoded() {
        for reply in [Reply::Done, Reply::NotNamed, Reply::Untrusted, Reply::Refused, Reply::Ready { knobs: 513 }] {
            assert_eq!(Reply::decode(&reply.encode()), Some(reply));
        }
        assert_eq!(Reply::decode(&Reply::System(-3).encode()), Some(Reply::System(-3)));
        assert_eq!(Reply::decode(&[0, 0]), None);
    }

    proptest! {
        #[test]
        fn what_is_decoded_encodes_to_the_same_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..40), kind in 1_u8..5) {
            let bytes = [&[kind][..], &bytes].concat();
            if let Some(request) = Request::decode(&bytes) {
                prop_assert_eq!(request.encode(), Some(bytes));
            }
        }
    }
}
