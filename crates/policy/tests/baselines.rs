//! The rules of `governor`, `dynamic` and `hybrid-poll`, on constructed samples.

#[path = "support/machine.rs"]
mod machine;
#[path = "support/random.rs"]
mod random;

use machine::capabilities;
use pilotlight_plant::{
    Capabilities, Command, CompletionMode, CoreId, CoreSample, CoreState, Depth, Goals, NEVER, Policy, Refusal, Sample,
    SleepGoal, Start, ThreadId, ThreadSample, Topology,
};
use pilotlight_policy::build;
use proptest::prelude::*;
use random::Random;

const SECOND_NS: u64 = 1_000_000_000;
const ASLEEP: CoreState = CoreState::Asleep(Depth::SoftwareWait);

/// A policy on cores in pairs, driven by intervals.
struct Fixture {
    policy: Box<dyn Policy>,
    topology: Topology,
    cores: Vec<CoreState>,
    threads: Vec<ThreadSample>,
    interval_ns: u64,
    now_ns: u64,
    next_needed_ns: u64,
}

impl Fixture {
    /// All cores awake, a thread for each of `homes`; also returns the commands at the start.
    fn new(name: &str, settings: &[(&str, &str)], cores: u16, homes: &[u16]) -> (Self, Vec<Command>) {
        let policy = build(name, settings).unwrap();
        let interval_ns = policy.wants().interval_ns.unwrap();
        let threads =
            homes.iter().map(|&home| ThreadSample { home: CoreId(home), ..ThreadSample::default() }).collect();
        let topology = Topology::paired(cores).unwrap();
        let cores = vec![CoreState::Awake; usize::from(cores)];
        let mut fixture = Self { policy, topology, cores, threads, interval_ns, now_ns: 77, next_needed_ns: 0 };
        let out = fixture.start(&capabilities()).unwrap();
        (fixture, out)
    }

    fn start(&mut self, capabilities: &Capabilities) -> Result<Vec<Command>, String> {
        let cores: Vec<_> = self.cores.iter().map(|&state| CoreSample::new(state)).collect();
        let homes: Vec<_> = self.threads.iter().map(|thread| thread.home).collect();
        let (now_ns, topology) = (self.now_ns, &self.topology);
        let start = Start { now_ns, topology, capabilities, cores: &cores, homes: &homes, goals: &Goals::default() };
        let mut out = Vec::new();
        self.next_needed_ns = self.policy.start(&start, &mut out).map_err(|error| error.to_string())?.needed_ns;
        Ok(out)
    }

    /// An interval in which each thread was busy for `per_cent` of it, with one request for each per cent.
    fn busy(&mut self, per_cent: &[u64]) -> Vec<Command> {
        for (thread, &share) in self.threads.iter_mut().zip(per_cent) {
            thread.requests = share;
            thread.busy_ns = self.interval_ns * share / 100;
        }
        self.interval()
    }

    fn interval(&mut self) -> Vec<Command> {
        self.now_ns += self.interval_ns;
        let awake_ns = |state: &CoreState| if *state == CoreState::Awake { self.interval_ns } else { 0 };
        let sample = |(core, state): (u16, &CoreState)| {
            let at_home = self.threads.iter().filter(|thread| thread.home == CoreId(core));
            let busy_ns = at_home.map(|thread| thread.busy_ns).sum::<u64>().min(awake_ns(state));
            CoreSample { state: *state, busy_ns, awake_ns: awake_ns(state) }
        };
        let cores: Vec<_> = (0..).zip(&self.cores).map(sample).collect();
        let (now_ns, elapsed_ns, threads) = (self.now_ns, self.interval_ns, &self.threads[..]);
        let mut out = Vec::new();
        let sample = Sample { now_ns, elapsed_ns, cores: &cores, threads, readings: &[] };
        self.next_needed_ns = self.policy.on_interval(&sample, &mut out).needed_ns;
        out
    }

