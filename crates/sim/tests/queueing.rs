//! The whole engine against closed forms of queueing theory, within 2 %: hosts, network, cores and drives are the shipped code; the configuration
//! makes all but one of them fast, so that the remaining one is the server. (`ssd_queueing.rs` tests a drive alone.)
//!
//! **Drives as servers.** Latency minus its fixed part is the time in M/M/1, M/D/1, M/G/1, M/M/8.
//!
//! **A core as the server.** A poll step takes requests that arrived before it began; later ones wait for the next loop. A core with one I/O thread
//! is therefore M/D/1 with *gated* service and a fixed vacation between two gates, and with several I/O threads a symmetric gated polling system
//! (Takagi, Analysis of Polling Systems, 1986).
//!
//! **A port as the server.** Its wire is M/D/1.

mod support;

use std::io;

use pilotlight_plant::Topology;
use pilotlight_sim::machine::Machine;
use pilotlight_sim::run_traced;
use pilotlight_sim::scenario::{Connection, Kind, Phase, Rate, Scenario, Sensors, Spacing, Workload};
use pilotlight_sim::ssd::SsdModel;
use pilotlight_sim::trace::{Record, RecordKind};

const ROUND_TRIP_NS: u64 = 20_000;
/// Fixed part of a drive's latency.
const DRIVE_NS: u64 = 20_000;
/// Time in the server.
const SERVICE_NS: f64 = 50_000.0;
const WARM_UP_NS: u64 = 50_000_000;

/// Zero cost except the round trip, and a nanosecond per loop.
fn fast_machine() -> Machine {
    let mut machine = support::machine();
    let poll = &mut machine.poll;
    (poll.loop_ns, poll.thread_ns, poll.queue_ns) = (1, 0, 0);
    (poll.receive_ns, poll.submit_ns, poll.complete_ns, poll.respond_ns) = (0, 0, 0, 0);
    poll.batch = u32::MAX;
    machine.speed.sibling_gain_ppm = 0;
    let network = &mut machine.network;
    (network.ports, network.port_mbit_s) = (1, u32::MAX);
    (network.overhead_bytes, network.round_trip_ns) = (0, ROUND_TRIP_NS);
    machine
}

/// `drives` drives, each with its own connection at `each` requests per second, all served by one core.
fn drives(flash: &str, drives: u16, each: f64, requests: u64) -> Scenario {
    let front = format!("[front]\nread_latency_ns = {DRIVE_NS}");
    let text =
        format!("name = 'law'\nsource = 'closed forms'\n{front}\n[flash]\npage_bytes = 4096\nread_ns = 50000\n{flash}");
    let drive = SsdModel::parse(&text).unwrap();
    let read = Kind::Plain { writes_ppm: 0, bytes: 4_096, sequential: false };
    let connections = (0..drives).map(|drive| connection(0, (drive, 1), read.clone(), each)).collect();
    scenario(fast_machine(), vec![drive; usize::from(drives)], 1, connections, requests)
}

fn connection(thread: u16, drives: (u16, u16), request: Kind, rate: f64) -> Connection {
    let phases = vec![Phase { label: 0, length_ns: u64::MAX, rate: Rate::PerSecond(rate) }];
    Connection { thread, drives, request, depth: u32::MAX, spacing: Spacing::Poisson, phases, think_ns: 0 }
}

fn scenario(
    machine: Machine,
    drives: Vec<SsdModel>,
    threads: u16,
    connections: Vec<Connection>,
    requests: u64,
) -> Scenario {
    let rate = |connection: &Connection| match connection.phases[0].rate {
        Rate::PerSecond(rate) => rate,
        _ => 0.0,
    };
    let rate: f64 = connections.iter().map(rate).sum();
    let step_ns = 10_000_000;
    let duration_ns = (requests as f64 / rate * 1e9) as u64 / step_ns * step_ns + step_ns;
    Scenario {
        family: Vec::new(),
        machine,
        topology: Topology::flat(1).unwrap(),
        threads,
        drives,
        scheduled: None,
        workload: Workload { connections, ..Workload::default() },
        duration_ns: duration_ns + WARM_UP_NS,
        warm_up_ns: WARM_UP_NS,
        series_ns: step_ns,
        seed: 3,
        eager: false,
        sensors: Sensors::default(),
        goals: Vec::new(),
        changes: Vec::new(),
    }
}

