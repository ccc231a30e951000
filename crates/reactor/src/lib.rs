//! Reactors: one polling loop a core, and the I/O threads that live on them.
//!
//! A [`Runtime`] starts one OS thread per core, pins it and lets it poll. An *I/O thread* ([`IoThread`]) is an owned box
//! that holds everything it needs, its sockets, timers, inbox and buffers; it lives on one reactor at a time and is
//! handed over as a pointer through the new home's event ring, between two poll steps. The reactor knows nothing of NVMe.
//!
//! | module | what it holds |
//! |---|---|
//! | [`inbox`] | bounded queues of messages: a reactor's event ring, an I/O thread's inbox |
//! | [`bell`] | how results that come through no inbox wake an owner |
//! | `doorbell` | how a sleeping owner is woken: futex, eventfd |
//! | `ring` | the ring under an inbox |
//! | `sync` | atomics, fences and kernel waits, so that a model checker can take their place |
//! | [`wait`] | instructions that wait for a store: `umwait`, `mwaitx`, `wfet`, `wfe` |
//! | [`io_thread`] | what a reactor polls |
//! | `reactor` | the loop of one core: poll, rest, hand over |
//! | `watch` | which I/O threads have something to read: one system call for all |
//! | [`readings`] | what a policy is told of watts, bytes and latencies, behind a trait |
//! | `director` | a policy on the main core: what it is told, and how its commands are carried out |
//! | [`knobs`] | what sets the knobs of a machine, behind a trait |
//! | [`actuation`] | a thread that does so, and may take its time |
//! | `setpoints` | the value that each knob is to have, written by the main core and followed by that thread |
//! | `probe` | what a wake-up costs here |
//! | [`runtime`] | start, adoption, change of policy, statistics, end |
//! | [`cells`], `sleep_clock`, [`histogram`] | accounting |
//! | [`clock`] | monotonic nanoseconds, CPU time |

pub mod actuation;
pub mod bell;
#[doc(hidden)]
pub mod bench;
pub mod cells;
pub mod clock;
mod director;
mod doorbell;
pub mod histogram;
pub mod inbox;
pub mod io_thread;
mod kernel_wait;
pub mod knobs;
mod probe;
mod reactor;
pub mod readings;
mod ring;
pub mod runtime;
mod setpoints;
mod sleep_clock;
mod sync;
pub mod wait;
mod watch;

pub use actuation::{Actuation, Machine};
pub use bell::Bell;
pub use cells::{IoThreadStats, ReactorStats, SleepStats};
pub use director::DirectorStats;
pub use histogram::{Histogram, HistogramSnapshot};
pub use inbox::{Inbox, Sender};
pub use io_thread::{CompletionMode, IoThread, Polled};
pub use knobs::{Knobs, Refusals};
pub use reactor::Idle;
pub use readings::{ReadingBoard, Readings};
pub use runtime::{PlantNotice, QuietTime, Runtime, RuntimeOptions, RuntimeStats, StartError, keep_off};
pub use wait::Monitor;
