//! Statistics of simulated and measured runs: warm-up, intervals, tests.
