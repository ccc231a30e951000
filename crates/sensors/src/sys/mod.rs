//! The system calls that no library wraps: counters of the power PMU, messages of IPMI, and programs that are
//! waited for together with what they cost. All `unsafe` of this crate is here.

pub(crate) mod child;
pub(crate) mod ipmi;
pub(crate) mod perf;
