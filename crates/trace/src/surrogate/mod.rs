//! Surrogate traces in place of cloud vendors' traces that are not available.
//!
//! **Problem.** SANDMAN replays traces of Alibaba and Tencent (5.6) and publishes a few of their marginals. A surrogate keeps those and
//! draws the other parameters, so a result over surrogates is a range over members of the family.
//!
//! **Terms.** A [`Family`] has the published marginals and a range of each unpublished parameter. A [`Member`] has a value of each, drawn
//! by [`Family::member`]. A [`Generator`] is an iterator over a member's requests.
//!
//! | fixed, published in SANDMAN 5.6 and 2.2 | Alibaba | Tencent |
//! |---|---|---|
//! | reads | 35.4 % | 39.6 % |
//! | 75 % of the reads are no larger than | 36.8 KB | 47.0 KB |
//! | 75 % of the writes are no larger than | 24.0 KB | 16.8 KB |
//! | bursts in the busiest 30 minutes | 82 | 82 (published for Alibaba's cluster; assumed for both) |
//!
//! **Algorithm.** A request is a read with the published probability, independently. Its size is 4 KiB with some probability, else
//! log-logistic with the published third quartile (`sizes.rs`). The rates of volumes are Zipf-distributed (`rank^-s`). A volume's rate
//! varies with the time of day and with two-state Markov sources at seven time constants from 2 s to 8,192 s, a factor of 4 apart, whose
//! variances follow `tau^(2H-2)` as in a self-similar process of Hurst parameter `H` (`volume.rs`). Arrivals are a Poisson process of
//! batches of geometric size with sequential requests. Bursts of some height and length over some of the volumes are added, 82 in the
//! busiest window of 30 minutes and fewer in others (`bursts.rs`), separated such that [`crate::stats::bursts`] counts each.
//!
//! **Properties** (tested): the marginals hold; the same seed gives the same bytes; a volume's arrivals outside bursts depend on the number
//! of volumes only through its rate; a later interval can be generated without the earlier ones ([`Generator::seek`]).
//!
//! A KB is 1,000 bytes and sizes are multiples of 512 bytes, so a published quartile is approximated from below.

mod bursts;
mod generate;
mod sizes;
mod volume;

use serde::Serialize;

pub use generate::Generator;

use crate::random::Stream;

/// Range of an unpublished parameter.
pub type Range = (f64, f64);

/// Published marginals of a vendor's traces.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Marginals {
    /// Reads over requests.
    pub read_share: f64,
    /// Three quarters of the reads are no larger, in bytes.
    pub read_quartile3_bytes: u32,
    /// Three quarters of the writes are no larger, in bytes.
    pub write_quartile3_bytes: u32,
    /// Bursts in the busiest 30 minutes.
    pub max_bursts: u32,
}

/// Published marginals and ranges of the other parameters.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Family {
    /// Published marginals.
    pub marginals: Marginals,
    /// Exponent of the Zipf law of traffic over volumes.
    pub volume_skew: Range,
    /// Hurst parameter of a volume's load, above 1/2 and below 1.
    pub hurst: Range,
    /// Amplitude of the Markov sources, relative to a volume's mean load.
    pub modulation: Range,
    /// Amplitude of the daily variation.
    pub diurnal: Range,
    /// Load in a burst over the mean load.
    pub burst_height: Range,
    /// Length of a burst, in seconds.
    pub burst_length_s: Range,
    /// Fraction of the volumes that participate in a burst.
    pub burst_volumes: Range,
    /// Fewest bursts in a window, as a fraction of the most.
    pub burst_min_fraction: Range,
    /// Mean requests per batch.
    pub batch: Range,
    /// Fraction of requests of 4 KiB.
    pub small: Range,
    /// Shape of the size distribution; larger means a lighter tail.
    pub tail: Range,
    /// Fraction of a volume that is hot.
    pub hot_space: Range,
    /// Fraction of the requests to the hot part.
    pub hot_traffic: Range,
}

