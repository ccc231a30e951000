//! One direction of a network port: packets are sent sequentially at the port's rate.

/// A FIFO queue, represented by the time at which its wire is free.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    mbit_s: u64,
    free_ns: u64,
    /// Remainder of the last nanosecond, in bit/Mbit.
    fraction: u64,
    /// The previous packet: bytes, and its duration in nanoseconds and fraction.
    known: (u32, u64, u64),
}

impl Link {
    pub(crate) fn new(mbit_s: u32) -> Self {
        Self { mbit_s: u64::from(mbit_s), free_ns: 0, fraction: 0, known: (0, 0, 0) }
    }

    /// Sends a packet that is ready at `at_ns`; returns when its last byte is sent.
    #[inline]
    pub(crate) fn send(&mut self, at_ns: u64, bytes: u32) -> u64 {
        if at_ns >= self.free_ns {
            self.free_ns = at_ns;
            self.fraction = 0;
        }
        // Most packets have the same size, which avoids the division.
        if self.known.0 != bytes {
            let work = u64::from(bytes) * 8_000;
            self.known = (bytes, work / self.mbit_s, work % self.mbit_s);
        }
        let (_, whole_ns, fraction) = self.known;
        self.free_ns += whole_ns;
        self.fraction += fraction;
        let carry = u64::from(self.fraction >= self.mbit_s); // no branch, as it would be unpredictable
        self.fraction -= carry * self.mbit_s;
        self.free_ns += carry;
        self.free_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_keeps_its_rate_to_the_bit() {
        let mut link = Link::new(200_000);
        let last = (0..1_000_000).map(|_| link.send(0, 4_196)).last().unwrap();
        assert_eq!(last, 1_000_000 * 4_196 * 8_000 / 200_000);
        assert_eq!(link.send(last + 5, 25_000), last + 5 + 1_000);
    }
}
