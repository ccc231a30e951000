//! A machine that does its own I/O: the papers whose subject is one host with one drive (the energy thesis, the polling paper).
//!
//! *Problem.* [`crate::engine`] is a storage server with cores that poll; these papers measure fio's jobs on Linux in front of an NVMe
//! drive: what a request costs each way of having it done, what the drive takes in each power state, what it does when left alone.
//! *Parts.* [`machine`]: the machine as data; [`load`]: what jobs do; [`drive`]: when a request is done; [`engine`]: jobs on processors;
//! [`covered`]: time that counts once;
//! [`tally`]: what is counted, and the energy it comes to. *Properties.* Pure: machine and load give the same tally everywhere.
//! docs/seeds-machines.md says what is modelled and what is not.

mod converted;
pub mod covered;
pub mod drive;
pub mod engine;
pub mod load;
pub mod machine;
pub mod tally;

pub use engine::run;
pub use load::{Load, Scheduler, Way};
pub use machine::Local;
pub use tally::{Energy, Slot, Tally};
