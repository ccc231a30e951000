//! Effect of one host's bandwidth cap on another host: latency of a high-priority host beside a capped low-priority host, compared
//! with an uncapped host of the same rate.
//!
//! `cargo bench -p pilotlight-nvmf-target --bench caps -- [--only 4k,64k] [--rounds N] [--seconds S]`
//!
//! One target core (CPU 0) with an I/O thread per class and a memory namespace; one thread (CPU 1) polls the connections of both hosts.
//! The first host reads 4 KiB with Poisson arrivals; latency counts from the arrival. The second has 32 outstanding reads and a cap, or
//! no cap and evenly spaced reads at the rate admitted under the cap. Both arms run in each round in alternating order. The output is
//! the ratio capped / uncapped of the first host's latency with its 95 % interval (paired over rounds, Fieller).

mod support;

use std::time::Duration;

use pilotlight_host::rng::Rng;
use pilotlight_host::schedule::{Arrivals, Process, Schedule};
use pilotlight_host::{Buffers, ConnectOptions, Connection, Controller, QueueSpec, SCRATCH_LEN, Transfer, clock};
use pilotlight_nvme::Sqe;
use pilotlight_nvme::command::opcode::io;
use pilotlight_nvmf_target::{Capped, Server};
use pilotlight_stats::Estimate;
use pilotlight_stats::paired::ratio;
use support::{CLIENT_CPU, Options, fail, has_two_cpus, serve_filled, stop};

const BACKEND: &str = "mem:256MiB";
const BLOCK: u32 = 4096;
const BLOCKS: u64 = 65_536;
/// Reads per second of the first host.
const OTHER_IOPS: f64 = 20_000.0;
const OTHER: &str = "nqn.2026-01.bench:other";
const CAPPED_HOST: &str = "nqn.2026-01.bench:capped_host";
/// Outstanding reads of the capped host.
const DEPTH: u16 = 32;
/// Seconds at the start of a run that are not counted.
const RAMP: f64 = 0.2;

struct Case {
    name: &'static str,
    /// Blocks of each read of the capped host, and its cap.
    blocks: u32,
    bytes_per_s: u64,
}

const CASES: [Case; 2] = [
    Case { name: "4k", blocks: 1, bytes_per_s: 100_000_000 },
    Case { name: "64k", blocks: 16, bytes_per_s: 400_000_000 },
];

/// A host with one I/O queue.
struct Host {
    _controller: Controller,
    connection: Connection,
    scratch: Vec<u8>,
    rng: Rng,
    blocks: u32,
    /// Arrival time of each command in flight.
    due_ns: Vec<u64>,
    done: u64,
    latencies_ns: Vec<u64>,
}

impl Host {
    fn connect(server: &Server, name: &str, blocks: u32) -> Self {
        let mut options = ConnectOptions::new(server.local_addrs()[0], support::NQN);
        options.hostnqn = name.into();
        options.hostid = [name.len() as u8; 16];
        let controller = Controller::connect(options).unwrap_or_else(|error| fail(&error.to_string()));
        let spec = QueueSpec { qid: 1, depth: 128, max_io: blocks * BLOCK, buffers: Buffers::Shared };
        let connection = controller.open_queue(&spec).unwrap_or_else(|error| fail(&error.to_string()));
        Self {
            _controller: controller,
            connection,
            scratch: vec![0; SCRATCH_LEN],
            rng: Rng::new(u64::from(blocks)),
            blocks,
            due_ns: vec![0; 128],
            done: 0,
            latencies_ns: Vec::new(),
        }
    }

    /// Processes completions.
    fn poll(&mut self) {
        let Self { connection, scratch, due_ns, done, latencies_ns, .. } = self;
        let now_ns = clock::now_ns();
        let polled = connection.poll(scratch, |completed, _| {
            assert!(completed.status.is_success(), "{}", completed.status);
            *done += 1;
            latencies_ns.push(now_ns - due_ns[usize::from(completed.cid)]);
        });
        polled.unwrap_or_else(|error| fail(&error.to_string()));
    }

    /// Starts a read with this arrival time; `false` if the queue is full.
    fn read(&mut self, due_ns: u64) -> bool {
        let lba = self.rng.below(BLOCKS / u64::from(self.blocks)) * u64::from(self.blocks);
        let queue = self.connection.queue();
        let Some(cid) = queue.reserve() else { return false };
        queue.issue(cid, Sqe::block_io(io::READ, 1, lba, self.blocks), Transfer::In(self.blocks * BLOCK));
        self.due_ns[usize::from(cid)] = due_ns;
        true
    }

    fn flush(&mut self) {
        self.connection.flush().unwrap_or_else(|error| fail(&error.to_string()));
    }

    fn in_flight(&mut self) -> u32 {
        self.connection.queue().in_flight()
    }

    fn reset(&mut self) {
        self.done = 0;
        self.latencies_ns.clear();
    }

    fn percentile_us(&mut self, share: f64) -> f64 {
        self.latencies_ns.sort_unstable();
        let at = (self.latencies_ns.len() as f64 * share) as usize;
        self.latencies_ns.get(at).map_or(f64::NAN, |&ns| ns as f64 / 1e3)
    }
}