/// Latencies of a trace minus the fixed part.
struct Times {
    fixed_ns: u64,
    bytes: Vec<u8>,
    times: Vec<u64>,
}

impl io::Write for Times {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() < 1_000 * Record::BYTES {
            return Ok(bytes.len());
        }
        let (records, rest) = self.bytes.as_chunks();
        let records = records.iter().filter_map(Record::decode);
        let received =
            records.filter(|record| record.kind == RecordKind::Received && record.at_ns - record.b > WARM_UP_NS);
        self.times.extend(received.map(|record| record.b - self.fixed_ns));
        self.bytes = rest.to_vec();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Times {
    fn of(scenario: &Scenario, fixed_ns: u64) -> Self {
        let mut times = Self { fixed_ns, bytes: Vec::new(), times: Vec::new() };
        run_traced(scenario, support::policy("static", &[]), &mut times).unwrap();
        times.times.sort_unstable();
        times
    }

    fn mean(&self) -> f64 {
        self.times.iter().sum::<u64>() as f64 / self.times.len() as f64
    }

    fn share_beyond(&self, ns: f64) -> f64 {
        1.0 - self.times.partition_point(|&time| (time as f64) <= ns) as f64 / self.times.len() as f64
    }

    fn quantile(&self, share: f64) -> f64 {
        self.times[(self.times.len() as f64 * share) as usize] as f64
    }
}

fn agree(what: &str, measured: f64, law: f64) {
    let error = measured / law - 1.0;
    println!("{what}: {measured:.1}, the law says {law:.1} ({:+.2} %)", error * 100.0);
    assert!(error.abs() < 0.02, "{what}: {measured:.3}, the law says {law:.3}");
}

/// Pollaczek and Khinchine: the mean wait of M/G/1 in mean service times, for a squared coefficient of variation.
fn m_g_1(load: f64, variation: f64) -> f64 {
    load * (1.0 + variation) / 2.0 / (1.0 - load)
}

/// Erlang C: the probability that a request of M/M/c waits.
fn erlang_c(servers: u32, load: f64) -> f64 {
    let offered = load * f64::from(servers);
    let lost = (1..=servers).fold(1.0, |b, n| offered * b / (f64::from(n) + offered * b));
    lost / (1.0 - load * (1.0 - lost))
}

/// The probability that a request of M/D/1 waits for more than `x` service times (Erlang, in the form of Franx, Oper. Res. Lett. 29,
/// 2001). Alternating, so only for small `x`.
fn m_d_1_beyond(load: f64, x: f64) -> f64 {
    let term = |k: i32| {
        let y = load * (x - f64::from(k));
        (1..=k).fold(y.exp(), |term, n| term * -y / f64::from(n))
    };
    1.0 - (1.0 - load) * (0..=x as i32).map(term).sum::<f64>()
}

fn per_second(load: f64) -> f64 {
    load * 1e9 / SERVICE_NS
}

const FIXED_NS: u64 = ROUND_TRIP_NS + DRIVE_NS;

#[test]
fn m_m_1() {
    let load = 0.6;
    let scenario = drives("dies = 1\nservice = 'exponential'", 16, per_second(load), 1_000_000);
    let times = Times::of(&scenario, FIXED_NS);
    let mean = SERVICE_NS / (1.0 - load);
    agree("M/M/1, mean wait", times.mean() - SERVICE_NS, mean - SERVICE_NS);
    for share in [0.5, 0.9, 0.99] {
        agree(&format!("M/M/1, quantile {share}"), times.quantile(share), -(1.0_f64 - share).ln() * mean);
    }
}

#[test]
fn m_d_1() {
    let load = 0.6;
    let times = Times::of(&drives("dies = 1", 16, per_second(load), 1_000_000), FIXED_NS);
    agree("M/D/1, mean wait", times.mean() - SERVICE_NS, m_g_1(load, 0.0) * SERVICE_NS);
    for x in [0.5, 1.0, 2.0] {
        let measured = times.share_beyond((1.0 + x) * SERVICE_NS) * 100.0;
        agree(&format!("M/D/1, waits beyond {x} services, in %"), measured, m_d_1_beyond(load, x) * 100.0);
    }
}

#[test]
fn m_g_1_with_uniform_service() {
    let load = 0.6;
    let times = Times::of(&drives("dies = 1\nread_spread_ns = 45000", 16, per_second(load), 1_000_000), FIXED_NS);
    agree("M/G/1, mean wait", times.mean() - SERVICE_NS, m_g_1(load, 0.81 / 3.0) * SERVICE_NS);
}

#[test]
fn m_m_c_with_eight_servers() {
    let (load, servers) = (0.7, 8);
    let flash = "dies = 8\nservice = 'exponential'\nplacement = 'first-free'";
    let times = Times::of(&drives(flash, 4, per_second(load) * f64::from(servers), 1_000_000), FIXED_NS);
    let waits = erlang_c(servers, load);
    let free = f64::from(servers) * (1.0 - load); // drain rate of the queue, in servers
    agree("M/M/8, mean wait", times.mean() - SERVICE_NS, waits / free * SERVICE_NS);
    for x in [1.0_f64, 2.0, 3.0] {
        // service alone, or service and an exponential wait
        let both = ((-x).exp() - (-free * x).exp()) / (free - 1.0);
        let law = (-x).exp() * (1.0 - waits) + waits * ((-free * x).exp() + free * both);
        agree(
            &format!("M/M/8, times beyond {x} services, in %"),
            times.share_beyond(x * SERVICE_NS) * 100.0,
            law * 100.0,
        );
    }
}

/// A core with `threads` I/O threads whose poll step costs `step_ns` and `request_ns` for each request; requests need no drive.
fn core(threads: u16, loop_ns: u32, step_ns: u32, request_ns: u32, load: f64, requests: u64) -> Scenario {
    let mut machine = fast_machine();
    (machine.poll.loop_ns, machine.poll.thread_ns) = (loop_ns, step_ns);
    (machine.poll.receive_ns, machine.poll.respond_ns) = (request_ns / 3, request_ns - request_ns / 3);
    let rate = load * 1e9 / f64::from(request_ns) / f64::from(threads);
    let nothing = Kind::Steps { steps: Vec::new(), bytes_in: 0, bytes_out: 0 };
    let connections = (0..threads).map(|thread| connection(thread, (0, 1), nothing.clone(), rate)).collect();
    scenario(machine, vec![support::drive()], threads, connections, requests)
}

/// The mean wait until its service, in nanoseconds, in a symmetric polling system with gates; `walk_ns` before each gate.
fn polling_with_gates(queues: f64, load: f64, walk_ns: f64, request_ns: f64) -> f64 {
    (load * request_ns + walk_ns * (queues + load)) / (2.0 * (1.0 - load))
}

#[test]
fn a_core_is_m_d_1_where_its_loop_takes_no_time() {
    for load in [0.5, 0.8] {
        let times = Times::of(&core(1, 1, 0, 1_500, load, 800_000), ROUND_TRIP_NS);
        agree("a core, mean wait in ns", times.mean() - 1_500.0, m_g_1(load, 0.0) * 1_500.0);
    }
}

#[test]
fn a_core_with_one_thread_is_a_server_with_gates_and_vacations() {
    for (loop_ns, step_ns) in [(1_000, 1), (400, 600), (5_000, 1)] {
        let times = Times::of(&core(1, loop_ns, step_ns, 1_000, 0.6, 800_000), ROUND_TRIP_NS);
        let law = polling_with_gates(1.0, 0.6, f64::from(loop_ns + step_ns), 1_000.0);
        agree("gates and vacations, mean wait in ns", times.mean() - 1_000.0 - f64::from(step_ns), law);
    }
}

#[test]
fn threads_on_one_core_are_a_polling_system_with_gates() {
    for threads in [4, 16] {
        let times = Times::of(&core(threads, 1, 300, 1_000, 0.7, 800_000), ROUND_TRIP_NS);
        let law = polling_with_gates(f64::from(threads), 0.7, 300.0, 1_000.0);
        agree("polling system, mean wait in ns", times.mean() - 1_000.0 - 300.0, law);
    }
}

#[test]
fn a_port_is_m_d_1() {
    let mut machine = fast_machine();
    machine.network.port_mbit_s = 8_000; // a byte each nanosecond
    let answer = Kind::Steps { steps: Vec::new(), bytes_in: 0, bytes_out: 2_000 };
    let connections = (0..10).map(|_| connection(0, (0, 1), answer.clone(), 0.8 * 1e9 / 2_000.0 / 10.0)).collect();
    let times = Times::of(&scenario(machine, vec![support::drive()], 1, connections, 1_000_000), ROUND_TRIP_NS);
    agree("a port, mean wait in ns", times.mean() - 2_000.0, m_g_1(0.8, 0.0) * 2_000.0);
}
