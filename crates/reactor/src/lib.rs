//! Reactors: one polling loop per core, and their I/O threads.
//!
//! A [`Runtime`] starts one OS thread per core, pins it and lets it poll. An *I/O thread* ([`IoThread`]) is an owned box with all
//! of its sockets, timers, inboxes and buffers. It belongs to one reactor at a time and is handed over as a pointer through the
//! new core's event ring, between two poll steps. The reactor is independent of NVMe.
//!
//! | module | contents |
//! |---|---|
//! | [`inbox`] | bounded queues of messages: a reactor's event ring, an I/O thread's inbox |
//! | [`bell`] | wake-ups for results that come through no inbox |
//! | `doorbell` | wake-ups of a sleeping owner: futex, eventfd |
//! | `ring` | the ring of an inbox |
//! | `sync` | atomics, fences and kernel waits, replaceable by a model checker |
//! | [`wait`] | instructions that wait for a store: `umwait`, `mwaitx`, `wfet`, `wfe` |
//! | [`io_thread`] | interface of I/O threads |
//! | `reactor` | the loop of one core: poll, rest, hand over |
//! | `resting` | which cores wait in the kernel although they may get requests |
//! | `watch` | readiness of I/O threads: one system call for all |
//! | [`readings`] | readings of power, bytes and latencies |
//! | `director` | the policy on the main core: samples and commands |
//! | `event`, `instruction` | messages to reactors and to the director |
//! | [`knobs`] | interface to the knobs of a machine |
//! | [`actuation`] | a thread that sets knobs |
//! | [`housekeeping`] | one thread for periodic and event-driven work |
//! | `setpoints` | values of knobs, written by the main core and read by that thread |
//! | `probe` | measures the cost of wake-ups |
//! | [`runtime`] | start, adoption, change of policy, statistics, end |
//! | [`cells`], `counter`, `sleep_clock`, [`histogram`] | accounting |
//! | `affinity` | the CPUs of a thread |
//! | [`clock`] | monotonic nanoseconds, CPU time |

pub mod actuation;
mod affinity;
pub mod bell;
#[cfg(feature = "testing")]
pub mod bench;
pub mod cells;
pub mod clock;
mod counter;
mod director;
mod doorbell;
mod event;
pub mod histogram;
pub mod housekeeping;
pub mod inbox;
mod instruction;
pub mod io_thread;
mod kernel_wait;
pub mod knobs;
mod probe;
mod reactor;
pub mod readings;
mod resting;
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
pub use housekeeping::Housekeeping;
pub use inbox::{Inbox, Sender};
pub use io_thread::{CompletionMode, IoThread, Polled};
pub use knobs::{Knobs, Refusals};
pub use reactor::Idle;
pub use readings::{ReadingBoard, Readings};
pub use runtime::{IdleTimeout, PlantNotice, Runtime, RuntimeOptions, RuntimeStats, StartError, keep_off};
pub use wait::Monitor;