    /// Applies commands at once.
    fn obey(&mut self, commands: &[Command]) {
        for command in commands {
            match *command {
                Command::Move { thread, to } => self.threads[thread.index()].home = to,
                Command::Sleep { core, .. } => self.cores[core.index()] = ASLEEP,
                Command::Wake { core } => self.cores[core.index()] = CoreState::Awake,
                Command::Completions { .. } | Command::Set { .. } => {}
            }
        }
    }

    fn homes(&self) -> Vec<u16> {
        self.threads.iter().map(|thread| thread.home.0).collect()
    }

    /// Runs intervals of this load until nothing is commanded; returns the homes of threads.
    fn settle(&mut self, per_cent: &[u64]) -> Vec<u16> {
        for _ in 0..20 {
            let commands = self.busy(per_cent);
            if commands.is_empty() {
                return self.homes();
            }
            self.obey(&commands);
        }
        panic!("a steady load does not settle: {:?}", self.homes());
    }
}

fn moved(thread: u16, to: u16) -> Command {
    Command::Move { thread: ThreadId(thread), to: CoreId(to) }
}

fn slept(core: u16) -> Command {
    Command::Sleep { core: CoreId(core), goal: SleepGoal { wake_within_ns: 27_000 } }
}

mod governor {
    use super::*;

    /// The knob of core `i` has the number `i`.
    fn frequencies(commands: &[Command]) -> Vec<(u16, u64)> {
        let frequency = |command: &Command| match *command {
            Command::Set { knob, value } => (knob.0, value / 1_000),
            ref other => panic!("{other:?}"),
        };
        commands.iter().map(frequency).collect()
    }

    /// One core, its load in each interval; returns the frequencies set, in MHz, from the highest on.
    fn one_core(settings: &[(&str, &str)], loads: &[u64]) -> Vec<Option<u64>> {
        let (mut fixture, start) = Fixture::new("governor", settings, 1, &[0]);
        assert_eq!(frequencies(&start[1..]), [(0, 3_650)], "highest to begin with");
        let set = |load: &u64| frequencies(&fixture.busy(&[*load])).first().map(|&(_, mhz)| mhz);
        loads.iter().map(set).collect()
    }

    #[test]
    fn the_frequency_steps_up_and_down_and_jumps_to_the_limits() {
        let set = one_core(&[], &[30, 49, 50, 98, 99, 100, 1, 0, 0, 60]);
        let mhz = [3_550, 3_450, 3_550, 3_650, 0, 0, 3_550, 400, 0, 500];
        assert_eq!(set, mhz.map(|mhz| Some(mhz).filter(|&mhz| mhz > 0)));
    }

    #[test]
    fn thresholds_and_the_kind_of_raise_are_parameters() {
        let settings = [("up", "max"), ("min_threshold", "20"), ("up_threshold", "40")];
        assert_eq!(one_core(&settings, &[19, 39, 40, 41]), [Some(400), None, Some(3_650), None]);
    }

    #[test]
    fn the_higher_load_of_two_siblings_counts_for_both() {
        let loads = [0, 60, 0, 0];
        let (mut fixture, start) = Fixture::new("governor", &[], 4, &[0, 1, 2, 3]);
        assert_eq!(start.len(), 8, "{start:?}");
        assert_eq!(frequencies(&fixture.busy(&loads)), [(2, 400), (3, 400)]);
        let (mut fixture, _) = Fixture::new("governor", &[("siblings", "false")], 4, &[0, 1, 2, 3]);
        assert_eq!(frequencies(&fixture.busy(&loads)), [(0, 400), (2, 400), (3, 400)]);
    }

    #[test]
    fn a_refused_frequency_is_retried_with_the_first_load_after_the_backoff() {
        let (mut fixture, _) = Fixture::new("governor", &[], 1, &[0]);
        let commands = fixture.busy(&[0]);
        assert_eq!(fixture.next_needed_ns, NEVER);
        fixture.policy.on_refused(fixture.now_ns, &commands[0], Refusal::Failed);
        assert_eq!(fixture.busy(&[0]), [], "an interval without requests may be skipped");
        fixture.threads[0].in_progress_ns = 1;
        assert_eq!(frequencies(&fixture.interval()), [], "in backoff");
        fixture.now_ns += 10_000_000_000;
        let again = fixture.interval();
        assert_eq!(frequencies(&again), [(0, 400)]);
        fixture.policy.on_refused(fixture.now_ns, &again[0], Refusal::Unsupported);
        fixture.now_ns += 10_000_000_000_000;
        assert_eq!(frequencies(&fixture.interval()), [], "the knob is unsupported");
    }

