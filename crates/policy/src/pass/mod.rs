//! `pass`: a power budget for the whole server (PASS).

pub mod cpu_model;
pub mod profile;
pub mod ssd_model;
