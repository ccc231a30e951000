//! Test of the bound against all schedules of up to three cores, including pairings, and against all paths of levels.

use proptest::prelude::*;

use super::bound::{Level, Program, Work, lower_bound, works};
use super::prices::{families, line, unit_ppm, unit_uw};
use super::{Limits, OracleError, Span, States, UnitPower, WorkBounds};

/// Action of a core in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CoreAction {
    Works,
    /// Waking, at the power of a working core; remaining steps.
    Wakes(u64),
    Shallow,
    Deep,
}

/// A small case: spans of several steps each.
#[derive(Clone, Debug)]
struct Case {
    limits: Limits,
    step_ns: u64,
    /// Steps of each span.
    steps: Vec<u64>,
    plan: WorkBounds,
}

impl Case {
    fn exits(&self) -> (u64, u64) {
        (self.limits.shallow_exit_ns / self.step_ns, self.limits.deep_exit_ns / self.step_ns)
    }

    fn may_follow(&self, before: CoreAction, after: CoreAction) -> bool {
        let (shallow, deep) = self.exits();
        let wakes = |steps: u64| if steps == 0 { CoreAction::Works } else { CoreAction::Wakes(steps - 1) };
        match before {
            CoreAction::Works => !matches!(after, CoreAction::Wakes(_)),
            CoreAction::Wakes(left) => after == wakes(left),
            CoreAction::Shallow => matches!(after, CoreAction::Shallow | CoreAction::Deep) || after == wakes(shallow),
            CoreAction::Deep => after == CoreAction::Deep || after == wakes(deep),
        }
    }

    /// All histories of one core. A wake-up may have begun before the first step.
    fn histories(&self, is_main: bool) -> Vec<Vec<CoreAction>> {
        let mut all = vec![CoreAction::Works];
        if !is_main {
            all.push(CoreAction::Shallow);
            all.extend((0..self.exits().0).map(CoreAction::Wakes));
        }
        if !is_main && self.limits.states.deep {
            all.push(CoreAction::Deep);
            all.extend((0..self.exits().1).map(CoreAction::Wakes));
        }
        all.dedup();
        let mut histories: Vec<Vec<CoreAction>> = all.iter().map(|&first| vec![first]).collect();
        for _ in 1..self.steps.iter().sum::<u64>() {
            histories = histories
                .iter()
                .flat_map(|history| {
                    let before = history[history.len() - 1];
                    all.iter().filter(move |&&after| self.may_follow(before, after)).map(move |&after| {
                        let mut longer = history.clone();
                        longer.push(after);
                        longer
                    })
                })
                .collect();
        }
        histories.sort_by_key(|history| format!("{history:?}"));
        histories.dedup();
        histories
    }

    /// Power and capacity of one step. Cores are numbered pairs first.
    fn step(&self, does: &[CoreAction]) -> (i128, i128) {
        let pairs = usize::from(self.limits.pairs);
        let mut uw = i128::from(self.limits.power.fixed_uw);
        let (mut ppm, mut any) = (0, false);
        let (paired, single) = does.split_at(2 * pairs);
        for unit in paired.chunks(2).chain(single.chunks(1)) {
            let count = |which: fn(&CoreAction) -> bool| unit.iter().filter(|does| which(does)).count() as i128;
            let awake = count(|does| matches!(does, CoreAction::Works | CoreAction::Wakes(_)));
            let not_deep = count(|does| *does != CoreAction::Deep);
            uw += unit_uw(&self.limits, (awake, not_deep));
            ppm += unit_ppm(&self.limits, count(|does| *does == CoreAction::Works));
            any |= not_deep > 0;
        }
        (uw + if any { i128::from(self.limits.power.package_uw) } else { 0 }, ppm)
    }

    /// The energy of a schedule, if it does the work in time. Arrivals of a span are available from its beginning.
    fn energy(&self, schedule: &[&Vec<CoreAction>]) -> Option<i128> {
        let (mut done, mut fj, mut at) = (i128::from(self.plan.before.most_ns) * 1_000_000, 0, 0);
        for (span, &steps) in self.plan.spans.iter().zip(&self.steps) {
            for step in at..at + steps as usize {
                let does: Vec<CoreAction> = schedule.iter().map(|history| history[step]).collect();
                let (uw, ppm) = self.step(&does);
                fj += uw * i128::from(self.step_ns);
                done = (done + ppm * i128::from(self.step_ns)).min(i128::from(span.most_ns) * 1_000_000);
            }
            at += steps as usize;
            if done < i128::from(span.least_ns) * 1_000_000 {
                return None;
            }
        }
        Some(fj)
    }

