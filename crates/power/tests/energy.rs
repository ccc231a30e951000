//! Energy against a naive oracle: a machine whose true energy is known at every millisecond, and exact fractions.

use pilotlight_power::energy::{Energy, EnergyError, Law, Point, Share, Window, energy, sum};
use pilotlight_power::{Counts, Part};
use proptest::prelude::*;

const S: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;

/// An exact fraction, small enough not to overflow.
#[derive(Clone, Copy)]
struct Fraction(i128, i128);

impl Fraction {
    fn plus(self, other: Self) -> Self {
        let (n, d) = (self.0 * other.1 + other.0 * self.1, self.1 * other.1);
        let common = gcd(n.unsigned_abs(), d.unsigned_abs()).max(1) as i128;
        Self(n / common, d / common)
    }

    /// To the nearest, half up.
    fn nearest(self) -> i64 {
        (2 * self.0 + self.1).div_euclid(2 * self.1) as i64
    }
}

fn gcd(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Trapezoids under powers that are interpolated, one nanosecond-exact piece after the other, in uW ns / (1e9 ns/s) = uJ.
fn naive_power(points: &[Point], window: Window) -> i64 {
    let mut total = Fraction(0, 1);
    for pair in points.windows(2) {
        let (a, b) = (pair[0], pair[1]);
        let (from, to) = (window.from_ns.max(a.at_ns), window.to_ns.min(b.at_ns));
        if from >= to {
            continue;
        }
        let (t, rise) = (i128::from(b.at_ns - a.at_ns), i128::from(b.value - a.value));
        let at = |ns: u64| Fraction(i128::from(a.value) * t + rise * i128::from(ns - a.at_ns), t);
        let both = at(from).plus(at(to));
        total = total.plus(Fraction(both.0 * i128::from(to - from), both.1 * 2 * i128::from(S)));
    }
    total.nearest()
}

/// The true energy at a time, interpolated linearly between two samples.
fn naive_counter(truth: &[Point], window: Window) -> i64 {
    let at = |ns: u64| {
        let next = truth.iter().position(|point| point.at_ns >= ns).unwrap();
        let (b, a) = (truth[next], truth[next.saturating_sub(1)]);
        let t = i128::from((b.at_ns - a.at_ns).max(1));
        Fraction(i128::from(a.value) * t + i128::from(b.value - a.value) * i128::from(ns - a.at_ns), t)
    };
    let (from, to) = (at(window.from_ns), at(window.to_ns));
    to.plus(Fraction(-from.0, from.1)).nearest()
}

fn counts(modulus_uj: u64, min_uw: u64, max_uw: u64) -> Counts {
    Counts { modulus_uj: Some(modulus_uj), min_uw, max_uw, update_ns: 0, ..Counts::endless() }
}

/// Steps of 1 to 40 ns and powers of up to 5 kW: fractions stay within 128 bits, and every edge is within a step.
fn powers() -> impl Strategy<Value = Vec<Point>> {
    prop::collection::vec((1..40_u64, -50_000_000..5_000_000_000_i64), 2..30).prop_map(|steps| {
        let mut at_ns = 0;
        let point = |(length, value)| {
            at_ns += length;
            Point { at_ns, value }
        };
        steps.into_iter().map(point).collect()
    })
}

/// A counter's truth: steps of 1 ms to 2 s at 20 to 250 W.
fn truth() -> impl Strategy<Value = Vec<Point>> {
    prop::collection::vec((1..2_000_u64, 20_000_000..250_000_000_i64), 2..30).prop_map(|steps| {
        let (mut at_ns, mut value) = (7 * S, 123_456_i64);
        let mut points = vec![Point { at_ns, value }];
        for (ms, uw) in steps {
            at_ns += ms * MS;
            value += uw * ms as i64 / 1_000;
            points.push(Point { at_ns, value });
        }
        points
    })
}

fn window_in(points: &[Point], a: f64, b: f64) -> Window {
    let (first, last) = (points[0].at_ns, points[points.len() - 1].at_ns);
    let at = |share: f64| first + ((last - first) as f64 * share) as u64;
    let (from_ns, to_ns) = (at(a.min(b)), at(a.max(b)));
    Window { from_ns, to_ns: to_ns.max(from_ns + 1).min(last) }
}

proptest! {
    #[test]
    fn powers_are_exact_to_the_microjoule(points in powers(), a in 0.0..1.0, b in 0.0..1.0, stretch in 1..3_000_u64) {
        // Longer steps of the same powers: at this length, 1 ns to 0.12 ms, sums are thousands of microjoules.
        let points: Vec<Point> = points.iter().map(|p| Point { at_ns: p.at_ns * stretch, ..*p }).collect();
        let window = window_in(&points, a, b);
        prop_assume!(window.to_ns > window.from_ns);
        let found = energy(&points, window, Law::Power { longest_gap_ns: S }).unwrap();
        prop_assert_eq!(found.uj, naive_power(&points, window));
    }

    #[test]
    fn wrapped_counters_are_exact_to_the_microjoule(
        truth in truth(), a in 0.0..1.0, b in 0.0..1.0, modulus in 500_000_001..900_000_000_u64
    ) {
        // A step has at most 500 J: at most one wrap, which is always decidable.
        let readings: Vec<Point> =
            truth.iter().map(|p| Point { value: p.value.rem_euclid(modulus as i64), ..*p }).collect();
        let window = window_in(&truth, a, b);
        prop_assume!(window.to_ns > window.from_ns);
        let found = energy(&readings, window, Law::Counter(counts(modulus, 0, 250_000_000))).unwrap();
        prop_assert_eq!(found.uj, naive_counter(&truth, window));
        let (least, most) = found.bounds_uj.unwrap();
        prop_assert!(least <= found.uj && found.uj <= most);
    }

    #[test]
    fn several_wraps_are_resolved_or_ambiguous(truth in truth(), modulus in 20_000_000..400_000_000_u64) {
        let readings: Vec<Point> =
            truth.iter().map(|p| Point { value: p.value.rem_euclid(modulus as i64), ..*p }).collect();
        let window = Window { from_ns: truth[0].at_ns, to_ns: truth[truth.len() - 1].at_ns };
        let law = Law::Counter(counts(modulus, 20_000_000, 250_000_000));
        let undecided = truth.windows(2).any(|pair| {
            let seconds = (pair[1].at_ns - pair[0].at_ns) as f64 / S as f64;
            230_000_000.0 * seconds >= modulus as f64
        });
        match energy(&readings, window, law) {
            Ok(found) => {
                let true_wraps: i64 = truth.windows(2).map(|p| p[1].value / modulus as i64 - p[0].value / modulus as i64).sum();
                prop_assert_eq!(found.uj, naive_counter(&truth, window));
                prop_assert_eq!(found.wraps as i64, true_wraps);
            }
            Err(EnergyError::Ambiguous { fewest, most, .. }) => prop_assert!(undecided && fewest < most),
            Err(other) => prop_assert!(false, "{}", other),
        }
    }

    #[test]
    fn what_stops_half_way_is_never_energy(points in powers(), kept in 0.0..1.0, end in 0.01..1.0) {
        let window = Window { from_ns: points[0].at_ns, to_ns: window_in(&points, 0.0, end).to_ns };
        let kept = &points[..(points.len() as f64 * kept) as usize];
        let found = energy(kept, window, Law::Power { longest_gap_ns: S });
        let last_ns = kept.last().map_or(window.from_ns, |point| point.at_ns);
        if last_ns >= window.to_ns {
            prop_assert!(found.is_ok());
        } else {
            prop_assert_eq!(found.unwrap_err().unknown_time(), Some((last_ns, window.to_ns)));
        }
    }

    #[test]
    fn a_stopped_or_decreasing_clock_is_detected(points in powers(), at in 0.0..1.0, back_ns in 0..30_u64) {
        let mut points = points;
        let index = 1 + ((points.len() - 1) as f64 * at) as usize;
        points[index].at_ns = points[index - 1].at_ns.saturating_sub(back_ns);
        let window = Window { from_ns: points[0].at_ns, to_ns: points[0].at_ns + 1 };
        let found = energy(&points, window, Law::Power { longest_gap_ns: S });
        prop_assert!(matches!(found, Err(EnergyError::TimeBack { .. })), "{:?}", found);
    }

    #[test]
    fn a_sum_of_overlapping_parts_is_refused(parts in prop::collection::vec(0..11_usize, 0..6)) {
        // Each part by its components, as letters: cores a b, rest of the packages c d, memory e f, drive g, power supply h, fans i.
        let all = [
            ("abcdefghi", Part::System), ("abcdefgi", Part::Platform), ("abcd", Part::Cpu), ("ac", Part::Package(0)),
            ("bd", Part::Package(1)), ("a", Part::Core(0)), ("b", Part::Core(1)), ("e", Part::Dram(0)), ("f", Part::Dram(1)),
            ("g", Part::Drive("nvme0".into())), ("i", Part::Other("fans".into())),
        ];
        let shares: Vec<Share> = parts.iter().map(|&part| Share { name: all[part].0.into(), part: all[part].1.clone(), uj: 3 }).collect();
        let mut leaves: Vec<char> = parts.iter().flat_map(|&part| all[part].0.chars()).collect();
        leaves.sort_unstable();
        let twice = leaves.windows(2).any(|pair| pair[0] == pair[1]);
        prop_assert_eq!(sum(&shares).ok(), (!twice).then_some(3 * parts.len() as i64));
    }

    #[test]
    fn windows_that_follow_each_other_add_up(points in powers(), middle in 0.01..0.99) {
        let all = window_in(&points, 0.0, 1.0);
        let cut = window_in(&points, 0.0, middle).to_ns;
        prop_assume!(cut > all.from_ns && cut < all.to_ns);
        let of = |from_ns, to_ns| energy(&points, Window { from_ns, to_ns }, Law::Power { longest_gap_ns: S }).unwrap().uj;
        prop_assert!((of(all.from_ns, cut) + of(cut, all.to_ns) - of(all.from_ns, all.to_ns)).abs() <= 1);
    }
}

fn points(all: &[(u64, i64)]) -> Vec<Point> {
    all.iter().map(|&(at_ns, value)| Point { at_ns, value }).collect()
}

#[test]
fn two_wraps_in_one_step_are_resolved_by_power_limits() {
    // Range 100 uJ; 250 uJ at 250 uW in one second read as 50.
    let readings = points(&[(0, 0), (S, 50)]);
    let window = Window { from_ns: 0, to_ns: S };
    let found = energy(&readings, window, Law::Counter(counts(100, 200, 260))).unwrap();
    assert_eq!(found, Energy { uj: 250, bounds_uj: Some((250, 250)), steps: 1, wraps: 2 });
    // Without a minimum power 50, 150 and 250 uJ are all possible.
    let ambiguous = EnergyError::Ambiguous { from_ns: 0, to_ns: S, fewest: 0, most: 2 };
    assert_eq!(energy(&readings, window, Law::Counter(counts(100, 0, 260))), Err(ambiguous));
    // None is possible with a maximum of 40 uW.
    assert!(matches!(
        energy(&readings, window, Law::Counter(counts(100, 0, 40))),
        Err(EnergyError::Implausible { .. })
    ));
}

#[test]
fn a_counter_that_never_wraps_must_not_fall() {
    let window = Window { from_ns: 0, to_ns: S };
    let fell = energy(&points(&[(0, 500), (S, 20)]), window, Law::Counter(Counts::endless()));
    assert!(matches!(fell, Err(EnergyError::Implausible { before_uj: 500, after_uj: 20, .. })));
    let noise = Counts { may_decrease: true, ..Counts::endless() };
    assert_eq!(energy(&points(&[(0, 500), (S, 20)]), window, Law::Counter(noise)).unwrap().uj, -480);
}

#[test]
fn a_sensor_that_stops_half_way_is_an_error_that_names_the_gap() {
    let all = points(&[(0, 10_000_000), (S, 10_000_000), (2 * S, 10_000_000)]);
    let window = Window { from_ns: 0, to_ns: 4 * S };
    let stopped = energy(&all, window, Law::Power { longest_gap_ns: 2 * S }).unwrap_err();
    assert_eq!(stopped.unknown_time(), Some((2 * S, 4 * S)));
    let said = stopped.because(Some("the BMC does not answer")).to_string();
    assert_eq!(said, "no samples from 2000000000 to 4000000000 ns: the BMC does not answer");
    // The measured half is known.
    assert_eq!(
        energy(&all, Window { from_ns: 0, to_ns: 2 * S }, Law::Power { longest_gap_ns: 2 * S }).unwrap().uj,
        20_000_000
    );
}

#[test]
fn power_is_not_interpolated_over_a_gap_but_a_counter_counts_on() {
    let window = Window { from_ns: 0, to_ns: 6 * S };
    let powers = points(&[(0, 10), (S, 10), (5 * S, 10), (6 * S, 10)]);
    let gap = EnergyError::Gap { from_ns: S, to_ns: 5 * S, why: None };
    assert_eq!(energy(&powers, window, Law::Power { longest_gap_ns: 2 * S }), Err(gap));
    let counter = points(&[(0, 0), (S, 10), (5 * S, 50), (6 * S, 60)]);
    assert_eq!(energy(&counter, window, Law::Counter(Counts::endless())).unwrap().uj, 60);
}

#[test]
fn a_clock_that_goes_back_is_seen() {
    let back = points(&[(0, 1), (2 * S, 2), (S, 3), (3 * S, 4)]);
    let seen = energy(&back, Window { from_ns: 0, to_ns: 3 * S }, Law::Power { longest_gap_ns: 9 * S });
    assert_eq!(seen, Err(EnergyError::TimeBack { from_ns: 2 * S, to_ns: S }));
}

#[test]
fn a_counter_without_increments_is_not_zero_watts() {
    let still = points(&[(0, 0), (S, 0), (2 * S, 0)]);
    let window = Window { from_ns: 0, to_ns: 2 * S };
    let found = energy(&still, window, Law::Counter(counts(1_000, 0, 100)));
    assert_eq!(found, Err(EnergyError::NotCounting { value_uj: 0, from_ns: 0, to_ns: 2 * S }));
    // The graphics of a server's package may be idle.
    let may = Counts { always_advances: false, ..counts(1_000, 0, 100) };
    assert_eq!(energy(&still, window, Law::Counter(may)).unwrap().uj, 0);
}

#[test]
fn a_step_may_be_off_by_one_update_of_the_counter_at_either_end() {
    let (window, readings) = (Window { from_ns: 0, to_ns: MS }, |uj| points(&[(0, 0), (MS, uj)]));
    let law = |min_uw, max_uw| Law::Counter(Counts { update_ns: MS, ..counts(1_000_000_000, min_uw, max_uw) });
    // 100 W are 100 mJ in a millisecond; a late update adds the same amount.
    assert_eq!(energy(&readings(200_000), window, law(0, 100_000_000)).unwrap().uj, 200_000);
    assert!(energy(&readings(200_001), window, law(0, 100_000_000)).is_err());
    // One of two updates may be outstanding.
    assert_eq!(energy(&readings(0), window, law(50_000_000, 100_000_000)).unwrap().uj, 0);
}

#[test]
fn a_recently_read_counter_may_be_unchanged() {
    let still = points(&[(0, 5), (99 * MS, 5), (100 * MS, 5)]);
    let over = |to_ns| energy(&still, Window { from_ns: 0, to_ns }, Law::Counter(Counts::endless()));
    assert_eq!(over(99 * MS).unwrap().uj, 0);
    assert!(matches!(over(100 * MS), Err(EnergyError::NotCounting { .. })));
}

#[test]
fn overlapping_domains_are_never_summed() {
    let share = |name: &str, part, uj| Share { name: name.into(), part, uj };
    let package = share("rapl/package-0", Part::Package(0), 100);
    let core = share("rapl/package-0/core", Part::Core(0), 60);
    let memory = share("rapl/package-0/dram", Part::Dram(0), 9);
    let other = share("rapl/package-1", Part::Package(1), 80);
    let drive = share("nvme/nvme0", Part::Drive("nvme0".into()), 5);
    assert_eq!(sum(&[package.clone(), other.clone(), memory.clone(), drive.clone()]), Ok(194));
    let refused = sum(&[package.clone(), memory, core]).unwrap_err();
    assert_eq!((refused.first.as_str(), refused.second.as_str()), ("rapl/package-0", "rapl/package-0/core"));
    let system = share("pdu/output 1", Part::System, 400);
    assert!(sum(&[system, drive]).is_err());
    // The same package measured by two sensors is one package.
    assert!(sum(&[package.clone(), share("rapl-perf/package-0", Part::Package(0), 100)]).is_err());
}

#[test]
fn edges_are_interpolated_and_bounded() {
    // 1 J per second; the window has the middle 0.6 s, between 0 and 2 J by the samples alone.
    let counter = points(&[(0, 0), (S, 1_000_000), (2 * S, 2_000_000)]);
    let window = Window { from_ns: 700 * MS, to_ns: 1_300 * MS };
    let found = energy(&counter, window, Law::Counter(Counts::endless())).unwrap();
    assert_eq!(found, Energy { uj: 600_000, bounds_uj: Some((0, 2_000_000)), steps: 2, wraps: 0 });
    assert_eq!(found.mean_uw(window), 1_000_000);
    // A power that rises from 0 to 2 W has half of its last half's energy in three quarters.
    let ramp = points(&[(0, 0), (S, 2_000_000)]);
    let half = Window { from_ns: 500 * MS, to_ns: S };
    assert_eq!(energy(&ramp, half, Law::Power { longest_gap_ns: S }).unwrap().uj, 750_000);
}
