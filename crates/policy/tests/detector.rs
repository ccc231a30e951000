//! The detector against a direct implementation of section 4.4.2: mean and variance of a list, a root and a division.

#[path = "support/random.rs"]
mod random;

use std::collections::VecDeque;

use pilotlight_plant::{ThreadCount, ThreadId, Tick};
use pilotlight_policy::sandman::Parameters;
use pilotlight_policy::sandman::detector::Detector;
use pilotlight_policy::sandman::parameters::{AfterSleep, Confirm, Spread};
use proptest::prelude::*;
use random::Random;

const TICK_NS: u64 = 10_000;

/// The direct implementation, for one thread.
struct Reference {
    parameters: Parameters,
    /// Counts scaled to the fine interval, with the number of intervals of each; the latest are tested.
    counts: VecDeque<(f64, f64)>,
    above: VecDeque<bool>,
}

impl Reference {
    fn new(parameters: &Parameters) -> Self {
        Self { parameters: parameters.clone(), counts: VecDeque::new(), above: VecDeque::new() }
    }

    /// Number of tested counts: the fewest of the latest that cover the averaged intervals.
    fn tested(&self) -> usize {
        let mut intervals = 0.0;
        let enough = |&(_, of)| {
            intervals += of;
            intervals >= f64::from(self.parameters.average)
        };
        let last = self.counts.iter().rev().position(enough);
        last.map_or(self.counts.len(), |last| last + 1)
    }

    /// Whether this count is a surge, and its distance from the bound.
    fn count(&mut self, count: f64, intervals: f64) -> (bool, f64) {
        let intervals = if self.parameters.average == 1 { 1.0 } else { intervals };
        self.counts.push_back((count, intervals));
        let tested = self.tested();
        while self.counts.len() > self.parameters.window + tested {
            self.counts.pop_front();
        }
        let (window, recent) = (self.counts.len() - tested, self.counts.range(self.counts.len() - tested..));
        let intervals: f64 = recent.clone().map(|&(_, of)| of).sum();
        let requests: f64 = recent.map(|&(count, of)| count * of).sum();
        let bound = self.bound(window, intervals);
        let far = bound.map_or(f64::INFINITY, |bound| requests / intervals - bound);
        let enough = count > 0.0 && requests >= f64::from(self.parameters.min_requests) - 0.5;
        let above = bound.is_some() && far > 0.0 && enough;
        (self.confirm(above), far.abs())
    }

    /// The bound for a mean over `intervals`, if there is one.
    fn bound(&self, window: usize, intervals: f64) -> Option<f64> {
        let n = window as f64;
        if window < self.parameters.min_samples {
            return None;
        }
        let counts = || self.counts.range(..window).map(|&(count, _)| count);
        let mean = counts().sum::<f64>() / n;
        let variance = counts().map(|count| (count - mean).powi(2)).sum::<f64>() / (n - 1.0);
        let unit = match self.parameters.spread {
            Spread::Forecast => (variance * (1.0 / intervals + 1.0 / n)).sqrt(),
            Spread::Error => (variance / n).sqrt(),
            Spread::Deviation => (variance / intervals).sqrt(),
        };
        Some(mean + self.parameters.z * unit)
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
    let spread = prop_oneof![Just(Spread::Forecast), Just(Spread::Error), Just(Spread::Deviation)];
    let confirm = (1..6u32, 0..6u32).prop_map(|(times, more)| Confirm { times, ticks: times + more });
    let average = prop_oneof![Just(1u32), 2..20u32];
    (2..40usize, spread, 0..4u32, confirm, average, 2..6usize, 0.5..3.0f64).prop_map(
        |(window, spread, min_requests, confirm, average, min_samples, z)| Parameters {
            average,
            window: window.max(min_samples),
            spread,
            min_requests,
            confirm,
            min_samples,
            z,
            ..Parameters::printed()
        },
    )
}

/// Load of a thread: at most `most` requests in one of `one_in` ticks.
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
        let mut random = Random::new(seed);
        let mut detector = Detector::new(&parameters, threads, 0);
        let mut reference: Vec<_> = (0..threads).map(|_| Reference::new(&parameters)).collect();
        let mut now_ns = 0;
        for phase in &loads {
            for _ in 0..60 {
                // Late by whole intervals, with counts that are multiples of them: both implementations are exact.
                let intervals = if random.below(8) == 0 { 1 << random.below(5) } else { 1 };
                now_ns += intervals * TICK_NS;
                tick(&mut detector, &mut reference, (now_ns, intervals), phase, &mut random)?;
            }
        }
    }
}