    /// The minimum energy of all schedules.
    fn least(&self) -> Option<i128> {
        let main = if self.limits.main_paired { 0 } else { usize::from(self.limits.cores()) - 1 };
        let each: Vec<Vec<Vec<CoreAction>>> = (0..usize::from(self.limits.cores()))
            .map(|core| self.histories(core == main && !self.limits.states.main_rests))
            .collect();
        let mut least: Option<i128> = None;
        let mut schedule = Vec::new();
        self.every(&each, &mut schedule, &mut least);
        least
    }

    fn every<'a>(
        &self,
        each: &'a [Vec<Vec<CoreAction>>],
        schedule: &mut Vec<&'a Vec<CoreAction>>,
        least: &mut Option<i128>,
    ) {
        let Some((first, rest)) = each.split_first() else {
            let energy = self.energy(schedule);
            *least = [*least, energy].into_iter().flatten().min();
            return;
        };
        for history in first {
            schedule.push(history);
            self.every(rest, schedule, least);
            schedule.pop();
        }
    }
}

/// The minimum over all paths of levels, by enumeration.
fn every_path(program: &Program<'_>, works: &[Work], from: Option<Level>, slot: usize) -> i128 {
    let Some(work) = works.get(slot) else { return 0 };
    let limits = &program.limits;
    let cores = limits.cores();
    let mut least = i128::MAX / 4;
    for awake in limits.min_awake()..=cores {
        if limits.capacity_ppm(awake) * work.length_ns < work.least_ns * 1_000_000 {
            continue;
        }
        for not_deep in if limits.states.deep { awake } else { cores }..=cores {
            let level = Level { awake, not_deep };
            let climb = from.map_or(0, |from| program.climb_fj(program.wakes_fj(slot), from, level));
            let cost = climb + program.level_fj(work, level) + every_path(program, works, Some(level), slot + 1);
            least = least.min(cost);
        }
    }
    least
}

const STEP_NS: u64 = 100;

fn any_limits() -> impl Strategy<Value = Limits> {
    let cores = prop_oneof![Just((0, 1)), Just((0, 2)), Just((1, 0)), Just((1, 1)), Just((0, 3))];
    let power = (0..500_i64, 0..300_i64, 0..300_i64, 0..=1_000_i64, 0..2_000_i64);
    let states = (any::<bool>(), any::<bool>(), any::<bool>());
    let speed = prop_oneof![Just(0_u32), 0..=1_000_000_u32];
    (cores, power, states, (0..=1_u64, 0..=2_u64), speed).prop_map(|((pairs, singles), power, states, exits, gain)| {
        let (fixed_uw, package_uw, not_deep_uw, alone_permille, both_uw) = power;
        Limits {
            pairs,
            singles,
            main_paired: pairs > 0 && (states.2 || singles == 0),
            states: States { deep: states.0, main_rests: states.1 },
            shallow_exit_ns: exits.0 * STEP_NS,
            deep_exit_ns: exits.0.max(exits.1) * STEP_NS,
            alone_ppm: 1_000_000 + gain,
            both_ppm: 2_000_000,
            power: UnitPower { fixed_uw, package_uw, not_deep_uw, alone_uw: both_uw * alone_permille / 1_000, both_uw },
        }
    })
}

/// Spans of one or two steps, with arrivals up to the capacity of all cores and some slack.
fn any_case() -> impl Strategy<Value = Case> {
    (any_limits(), prop::collection::vec((1..=2_u64, 0..=1_000_u64), 1..=3), 0..=150_u64, 0..=60_u64).prop_map(
        |(limits, spans, slack_ns, before_ns)| {
            let room = if limits.cores() == 3 { 4 } else { 6 };
            let mut plan =
                WorkBounds { before: Span { length_ns: 0, least_ns: 0, most_ns: before_ns }, spans: Vec::new() };
            let (mut most_ns, mut steps) = (before_ns, Vec::new());
            for (count, permille) in spans {
                if steps.iter().sum::<u64>() + count > room {
                    break;
                }
                let length_ns = count * STEP_NS;
                let capacity = limits.capacity_ppm(limits.cores()) * length_ns / 1_000_000;
                most_ns += capacity * permille / 1_000;
                plan.spans.push(Span { length_ns, least_ns: most_ns.saturating_sub(slack_ns), most_ns });
                steps.push(count);
            }
            Case { limits, step_ns: STEP_NS, steps, plan }
        },
    )
}

