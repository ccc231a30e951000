//! Statistics of simulated and measured runs, as pure functions of numbers.
//!
//! A run first loses its warm-up ([`warmup`]). What is left becomes a value with an interval: over batches of one long run
//! ([`batch`]), over replications ([`mean`]), for quantiles ([`quantile`]), rare events ([`binomial`]) and comparisons of two
//! systems on the same random numbers ([`paired`]) or on different ones ([`compare`], [`contrast`]). [`latin`] draws uncertain constants,
//! [`rank`] says which of them matters, [`dispersion`] how bursty arrivals are, [`linear`] fits lines and planes, [`inert`] which swept parameter changes nothing.
//!
//! Properties: no function reads a clock or a random source (the one that draws is handed a seed), none depends on the order
//! in which equal inputs are stored unless it is about time series, and an interval that cannot be known is unbounded rather
//! than narrow.

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
