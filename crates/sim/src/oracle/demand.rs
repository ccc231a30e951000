//! Work and its deadlines, as a fluid in nanoseconds of a core at full speed.

/// Work over a run, slot by slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// The slots, in time order.
    pub slots: Vec<Slot>,
    /// Allowed delay of a response relative to static polling, in nanoseconds.
    pub epsilon_ns: u64,
}

/// A stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// Its length in nanoseconds.
    pub length_ns: u64,
    /// Work that arrives in it, in nanoseconds of a core.
    pub work_ns: u64,
    /// Work that static polling completes in it, in nanoseconds of a core.
    pub done_static_ns: u64,
}

/// A slot of the oracle, with bounds on the cumulative work by its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Its length in nanoseconds.
    pub length_ns: u64,
    /// Work that must be done by its end, in nanoseconds of a core.
    pub least_ns: u64,
    /// Work that has arrived by its end, in nanoseconds of a core.
    pub most_ns: u64,
}

/// The spans of a measured time, and the work before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkBounds {
    /// Bounds on the work before the measured time, as a span of zero length.
    pub before: Span,
    /// The spans, in time order.
    pub spans: Vec<Span>,
}

impl WorkBounds {
    /// Work that must be done in the measured time, in nanoseconds of a core.
    #[must_use]
    pub fn due_ns(&self) -> u64 {
        self.spans.last().map_or(0, |last| last.least_ns.saturating_sub(self.before.most_ns))
    }

    /// Length of the measured time in nanoseconds.
    #[must_use]
    pub fn length_ns(&self) -> u64 {
        self.spans.iter().map(|span| span.length_ns).sum()
    }
}

/// Limits for merging slots into spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotLimits {
    /// Minimum length of a span, in nanoseconds.
    pub least_ns: u64,
    /// Maximum length of a span, in nanoseconds.
    pub most_ns: u64,
}

impl Demand {
    /// Demand from the numbers of requests arrived and completed by static polling per stretch of `length_ns`, at `request_ns` per request.
    #[must_use]
    pub fn of_requests(length_ns: u64, arrived: &[u64], finished: &[u64], request_ns: u64, epsilon_ns: u64) -> Self {
        let slot = |(arrived, finished): (&u64, &u64)| Slot {
            length_ns,
            work_ns: arrived * request_ns,
            done_static_ns: finished * request_ns,
        };
        Self { slots: arrived.iter().zip(finished).map(slot).collect(), epsilon_ns }
    }

    /// Merges slots into spans: a span ends where the next slot's work differs from its own mean by more than a core, once it has the minimum length,
    /// or at the maximum length. The work due by an end is static polling's at the last end of a slot that is epsilon or more earlier: never an
    /// overestimate. Slots that begin before `from_ns` are in no span; their work is in [`WorkBounds::before`].
    #[must_use]
    pub fn plan(&self, from_ns: u64, grain: SlotLimits) -> WorkBounds {
        let mut plan = WorkBounds::default();
        let (mut due, mut now_ns, mut arrived) = (DueWork::new(self), 0, 0);
        let (mut length_ns, mut work_ns) = (0, 0);
        for (index, slot) in self.slots.iter().enumerate() {
            let is_before = now_ns < from_ns;
            now_ns += slot.length_ns;
            arrived += slot.work_ns;
            if is_before {
                plan.before = Span { length_ns: 0, least_ns: due.by(now_ns), most_ns: arrived };
                continue;
            }
            length_ns += slot.length_ns;
            work_ns += slot.work_ns;
            let next = self.slots.get(index + 1);
            let full = next.is_none_or(|next| length_ns + next.length_ns > grain.most_ns);
            let turns = next.is_some_and(|next| length_ns >= grain.least_ns && differs(work_ns, length_ns, next));
            if full || turns {
                plan.spans.push(Span { length_ns, least_ns: due.by(now_ns), most_ns: arrived });
                (length_ns, work_ns) = (0, 0);
            }
        }
        plan
    }
}

fn differs(work_ns: u64, length_ns: u64, next: &Slot) -> bool {
    let product = |work: u64, length: u64| u128::from(work) * u128::from(length);
    let (mine, its) = (product(work_ns, next.length_ns), product(next.work_ns, length_ns));
    mine.abs_diff(its) > product(length_ns, next.length_ns)
}

