//! One direction of a network port: packets leave one after the other, at the port's rate.

/// A first-in, first-out queue, as the time at which its wire is free.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Link {
    free_ns: u64,
    /// What is left of the last nanosecond, in bit/Mbit.
    fraction: u64,
}

impl Link {
    /// When the last byte of a packet that is ready at `at_ns` has left.
    #[inline]
    pub(crate) fn send(&mut self, at_ns: u64, bytes: u32, mbit_s: u32) -> u64 {
        if at_ns >= self.free_ns {
            self.free_ns = at_ns;
            self.fraction = 0;
        }
        let work = u64::from(bytes) * 8_000 + self.fraction;
        self.free_ns += work / u64::from(mbit_s);
        self.fraction = work % u64::from(mbit_s);
        self.free_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_keeps_its_rate_to_the_bit() {
        let mut link = Link::default();
        let last = (0..1_000_000).map(|_| link.send(0, 4_196, 200_000)).last().unwrap();
        assert_eq!(last, 1_000_000 * 4_196 * 8_000 / 200_000);
        assert_eq!(link.send(last + 5, 25_000, 200_000), last + 5 + 1_000);
    }
}
