//! Programs of a buffer that empties at a rate: when they occupy dies.
//!
//! *Problem.* Such a buffer may hold seconds of writes. Were their programs given to the dies at once, a read that comes next would wait
//! behind all of them; given to none, reads would wait for none. *Algorithm.* A program begins when its last byte leaves the buffer. What has
//! not left is kept as a number of bytes, the rate at which they leave, and when the next program begins; programs that have begun by the
//! time that somebody asks for something are given to the dies in turn, in order of time. *Properties.* Each full unit that was written is
//! programmed once; a read waits for programs only that began before it came, whatever the buffer still holds; dies do not depend on who asks.

use super::collect::Writer;
use super::die::Die;
use super::{Activity, time_of};

/// What is to be programmed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Programs {
    /// Written and not yet given to a die.
    bytes: u64,
    /// How fast it leaves the buffer.
    rate: u64,
    /// Since when the first of these bytes leave it.
    since_ns: u64,
}

impl Programs {
    /// Adds what the buffer takes at `at_ns` and empties at `rate`.
    pub(super) fn fill(&mut self, at_ns: u64, bytes: u64, rate: u64) {
        if self.since_ns + time_of(self.bytes, self.rate) < at_ns {
            // All of it had left: what is less than a program waits for more.
            self.since_ns = at_ns - time_of(self.bytes, rate);
        }
        self.bytes += bytes;
        self.rate = rate;
    }

    /// Gives the dies what has begun by `now_ns`.
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
