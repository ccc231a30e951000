//! Iterator over the requests of a trace that counts malformed lines.

use super::reader::Reader;
use crate::request::{Malformed, Request};

/// Malformed lines that are kept.
const MAX_KEPT: usize = 5;

/// Malformed lines of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Number of malformed lines.
    pub count: u64,
    /// The first ones.
    pub first: Vec<Malformed>,
    /// The error that ended reading: the file is unreadable, or the iterator is strict.
    pub ended: Option<Malformed>,
}

/// An iterator over the requests of a trace.
pub struct Tolerant {
    reader: Reader,
    strict: bool,
    faults: Faults,
}

impl Reader {
    /// An iterator over the requests that counts malformed lines and keeps the first ones. With `strict` it ends at the first.
    #[must_use]
    pub fn tolerant(self, strict: bool) -> Tolerant {
        Tolerant { reader: self, strict, faults: Faults::default() }
    }
}

impl Tolerant {
    /// Malformed lines so far.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// The underlying reader.
    #[must_use]
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    fn note(&mut self, malformed: Malformed) {
        if self.strict || malformed.is_fatal() {
            self.faults.ended = Some(malformed.clone());
        }
        self.faults.count += 1;
        if self.faults.first.len() < MAX_KEPT {
            self.faults.first.push(malformed);
        }
    }
}

impl Iterator for Tolerant {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        loop {
            if self.strict && self.faults.ended.is_some() {
                return None;
            }
            match self.reader.next()? {
                Ok(request) => return Some(request),
                Err(malformed) => self.note(malformed),
            }
        }
    }
}