/// Static polling's work at an earlier time.
struct DueWork<'a> {
    slots: std::slice::Iter<'a, Slot>,
    next: Option<&'a Slot>,
    epsilon_ns: u64,
    end_ns: u64,
    done_ns: u64,
}

impl<'a> DueWork<'a> {
    fn new(demand: &'a Demand) -> Self {
        let mut slots = demand.slots.iter();
        let next = slots.next();
        Self { slots, next, epsilon_ns: demand.epsilon_ns, end_ns: 0, done_ns: 0 }
    }

    fn by(&mut self, now_ns: u64) -> u64 {
        while let Some(slot) = self.next.filter(|slot| self.end_ns + slot.length_ns + self.epsilon_ns <= now_ns) {
            self.end_ns += slot.length_ns;
            self.done_ns += slot.done_static_ns;
            self.next = self.slots.next();
        }
        self.done_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(work: &[u64], epsilon_ns: u64) -> Demand {
        Demand::of_requests(10, work, work, 1, epsilon_ns)
    }

    #[test]
    fn due_work_is_the_work_done_epsilon_ago() {
        let spans = demand(&[5, 6, 7, 8], 10).plan(0, SlotLimits { least_ns: 10, most_ns: 10 }).spans;
        let expected = [(0, 5), (5, 11), (11, 18), (18, 26)];
        assert_eq!(spans.iter().map(|span| (span.least_ns, span.most_ns)).collect::<Vec<_>>(), expected);
        let spans = demand(&[5, 6, 7, 8], 1).plan(0, SlotLimits { least_ns: 10, most_ns: 10 }).spans;
        assert_eq!(spans.iter().map(|span| span.least_ns).collect::<Vec<_>>(), [0, 5, 11, 18]);
    }

    #[test]
    fn a_span_ends_where_the_load_turns() {
        let spans = demand(&[5, 5, 5, 45, 45, 5, 5, 5, 5], 0).plan(0, SlotLimits { least_ns: 20, most_ns: 30 }).spans;
        assert_eq!(spans.iter().map(|span| span.length_ns).collect::<Vec<_>>(), [30, 20, 30, 10]);
        assert_eq!(spans.last().map(|span| (span.least_ns, span.most_ns)), Some((125, 125)));
    }

    #[test]
    fn work_before_the_measured_time_is_separate() {
        let plan = demand(&[5, 6, 7, 8], 10).plan(20, SlotLimits { least_ns: 10, most_ns: 10 });
        assert_eq!(plan.before, Span { length_ns: 0, least_ns: 5, most_ns: 11 });
        assert_eq!((plan.spans.len(), plan.length_ns(), plan.due_ns()), (2, 20, 7));
    }

    proptest::proptest! {
        /// Static polling itself is always in time.
        #[test]
        fn static_polling_is_between_its_bounds(
            slots in proptest::collection::vec((1..20_u64, 0..50_u64, 0..50_u64), 1..40),
            epsilon_ns in 0..60_u64,
            from_ns in 0..60_u64,
            least_ns in 1..40_u64,
        ) {
            let (mut waiting, mut done) = (0, vec![(0, 0)]);
            let slots = slots.into_iter().map(|(length_ns, work_ns, could_ns)| {
                waiting += work_ns;
                let done_static_ns = could_ns.min(waiting);
                waiting -= done_static_ns;
                let &(at_ns, before) = done.last().unwrap();
                done.push((at_ns + length_ns, before + done_static_ns));
                Slot { length_ns, work_ns, done_static_ns }
            });
            let demand = Demand { slots: slots.collect(), epsilon_ns };
            let plan = demand.plan(from_ns, SlotLimits { least_ns, most_ns: 2 * least_ns });
            let all: u64 = demand.slots.iter().map(|slot| slot.length_ns).sum();
            let mut at_ns = all - plan.length_ns();
            for span in std::iter::once(&plan.before).chain(&plan.spans) {
                at_ns += span.length_ns;
                let did = done.iter().find(|&&(end_ns, _)| end_ns == at_ns).unwrap().1;
                proptest::prop_assert!(span.least_ns <= did && did <= span.most_ns, "{span:?} at {at_ns}: {did}");
            }
        }
    }
}