    #[test]
    fn a_core_that_refuses_does_not_keep_a_quiet_server_awake() {
        for refusal in [Refusal::Failed, Refusal::Unsupported] {
            let (mut fixture, start) = Fixture::new("governor", &[], 1, &[0]);
            fixture.policy.on_refused(fixture.now_ns, &start[1], refusal);
            assert_eq!(fixture.busy(&[0]), []);
            assert_eq!(fixture.next_needed_ns, NEVER, "{refusal:?}");
        }
    }

    #[test]
    fn a_plant_without_frequencies_is_refused_with_a_remedy() {
        let (mut fixture, _) = Fixture::new("governor", &[], 1, &[0]);
        let refused = fixture.start(&Capabilities { knobs: Vec::new(), ..capabilities() }).unwrap_err();
        assert!(refused.contains("policy governor needs") && refused.contains("cpufreq"), "{refused}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Against a second implementation of the rule.
        #[test]
        fn only_changes_are_commanded(loads in prop::collection::vec(0..=100u64, 1..60)) {
            let mut mhz = 3_650;
            for (load, set) in loads.iter().zip(one_core(&[], &loads)) {
                let to = if *load == 0 { 400 }
                    else if *load < 50 { (mhz - 100).max(400) }
                    else if *load < 99 { (mhz + 100).min(3_650) }
                    else { 3_650 };
                prop_assert_eq!(set, (to != mhz).then_some(to));
                mhz = to;
            }
        }
    }
}

mod dynamic {
    use super::*;

    #[test]
    fn threads_with_little_load_go_to_the_main_core_and_their_cores_sleep() {
        let (mut fixture, _) = Fixture::new("dynamic", &[], 4, &[0, 1, 2, 3]);
        let load = [0, 19, 30, 0];
        let commands = fixture.busy(&load);
        assert_eq!(commands, [moved(1, 0), moved(2, 0), moved(3, 0)], "the first core that takes it is the main core");
        fixture.obey(&commands);
        assert_eq!(fixture.busy(&[0, 0, 0, 0]), [1, 2, 3].map(slept));
    }

    #[test]
    fn active_threads_fill_the_first_cores_up_to_the_limit() {
        let (mut fixture, _) = Fixture::new("dynamic", &[], 6, &[0, 1, 2, 3, 4, 5]);
        assert_eq!(fixture.settle(&[30, 30, 30, 30, 30, 30]), [0, 0, 1, 1, 2, 2]);
        assert_eq!(fixture.cores[3..], [ASLEEP; 3]);
    }

    #[test]
    fn threads_of_a_full_core_move_to_woken_cores() {
        let (mut fixture, _) = Fixture::new("dynamic", &[], 3, &[0, 0, 0]);
        fixture.cores[1..].fill(ASLEEP);
        let commands = fixture.busy(&[33, 33, 34]);
        let wakes = [1, 2].map(|core| Command::Wake { core: CoreId(core) });
        assert_eq!(commands, [wakes[0], wakes[1], moved(0, 1), moved(1, 2)], "the last one stays");
    }

    /// At 94 % the core is below the limit without one thread; from 95 % on the others are expected to use the freed time.
    #[test]
    fn from_core_busy_on_a_thread_that_leaves_frees_nothing() {
        let moves = |load: &[u64]| {
            let (mut fixture, _) = Fixture::new("dynamic", &[], 4, &[1, 1, 1]);
            fixture.threads[0].home = CoreId(1);
            let commands = fixture.busy(load);
            commands.iter().filter(|command| matches!(command, Command::Move { .. })).count()
        };
        assert_eq!(moves(&[24, 35, 35]), 2, "to the main core up to its limit");
        let full = |load: &[u64]| {
            let (mut fixture, _) = Fixture::new("dynamic", &[], 4, &[0, 0, 0]);
            fixture.busy(load).iter().filter(|command| matches!(command, Command::Move { .. })).count()
        };
        assert_eq!(full(&[24, 35, 35]), 1);
        assert_eq!(full(&[25, 35, 35]), 2);
    }