/// Parameters of one surrogate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Member {
    /// Published marginals.
    pub marginals: Marginals,
    /// Exponent of the Zipf law of traffic over volumes.
    pub volume_skew: f64,
    /// Hurst parameter of a volume's load, above 1/2 and below 1.
    pub hurst: f64,
    /// Amplitude of the Markov sources, relative to a volume's mean load; below 1.
    pub modulation: f64,
    /// Amplitude of the daily variation; below 1.
    pub diurnal: f64,
    /// Load in a burst over the mean load.
    pub burst_height: f64,
    /// Length of a burst, in seconds.
    pub burst_length_s: f64,
    /// Fraction of the volumes that participate in a burst.
    pub burst_volumes: f64,
    /// Fewest bursts in a window, as a fraction of the most.
    pub burst_min_fraction: f64,
    /// Mean requests per batch, at least 1.
    pub batch: f64,
    /// Fraction of requests of 4 KiB; below 3/4.
    pub small: f64,
    /// Shape of the size distribution; larger means a lighter tail.
    pub tail: f64,
    /// Fraction of a volume that is hot.
    pub hot_space: f64,
    /// Fraction of the requests to the hot part.
    pub hot_traffic: f64,
    /// Requests per second of all volumes, without bursts.
    pub mean_iops: f64,
    /// Volumes.
    pub volumes: u32,
    /// Bytes of each volume.
    pub volume_bytes: u64,
}

/// Purposes of random streams.
const MEMBER: u64 = 1;
const RATE: u64 = 6;

impl Family {
    /// Surrogates of Alibaba's block traces.
    #[must_use]
    pub fn alibaba() -> Self {
        Self::new(Marginals {
            read_share: 0.354,
            read_quartile3_bytes: 36_800,
            write_quartile3_bytes: 24_000,
            max_bursts: 82,
        })
    }

    /// Surrogates of Tencent's block traces.
    #[must_use]
    pub fn tencent() -> Self {
        Self::new(Marginals {
            read_share: 0.396,
            read_quartile3_bytes: 47_000,
            write_quartile3_bytes: 16_800,
            max_bursts: 82,
        })
    }

    /// A family with these marginals and this project's ranges, none of which is published.
    #[must_use]
    pub fn new(marginals: Marginals) -> Self {
        Self {
            marginals,
            volume_skew: (0.4, 1.2),
            hurst: (0.55, 0.95),
            modulation: (0.05, 0.35),
            diurnal: (0.0, 0.4),
            burst_height: (4.0, 10.0),
            burst_length_s: (1.5, 4.0),
            burst_volumes: (0.1, 1.0),
            burst_min_fraction: (0.1, 0.8),
            batch: (1.0, 4.0),
            small: (0.2, 0.6),
            tail: (1.5, 4.0),
            hot_space: (0.01, 0.2),
            hot_traffic: (0.5, 0.95),
        }
    }

    /// The mean rate of a seed in requests per second, log-uniform in the range.
    #[must_use]
    pub fn rate(seed: u64, (low, high): Range) -> f64 {
        Stream::new(seed, RATE, 0).between((low.ln(), high.ln())).exp()
    }

    /// The member of a seed, with defaults of 128 volumes of 480 GB and 10,000 IOPS.
    #[must_use]
    pub fn member(&self, seed: u64) -> Member {
        let mut stream = Stream::new(seed, MEMBER, 0);
        let mut draw = |range: Range| stream.between(range);
        Member {
            marginals: self.marginals,
            volume_skew: draw(self.volume_skew),
            hurst: draw(self.hurst),
            modulation: draw(self.modulation),
            diurnal: draw(self.diurnal),
            burst_height: draw(self.burst_height),
            burst_length_s: draw(self.burst_length_s),
            burst_volumes: draw(self.burst_volumes),
            burst_min_fraction: draw(self.burst_min_fraction),
            batch: draw(self.batch),
            small: draw(self.small),
            tail: draw(self.tail),
            hot_space: draw(self.hot_space),
            hot_traffic: draw(self.hot_traffic),
            mean_iops: 10_000.0,
            volumes: 128,
            volume_bytes: 480_000_000_000,
        }
    }
}

#[cfg(test)]
mod tests;
