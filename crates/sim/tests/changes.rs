//! Changes during a run: the policy is notified of knobs that become available or unavailable, and a successor policy starts on a plant without its
//! predecessor's settings. Both engines agree.

mod support;

use std::sync::{Arc, Mutex};

use pilotlight_plant::{
    Capabilities, Command, CoreState, Goals, Kind, KnobId, Next, Policy, Quantity, ReadingId, Refusal, Sample, Start,
    Unsupported, Wants,
};
use pilotlight_sim::engine::{RunError, run_in_turn, run_naive_in_turn};
use pilotlight_sim::outcome::Outcome;
use pilotlight_sim::scenario::{Change, Scenario, Sensors};

const MS: u64 = 1_000_000;

/// Notifications of a policy, in order.
#[derive(Clone, Debug, PartialEq)]
enum Event {
    /// At its start: time, whether core 1 sleeps, the budget, and whether the quota can be set.
    Start(u64, bool, Option<u64>, bool),
    /// A plant change: time, and whether the quota can be set.
    Plant(u64, bool),
    Refused(Command, Refusal),
    /// In an interval: time, and the reading, if wanted and available.
    Interval(u64, Option<u64>),
}

type Log = Arc<Mutex<Vec<Event>>>;

/// Sets the quota to a quarter in every interval, and puts core 1 to sleep at the start.
struct Caps {
    log: Log,
    reads: bool,
    quota: Option<KnobId>,
    power: Option<ReadingId>,
}

fn caps(log: &Log, reads: bool) -> Box<dyn Policy> {
    Box::new(Caps { log: Arc::clone(log), reads, quota: None, power: None })
}

fn takes_values(capabilities: &Capabilities, knob: Option<KnobId>) -> bool {
    knob.and_then(|id| capabilities.knob(id)).is_some_and(|knob| knob.values.highest().is_some())
}

impl Policy for Caps {
    fn name(&self) -> &'static str {
        "caps"
    }
    fn wants(&self) -> Wants {
        let readings = self.power.filter(|_| self.reads).into_iter().collect();
        Wants { interval_ns: Some(2 * MS), readings, ..Wants::default() }
    }
    fn start(&mut self, start: &Start<'_>, _out: &mut Vec<Command>) -> Result<Next, Unsupported> {
        self.quota = start.capabilities.knobs_of(Kind::QuotaPpm).next().map(|(id, _)| id);
        self.power = start.capabilities.sources_of(Quantity::PowerUw).next().map(|(id, _)| id);
        let sleeps = start.cores[1].state != CoreState::Awake;
        let takes = takes_values(start.capabilities, self.quota);
        self.log.lock().unwrap().push(Event::Start(start.now_ns, sleeps, start.goals.budget_uw, takes));
        Ok(Next::at(0))
    }
    fn on_interval(&mut self, sample: &Sample<'_>, out: &mut Vec<Command>) -> Next {
        let value = sample.readings.first().and_then(|reading| reading.value);
        self.log.lock().unwrap().push(Event::Interval(sample.now_ns, value));
        out.extend(self.quota.map(|knob| Command::Set { knob, value: 750_000 }));
        Next::at(0)
    }
    fn on_plant(&mut self, now_ns: u64, capabilities: &Capabilities, _out: &mut Vec<Command>) {
        self.log.lock().unwrap().push(Event::Plant(now_ns, takes_values(capabilities, self.quota)));
    }
    fn on_refused(&mut self, _now_ns: u64, command: &Command, refusal: Refusal) {
        self.log.lock().unwrap().push(Event::Refused(*command, refusal));
    }
}

fn scenario() -> Scenario {
    let mut scenario = support::scenario(4, 2, 100_000.0, 40 * MS, 1);
    scenario.machine.limits.quota_period_ns = MS;
    scenario.series_ns = 2 * MS;
    scenario.sensors = Sensors { window_ns: MS, lag_ns: MS, silent: Vec::new(), meter: None };
    scenario
}

/// Runs both engines; returns the awake time of cores in each stretch of 2 ms, in tenths of a millisecond.
fn run(scenario: &Scenario, policies: impl Fn() -> Vec<(u64, Box<dyn Policy>)>) -> (Outcome, Vec<u64>) {
    let (mut fast, mut plain) = (Vec::new(), Vec::new());
    let outcome = run_in_turn(scenario, policies(), &mut fast).unwrap();
    assert_eq!(outcome, run_naive_in_turn(scenario, policies(), &mut plain).unwrap());
    assert!(fast == plain, "the traces differ");
    let awake = outcome.series.iter().map(|stretch| (stretch.awake_ns + 50_000) / 100_000).collect();
    (outcome, awake)
}

/// Awake time of four cores, three of which have a quota of a quarter.
const CAPPED: u64 = 35;
const FREE: u64 = 80;

