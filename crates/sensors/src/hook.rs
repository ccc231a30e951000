//! Any closure as a sensor: for what only the caller can read, such as the target's own counters over its control socket.

use crate::sensor::{About, Domain, ReadError, Reading, Sensor};

/// A closure that reads.
pub struct Hook<F> {
    about: About,
    read: F,
}

impl<F: FnMut(&mut Vec<Reading>) -> Result<(), ReadError> + Send> Hook<F> {
    /// `read` gives values of `domains`; something new comes every `interval_ns`.
    pub fn new(name: impl Into<String>, domains: Vec<Domain>, interval_ns: u64, read: F) -> Self {
        Self { about: About::new(name, interval_ns, domains), read }
    }

    /// Reading can take long: it gets a thread of its own.
    #[must_use]
    pub fn slow(mut self) -> Self {
        self.about.slow = true;
        self
    }
}

impl<F: FnMut(&mut Vec<Reading>) -> Result<(), ReadError> + Send> Sensor for Hook<F> {
    fn about(&self) -> &About {
        &self.about
    }

    fn read(&mut self, into: &mut Vec<Reading>) -> Result<(), ReadError> {
        (self.read)(into)
    }
}
