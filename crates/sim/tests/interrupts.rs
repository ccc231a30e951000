//! Interrupts taken by other cores, I/O threads' turns on their own core, and md's thread: closed forms, laws, both engines.

mod support;

use pilotlight_plant::{Command, CompletionMode, CoreId, Next, Policy, Start, ThreadId, Topology, Unsupported, Wants};
use pilotlight_sim::audit::TraceAuditor;
use pilotlight_sim::engine::{run_naive, run_traced};
use pilotlight_sim::machine::KernelCosts;
use pilotlight_sim::outcome::Outcome;
use pilotlight_sim::run;
use pilotlight_sim::scenario::{Kind, Phase, Rate, Scenario, Step};
use pilotlight_sim::trace::{Record, RecordKind};
use support::{policy, scenario};

/// Sets the numbers of queues of drives and network cards.
fn shared(mut scenario: Scenario, drive_queues: u32, network_queues: u32) -> Scenario {
    let kernel = scenario.machine.kernel;
    scenario.machine.kernel = KernelCosts { drive_queues, network_queues, ipi_ns: 1_300, ..kernel };
    scenario
}

fn traced(scenario: &Scenario, name: &str) -> (Outcome, Vec<u8>) {
    let mut trace = Vec::new();
    let outcome = run_traced(scenario, policy(name, &[]), &mut trace).unwrap();
    (outcome, trace)
}

fn records(trace: &[u8]) -> Vec<Record> {
    trace.as_chunks::<{ Record::BYTES }>().0.iter().map(|bytes| Record::decode(bytes).unwrap()).collect()
}

/// Runs both engines: equal traces, and no law broken.
fn holds(scenario: &Scenario, policy_of: impl Fn() -> Box<dyn Policy>) -> Outcome {
    let traced = || {
        let mut trace = Vec::new();
        let outcome = run_traced(scenario, policy_of(), &mut trace).unwrap();
        (outcome, trace)
    };
    let (outcome, trace) = traced();
    assert!(traced().1 == trace, "the same seed gives another trace");
    let mut naive = Vec::new();
    let expected = run_naive(scenario, policy_of(), &mut naive).unwrap();
    if naive != trace {
        let (one, other) = (records(&trace), records(&naive));
        let at = one.iter().zip(&other).position(|(one, other)| one != other).unwrap_or(0);
        let part = |all: &[Record]| -> String {
            all[at.saturating_sub(6)..(at + 2).min(all.len())].iter().map(|record| format!("\n  {record:?}")).collect()
        };
        panic!("{:?}: record {at}: {}\nand {}", scenario.machine.kernel, part(&one), part(&other));
    }
    assert_eq!(outcome, expected);
    let mut audit = TraceAuditor::new(scenario);
    run_traced(scenario, policy_of(), &mut audit).unwrap();
    if let Err(violations) = audit.finish(&outcome) {
        panic!("{} laws broken: {}", violations.len(), violations[0]);
    }
    outcome
}

/// A bursty load.
fn bursts(cores: u16, seed: u64) -> Scenario {
    let mut scenario = scenario(cores, 2, 0.0, 10_000_000, seed);
    for connection in &mut scenario.workload.connections {
        connection.phases = vec![
            Phase { label: 0, length_ns: 3_000_000, rate: Rate::PerSecond(5_000.0) },
            Phase { label: 1, length_ns: 1_000_000, rate: Rate::PerSecond(150_000.0) },
        ];
    }
    scenario
}

fn interrupt() -> Box<dyn Policy> {
    policy("interrupt", &[])
}

#[test]
fn both_engines_write_equal_valid_traces() {
    for seed in 0..3 {
        for (drive_queues, network_queues) in [(6, 0), (2, 0), (1, 0), (0, 2), (3, 1), (1, 6)] {
            holds(&shared(bursts(6, seed), drive_queues, network_queues), interrupt);
        }
        for rate in [2_000.0, 200_000.0, 1_000_000.0] {
            holds(&shared(scenario(5, 2, rate, 4_000_000, seed), 2, 0), interrupt);
            holds(&shared(scenario(5, 2, rate, 4_000_000, seed), 2, 3), interrupt);
        }
    }
}

/// All I/O threads on one core, or on the first cores.
#[derive(Debug)]
struct On(u16);

