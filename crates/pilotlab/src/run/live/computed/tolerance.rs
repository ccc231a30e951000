//! How far the machine with scheduled cores may be from the one that the committed results were made with, by metric.
//!
//! Fixed before the two were compared. The two draw other random numbers, take interrupts between pieces of work and not behind all of
//! it, and see power on a grid of 10 us. Whoever reads a verdict off a difference of less than this reads noise: repeats of the papers'
//! own measurements differ by more.

/// A metric's name, and by how much of the larger of the two values the means over all repeats may differ.
pub(crate) const TOLERANCE: [(&str, f64); 8] = [
    ("io_per_s", 0.02),
    ("io_latency_mean_us", 0.03),
    ("io_latency_p99_us", 0.10),
    ("ssd_power_w", 0.02),
    ("cpu_power_w", 0.02),
    ("system_power_w", 0.02),
    ("cpu_busy_cores", 0.03),
    ("context_switches_per_s", 0.03),
];

/// A point may miss a metric's tolerance if no more than this share of all points does; a machine is compared, not a seed.
pub(crate) const POINTS: f64 = 0.01;
