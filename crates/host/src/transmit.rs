//! Pending bytes: headers are stored here, data is referred to in the arena.
//!
//! A write's data stays in the queue pair's arena and is never copied; [`Transmit::slices`] returns slices in the order of the
//! stream. Consecutive headers become one slice, so that a batch of reads is one.

use std::io::IoSlice;
use std::ops::Range;

/// Most slices of a `sendmsg`.
pub(crate) const MAX_SLICES: usize = 128;

#[derive(Clone, Copy, Debug)]
enum Source {
    Headers,
    Arena,
}

/// A run of bytes in one of the two stores.
#[derive(Clone, Copy, Debug)]
struct Segment {
    source: Source,
    start: usize,
    len: usize,
}

/// Pending bytes, in order.
#[derive(Debug, Default)]
pub(crate) struct Transmit {
    headers: Vec<u8>,
    segments: Vec<Segment>,
    /// Segments before this one are sent.
    next: usize,
}

impl Transmit {
    /// Capacity for `headers` bytes and `segments` segments.
    #[must_use]
    pub(crate) fn with_capacity(headers: usize, segments: usize) -> Self {
        Self { headers: Vec::with_capacity(headers), segments: Vec::with_capacity(segments), next: 0 }
    }

    /// Appends a copy of `bytes`.
    #[inline]
    pub(crate) fn push_header(&mut self, bytes: &[u8]) {
        let start = self.headers.len();
        self.headers.extend_from_slice(bytes);
        if let Some(last) = self.segments.last_mut()
            && matches!(last.source, Source::Headers)
            && last.start + last.len == start
        {
            last.len += bytes.len();
            return;
        }
        self.segments.push(Segment { source: Source::Headers, start, len: bytes.len() });
    }

    /// Appends `range` of the arena, which must not change until it is sent.
    #[inline]
    pub(crate) fn push_data(&mut self, range: Range<usize>) {
        self.segments.push(Segment { source: Source::Arena, start: range.start, len: range.len() });
    }

    /// Whether everything is sent.
    #[inline]
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.next == self.segments.len()
    }

    /// Fills `out` with the next slices to send; returns their number.
    #[inline]
    pub(crate) fn slices<'a>(&'a self, arena: &'a [u8], out: &mut [IoSlice<'a>; MAX_SLICES]) -> usize {
        let waiting = &self.segments[self.next..];
        for (slot, s) in out.iter_mut().zip(waiting) {
            let store = match s.source {
                Source::Headers => self.headers.as_slice(),
                Source::Arena => arena,
            };
            *slot = IoSlice::new(&store[s.start..s.start + s.len]);
        }
        waiting.len().min(MAX_SLICES)
    }

    /// Like [`Transmit::slices`], at most `most` bytes.
    #[cfg(feature = "testing")]
    pub(crate) fn piece<'a>(&'a self, arena: &'a [u8], most: usize, out: &mut [IoSlice<'a>; MAX_SLICES]) -> usize {
        let (mut left, mut used) = (most, 0);
        for s in self.segments[self.next..].iter().take(MAX_SLICES) {
            let store = match s.source {
                Source::Headers => self.headers.as_slice(),
                Source::Arena => arena,
            };
            let len = s.len.min(left);
            if len == 0 {
                break;
            }
            out[used] = IoSlice::new(&store[s.start..s.start + len]);
            (left, used) = (left - len, used + 1);
        }
        used
    }

    /// Removes the first `sent` bytes.
    #[inline]
    pub(crate) fn consume(&mut self, mut sent: usize) {
        while sent > 0 {
            let segment = &mut self.segments[self.next];
            if sent < segment.len {
                segment.start += sent;
                segment.len -= sent;
                break;
            }
            sent -= segment.len;
            self.next += 1;
        }
        self.free_sent();
    }

    /// Frees sent segments, once that is all or most of them.
    #[inline]
    fn free_sent(&mut self) {
        if self.is_empty() {
            self.headers.clear();
            self.segments.clear();
            self.next = 0;
        } else if self.next > 64 && self.next > self.segments.len() / 2 {
            self.compact();
        }
    }

    #[cold]
    fn compact(&mut self) {
        self.segments.drain(..self.next);
        self.next = 0;
        let first = self.segments.iter().filter(|s| matches!(s.source, Source::Headers)).map(|s| s.start).min();
        let gone = first.unwrap_or(self.headers.len());
        self.headers.drain(..gone);
        for s in self.segments.iter_mut().filter(|s| matches!(s.source, Source::Headers)) {
            s.start -= gone;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Header(Vec<u8>),
        Data(usize, usize),
        Send(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            proptest::collection::vec(any::<u8>(), 1..40).prop_map(Step::Header),
            (0usize..200, 1usize..56).prop_map(|(start, len)| Step::Data(start, len)),
            (0usize..300).prop_map(Step::Send),
        ]
    }

    proptest! {
        /// The appended bytes are sent in order, in portions of any length.
        #[test]
        fn the_stream_is_the_concatenation(steps in proptest::collection::vec(step(), 1..400)) {
            let arena: Vec<u8> = (0..=255).collect();
            let (mut tx, mut expected, mut sent) = (Transmit::default(), Vec::new(), Vec::new());
            for step in steps.into_iter().chain(std::iter::repeat_n(Step::Send(usize::MAX), 8)) {
                match step {
                    Step::Header(bytes) => {
                        tx.push_header(&bytes);
                        expected.extend_from_slice(&bytes);
                    }
                    Step::Data(start, len) => {
                        tx.push_data(start..start + len);
                        expected.extend_from_slice(&arena[start..start + len]);
                    }
                    Step::Send(most) => {
                        let mut out = [IoSlice::new(&[]); MAX_SLICES];
                        let n = if most % 2 == 0 { tx.piece(&arena, most, &mut out) } else { tx.slices(&arena, &mut out) };
                        let batch: Vec<u8> = out[..n].iter().flat_map(|s| s.iter().copied()).take(most).collect();
                        sent.extend_from_slice(&batch);
                        tx.consume(batch.len());
                    }
                }
            }
            prop_assert!(tx.is_empty());
            prop_assert_eq!(sent, expected);
        }
    }

    #[test]
    fn headers_in_a_row_are_one_slice() {
        let mut tx = Transmit::default();
        (0..100).for_each(|_| tx.push_header(&[1; 72]));
        let mut out = [IoSlice::new(&[]); MAX_SLICES];
        assert_eq!(tx.slices(&[], &mut out), 1);
        assert_eq!(out[0].len(), 7200);
    }
}
