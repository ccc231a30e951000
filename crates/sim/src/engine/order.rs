//! What happens in a window, in the order of time.
//!
//! Every core and every connection hands over its own in order; equal times are ordered by core, then as handed over. Time, core
//! and place are packed into one word, because sorting words is the cheapest there is.

/// Places in order; kept for its memory.
#[derive(Debug, Default)]
pub(crate) struct Order {
    keys: Vec<u64>,
}

const PLACE_BITS: u32 = 20;
const CORE_BITS: u32 = 16;

impl Order {
    /// Puts those of `items` first that come before `until_ns`, as places in order; `from_ns` is not after any of them.
    pub(crate) fn until<T>(&mut self, items: &[T], from_ns: u64, until_ns: u64, at: impl Fn(&T) -> (u64, u16)) {
        assert!(items.len() <= 1 << PLACE_BITS, "a window holds at most a million events");
        self.keys.clear();
        for (place, item) in items.iter().enumerate() {
            let (at_ns, core) = at(item);
            if at_ns < until_ns {
                let offset = at_ns - from_ns;
                debug_assert!(offset < 1 << (64 - PLACE_BITS - CORE_BITS), "windows with events are short");
                self.keys.push((offset << (PLACE_BITS + CORE_BITS)) | (u64::from(core) << PLACE_BITS) | place as u64);
            }
        }
        self.keys.sort_unstable();
    }

    /// The places, in order.
    pub(crate) fn places(&self) -> impl Iterator<Item = usize> + '_ {
        self.keys.iter().map(|key| (key & ((1 << PLACE_BITS) - 1)) as usize)
    }

    /// How many.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_order_is_that_of_a_stable_sort(items in prop::collection::vec((0..100_u64, 0..4_u16), 0..50), until in 0..100_u64) {
            let mut order = Order::default();
            order.until(&items, 0, until, |&item| item);
            let mut expected: Vec<_> = (0..items.len()).filter(|&place| items[place].0 < until).collect();
            expected.sort_by_key(|&place| items[place]);
            prop_assert_eq!(order.places().collect::<Vec<_>>(), expected);
        }
    }
}