    /// 48 threads on an overloaded main core have 2 % each, and are active by their own polls, nearly all of which are busy.
    #[test]
    fn threads_of_an_overloaded_core_are_active_by_their_own_polls() {
        let moves = |settings: &[(&str, &str)]| {
            let (mut fixture, _) = Fixture::new("dynamic", settings, 48, &[0; 48]);
            fixture.busy(&[2; 48]).iter().filter(|command| matches!(command, Command::Move { .. })).count()
        };
        assert_eq!(moves(&[]), 9, "until the core is under 80 %");
        assert_eq!(moves(&[("thread_load", "core")]), 0);
    }

    /// A move can be delayed, and no sample shows it until then.
    #[test]
    fn a_pending_move_keeps_the_next_interval_needed() {
        let (mut fixture, _) = Fixture::new("dynamic", &[], 2, &[0, 0]);
        fixture.cores[1] = ASLEEP;
        let commands = fixture.busy(&[50, 50]);
        assert_eq!(commands, [Command::Wake { core: CoreId(1) }, moved(0, 1)]);
        for _ in 0..3 {
            assert_eq!(fixture.busy(&[0, 0]), []);
            assert_eq!(fixture.next_needed_ns, fixture.now_ns + fixture.interval_ns);
        }
        fixture.obey(&commands);
        assert_eq!(fixture.busy(&[0, 0]), [moved(0, 0)]);
        fixture.policy.on_refused(fixture.now_ns, &moved(0, 0), Refusal::Unknown);
        assert_eq!(fixture.busy(&[0, 0]), [moved(0, 0)], "a refused move is retried");
    }

    #[test]
    fn without_room_a_thread_goes_to_the_least_busy_core() {
        let (mut fixture, _) = Fixture::new("dynamic", &[], 2, &[0, 0, 0, 1, 1]);
        let commands = fixture.busy(&[33, 33, 33, 35, 35]);
        assert_eq!(commands.first(), Some(&moved(0, 1)), "{commands:?}");
    }

    #[test]
    fn cores_sleep_in_the_kernel_or_as_configured() {
        let goal = |settings: &[(&str, &str)]| {
            let (mut fixture, _) = Fixture::new("dynamic", settings, 2, &[0]);
            match fixture.busy(&[0])[..] {
                [Command::Sleep { goal, .. }] => capabilities().sleep_for(goal).unwrap().depth,
                ref other => panic!("{other:?}"),
            }
        };
        assert_eq!(goal(&[]), Depth::SoftwareWait);
        assert_eq!(goal(&[("sleep", "monitor")]), Depth::MonitorWait);
        let (mut fixture, _) = Fixture::new("dynamic", &[("sleep", "monitor")], 2, &[0]);
        let mut software = capabilities();
        software.sleeps.remove(0);
        let refused = fixture.start(&software).unwrap_err();
        assert!(refused.contains("wait instruction"), "{refused}");
    }

