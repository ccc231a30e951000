//! The rules of `governor`, `dynamic` and `hybrid-poll`, on samples made by hand.

#[path = "support/dice.rs"]
mod dice;
#[path = "support/machine.rs"]
mod machine;

use dice::Dice;
use machine::capabilities;
use pilotlight_plant::{
    Capabilities, Command, CompletionMode, CoreId, CoreSample, CoreState, Depth, Goals, NEVER, Policy, Refusal, Sample,
    SleepGoal, Start, ThreadId, ThreadSample, Topology,
};
use pilotlight_policy::build;
use proptest::prelude::*;

const SECOND_NS: u64 = 1_000_000_000;
const ASLEEP: CoreState = CoreState::Asleep(Depth::SoftwareWait);

/// A policy on cores in pairs, told one interval after the other.
struct Bench {
    policy: Box<dyn Policy>,
    topology: Topology,
    cores: Vec<CoreState>,
    threads: Vec<ThreadSample>,
    interval_ns: u64,
    now_ns: u64,
    next_needed_ns: u64,
}

impl Bench {
    /// All cores awake, a thread for each of `homes`; also what was commanded at the start.
    fn new(name: &str, settings: &[(&str, &str)], cores: u16, homes: &[u16]) -> (Self, Vec<Command>) {
        let policy = build(name, settings).unwrap();
        let interval_ns = policy.wants().interval_ns.unwrap();
        let threads =
            homes.iter().map(|&home| ThreadSample { home: CoreId(home), ..ThreadSample::default() }).collect();
        let topology = Topology::paired(cores).unwrap();
        let cores = vec![CoreState::Awake; usize::from(cores)];
        let mut bench = Self { policy, topology, cores, threads, interval_ns, now_ns: 77, next_needed_ns: 0 };
        let out = bench.start(&capabilities()).unwrap();
        (bench, out)
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

    /// An interval in which each thread was busy for so many per cent of it, with a request for each per cent.
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

    /// Does at once what was commanded.
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

    /// Intervals of this load until nothing is commanded any more; where threads live then.
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

    /// The knob of core `i` is the one of number `i`.
    fn frequencies(commands: &[Command]) -> Vec<(u16, u64)> {
        let frequency = |command: &Command| match *command {
            Command::Set { knob, value } => (knob.0, value / 1_000),
            ref other => panic!("{other:?}"),
        };
        commands.iter().map(frequency).collect()
    }

    /// One core, its load in each interval, and what it is set to in MHz, from the highest on.
    fn one_core(settings: &[(&str, &str)], loads: &[u64]) -> Vec<Option<u64>> {
        let (mut bench, start) = Bench::new("governor", settings, 1, &[0]);
        assert_eq!(frequencies(&start[1..]), [(0, 3_650)], "highest to begin with");
        let set = |load: &u64| frequencies(&bench.busy(&[*load])).first().map(|&(_, mhz)| mhz);
        loads.iter().map(set).collect()
    }

    #[test]
    fn a_core_steps_up_and_down_and_jumps_to_the_ends() {
        let set = one_core(&[], &[30, 49, 50, 98, 99, 100, 1, 0, 0, 60]);
        let mhz = [3_550, 3_450, 3_550, 3_650, 0, 0, 3_550, 400, 0, 500];
        assert_eq!(set, mhz.map(|mhz| Some(mhz).filter(|&mhz| mhz > 0)));
    }

    #[test]
    fn up_can_be_a_jump_and_limits_can_be_set() {
        let settings = [("up", "max"), ("min_below", "20"), ("up_from", "40")];
        assert_eq!(one_core(&settings, &[19, 39, 40, 41]), [Some(400), None, Some(3_650), None]);
    }

    #[test]
    fn of_two_siblings_the_busier_counts_for_both() {
        let loads = [0, 60, 0, 0];
        let (mut bench, start) = Bench::new("governor", &[], 4, &[0, 1, 2, 3]);
        assert_eq!(start.len(), 8, "{start:?}");
        assert_eq!(frequencies(&bench.busy(&loads)), [(2, 400), (3, 400)]);
        let (mut bench, _) = Bench::new("governor", &[("siblings", "false")], 4, &[0, 1, 2, 3]);
        assert_eq!(frequencies(&bench.busy(&loads)), [(0, 400), (2, 400), (3, 400)]);
    }

    #[test]
    fn what_was_refused_is_told_again_with_the_first_load_after_a_pause() {
        let (mut bench, _) = Bench::new("governor", &[], 1, &[0]);
        let told = bench.busy(&[0]);
        assert_eq!(bench.next_needed_ns, NEVER);
        bench.policy.on_refused(bench.now_ns, &told[0], Refusal::Failed);
        assert_eq!(bench.busy(&[0]), [], "a quiet interval may be left out");
        bench.threads[0].in_progress_ns = 1;
        assert_eq!(frequencies(&bench.interval()), [], "refused just now");
        bench.now_ns += 10_000_000_000;
        let again = bench.interval();
        assert_eq!(frequencies(&again), [(0, 400)]);
        bench.policy.on_refused(bench.now_ns, &again[0], Refusal::Unsupported);
        bench.now_ns += 10_000_000_000_000;
        assert_eq!(frequencies(&bench.interval()), [], "it cannot be set at all");
    }

    #[test]
    fn a_core_that_refuses_does_not_keep_a_quiet_server_awake() {
        for refusal in [Refusal::Failed, Refusal::Unsupported] {
            let (mut bench, start) = Bench::new("governor", &[], 1, &[0]);
            bench.policy.on_refused(bench.now_ns, &start[1], refusal);
            assert_eq!(bench.busy(&[0]), []);
            assert_eq!(bench.next_needed_ns, NEVER, "{refusal:?}");
        }
    }

    #[test]
    fn a_plant_without_frequencies_is_refused_with_what_would_help() {
        let (mut bench, _) = Bench::new("governor", &[], 1, &[0]);
        let refused = bench.start(&Capabilities { knobs: Vec::new(), ..capabilities() }).unwrap_err();
        assert!(refused.contains("policy governor needs") && refused.contains("cpufreq"), "{refused}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Against the rule written down again: a core's frequency is a function of its last one and its load.
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
    fn threads_with_little_load_go_to_the_main_core_and_their_cores_sleep_an_interval_later() {
        let (mut bench, _) = Bench::new("dynamic", &[], 4, &[0, 1, 2, 3]);
        let load = [0, 19, 30, 0];
        let commands = bench.busy(&load);
        assert_eq!(commands, [moved(1, 0), moved(2, 0), moved(3, 0)], "the first core that takes it is the main core");
        bench.obey(&commands);
        assert_eq!(bench.busy(&[0, 0, 0, 0]), [1, 2, 3].map(slept));
    }

    #[test]
    fn active_threads_fill_the_first_cores_up_to_the_limit() {
        let (mut bench, _) = Bench::new("dynamic", &[], 6, &[0, 1, 2, 3, 4, 5]);
        assert_eq!(bench.settle(&[30, 30, 30, 30, 30, 30]), [0, 0, 1, 1, 2, 2]);
        assert_eq!(bench.cores[3..], [ASLEEP; 3]);
    }

    #[test]
    fn a_core_that_is_full_gives_threads_to_cores_that_it_wakes() {
        let (mut bench, _) = Bench::new("dynamic", &[], 3, &[0, 0, 0]);
        bench.cores[1..].fill(ASLEEP);
        let commands = bench.busy(&[33, 33, 34]);
        let wakes = [1, 2].map(|core| Command::Wake { core: CoreId(core) });
        assert_eq!(commands, [wakes[0], wakes[1], moved(0, 1), moved(1, 2)], "the last one stays");
    }

    /// 94 % is over the limit, and one thread less makes it right; at 95 % what one leaves others are expected to take.
    #[test]
    fn from_core_busy_on_a_thread_that_leaves_frees_nothing() {
        let moves = |load: &[u64]| {
            let (mut bench, _) = Bench::new("dynamic", &[], 4, &[1, 1, 1]);
            bench.threads[0].home = CoreId(1);
            let commands = bench.busy(load);
            commands.iter().filter(|command| matches!(command, Command::Move { .. })).count()
        };
        assert_eq!(moves(&[24, 35, 35]), 2, "to the main core, as far as it takes them");
        let full = |load: &[u64]| {
            let (mut bench, _) = Bench::new("dynamic", &[], 4, &[0, 0, 0]);
            bench.busy(load).iter().filter(|command| matches!(command, Command::Move { .. })).count()
        };
        assert_eq!(full(&[24, 35, 35]), 1);
        assert_eq!(full(&[25, 35, 35]), 2);
    }

    /// 48 threads on a flooded main core have 2 % each, and are active all the same: hardly one of their own polls is idle.
    #[test]
    fn a_crowd_on_a_flooded_core_is_active_by_its_own_polls_and_idle_by_the_core_s() {
        let moves = |settings: &[(&str, &str)]| {
            let (mut bench, _) = Bench::new("dynamic", settings, 48, &[0; 48]);
            bench.busy(&[2; 48]).iter().filter(|command| matches!(command, Command::Move { .. })).count()
        };
        assert_eq!(moves(&[]), 9, "until the core is under 80 %");
        assert_eq!(moves(&[("thread_load", "core")]), 0);
    }

    /// Its arrival can be late, and shows in no sample until then.
    #[test]
    fn a_move_on_its_way_keeps_the_next_interval_needed() {
        let (mut bench, _) = Bench::new("dynamic", &[], 2, &[0, 0]);
        bench.cores[1] = ASLEEP;
        let commands = bench.busy(&[50, 50]);
        assert_eq!(commands, [Command::Wake { core: CoreId(1) }, moved(0, 1)]);
        for _ in 0..3 {
            assert_eq!(bench.busy(&[0, 0]), []);
            assert_eq!(bench.next_needed_ns, bench.now_ns + bench.interval_ns);
        }
        bench.obey(&commands);
        assert_eq!(bench.busy(&[0, 0]), [moved(0, 0)]);
        bench.policy.on_refused(bench.now_ns, &moved(0, 0), Refusal::Unknown);
        assert_eq!(bench.busy(&[0, 0]), [moved(0, 0)], "refused, it is tried again");
    }

    #[test]
    fn without_room_a_thread_goes_to_the_least_busy_core() {
        let (mut bench, _) = Bench::new("dynamic", &[], 2, &[0, 0, 0, 1, 1]);
        let commands = bench.busy(&[33, 33, 33, 35, 35]);
        assert_eq!(commands.first(), Some(&moved(0, 1)), "{commands:?}");
    }

    #[test]
    fn cores_sleep_in_the_kernel_or_as_is_set_or_the_plant_is_refused() {
        let goal = |settings: &[(&str, &str)]| {
            let (mut bench, _) = Bench::new("dynamic", settings, 2, &[0]);
            match bench.busy(&[0])[..] {
                [Command::Sleep { goal, .. }] => capabilities().sleep_for(goal).unwrap().depth,
                ref other => panic!("{other:?}"),
            }
        };
        assert_eq!(goal(&[]), Depth::SoftwareWait);
        assert_eq!(goal(&[("sleep", "monitor")]), Depth::MonitorWait);
        let (mut bench, _) = Bench::new("dynamic", &[("sleep", "monitor")], 2, &[0]);
        let mut software = capabilities();
        software.sleeps.remove(0);
        let refused = bench.start(&software).unwrap_err();
        assert!(refused.contains("wait instruction"), "{refused}");
    }

    /// SANDMAN section 3.5: at 10 us what a few polls show moves threads to and fro; at 1 s the same load leaves them alone.
    #[test]
    fn a_steady_load_thrashes_at_10_us_and_not_at_1_s() {
        let moves_per_s = |interval: &str| {
            let (mut bench, _) = Bench::new("dynamic", &[("interval", interval)], 8, &[0, 1, 2, 3, 4, 5, 6, 7]);
            let (interval_ns, mut dice, mut moves) = (bench.interval_ns, Dice(3), 0);
            let intervals = if interval == "1s" { 20 } else { 2_000 };
            for at in 0..intervals {
                for thread in 0..8 {
                    // 30 % of a core each: in three of ten slots of 1.25 us there is a request.
                    let slots = (interval_ns / 1_250).min(100_000);
                    let hits = (0..slots).filter(|_| dice.below(10) < 3).count() as u64;
                    bench.threads[thread].requests = hits;
                    bench.threads[thread].busy_ns = interval_ns * hits / slots;
                }
                let commands = bench.interval();
                if at > intervals / 2 {
                    moves += commands.iter().filter(|command| matches!(command, Command::Move { .. })).count();
                }
                bench.obey(&commands);
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

    /// An interval in which threads had this many answers and request-nanoseconds.
    fn served(bench: &mut Bench, of: &[(u64, u64)]) -> Vec<(u16, u32)> {
        for (thread, &(answered, in_progress_ns)) in bench.threads.iter_mut().zip(of) {
            (thread.answered, thread.in_progress_ns) = (answered, in_progress_ns);
        }
        rests(&bench.interval())
    }

    #[test]
    fn a_core_rests_for_half_the_mean_service_time_of_all_its_threads() {
        let (mut bench, start) = Bench::new("hybrid-poll", &[], 2, &[0, 1, 0]);
        assert_eq!(rests(&start), [(0, 10_000), (1, 10_000), (2, 10_000)]);
        let changed = served(&mut bench, &[(1, 100_000), (10, 800_000), (3, 60_000)]);
        assert_eq!(changed, [(0, 20_000), (1, 40_000), (2, 20_000)]);
        assert_eq!(served(&mut bench, &[(0, 0), (5, 400_000), (0, 0)]), [], "the first core has no new mean");
        assert_eq!(bench.next_needed_ns, NEVER);
    }

    #[test]
    fn a_request_that_outlasts_an_interval_counts_when_it_is_answered() {
        let (mut bench, _) = Bench::new("hybrid-poll", &[("interval", "10us"), ("most", "1s")], 1, &[0]);
        assert_eq!(served(&mut bench, &[(0, 10_000)]), []);
        assert_eq!(served(&mut bench, &[(0, 10_000)]), []);
        assert_eq!(served(&mut bench, &[(1, 4_000)]), [(0, 12_000)]);
    }

    #[test]
    fn no_rest_is_longer_than_most_and_a_refused_one_is_told_again() {
        let (mut bench, _) = Bench::new("hybrid-poll", &[("most", "50us"), ("fraction", "100")], 1, &[0]);
        assert_eq!(served(&mut bench, &[(1, SECOND_NS)]), [(0, 50_000)]);
        let how = CompletionMode::Hybrid { idle_ns: 10_000, rest_ns: 50_000 };
        bench.policy.on_refused(1, &Command::Completions { thread: ThreadId(0), mode: how }, Refusal::Unsupported);
        assert_eq!(served(&mut bench, &[(0, 0)]), [], "a quiet interval may be left out");
        assert_eq!(served(&mut bench, &[(1, SECOND_NS)]), [(0, 50_000)]);
    }

    #[test]
    fn a_plant_that_cannot_rest_is_refused_by_name() {
        let (mut bench, _) = Bench::new("hybrid-poll", &[], 1, &[0]);
        let refused = bench.start(&Capabilities { rests: None, ..capabilities() }).unwrap_err();
        assert!(refused.contains("policy hybrid-poll needs"), "{refused}");
    }
}
