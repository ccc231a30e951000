//! What an exchange has come to.

use crate::failure::Failure;
use crate::group::Group;
use crate::hash::HashFunction;

/// A successful authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// The hash function of the exchange.
    pub hash: HashFunction,
    /// The group of the exchange.
    pub group: Group,
    /// Whether the controller was authenticated as well.
    pub bidirectional: bool,
}

/// Where one side stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Nothing has happened yet.
    Idle,
    /// An authentication is in progress; for a responder the first one.
    InProgress,
    /// Authenticated; for a responder also during a re-authentication, until that fails.
    Authenticated(Session),
    /// Failed for good: the connection must end.
    Failed {
        /// Why.
        failure: Failure,
        /// Whether the peer has reported it, or has received the report of it, so that the connection can end now.
        reported: bool,
    },
}