    /// SANDMAN section 3.5: at 10 us a few polls move threads back and forth; at 1 s the same load moves none.
    #[test]
    fn a_steady_load_thrashes_at_10_us_and_not_at_1_s() {
        let moves_per_s = |interval: &str| {
            let (mut fixture, _) = Fixture::new("dynamic", &[("interval", interval)], 8, &[0, 1, 2, 3, 4, 5, 6, 7]);
            let (interval_ns, mut random, mut moves) = (fixture.interval_ns, Random::new(3), 0);
            let intervals = if interval == "1s" { 20 } else { 2_000 };
            for at in 0..intervals {
                for thread in 0..8 {
                    // 30 % of a core each: in three of ten slots of 1.25 us there is a request.
                    let slots = (interval_ns / 1_250).min(100_000);
                    let hits = (0..slots).filter(|_| random.below(10) < 3).count() as u64;
                    fixture.threads[thread].requests = hits;
                    fixture.threads[thread].busy_ns = interval_ns * hits / slots;
                }
                let commands = fixture.interval();
                if at > intervals / 2 {
                    moves += commands.iter().filter(|command| matches!(command, Command::Move { .. })).count();
                }
                fixture.obey(&commands);
            }
            moves as f64 / (intervals / 2) as f64 * 1e9 / interval_ns as f64
        };
        assert!(moves_per_s("10us") > 10_000.0, "{}", moves_per_s("10us"));
        assert!(moves_per_s("1s") < 1.0, "{}", moves_per_s("1s"));
    }
}

mod hybrid_poll {
    use super::*;

    fn rests(commands: &[Command]) -> Vec<(u16, u32)> {
        let rest = |command: &Command| match *command {
            Command::Completions { thread, mode: CompletionMode::Hybrid { idle_ns: 10_000, rest_ns } } => {
                (thread.0, rest_ns)
            }
            ref other => panic!("{other:?}"),
        };
        commands.iter().map(rest).collect()
    }

    /// An interval with these completions and request-nanoseconds of threads.
    fn served(fixture: &mut Fixture, of: &[(u64, u64)]) -> Vec<(u16, u32)> {
        for (thread, &(answered, in_progress_ns)) in fixture.threads.iter_mut().zip(of) {
            (thread.answered, thread.in_progress_ns) = (answered, in_progress_ns);
        }
        rests(&fixture.interval())
    }

    #[test]
    fn a_core_rests_for_half_the_mean_service_time_of_all_its_threads() {
        let (mut fixture, start) = Fixture::new("hybrid-poll", &[], 2, &[0, 1, 0]);
        assert_eq!(rests(&start), [(0, 10_000), (1, 10_000), (2, 10_000)]);
        let changed = served(&mut fixture, &[(1, 100_000), (10, 800_000), (3, 60_000)]);
        assert_eq!(changed, [(0, 20_000), (1, 40_000), (2, 20_000)]);
        assert_eq!(served(&mut fixture, &[(0, 0), (5, 400_000), (0, 0)]), [], "the first core has no new mean");
        assert_eq!(fixture.next_needed_ns, NEVER);
    }

    #[test]
    fn a_request_longer_than_an_interval_counts_at_its_completion() {
        let (mut fixture, _) = Fixture::new("hybrid-poll", &[("interval", "10us"), ("max_rest", "1s")], 1, &[0]);
        assert_eq!(served(&mut fixture, &[(0, 10_000)]), []);
        assert_eq!(served(&mut fixture, &[(0, 10_000)]), []);
        assert_eq!(served(&mut fixture, &[(1, 4_000)]), [(0, 12_000)]);
    }

    #[test]
    fn rests_are_limited_by_max_rest_and_retried_after_refusals() {
        let (mut fixture, _) = Fixture::new("hybrid-poll", &[("max_rest", "50us"), ("fraction", "100")], 1, &[0]);
        assert_eq!(served(&mut fixture, &[(1, SECOND_NS)]), [(0, 50_000)]);
        let how = CompletionMode::Hybrid { idle_ns: 10_000, rest_ns: 50_000 };
        fixture.policy.on_refused(1, &Command::Completions { thread: ThreadId(0), mode: how }, Refusal::Unsupported);
        assert_eq!(served(&mut fixture, &[(0, 0)]), [], "an interval without requests may be skipped");
        assert_eq!(served(&mut fixture, &[(1, SECOND_NS)]), [(0, 50_000)]);
    }

    #[test]
    fn a_plant_without_rests_is_refused() {
        let (mut fixture, _) = Fixture::new("hybrid-poll", &[], 1, &[0]);
        let refused = fixture.start(&Capabilities { rests: None, ..capabilities() }).unwrap_err();
        assert!(refused.contains("policy hybrid-poll needs"), "{refused}");
    }
}
