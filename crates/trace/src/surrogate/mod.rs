//! Surrogate traces: what a cloud vendor's trace could be, where nobody may have the trace itself.
//!
//! **Problem.** SANDMAN replays traces of Alibaba and Tencent (5.6) and prints a few of their marginals. A surrogate keeps
//! those and draws the rest, so a result over surrogates is a range over members of the family, not a number.
//!
//! **Words.** A [`Family`] has the published marginals and a range for each thing that is not published. A [`Member`] has a
//! value for each; [`Family::member`] draws one. A [`Generator`] streams a member's requests for a seed.
//!
//! | fixed, published in SANDMAN 5.6 and 2.2 | Alibaba | Tencent |
//! |---|---|---|
//! | reads | 35.4 % | 39.6 % |
//! | 75 % of the reads are no larger than | 36.8 KB | 47.0 KB |
//! | 75 % of the writes are no larger than | 24.0 KB | 16.8 KB |
//! | bursts in the busiest 30 minutes | 82 | 82 (printed of Alibaba's cluster; taken for both) |
//!
//! **Algorithm.** A request is a read with the published probability, whatever came before. Its size is 4 KiB with some
//! probability, else log-logistic, with the third quartile where it was published (`sizes.rs`). Volume `i` of `N` gets a part of the
//! rate that falls as `rank^-s` (Zipf). Its rate swings with the day, and with two-state Markov sources at seven time
//! constants from 2 s to 8,192 s, a factor of 4 apart, whose variances follow `tau^(2H-2)` as in a self-similar process of
//! Hurst parameter `H` (`volume.rs`). Arrivals are a Poisson process of that rate, in batches of geometric size that go on
//! where the last request ended. On top come bursts: of some height and length, each over some of the volumes,
//! 82 in the busiest window of 30 minutes and fewer in others (`bursts.rs`), each apart from the next so that the rule of
//! [`crate::stats::bursts`] counts it as one.
//!
//! **Properties** (tested): the marginals hold; the same seed gives the same bytes; a volume's arrivals outside bursts do
//! not depend on how many volumes there are beside it, but for its part of the rate; a stretch of time can be had without
//! what comes before it ([`Generator::seek`]).
//!
//! KB are taken as 1,000 bytes and sizes are whole sectors of 512 bytes, so a printed quartile is met from below.

mod bursts;
mod generate;
mod sizes;
mod volume;

use serde::Serialize;

pub use generate::Generator;

use crate::random::Stream;

/// Low and high end of what is not published.
pub type Range = (f64, f64);

/// What of a vendor's traces is published.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Marginals {
    /// Reads over requests.
    pub read_share: f64,
    /// Three quarters of the reads are no larger, in bytes.
    pub read_quartile3_bytes: u32,
    /// Three quarters of the writes are no larger, in bytes.
    pub write_quartile3_bytes: u32,
    /// Bursts in the busiest 30 minutes.
    pub most_bursts: u32,
}

/// Published marginals, and ranges of the rest.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Family {
    /// Fixed.
    pub marginals: Marginals,
    /// Exponent of the Zipf law of traffic over volumes.
    pub volume_skew: Range,
    /// Hurst parameter of a volume's load, above 1/2 and below 1.
    pub hurst: Range,
    /// How far the Markov sources swing a volume's load, as a part of its mean.
    pub modulation: Range,
    /// How far the day swings it.
    pub diurnal: Range,
    /// Load in a burst over the mean load.
    pub burst_height: Range,
    /// Length of a burst, in seconds.
    pub burst_length_s: Range,
    /// The part of the volumes that take part in a burst.
    pub burst_volumes: Range,
    /// Fewest bursts in a window, over the most.
    pub burst_least: Range,
    /// Mean number of requests of a batch.
    pub batch: Range,
    /// Requests of 4 KiB, of all.
    pub small: Range,
    /// Shape of the sizes' tail: the larger, the lighter.
    pub tail: Range,
    /// The part of a volume that is hot.
    pub hot_space: Range,
    /// The part of its requests that go there.
    pub hot_traffic: Range,
}

/// One draw of a family: a value for everything.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Member {
    /// Fixed.
    pub marginals: Marginals,
    /// Exponent of the Zipf law of traffic over volumes.
    pub volume_skew: f64,
    /// Hurst parameter of a volume's load, above 1/2 and below 1.
    pub hurst: f64,
    /// How far the Markov sources swing a volume's load, as a part of its mean; below 1.
    pub modulation: f64,
    /// How far the day swings it; below 1.
    pub diurnal: f64,
    /// Load in a burst over the mean load.
    pub burst_height: f64,
    /// Length of a burst, in seconds.
    pub burst_length_s: f64,
    /// The part of the volumes that take part in a burst.
    pub burst_volumes: f64,
    /// Fewest bursts in a window, over the most.
    pub burst_least: f64,
    /// Mean number of requests of a batch, at least 1.
    pub batch: f64,
    /// Requests of 4 KiB, of all; below 3/4.
    pub small: f64,
    /// Shape of the sizes' tail: the larger, the lighter.
    pub tail: f64,
    /// The part of a volume that is hot.
    pub hot_space: f64,
    /// The part of its requests that go there.
    pub hot_traffic: f64,
    /// Requests a second of all volumes together, bursts left out.
    pub mean_iops: f64,
    /// Volumes.
    pub volumes: u32,
    /// Bytes of each volume.
    pub volume_bytes: u64,
}

/// Purposes of draws: a member's, and a rate's.
const MEMBER: u64 = 1;
const RATE: u64 = 6;

impl Family {
    /// Surrogates of Alibaba's block traces.
    #[must_use]
    pub fn alibaba() -> Self {
        Self::with(Marginals {
            read_share: 0.354,
            read_quartile3_bytes: 36_800,
            write_quartile3_bytes: 24_000,
            most_bursts: 82,
        })
    }

    /// Surrogates of Tencent's.
    #[must_use]
    pub fn tencent() -> Self {
        Self::with(Marginals {
            read_share: 0.396,
            read_quartile3_bytes: 47_000,
            write_quartile3_bytes: 16_800,
            most_bursts: 82,
        })
    }

    /// These marginals, and the ranges that this project draws from. None of the ranges is published.
    #[must_use]
    pub fn with(marginals: Marginals) -> Self {
        Self {
            marginals,
            volume_skew: (0.4, 1.2),
            hurst: (0.55, 0.95),
            modulation: (0.05, 0.35),
            diurnal: (0.0, 0.4),
            burst_height: (4.0, 10.0),
            burst_length_s: (1.5, 4.0),
            burst_volumes: (0.1, 1.0),
            burst_least: (0.1, 0.8),
            batch: (1.0, 4.0),
            small: (0.2, 0.6),
            tail: (1.5, 4.0),
            hot_space: (0.01, 0.2),
            hot_traffic: (0.5, 0.95),
        }
    }

    /// The mean rate of a seed, in requests a second, between two: drawn evenly over its logarithm.
    #[must_use]
    pub fn rate(seed: u64, (low, high): Range) -> f64 {
        Stream::new(seed, RATE, 0).between((low.ln(), high.ln())).exp()
    }

    /// The member of a seed, with 128 volumes of 480 GB and 10,000 IOPS; change what you know better.
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
            burst_least: draw(self.burst_least),
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