impl Policy for On {
    fn name(&self) -> &'static str {
        "on"
    }

    fn wants(&self) -> Wants {
        Wants::default()
    }

    fn start(&mut self, start: &Start<'_>, out: &mut Vec<Command>) -> Result<Next, Unsupported> {
        for thread in 0..start.homes.len() as u16 {
            out.push(Command::Move { thread: ThreadId(thread), to: CoreId(thread % self.0 + 1) });
            out.push(Command::Completions { thread: ThreadId(thread), mode: CompletionMode::Interrupt });
        }
        Ok(Next::NEVER)
    }
}

#[test]
fn io_threads_that_share_a_core_take_turns() {
    for seed in 0..3 {
        for (drive_queues, network_queues) in [(2, 0), (3, 2)] {
            let busy = shared(scenario(6, 2, 400_000.0, 6_000_000, seed), drive_queues, network_queues);
            let crowded = holds(&busy, || Box::new(On(2)));
            let spread = holds(&busy, || Box::new(On(5)));
            assert!(mean_ns(&crowded) > mean_ns(&spread), "{} and {}", mean_ns(&crowded), mean_ns(&spread));
        }
    }
}

fn mean_ns(outcome: &Outcome) -> u64 {
    let sums = outcome.latency.iter().map(|(_, times)| (times.mean() * times.count() as f64, times.count()));
    let (sum, count) = sums.fold((0.0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
    (sum / count as f64) as u64
}

/// Sparse requests at depth 1 for the I/O thread on core 1 of 4.
fn alone(drive_queues: u32, network_queues: u32) -> Scenario {
    let mut scenario = shared(scenario(4, 1, 2_000.0, 40_000_000, 3), drive_queues, network_queues);
    scenario.topology = Topology::flat(4).unwrap();
    scenario.workload.connections.truncate(1);
    scenario.workload.connections[0].phases[0].rate = Rate::PerSecond(500.0);
    scenario.workload.connections[0].thread = 1;
    scenario.machine.speed.sibling_gain_ppm = 0;
    scenario
}

/// Times from arrival to poll, and from completion to response, of each request.
fn ways(scenario: &Scenario) -> Vec<(u64, u64)> {
    let mut trace = Vec::new();
    run_traced(scenario, interrupt(), &mut trace).unwrap();
    let records = records(&trace);
    let of = |what| records.iter().filter(move |record| record.kind == what).map(|record| record.at_ns);
    let polled = of(RecordKind::Arrived).zip(of(RecordKind::Polled)).map(|(from_ns, to_ns)| to_ns - from_ns);
    let answered = of(RecordKind::Completed).zip(of(RecordKind::Answered)).map(|(from_ns, to_ns)| to_ns - from_ns);
    polled.zip(answered).collect()
}

#[test]
fn a_single_request_costs_its_path() {
    let machine = support::machine();
    let (kernel, poll) = (machine.kernel, machine.poll);
    let (exit_ns, interrupt_ns) = (kernel.shallow_exit_ns, u64::from(kernel.interrupt_ns));
    let own_ns = exit_ns + interrupt_ns + u64::from(poll.loop_ns + kernel.switch_ns);
    let elsewhere_ns = own_ns + exit_ns + 1_300;
    let answer_ns = u64::from(poll.thread_ns + poll.queue_ns + poll.complete_ns + poll.respond_ns);
    let cases = [
        ((4, 0), own_ns, own_ns),
        ((1, 0), own_ns, elsewhere_ns),
        ((4, 4), own_ns, own_ns),
        ((4, 2), elsewhere_ns, own_ns),
        ((2, 1), elsewhere_ns, elsewhere_ns),
    ];
    for ((drive_queues, network_queues), received_ns, completed_ns) in cases {
        let ways = ways(&alone(drive_queues, network_queues));
        assert!(ways.len() >= 10, "{ways:?}");
        let expected = (kernel.coalesce_ns + received_ns, completed_ns + answer_ns);
        assert!(
            ways.iter().skip(1).all(|&way| way == expected),
            "{drive_queues} {network_queues}: {expected:?} {ways:?}"
        );
    }
}

#[test]
fn a_slower_path_is_never_faster() {
    for rate in [20_000.0, 300_000.0] {
        let mean = |drive_queues, network_queues, change: fn(&mut KernelCosts)| {
            let mut scenario = shared(scenario(6, 2, rate, 20_000_000, 5), drive_queues, network_queues);
            change(&mut scenario.machine.kernel);
            mean_ns(&traced(&scenario, "interrupt").0)
        };
        for network_queues in [0, 2] {
            let own_ns = mean(6, network_queues, |_| {});
            let shared_ns = mean(2, network_queues, |_| {});
            assert!(own_ns < shared_ns, "{own_ns} {shared_ns}");
            let slower: [fn(&mut KernelCosts); 4] = [
                |kernel| kernel.ipi_ns += 1_000,
                |kernel| kernel.interrupt_ns += 1_000,
                |kernel| kernel.switch_ns += 1_000,
                |kernel| kernel.shallow_exit_ns += 1_000,
            ];
            for slower in slower {
                let slower_ns = mean(2, network_queues, slower);
                assert!(slower_ns > shared_ns, "{slower_ns} {shared_ns}");
            }
        }
    }
}

/// Requests served by a busy core, while others load the first drive.
fn served(drive_queues: u32, others: f64) -> usize {
    let mut scenario = shared(scenario(4, 2, 0.0, 10_000_000, 5), drive_queues, 0);
    scenario.machine.speed.sibling_gain_ppm = 0;
    for (index, connection) in scenario.workload.connections.iter_mut().enumerate() {
        connection.phases[0].rate = Rate::PerSecond(others);
        connection.drives = (0, 1);
        if index == 0 {
            (connection.depth, connection.phases[0].rate, connection.drives) = (128, Rate::Unlimited, (1, 1));
        }
    }
    let trace = traced(&scenario, "interrupt").1;
    records(&trace).iter().filter(|record| record.kind == RecordKind::Received && record.a >> 40 == 0).count()
}

#[test]
fn interrupts_take_their_time_from_the_core_that_takes_them() {
    let (idle, busy) = (served(1, 1.0), served(1, 100_000.0));
    // Three times 100,000 interrupts per second of 1.5 us each, some of them coalesced.
    assert!(busy * 100 < idle * 85, "{busy} and {idle}");
    let (idle, busy) = (served(4, 1.0), served(4, 100_000.0));
    assert!(busy * 100 > idle * 95, "{busy} and {idle}");
}

#[test]
fn polled_requests_and_other_machines_are_unchanged() {
    for name in ["static", "hybrid-poll", "sandman"] {
        let scenario = bursts(6, 1);
        assert!(traced(&scenario, name).1 == traced(&shared(scenario.clone(), 2, 2), name).1, "{name}");
    }
}

/// A small write: reads of old data and parity, then writes of both.
fn array(depth: u32, seed: u64) -> Scenario {
    let mut scenario = shared(scenario(4, 5, 0.0, 20_000_000, seed), 2, 0);
    let read = Step { reads: 2, writes: 0, bytes: 16_384, parity_kib: 0 };
    let write = Step { reads: 0, writes: 2, bytes: 16_384, parity_kib: 32 };
    for (index, connection) in scenario.workload.connections.iter_mut().enumerate() {
        connection.depth = depth;
        connection.phases[0].rate = Rate::Unlimited;
        if index > 0 {
            connection.request = Kind::Steps { steps: vec![read, write], bytes_in: 16_384, bytes_out: 0 };
        }
    }
    (scenario.machine.kernel.md, scenario.machine.kernel.md_page_ns) = (true, 2_000);
    scenario
}

#[test]
fn an_array_of_md_is_as_fast_as_its_thread() {
    for seed in 0..2 {
        let md = array(16, seed);
        let outcome = holds(&md, interrupt);
        let mut free = md.clone();
        free.machine.kernel.md = false;
        let without = holds(&free, interrupt);
        assert!(outcome.requests.answered < without.requests.answered);
        let mut only = md.clone();
        only.workload.connections.remove(0);
        // 16 pages of 2 us each, sequentially, for 20 ms, minus requests that wait for drives at both ends.
        let done = run(&only, interrupt()).unwrap().requests.answered;
        let most = 20_000 / 32;
        assert!(done <= most && done > most * 9 / 10, "{done} of {most}");
    }
}

#[test]
fn costs_that_are_missing_are_refused() {
    let refused = |kernel: KernelCosts| {
        let mut scenario = scenario(2, 1, 1_000.0, 1_000_000, 1);
        scenario.machine.kernel = kernel;
        run(&scenario, policy("interrupt", &[])).unwrap_err().to_string()
    };
    let kernel = scenario(2, 1, 1_000.0, 1_000_000, 1).machine.kernel;
    let text = refused(KernelCosts { drive_queues: 2, ipi_ns: 0, ..kernel });
    assert!(text.contains("kernel.ipi_ns is at least 1"), "{text}");
    let text = refused(KernelCosts { md: true, md_page_ns: 0, ..kernel });
    assert!(text.contains("kernel.md_page_ns is at least 1"), "{text}");
}
