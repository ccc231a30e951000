//! The values of a sensor's domains, each from a source of its own, of which some can fail: good ones are read, and a bad one has a reason.
//!
//! What fails when the sensor is opened is removed, with a note: memory whose counter stands still, or a GPU that sleeps, takes no
//! energy with it. CPU packages remain, without a value, so that no sum of packages lacks one.

use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::sensor::{Failed, Kind, Missing, Part, ReadError, Reading, SensorInfo, Why};

/// Timeout for a counter at 0 to increment, in milliseconds.
const TIMEOUT_MS: u32 = 50;

/// A source for each domain of a sensor.
#[derive(Debug)]
pub struct Sources<S> {
    sources: Vec<Result<S, Missing>>,
    value: fn(&S) -> Result<i64, ReadError>,
    failed: Vec<Failed>,
}

/// Remedies if all sources fail.
#[derive(Clone, Copy, Debug)]
pub struct Remedies {
    /// The files are not readable.
    pub denied: &'static str,
    /// The counters do not increment.
    pub not_counting: &'static str,
}

impl<S> Sources<S> {
    /// The sources of the domains in `about`, without those that fail.
    ///
    /// # Errors
    /// All fail, or all energy counters that always advance.
    pub fn open(
        info: &mut SensorInfo,
        sources: Vec<Result<S, Missing>>,
        value: fn(&S) -> Result<i64, ReadError>,
        remedies: Remedies,
    ) -> Result<Self, Missing> {
        let mut all = Self { sources, value, failed: Vec::new() };
        for domain in all.stuck(info) {
            let what = format!("the counter of {} stays at 0", info.domains[domain].name);
            all.sources[domain] = Err(Missing::new(&info.name, Why::NotCounting, what, remedies.not_counting));
        }
        let first = info.domains.iter().position(|domain| !may_stand(domain.kind)).unwrap_or(0);
        let read = all.read(&mut Vec::new());
        let is_good = |domain: usize| all.failed.iter().all(|failed| failed.domain != domain);
        let any_good = (0..info.domains.len()).any(|domain| is_good(domain) && !may_stand(info.domains[domain].kind));
        if let (true, Some(source)) = (read.is_err() || !(any_good || is_good(first)), all.sources.get(first)) {
            return Err(all.missing(&info.name, source, remedies.denied));
        }
        let is_package = |failed: &Failed| matches!(info.domains[failed.domain].part, Part::Package(_) | Part::Die(..));
        let removed: Vec<Failed> = all.failed.iter().filter(|failed| !is_package(failed)).cloned().collect();
        info.remove(&removed);
        let mut domain = 0..;
        all.sources
            .retain(|_| domain.next().is_some_and(|domain| removed.iter().all(|failed| failed.domain != domain)));
        Ok(all)
    }

    /// The counters that stay at 0 although they always advance.
    fn stuck(&mut self, info: &SensorInfo) -> Vec<usize> {
        let advances =
            |domain: usize| matches!(info.domains[domain].kind, Kind::EnergyCounter(counts) if counts.always_advances);
        let mut passed_ms = 0;
        loop {
            let mut readings = Vec::new();
            let _ = self.read(&mut readings); // what fails is not stuck
            let stuck = readings.iter().filter(|reading| reading.value == 0 && advances(reading.domain));
            let stuck: Vec<usize> = stuck.map(|reading| reading.domain).collect();
            if stuck.is_empty() || passed_ms == TIMEOUT_MS {
                return stuck;
            }
            thread::sleep(Duration::from_millis(1));
            passed_ms += 1;
        }
    }

    fn missing(&self, sensor: &str, source: &Result<S, Missing>, denied: &str) -> Missing {
        match source.as_ref().map(self.value) {
            Err(missing) => missing.clone(),
            Ok(Err(ReadError::Io { what, source })) => {
                Missing::file(sensor, Path::new(&what), &source, crate::sensor::SEE_LOG, denied)
            }
            Ok(Err(error)) => Missing::new(sensor, Why::Broken, error.to_string(), crate::sensor::SEE_LOG),
            Ok(Ok(_)) => Missing::new(sensor, Why::Broken, "no value at the first reading", "try again"),
        }
    }

    /// Reads all.
    ///
    /// # Errors
    /// All fail.
    pub fn read(&mut self, into: &mut Vec<Reading>) -> Result<(), ReadError> {
        self.failed.clear();
        for (domain, source) in self.sources.iter().enumerate() {
            let value = source.as_ref().map_err(|missing| missing.what.clone());
            match value.and_then(|source| (self.value)(source).map_err(|error| error.to_string())) {
                Ok(value) => into.push(Reading { domain, value }),
                Err(why) => self.failed.push(Failed { domain, why }),
            }
        }
        match self.failed.first() {
            Some(first) if self.failed.len() == self.sources.len() => Err(ReadError::Content(first.why.clone())),
            _ => Ok(()),
        }
    }

    /// What had no value at the last reading.
    pub fn failed(&self) -> &[Failed] {
        &self.failed
    }
}

/// Whether this is a counter that can stand still, as that of idle graphics.
fn may_stand(kind: Kind) -> bool {
    matches!(kind, Kind::EnergyCounter(counts) if !counts.always_advances)
}
