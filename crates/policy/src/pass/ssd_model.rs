//! The power of drives by bandwidth: linear, by direction (PASS, section 3.2.1; errata 28).

/// Bytes a second, by direction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rate {
    /// Read.
    pub read: f64,
    /// Written.
    pub written: f64,
}

impl Rate {
    /// Both directions.
    #[must_use]
    pub fn bytes(self) -> f64 {
        self.read + self.written
    }
}

/// The drives of a machine, all of one kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SsdModel {
    /// Number of drives.
    pub drives: u32,
    /// Power of one without requests, in microwatts.
    pub idle_uw: f64,
    /// Microwatts that one byte a second of reads adds.
    pub read_slope: f64,
    /// Microwatts that one byte a second of writes adds.
    pub written_slope: f64,
    /// Maximum bandwidth of one drive, in bytes a second.
    pub most: Rate,
    /// The lowest cap of one drive, in bytes a second.
    pub floor_bytes_per_s: u64,
}

impl SsdModel {
    /// Power beyond that of idle drives, in microwatts.
    #[must_use]
    pub fn power_uw(&self, rate: Rate) -> f64 {
        self.read_slope * rate.read + self.written_slope * rate.written
    }

    /// Microwatts for each byte a second of this mixture; without any, the larger of both slopes.
    #[must_use]
    pub fn slope(&self, rate: Rate) -> f64 {
        if rate.bytes() > 0.0 { self.power_uw(rate) / rate.bytes() } else { self.read_slope.max(self.written_slope) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pass::profile::Profile;

    #[test]
    fn a_drive_draws_12_w_reading_and_15_w_writing() {
        let ssd = Profile::named("pass-xeon-gold-6430").unwrap().ssd;
        let full = |read, written| (ssd.idle_uw + ssd.power_uw(Rate { read, written })).round();
        assert_eq!(full(ssd.most.read, 0.0), 12_000_000.0);
        assert_eq!(full(0.0, ssd.most.written), 15_000_000.0);
        assert_eq!(ssd.slope(Rate::default()), ssd.written_slope);
        assert_eq!(ssd.slope(Rate { read: 5.0, written: 0.0 }), ssd.read_slope);
    }
}
