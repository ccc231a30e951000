//! A commanded frequency applies within its transition time plus an epoch, in both engines.

mod support;

use pilotlight_plant::{Command, KnobId, NEVER, Next, Policy, Refusal, Start, Tick, Unsupported, Wants};
use pilotlight_sim::audit::audit;
use pilotlight_sim::engine::{EPOCH_NS, run_naive, run_traced};
use pilotlight_sim::scenario::{Rate, Scenario};
use pilotlight_sim::trace::{Record, RecordKind};

/// A policy that only sets frequencies of core 0 at given times.
#[derive(Clone, Debug)]
struct Orders {
    /// Time in nanoseconds, and frequency in kHz; the first at 0.
    list: Vec<(u64, u32)>,
    next: usize,
}

impl Orders {
    fn new(list: &[(u64, u32)]) -> Self {
        Self { list: list.to_vec(), next: 0 }
    }

    fn order(&mut self, now_ns: u64, out: &mut Vec<Command>) -> u64 {
        while let Some(&(_, khz)) = self.list.get(self.next).filter(|&&(at_ns, _)| at_ns <= now_ns) {
            out.push(Command::Set { knob: KnobId(0), value: u64::from(khz) });
            self.next += 1;
        }
        self.list.get(self.next).map_or(NEVER, |&(at_ns, _)| at_ns)
    }
}

impl Policy for Orders {
    fn name(&self) -> &'static str {
        "orders"
    }

    fn wants(&self) -> Wants {
        let tick_ns = (self.list.len() > 1).then_some(10_000);
        Wants { tick_ns, ..Wants::default() }
    }

    fn start(&mut self, start: &Start<'_>, out: &mut Vec<Command>) -> Result<Next, Unsupported> {
        Ok(Next::at(self.order(start.now_ns, out)))
    }

    fn on_tick(&mut self, tick: &Tick<'_>, out: &mut Vec<Command>) -> Next {
        Next::at(self.order(tick.now_ns, out))
    }

    fn on_refused(&mut self, _: u64, command: &Command, refusal: Refusal) {
        panic!("{command:?} is refused: {refusal:?}");
    }
}

/// One core that polls for one I/O thread without requests.
fn lone_core(restarts: bool) -> Scenario {
    let mut scenario = support::scenario(1, 1, 1.0, 20_000_000, 1);
    scenario.workload.connections[0].phases[0].rate = Rate::Off;
    scenario.machine.speed.transition_restarts = restarts;
    scenario.series_ns = 1_000_000;
    scenario
}

/// Times and frequencies of core 0, from the trace of either engine.
fn frequencies(scenario: &Scenario, list: &[(u64, u32)]) -> Vec<(u64, u64)> {
    let [fast, naive] = [run_traced, run_naive].map(|engine| {
        let mut trace = Vec::new();
        let outcome = engine(scenario, Box::new(Orders::new(list)), &mut trace).unwrap();
        assert_eq!(audit(trace.as_slice(), scenario, &outcome).err(), None);
        (outcome, trace)
    });
    assert!(fast == naive, "the engines differ");
    let records = fast.1.as_chunks::<{ Record::BYTES }>().0.iter().map(|bytes| Record::decode(bytes).unwrap());
    records.filter(|record| record.kind == RecordKind::Frequency).map(|record| (record.at_ns, record.b)).collect()
}

#[test]
fn a_command_at_the_start_applies_after_its_transition() {
    for restarts in [false, true] {
        let scenario = lone_core(restarts);
        let transition_ns = scenario.machine.speed.transition_ns;
        let held = frequencies(&scenario, &[(0, 400_000)]);
        let [(at_ns, 400_000)] = held[..] else { panic!("restarts {restarts}: {held:?}") };
        assert!((transition_ns..=transition_ns + 2 * EPOCH_NS).contains(&at_ns), "restarts {restarts}: {at_ns} ns");
        let outcome = pilotlight_sim::run(&scenario, Box::new(Orders::new(&[(0, 400_000)]))).unwrap();
        let last = outcome.series.last().unwrap();
        assert_eq!(last.capacity_ns, 100 * (EPOCH_NS * 400_000 / 3_650_000), "restarts {restarts}");
    }
}

/// The second command arrives within the transition of the first.
#[test]
fn a_further_command_joins_or_restarts_the_transition() {
    for (restarts, from_ns) in [(false, 0), (true, 300_000)] {
        let scenario = lone_core(restarts);
        let transition_ns = from_ns + scenario.machine.speed.transition_ns;
        let held = frequencies(&scenario, &[(0, 400_000), (300_000, 2_000_000)]);
        let [(at_ns, 2_000_000)] = held[..] else { panic!("restarts {restarts}: {held:?}") };
        // a tick is late by a loop and a decision, the command by its own cost
        assert!((transition_ns..=transition_ns + 3 * EPOCH_NS).contains(&at_ns), "restarts {restarts}: {at_ns} ns");
    }
}

/// Each command of a controller that acts once per second takes effect.
#[test]
fn orders_far_apart_all_hold() {
    let orders = [(0, 400_000), (5_000_000, 3_650_000), (10_000_000, 400_000), (15_000_000, 2_000_000)];
    for restarts in [false, true] {
        let held = frequencies(&lone_core(restarts), &orders);
        let khz: Vec<u64> = held.iter().map(|&(_, khz)| khz).collect();
        assert_eq!(khz, [400_000, 3_650_000, 400_000, 2_000_000], "restarts {restarts}");
    }
}

/// Random commands, including frequencies between the steps and within transitions: both engines agree, including energy, and break no law.
#[test]
fn random_commands_have_equal_effects_in_both_engines() {
    let mut state = 1_u64;
    let mut below = |limit: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % limit
    };
    for round in 0..40 {
        let mut scenario = lone_core(round % 2 == 0);
        scenario.machine.speed.transition_ns = [0, 7_000, 35_000, 450_000][round / 2 % 4];
        let gap_ns = [20_000, 200_000, 2_000_000][round % 3];
        let mut at_ns = 0;
        let mut list = vec![(0, 400_000)];
        while at_ns < 18_000_000 {
            at_ns += 1 + below(gap_ns);
            list.push((at_ns, 400_000 + below(3_250_001) as u32));
        }
        assert!(!frequencies(&scenario, &list).is_empty(), "round {round}");
    }
}
