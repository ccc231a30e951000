//! The system calls that no library wraps: counters of the power PMU, messages of IPMI, and programs that are
//! waited for together with what they cost. All `unsafe` of this crate is here.

pub(crate) mod child;
pub(crate) mod ipmi;
pub(crate) mod perf;

use std::io;
use std::os::fd::AsFd;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;

/// Waits until there is something to be read, whatever signals come meanwhile; `false` if nothing is until then.
fn wait(file: impl AsFd, until: Instant) -> io::Result<bool> {
    let ready = retry_on_intr(|| {
        let left = until.saturating_duration_since(Instant::now());
        let limit = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        poll(&mut [PollFd::new(&file, PollFlags::IN)], Some(&limit))
    });
    Ok(ready? > 0)
}
