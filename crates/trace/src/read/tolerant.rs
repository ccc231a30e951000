//! The requests of a trace alone, and a tally of what was malformed.

use super::reader::Reader;
use crate::request::{Malformed, Request};

/// Malformed lines that are kept in words.
const KEPT: usize = 5;

/// What was malformed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// How many lines.
    pub count: u64,
    /// The first of them.
    pub first: Vec<Malformed>,
    /// What ended the reading before the end of the file: the file cannot be read on, or reading is strict.
    pub ended: Option<Malformed>,
}

/// An iterator over the requests of a trace.
pub struct Tolerant {
    reader: Reader,
    strict: bool,
    faults: Faults,
}

impl Tolerant {
    pub(super) fn new(reader: Reader, strict: bool) -> Self {
        Self { reader, strict, faults: Faults::default() }
    }

    /// What was malformed so far.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// The reader beneath.
    #[must_use]
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    fn note(&mut self, malformed: Malformed) {
        if self.strict || malformed.is_fatal() {
            self.faults.ended = Some(malformed.clone());
        }
        self.faults.count += 1;
        if self.faults.first.len() < KEPT {
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
