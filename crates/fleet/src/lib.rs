//! One power budget for the servers of a rack, shared over etcd.
//!
//! # The problem
//! A rack's supply limits the power of all servers together, and their needs change by the second. No server knows the others; messages are
//! late or lost, servers and etcd fail, clocks differ.
//!
//! # Vocabulary
//! Servers that share a budget are *members* of a *rack*. A member's *floor* is agreed beforehand and reserved for it, running or not. A *grant* is
//! a share as the *leader* publishes it; a member *confirms* it once its power is within it. A *session* is the life of one etcd lease of a member.
//!
//! # The algorithm
//! Each member publishes what it needs ([`Status`](documents::Status)) under its lease. The member that etcd has elected reads all of this and
//! computes what to write ([`decide`](rack::decide), a pure function of the documents in etcd): shares by `pilotlight_policy::fleet::divide`,
//! grants by `Grants`. A write counts only if its author still leads and nothing has been written since what it was computed from.
//!
//! # Properties
//! - The budgets of all members together never exceed the rack's, unless that itself is lowered; then their sum never rises before it is within
//!   it. A machine whose server has died or is paused is assumed to draw its floor at most: nothing holds it there.
//! - A grant is good for the session that it names, and until its validity ends: three quarters of the lease's time after the last
//!   acknowledged request to keep it was *sent*, by the member's own clock. etcd ends a lease no earlier than a whole such time after it
//!   received the request, so when the leader sees that a session has ended, the member is at its floor. Only rates of clocks are compared, never
//!   times. The server is told this end with the share, and ends it itself, so this holds whatever happens to the member. An answer counts once a
//!   linearizable read has the same term.
//! - Measured power is not trusted: a member that reports less than it draws gets no more, one that reports more than it was granted costs others
//!   its own full power at most.

pub mod config;
pub mod documents;
mod leader;
mod member;
pub mod rack;
mod session;
mod thread;
pub mod view;

#[cfg(test)]
extern crate self as pilotlight_fleet; // as the tests of the public surface name it
#[cfg(test)]
#[path = "../tests/support/etcd.rs"]
#[allow(dead_code, reason = "one of its users needs the cluster alone")]
mod support;

pub use config::{Etcd, MemberConfig, Tls};
pub use member::Limit;
pub use thread::{Fleet, Report, State, Target, now_ns};
