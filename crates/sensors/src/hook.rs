//! A closure as a sensor, for values that only the caller can read.

use crate::sensor::{Domain, ReadError, Reading, Sensor, SensorInfo};

/// A sensor that calls a closure.
pub struct Hook<F> {
    info: SensorInfo,
    read: F,
}

impl<F: FnMut(&mut Vec<Reading>) -> Result<(), ReadError> + Send> Hook<F> {
    /// `read` returns values of `domains`, which are updated every `interval_ns`.
    pub fn new(name: impl Into<String>, domains: Vec<Domain>, interval_ns: u64, read: F) -> Self {
        Self { info: SensorInfo::new(name, interval_ns, domains), read }
    }

    /// Marks the sensor as slow: the sampler reads it in a separate thread.
    #[must_use]
    pub fn slow(mut self) -> Self {
        self.info.slow = true;
        self
    }
}

impl<F: FnMut(&mut Vec<Reading>) -> Result<(), ReadError> + Send> Sensor for Hook<F> {
    fn info(&self) -> &SensorInfo {
        &self.info
    }

    fn read(&mut self, into: &mut Vec<Reading>) -> Result<(), ReadError> {
        (self.read)(into)
    }
}
