//! The detector against the definition of section 4.4.2 written out: mean and variance of a list, a root and a division.

#[path = "support/dice.rs"]
mod dice;

use std::collections::VecDeque;

use dice::Dice;
use pilotlight_plant::{ThreadCount, ThreadId, Tick};
use pilotlight_policy::sandman::Parameters;
use pilotlight_policy::sandman::detector::Detector;
use pilotlight_policy::sandman::parameters::{Confirm, Late, Resume, Spread};
use proptest::prelude::*;

const TICK_NS: u64 = 10_000;

/// One thread, by the book.
struct ByTheBook {
    parameters: Parameters,
    window: VecDeque<f64>,
    above: VecDeque<bool>,
}

impl ByTheBook {
    fn new(parameters: &Parameters) -> Self {
        Self { parameters: parameters.clone(), window: VecDeque::new(), above: VecDeque::new() }
    }

    /// The bound, if there is one.
    fn bound(&self) -> Option<f64> {
        let n = self.window.len() as f64;
        if self.window.len() < self.parameters.min_samples {
            return None;
        }
        let mean = self.window.iter().sum::<f64>() / n;
        let variance = self.window.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / (n - 1.0);
        let unit = match self.parameters.spread {
            Spread::Error => (variance / n).sqrt(),
            Spread::Deviation => variance.sqrt(),
        };
        Some(mean + self.parameters.z * unit)
    }

    /// Whether this count is a surge, and how far it is from the bound.
    fn count(&mut self, count: f64) -> (bool, f64) {
        let bound = self.bound();
        let above = bound.is_some_and(|bound| count > bound) && count >= f64::from(self.parameters.floor) - 0.5;
        self.window.push_back(count);
        if self.window.len() > self.parameters.window {
            self.window.pop_front();
        }
        (self.confirm(above), bound.map_or(f64::INFINITY, |bound| (count - bound).abs()))
    }

    fn confirm(&mut self, above: bool) -> bool {
        let Confirm { times, ticks } = self.parameters.confirm;
        self.above.push_back(above);
        if self.above.len() > ticks as usize {
            self.above.pop_front();
        }
        let surged = above && self.above.iter().filter(|&&above| above).count() >= times as usize;
        if surged {
            self.above.iter_mut().for_each(|above| *above = false);
        }
        surged
    }
}

fn parameters() -> impl Strategy<Value = Parameters> {
    let spread = prop_oneof![Just(Spread::Error), Just(Spread::Deviation)];
    let confirm = (1..6u32, 0..6u32).prop_map(|(times, more)| Confirm { times, ticks: times + more });
    (2..40usize, spread, 0..4u32, confirm, 2..6usize, 0.5..3.0f64).prop_map(
        |(window, spread, floor, confirm, min_samples, z)| Parameters {
            window: window.max(min_samples),
            spread,
            floor,
            confirm,
            min_samples,
            z,
            ..Parameters::default()
        },
    )
}

/// How much one thread gets: at most `most` requests in one of `one_in` ticks.
type Load = (u64, u64);

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_the_definition(
        parameters in parameters(),
        seed in any::<u64>(),
        loads in prop::collection::vec(prop::collection::vec((1..40u64, 1..30u64), 1..40), 1..5),
    ) {
        let threads = loads.iter().map(Vec::len).max().unwrap();
        let mut dice = Dice(seed);
        let mut detector = Detector::new(&parameters, threads, 0);
        let mut book: Vec<_> = (0..threads).map(|_| ByTheBook::new(&parameters)).collect();
        let mut now_ns = 0;
        for phase in &loads {
            for _ in 0..60 {
                now_ns += TICK_NS;
                tick(&mut detector, &mut book, now_ns, phase, &mut dice)?;
            }
        }
    }
}

/// One tick of both; a thread may differ only where its count is on the bound but for rounding.
fn tick(
    detector: &mut Detector,
    book: &mut [ByTheBook],
    now_ns: u64,
    loads: &[Load],
    dice: &mut Dice,
) -> Result<(), TestCaseError> {
    let mut counts = Vec::new();
    for (thread, &(most, one_in)) in loads.iter().enumerate() {
        if dice.below(one_in) == 0 {
            let requests = 1 + dice.below(most) as u32;
            counts.push(ThreadCount { thread: ThreadId(thread as u16), requests, busy_ns: 0 });
        }
    }
    let mut surged = Vec::new();
    detector.on_tick(&Tick { now_ns, elapsed_ns: TICK_NS, counts: &counts }, &mut surged);
    for (thread, book) in book.iter_mut().enumerate() {
        let thread = ThreadId(thread as u16);
        let requests = counts.iter().find(|count| count.thread == thread).map_or(0, |count| count.requests);
        let (expected, far) = book.count(f64::from(requests));
        let found = surged.contains(&thread);
        prop_assert!(found == expected || far < 1e-9, "{thread:?} at {now_ns}: {found}, by the book {expected}");
        prop_assume!(found == expected);
    }
    Ok(())
}

fn one_thread(parameters: &Parameters, ticks: &[(u64, u32)]) -> Vec<bool> {
    let mut detector = Detector::new(parameters, 1, 0);
    let mut now_ns = 0;
    let run = |&(elapsed_ns, requests): &(u64, u32)| {
        now_ns += elapsed_ns;
        let counts = [ThreadCount { thread: ThreadId(0), requests, busy_ns: 0 }];
        let mut surged = Vec::new();
        detector.on_tick(&Tick { now_ns, elapsed_ns, counts: &counts }, &mut surged);
        !surged.is_empty()
    };
    ticks.iter().map(run).collect()
}

