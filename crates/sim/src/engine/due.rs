//! Event queues of an I/O thread, the earliest first.
//!
//! Drives complete commands nearly in order, so a sorted list with insertion from the end is faster than a heap (133 instead of 198
//! instructions per request, `valgrind --tool=callgrind` on `examples/speed`). Values far out of order go to a heap.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Maximum number of elements that one insertion moves.
const MOVES: usize = 64;

/// A first-in, first-out queue.
#[derive(Debug)]
pub(crate) struct Fifo<T> {
    /// Elements before `first` have been removed.
    values: Vec<T>,
    first: usize,
}

impl<T: Copy> Fifo<T> {
    pub(crate) fn new() -> Self {
        Self { values: Vec::new(), first: 0 }
    }

    #[inline]
    pub(crate) fn push(&mut self, value: T) {
        self.values.push(value);
    }

    #[inline]
    pub(crate) fn first(&self) -> Option<&T> {
        self.values.get(self.first)
    }

    /// Takes the first if `wanted`.
    #[inline]
    pub(crate) fn pop_if(&mut self, wanted: impl Fn(&T) -> bool) -> Option<T> {
        let first = *self.first().filter(|first| wanted(first))?;
        self.first += 1;
        if self.first * 2 >= self.values.len() + MOVES {
            self.forget();
        }
        Some(first)
    }

    /// Releases removed elements once they are half of all.
    #[inline(never)]
    fn forget(&mut self) {
        self.values.drain(..self.first);
        self.first = 0;
    }
}

/// A priority queue, the least first.
#[derive(Debug)]
pub(crate) struct DueQueue<T> {
    /// In ascending order.
    near: Fifo<T>,
    /// Elements whose insertion would move too many.
    far: BinaryHeap<Reverse<T>>,
}

impl<T: Ord + Copy> DueQueue<T> {
    pub(crate) fn new() -> Self {
        Self { near: Fifo::new(), far: BinaryHeap::new() }
    }

    #[inline(always)] // as a call it gets its value through memory
    pub(crate) fn push(&mut self, value: T) {
        let near = &mut self.near.values[self.near.first..];
        if near.len() > MOVES && near[near.len() - MOVES] > value {
            self.far.push(Reverse(value));
            return;
        }
        self.near.push(value);
        let near = &mut self.near.values[self.near.first..];
        let mut at = near.len() - 1;
        while at > 0 && near[at - 1] > value {
            near[at] = near[at - 1];
            at -= 1;
        }
        near[at] = value;
    }

    #[inline]
    pub(crate) fn first(&self) -> Option<&T> {
        let near = self.near.first();
        let Some(Reverse(far)) = self.far.peek() else { return near };
        near.filter(|near| *near <= far).or(Some(far))
    }

    /// Takes the first if `wanted`.
    #[inline]
    pub(crate) fn pop_if(&mut self, wanted: impl Fn(&T) -> bool) -> Option<T> {
        if !self.far.is_empty() && self.near.first() != self.first() {
            self.far.peek().filter(|Reverse(far)| wanted(far))?;
            return self.far.pop().map(|Reverse(far)| far);
        }
        self.near.pop_if(wanted)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_behaves_like_a_heap(steps in prop::collection::vec((0..4_u8, 0..1_000_u64, 0..3_u64), 0..600)) {
            let (mut due, mut heap) = (DueQueue::new(), BinaryHeap::new());
            for (index, (kind, value, rise)) in steps.into_iter().enumerate() {
                if kind > 0 {
                    let value = value + index as u64 * rise;
                    due.push(value);
                    heap.push(Reverse(value));
                } else {
                    prop_assert_eq!(due.pop_if(|_| true), heap.pop().map(|Reverse(value)| value));
                }
                prop_assert_eq!(due.first(), heap.peek().map(|Reverse(value)| value));
            }
        }
    }

    #[test]
    fn removed_elements_free_their_memory() {
        let mut due = DueQueue::new();
        for value in 0..100_000_u64 {
            due.push(value);
            due.push(value + 100_000);
            assert!(due.pop_if(|&first| first <= value).is_some());
            assert!(due.pop_if(|&first| first > value).is_some());
        }
        assert!(due.near.values.capacity() < 1_000, "{}", due.near.values.capacity());
    }
}
