//! Whole reports on recorded machines, and what must hold of every report.

pub(super) mod fixture;
