//! Any closure as a sensor: for what only the caller can read, such as the target's own counters over its control socket.

use crate::sensor::{Domain, ReadError, Reading, Sensor};

/// A closure that reads.
pub struct Hook<F> {
    name: String,
    domains: Vec<Domain>,
    interval_ns: u64,
    slow: bool,
    read: F,
}

impl<F: FnMut(&mut Vec<Reading>) -> Result<(), ReadError> + Send> Hook<F> {
    /// `read` gives values of `domains`; something new comes every `interval_ns`.
    pub fn new(name: impl Into<String>, domains: Vec<Domain>, interval_ns: u64, read: F) -> Self {
        Self { name: name.into(), domains, interval_ns, slow: false, read }
    }

    /// Reading can take long: it gets a thread of its own.
    #[must_use]
    pub fn slow(self) -> Self {
        Self { slow: true, ..self }
    }
}

impl<F: FnMut(&mut Vec<Reading>) -> Result<(), ReadError> + Send> Sensor for Hook<F> {
    fn name(&self) -> &str {
        &self.name
    }

    fn domains(&self) -> &[Domain] {
        &self.domains
    }

    fn native_interval_ns(&self) -> u64 {
        self.interval_ns
    }

    fn slow(&self) -> bool {
        self.slow
    }

    fn read(&mut self, into: &mut Vec<Reading>) -> Result<(), ReadError> {
        (self.read)(into)
    }
}
