//! Reactors: one polling loop a core, and the I/O threads that live on them.
//!
//! A [`Runtime`] starts one OS thread per core, pins it and lets it poll. An *I/O thread* ([`IoThread`]) is an owned box
//! that holds everything it needs, its sockets, timers, inbox and buffers; it lives on one reactor at a time and is
//! handed over as a pointer through the new home's event ring, between two poll steps. The reactor knows nothing of NVMe.
//!
//! | module | what it holds |
//! |---|---|
//! | [`inbox`] | bounded queues of messages: a reactor's event ring, an I/O thread's inbox |
//! | [`runtime`] | the polling loop, pinning, adoption and hand-over, busy and idle time |
//! | [`clock`] | monotonic nanoseconds |

pub mod clock;
pub mod inbox;
pub mod runtime;

pub use inbox::{Inbox, Sender};
pub use runtime::{
    Completions, Idle, IoThread, Polled, ReactorHandle, ReactorStats, Runtime, RuntimeOptions, StartError,
};
