//! Block traces: readers, statistics, generators.