/// One tick of both; a thread may differ only if its count is on the bound within rounding.
fn tick(
    detector: &mut Detector,
    reference: &mut [Reference],
    (now_ns, intervals): (u64, u64),
    loads: &[Load],
    random: &mut Random,
) -> Result<(), TestCaseError> {
    let mut counts = Vec::new();
    for (thread, &(most, one_in)) in loads.iter().enumerate() {
        if random.below(one_in) == 0 {
            let requests = (1 + random.below(most)) * intervals;
            counts.push(ThreadCount { thread: ThreadId(thread as u16), requests: requests as u32, busy_ns: 0 });
        }
    }
    // A tick without requests would be covered by the next one.
    if counts.is_empty() && intervals > 1 {
        counts.push(ThreadCount { thread: ThreadId(0), requests: intervals as u32, busy_ns: 0 });
    }
    let mut surged = Vec::new();
    let elapsed_ns = intervals * TICK_NS;
    detector.on_tick(&Tick { now_ns, elapsed_ns, counts: &counts }, &mut surged);
    for (thread, reference) in reference.iter_mut().enumerate() {
        let thread = ThreadId(thread as u16);
        let requests = counts.iter().find(|count| count.thread == thread).map_or(0, |count| count.requests);
        let (expected, far) = reference.count(f64::from(requests) / intervals as f64, intervals as f64);
        let found = surged.contains(&thread);
        prop_assert!(found == expected || far < 1e-9, "{thread:?} at {now_ns}: {found}, reference {expected}");
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
fn no_surge_without_a_standard_error() {
    assert_eq!(one_thread(&Parameters::printed(), &[(TICK_NS, 1), (TICK_NS, 50)]), [false, false]);
    assert_eq!(one_thread(&Parameters::printed(), &[(TICK_NS, 1), (TICK_NS, 1), (TICK_NS, 50)]), [false, false, true]);
}

#[test]
fn a_late_tick_is_no_surge() {
    let mut ticks = vec![(TICK_NS, 4); 8];
    ticks.push((5 * TICK_NS, 20));
    assert!(!one_thread(&Parameters::printed(), &ticks).contains(&true));
    ticks.push((5 * TICK_NS, 30));
    assert_eq!(one_thread(&Parameters::printed(), &ticks).last(), Some(&true));
}

/// Four hundred ticks with one request in every fifth, then one tick of `intervals` with `requests`.
fn after_a_light_load(parameters: &Parameters, intervals: u64, requests: u32) -> bool {
    let mut ticks: Vec<_> = (0..400).map(|tick| (TICK_NS, u32::from(tick % 5 == 0))).collect();
    ticks.push((intervals * TICK_NS, requests));
    *one_thread(parameters, &ticks).last().unwrap()
}

#[test]
fn a_mean_of_counts_is_tested_like_one_count() {
    // Mean 0.2 and deviation 0.4 a tick. The mean of 32 ticks has a deviation of 0.07: 19 requests in them are more than
    // 0.2 + 5.4 * 0.07 = 0.58 a tick.
    let spread = Spread::Deviation;
    let parameters = Parameters { window: 256, average: 32, z: 5.4, spread, ..Parameters::printed() };
    assert!(after_a_light_load(&parameters, 32, 19));
    assert!(!after_a_light_load(&parameters, 32, 18));
    // The distribution over ticks makes no difference; the other eight ticks of the 32 hold one request.
    assert!(after_a_light_load(&parameters, 24, 18));
    assert!(!after_a_light_load(&parameters, 24, 17));
    // min_requests applies to all 32.
    let min_requests = Parameters { min_requests: 20, ..parameters };
    assert!(!after_a_light_load(&min_requests, 32, 19));
    assert!(after_a_light_load(&min_requests, 32, 20));
}

#[test]
fn a_slightly_late_tick_still_reaches_min_requests() {
    let parameters = Parameters { min_requests: 8, ..Parameters::printed() };
    let mut ticks = vec![(TICK_NS, 1); 4];
    ticks.extend([(TICK_NS + 400, 7), (TICK_NS + 400, 8)]);
    assert_eq!(one_thread(&parameters, &ticks), [false, false, false, false, false, true]);
}

#[test]
fn time_without_requests_counts_as_zeros() {
    // Steady at 10, then 300 us without requests, then 6: below the old mean, far above the nearly empty window.
    let parameters = Parameters { spread: Spread::Deviation, ..Parameters::printed() };
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
fn after_a_sleep_of_the_whole_server_the_window_is_empty_or_zero() {
    for (after_sleep, expected) in [(AfterSleep::Empty, false), (AfterSleep::Zeros, true)] {
        let mut detector = Detector::new(&Parameters { after_sleep, ..Parameters::printed() }, 1, 0);
        detector.restart(1_000_000_000);
        let counts = [ThreadCount { thread: ThreadId(0), requests: 8, busy_ns: 0 }];
        let mut surged = Vec::new();
        let now_ns = 1_000_000_000 + TICK_NS;
        detector.on_tick(&Tick { now_ns, elapsed_ns: TICK_NS, counts: &counts }, &mut surged);
        assert_eq!(!surged.is_empty(), expected, "{after_sleep:?}");
    }
}

/// Same surges as without sleeps shorter than the window.
#[test]
fn a_sleep_shorter_than_the_window_counts_as_ticks_without_requests() {
    let parameters = Parameters::read(&[("guards", "recommended"), ("after_sleep", "empty")]).unwrap();
    let mut random = Random::new(3);
    let [mut polls, mut sleeps] = [0, 1].map(|_| Detector::new(&parameters, 4, 0));
    let (mut now_ns, mut fired) = (0, 0);
    for tick in 0..40_000_u64 {
        if random.below(3) == 0 {
            now_ns += TICK_NS * random.below(40);
            sleeps.resume(now_ns);
        }
        now_ns += TICK_NS;
        let most = if tick % 4_000 > 3_900 { 12 } else { 2 };
        let count = |thread| ThreadCount { thread: ThreadId(thread), requests: random.below(most) as u32, busy_ns: 0 };
        let counts: Vec<_> = (0..4).map(count).filter(|count| count.requests > 0).collect();
        let tick = Tick { now_ns, elapsed_ns: TICK_NS, counts: &counts };
        let [one, other] = [&mut polls, &mut sleeps].map(|detector| {
            let mut surged = Vec::new();
            detector.on_tick(&tick, &mut surged);
            surged
        });
        assert_eq!(one, other, "at {now_ns} ns");
        fired += one.len();
    }
    assert!(fired > 10, "{fired} surges");
}
