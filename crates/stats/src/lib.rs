//! Statistics of simulated and measured runs, as pure functions.
//!
//! The warm-up of a run is removed first ([`warmup`]). The rest gives a value with an interval: over batches of one long run
//! ([`batch`]), over replications ([`mean`]), of quantiles ([`quantile`]), proportions ([`binomial`]) and comparisons of two systems on
//! the same random numbers ([`paired`]) or on different ones ([`compare`], [`contrast`]). [`latin`] samples uncertain constants, [`rank`]
//! ranks their influence, [`dispersion`] measures burstiness, [`linear`] fits lines and planes, [`inert`] finds parameters without effect.
//!
//! Properties: no function reads a clock or a random source (sampling takes a seed); except for time series, the order of inputs does not
//! matter; an interval that cannot be determined is unbounded.

pub mod batch;
pub mod binomial;
pub mod compare;
pub mod contrast;
pub mod dispersion;
mod estimate;
pub mod inert;
pub mod latin;
pub mod linear;
pub mod mean;
pub mod paired;
pub mod quantile;
pub mod rank;
#[cfg(test)]
mod sample;
pub mod warmup;

pub use estimate::{CONFIDENCE, Estimate};