#[test]
fn nothing_fires_while_there_is_no_error() {
    assert_eq!(one_thread(&Parameters::default(), &[(TICK_NS, 1), (TICK_NS, 50)]), [false, false]);
    assert_eq!(one_thread(&Parameters::default(), &[(TICK_NS, 1), (TICK_NS, 1), (TICK_NS, 50)]), [false, false, true]);
}

#[test]
fn a_late_tick_is_no_surge() {
    let mut ticks = vec![(TICK_NS, 4); 8];
    ticks.push((5 * TICK_NS, 20));
    assert!(!one_thread(&Parameters::default(), &ticks).contains(&true));
    ticks.push((5 * TICK_NS, 30));
    assert_eq!(one_thread(&Parameters::default(), &ticks).last(), Some(&true));
}

/// Four hundred ticks with one request in every fifth, then one tick about `intervals` with `requests`.
fn after_a_light_load(parameters: &Parameters, intervals: u64, requests: u32) -> bool {
    let mut ticks: Vec<_> = (0..400).map(|tick| (TICK_NS, u32::from(tick % 5 == 0))).collect();
    ticks.push((intervals * TICK_NS, requests));
    *one_thread(parameters, &ticks).last().unwrap()
}

#[test]
fn a_late_tick_that_is_weighed_confirms_itself_if_it_is_sure_enough() {
    let confirm = Confirm { times: 8, ticks: 8 };
    let spread = Spread::Deviation;
    let plain = Parameters { window: 256, spread, confirm, ..Parameters::default() };
    let weighed = Parameters { late: Late::Weighed, ..plain.clone() };
    // Mean 0.2 and deviation 0.4 a tick: eight in a row above 1 are sure; so is a mean above 0.2 + 1.96 * 0.4 * sqrt(8 / 32).
    assert!(!after_a_light_load(&plain, 32, 64));
    assert!(after_a_light_load(&weighed, 32, 19));
    assert!(!after_a_light_load(&weighed, 32, 18));
    // Half the ticks that are asked for are half the confirmation.
    assert!(!after_a_light_load(&weighed, 4, 40));
    assert!(after_a_light_load(&weighed, 8, 12));
}

#[test]
fn a_late_tick_counts_no_more_often_than_it_brought_requests() {
    // Nothing came before, so any request is above the bound; seven of them are not eight confirmations.
    let confirm = Confirm { times: 8, ticks: 8 };
    let spread = Spread::Deviation;
    let weighed = Parameters { window: 256, late: Late::Weighed, spread, confirm, ..Parameters::default() };
    let light = |requests| {
        let mut detector = Detector::new(&weighed, 1, 0);
        let counts = [ThreadCount { thread: ThreadId(0), requests, busy_ns: 0 }];
        let mut surged = Vec::new();
        let tick = Tick { now_ns: 1_000 * TICK_NS, elapsed_ns: 100 * TICK_NS, counts: &counts };
        detector.on_tick(&tick, &mut surged);
        !surged.is_empty()
    };
    assert!(!light(7));
    assert!(light(8));
}

#[test]
fn a_floor_is_not_missed_because_a_tick_is_a_little_late() {
    let parameters = Parameters { floor: 8, ..Parameters::default() };
    let mut ticks = vec![(TICK_NS, 1); 4];
    ticks.extend([(TICK_NS + 400, 7), (TICK_NS + 400, 8)]);
    assert_eq!(one_thread(&parameters, &ticks), [false, false, false, false, false, true]);
}

#[test]
fn quiet_time_counts_as_zeros() {
    // Steady at 10, then 300 us of silence, then 6: under the old mean, far above the window that is now nearly empty.
    let parameters = Parameters { spread: Spread::Deviation, ..Parameters::default() };
    let mut detector = Detector::new(&parameters, 1, 0);
    let mut fires = |now_ns, requests| {
        let counts = [ThreadCount { thread: ThreadId(0), requests, busy_ns: 0 }];
        let mut surged = Vec::new();
        detector.on_tick(&Tick { now_ns, elapsed_ns: TICK_NS, counts: &counts }, &mut surged);
        !surged.is_empty()
    };
    for tick in 1..=40 {
        assert!(!fires(tick * TICK_NS, 10));
    }
    assert!(!fires(41 * TICK_NS, 6));
    assert!(fires(72 * TICK_NS, 6));
}

#[test]
fn after_a_sleep_of_the_whole_server_the_window_is_empty_or_quiet() {
    for (resume, expected) in [(Resume::Anew, false), (Resume::Quiet, true)] {
        let mut detector = Detector::new(&Parameters { resume, ..Parameters::default() }, 1, 0);
        detector.restart(1_000_000_000);
        let counts = [ThreadCount { thread: ThreadId(0), requests: 8, busy_ns: 0 }];
        let mut surged = Vec::new();
        let now_ns = 1_000_000_000 + TICK_NS;
        detector.on_tick(&Tick { now_ns, elapsed_ns: TICK_NS, counts: &counts }, &mut surged);
        assert_eq!(!surged.is_empty(), expected, "{resume:?}");
    }
}