/// One step per span, work for whole cores, all cores working at first: the bound is exact.
fn exact_case() -> impl Strategy<Value = Case> {
    (any_limits(), 2..=3_u16, prop::collection::vec(0..=3_u16, 2..=3)).prop_map(|(limits, singles, counts)| {
        let power = UnitPower { package_uw: 0, ..limits.power };
        let exit = |ns: u64| ns.min(STEP_NS);
        let limits = Limits {
            pairs: 0,
            singles,
            main_paired: false,
            shallow_exit_ns: exit(limits.shallow_exit_ns),
            deep_exit_ns: exit(limits.deep_exit_ns),
            alone_ppm: 1_000_000,
            power,
            ..limits
        };
        let mut plan = WorkBounds::default();
        let mut done = 0;
        for count in std::iter::once(singles).chain(counts) {
            done += u64::from(count.min(singles)) * STEP_NS;
            plan.spans.push(Span { length_ns: STEP_NS, least_ns: done, most_ns: done });
        }
        Case { limits, step_ns: STEP_NS, steps: vec![1; plan.spans.len()], plan }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn no_schedule_is_below_the_bound(case in any_case()) {
        let bound = lower_bound(&[case.limits], &case.plan);
        match (case.least(), bound) {
            (Some(least), Ok(bound)) => prop_assert!(bound.least_fj <= least, "{} above {least}", bound.least_fj),
            (Some(_), Err(error)) => prop_assert!(false, "{error}"),
            (None, _) => {}
        }
    }

    #[test]
    fn without_relaxation_the_bound_is_the_minimum_energy(case in exact_case()) {
        let least = case.least().unwrap();
        prop_assert_eq!(lower_bound(&[case.limits], &case.plan).unwrap().least_fj, least);
    }

    #[test]
    fn the_program_finds_the_cheapest_path(case in any_case(), total_uw in 0..3_000_i128) {
        let works = works(&case.plan);
        let due_ns = i128::from(case.plan.due_ns());
        for family in families(&case.limits) {
            let program = Program { limits: case.limits, family, total_uw, due_ns, works: &works };
            let least = every_path(&program, &works, None, 0) + total_uw * due_ns;
            prop_assert_eq!(program.least_fj().unwrap(), least);
        }
    }
}

/// Number of core states: working, waking from shallow, waking from deep, shallow, deep.
const STATES: u32 = 5;

proptest! {
    #[test]
    fn no_schedule_uses_less_than_a_bound(
        limits in any_limits(),
        (work, awake, not_deep) in (0..2_000_i128, 0..2_000_i128, 0..300_i128),
    ) {
        let not_deep = if limits.states.deep { not_deep } else { 0 };
        let line = line(&limits, work, awake, not_deep);
        let cores = u32::from(limits.cores());
        let main = if limits.main_paired { 0 } else { cores as usize - 1 };
        for code in 0..STATES.pow(cores) {
            let kinds: Vec<u32> = (0..cores).map(|core| code / STATES.pow(core) % STATES).collect();
            if kinds.iter().any(|kind| !limits.states.deep && [2, 4].contains(kind))
                || (limits.min_awake() > 0 && kinds[main] != 0)
            {
                continue;
            }
            let does = |kind: &u32| [CoreAction::Works, CoreAction::Wakes(0), CoreAction::Wakes(0), CoreAction::Shallow, CoreAction::Deep][*kind as usize];
            let case = Case { limits, step_ns: 1, steps: Vec::new(), plan: WorkBounds::default() };
            let (uw, ppm) = case.step(&kinds.iter().map(does).collect::<Vec<_>>());
            let count = |these: &[u32]| kinds.iter().filter(|kind| these.contains(kind)).count() as i128;
            let package = if does_all(&kinds, 4) { 0 } else { line.package_uw };
            let waking = line.wake_shallow_uw * count(&[1]) + line.wake_deep_uw * count(&[2]);
            let least = line.base_uw + package + line.awake_uw * count(&[0]) + line.not_deep_uw * count(&[0, 1, 3]) + waking;
            prop_assert!(least * 1_000_000 + line.work_uw * ppm <= uw * 1_000_000, "{kinds:?}: {least} + work above {uw}");
        }
    }
}

fn does_all(kinds: &[u32], kind: u32) -> bool {
    kinds.iter().all(|&one| one == kind)
}

#[test]
fn too_much_work_is_named() {
    let limits = Limits {
        pairs: 1,
        singles: 0,
        main_paired: true,
        states: States::ALL,
        shallow_exit_ns: 0,
        deep_exit_ns: 0,
        alone_ppm: 1_300_000,
        both_ppm: 2_000_000,
        power: UnitPower { fixed_uw: 1, package_uw: 0, not_deep_uw: 1, alone_uw: 1, both_uw: 2 },
    };
    let span = |work| Span { length_ns: 100, least_ns: work, most_ns: work };
    let plan = WorkBounds { before: Span::default(), spans: vec![span(200), span(401)] };
    assert!(matches!(lower_bound(&[limits], &plan), Err(OracleError::TooMuch { slot: 1 })));
    assert!(matches!(lower_bound(&[limits], &WorkBounds::default()), Err(OracleError::NoSlots)));
}