#[test]
fn a_policy_is_notified_of_removed_and_returned_knobs() {
    let mut scenario = scenario();
    let quota = pilotlight_sim::engine::capabilities(&scenario).knobs_of(Kind::QuotaPpm).next().unwrap().0;
    scenario.changes = vec![(15 * MS, Change::KnobGoes(quota)), (25 * MS + 1, Change::KnobComes(quota))];
    let log = Log::default();
    let (_, awake) = run(&scenario, || {
        log.lock().unwrap().clear();
        vec![(0, caps(&log, false))]
    });
    let log = log.lock().unwrap();
    let plant: Vec<_> = log
        .iter()
        .filter_map(|event| if let Event::Plant(at, has) = event { Some((at / MS, *has)) } else { None })
        .collect();
    assert_eq!(plant, [(15, false), (25, true)]);
    let refused: Vec<_> = log.iter().filter(|event| matches!(event, Event::Refused(..))).collect();
    let set = Command::Set { knob: quota, value: 750_000 };
    assert_eq!(refused, [&Event::Refused(set, Refusal::Unknown); 5], "the intervals from 16 to 24 ms");
    let near = |part: &[u64], tenths: u64| part.iter().all(|awake| awake.abs_diff(tenths) <= 2);
    assert!(near(&awake[2..7], CAPPED) && near(&awake[8..12], FREE) && near(&awake[14..], CAPPED), "{awake:?}");
}

#[test]
fn settings_of_a_policy_are_restored_before_the_next_starts() {
    let mut scenario = scenario();
    scenario.goals = vec![(5 * MS, Goals { budget_uw: Some(7), ..Goals::default() })];
    let (first, second) = (Log::default(), Log::default());
    let (_, awake) = run(&scenario, || {
        first.lock().unwrap().clear();
        second.lock().unwrap().clear();
        vec![(0, caps(&first, false)), (15 * MS, support::policy("static", &[])), (25 * MS, caps(&second, true))]
    });
    let near = |part: &[u64], tenths: u64| part.iter().all(|awake| awake.abs_diff(tenths) <= 2);
    assert!(near(&awake[2..7], CAPPED) && near(&awake[8..13], FREE) && near(&awake[15..], CAPPED), "{awake:?}");
    assert!(first.lock().unwrap().iter().all(|event| !matches!(event, Event::Interval(at, _) if *at > 15 * MS)));
    let second = second.lock().unwrap();
    assert!(matches!(second[0], Event::Start(at, false, Some(7), true) if at / MS == 25), "{:?}", second[0]);
    let values: Vec<_> = second
        .iter()
        .filter_map(|event| if let Event::Interval(at, value) = event { Some((at / MS, *value)) } else { None })
        .collect();
    assert_eq!(values[0].0, 27, "its own intervals");
    assert!(values[1..].iter().all(|(_, value)| value.is_some()), "{values:?}");
}

/// Supports no plant, and must not be called.
struct Unfit;

impl Policy for Unfit {
    fn name(&self) -> &'static str {
        "unfit"
    }
    fn wants(&self) -> Wants {
        Wants { interval_ns: Some(MS), ..Wants::default() }
    }
    fn start(&mut self, _start: &Start<'_>, out: &mut Vec<Command>) -> Result<Next, Unsupported> {
        out.push(Command::Set { knob: KnobId(0), value: 1 });
        Err(Unsupported { policy: "unfit", feature: "a test", remedy: "none" })
    }
    fn on_interval(&mut self, _sample: &Sample<'_>, _out: &mut Vec<Command>) -> Next {
        panic!("it was never started")
    }
}

#[test]
fn an_unsupported_policy_fails_the_run() {
    let log = Log::default();
    let turns = || -> Vec<(u64, Box<dyn Policy>)> { vec![(0, caps(&log, false)), (15 * MS, Box::new(Unfit))] };
    let scenario = scenario();
    let fast = run_in_turn(&scenario, turns(), &mut Vec::new());
    let plain = run_naive_in_turn(&scenario, turns(), &mut Vec::new());
    for result in [fast, plain] {
        assert!(matches!(result, Err(RunError::Unsupported(Unsupported { policy: "unfit", .. }))), "{result:?}");
    }
}

#[test]
fn every_policy_can_take_over_from_every_other() {
    // The simulator has no bandwidth caps of namespaces, which `ssd-bandwidth` needs.
    let names: Vec<_> = pilotlight_policy::NAMES.into_iter().filter(|name| *name != "ssd-bandwidth").collect();
    for (number, name) in names.iter().enumerate() {
        let mut scenario = support::scenario(4, 2, 30_000.0, 36 * MS, number as u64);
        scenario.goals = vec![(0, Goals { budget_uw: Some(300_000_000), ..Goals::default() })];
        let (outcome, _) = run(&scenario, || {
            let turn = |at: usize| support::policy(names[(number + at * at) % names.len()], &[]);
            (0..6).map(|at| (at as u64 * 6 * MS, turn(at))).collect()
        });
        assert!(outcome.requests.answered > 500, "{name}: {:?}", outcome.requests);
    }
}