/// Arrival times from now on.
fn due(rate: f64, process: Process, rng: &mut Rng) -> Arrivals {
    let schedule = Schedule::constant(rate).unwrap_or_else(|error| fail(&error.to_string()));
    Arrivals::new(schedule, process, Rng::new(rng.next_u64()), clock::now_ns(), 1.0)
}

/// Results of an arm.
#[derive(Clone, Copy, Default)]
struct Arm {
    capped_host_iops: f64,
    other_iops: f64,
    p50_us: f64,
    p99_us: f64,
    p99_9_us: f64,
}

/// One run. `rate` is the rate of the second host without its cap.
fn arm(server: &Server, case: &Case, rate: Option<f64>, seconds: f64, seed: u64) -> Arm {
    let of = Capped::Host { nqn: CAPPED_HOST.into() };
    let cap = Some(case.bytes_per_s).filter(|_| rate.is_none());
    server.set_cap(&of, cap).unwrap_or_else(|error| fail(&error.to_string()));
    let (mut other, mut capped_host) =
        (Host::connect(server, OTHER, 1), Host::connect(server, CAPPED_HOST, case.blocks));
    let mut rng = Rng::new(seed);
    let mut arrivals = due(OTHER_IOPS, Process::Poisson, &mut rng);
    let mut paced = rate.map(|rate| due(rate, Process::Linear, &mut rng));
    let start_ns = clock::now_ns();
    let (ramp_ns, end_ns) = (start_ns + (RAMP * 1e9) as u64, start_ns + ((RAMP + seconds) * 1e9) as u64);
    let mut ramped = false;
    loop {
        let now_ns = clock::now_ns();
        if now_ns >= end_ns {
            break;
        }
        if !ramped && now_ns >= ramp_ns {
            ramped = true;
            other.reset();
            capped_host.reset();
        }
        other.poll();
        while arrivals.due_ns() <= now_ns && other.read(arrivals.due_ns()) {
            arrivals.advance();
        }
        other.flush();
        capped_host.poll();
        match &mut paced {
            Some(paced) => {
                while paced.due_ns() <= now_ns && capped_host.read(paced.due_ns()) {
                    paced.advance();
                }
            }
            None => while capped_host.in_flight() < u32::from(DEPTH) && capped_host.read(now_ns) {},
        }
        capped_host.flush();
    }
    Arm {
        capped_host_iops: capped_host.done as f64 / seconds,
        other_iops: other.done as f64 / seconds,
        p50_us: other.percentile_us(0.5),
        p99_us: other.percentile_us(0.99),
        p99_9_us: other.percentile_us(0.999),
    }
}

fn format_estimate(estimate: Option<Estimate>) -> String {
    estimate.map_or("-".into(), |one| format!("{:.3} ({:.3} to {:.3})", one.value, one.low, one.high))
}

fn pin(cpu: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set).unwrap_or_else(|error| fail(&error.to_string()));
}

fn main() {
    let options = Options::from_args(BACKEND);
    if !has_two_cpus() {
        return;
    }
    let server = serve_filled(&options.backend, 2);
    server.set_priorities(vec![(Capped::Host { nqn: OTHER.into() }, 5), (Capped::Host { nqn: CAPPED_HOST.into() }, 1)]);
    pin(CLIENT_CPU);
    println!("case  arm       capped_host, IOPS  other, IOPS  p50 us  p99 us  p99.9 us");
    for case in options.selected(&CASES, |case| case.name) {
        let mut rate = arm(&server, case, None, options.seconds, 0).capped_host_iops;
        let (mut capped, mut uncapped) = (Vec::new(), Vec::new());
        for round in 0..options.rounds {
            for is_capped in [round % 2 == 0, round % 2 != 0] {
                let own_rate = if is_capped { None } else { Some(rate) };
                let result = arm(&server, case, own_rate, options.seconds, round as u64 + 1);
                if is_capped {
                    rate = result.capped_host_iops;
                    capped.push(result);
                } else {
                    uncapped.push(result);
                }
            }
        }
        for (name, arms) in [("capped", &capped), ("uncapped", &uncapped)] {
            let median = |of: fn(&Arm) -> f64| {
                let mut values: Vec<f64> = arms.iter().map(of).collect();
                values.sort_unstable_by(f64::total_cmp);
                values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
            };
            let [capped_host, other] = [median(|arm| arm.capped_host_iops), median(|arm| arm.other_iops)];
            let [p50, p99, p99_9] = [median(|arm| arm.p50_us), median(|arm| arm.p99_us), median(|arm| arm.p99_9_us)];
            println!("{:4}  {name:8}  {capped_host:10.0}  {other:11.0}  {p50:6.1}  {p99:6.1}  {p99_9:8.1}", case.name);
        }
        let column = |arms: &[Arm], of: fn(&Arm) -> f64| arms.iter().map(of).collect::<Vec<f64>>();
        let of = |of: fn(&Arm) -> f64| format_estimate(ratio(&column(&capped, of), &column(&uncapped, of), 0.95));
        println!(
            "{:4}  capped / uncapped over {} rounds: p50 {}, p99 {}, p99.9 {}",
            case.name,
            options.rounds,
            of(|arm| arm.p50_us),
            of(|arm| arm.p99_us),
            of(|arm| arm.p99_9_us)
        );
    }
    std::thread::sleep(Duration::from_millis(10)); // the last connections close
    stop(server);
}
