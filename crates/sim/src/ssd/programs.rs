//! Programs of a buffer that drains at a fixed rate.
//!
//! *Problem.* Such a buffer may hold seconds of writes. If all its programs were submitted to the dies at once, the next read would wait behind all
//! of them; if none were, reads would never wait. *Algorithm.* A program begins when its last byte leaves the buffer. The state is the number of
//! remaining bytes, their drain rate, and the start of the next program; programs that have begun by the next access are submitted to the dies in
//! turn, in time order. *Properties.* Each full unit written is programmed once; a read waits only for programs that began before it arrived,
//! regardless of the buffer's content; dies do not depend on the times of access.

use super::collect::Writer;
use super::die::Die;
use super::{Activity, time_of};

/// Data to program.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Programs {
    /// Written but not yet programmed.
    bytes: u64,
    /// Drain rate of the buffer.
    rate: u64,
    /// Time from which these bytes drain.
    since_ns: u64,
}

impl Programs {
    /// Adds bytes that enter the buffer at `at_ns` and drain at `rate`.
    pub(super) fn fill(&mut self, at_ns: u64, bytes: u64, rate: u64) {
        if self.since_ns + time_of(self.bytes, self.rate) < at_ns {
            // The buffer had drained: less than a program waits for more data.
            self.since_ns = at_ns - time_of(self.bytes, rate);
        }
        self.bytes += bytes;
        self.rate = rate;
    }

    /// Submits programs that have begun by `now_ns`.
    pub(super) fn advance(&mut self, now_ns: u64, writer: &mut Writer, dies: &mut [Die], activity: &mut Activity) {
        let unit_bytes = writer.unit_bytes();
        while self.bytes >= unit_bytes {
            let at_ns = self.since_ns + time_of(unit_bytes, self.rate);
            if at_ns > now_ns {
                return;
            }
            writer.program(at_ns, dies, activity);
            self.since_ns = at_ns;
            self.bytes -= unit_bytes;
        }
    }
}
