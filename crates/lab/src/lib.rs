//! Experiments on the simulator: files, sweeps, results, claims.

pub mod claims;
