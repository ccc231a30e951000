//! Administration of a running server: a Unix socket for its owner, and for a group with read access, and its requests.
//!
//! `socket` makes the file, `listener` answers lines, `request`, `response` and `refusal` are the protocol (docs/operate/watch.md), `client`
//! is the other end. What a request does to a server is `serve/admin.rs`.

pub(crate) mod client;
pub(crate) mod command;
pub(crate) mod group;
pub(crate) mod listener;
mod place;
pub(crate) mod refusal;
pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod socket;

pub(crate) use place::{NONE, default_path};
