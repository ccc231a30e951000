//! Duration of a reactor's round with many I/O threads of which none, one or all have a host, and the host's performance.
//!
//! `cargo bench -p pilotlight-nvmf-target --bench rounds -- [--rounds 5] [--ms 200] [--threads 48]`
//!
//! The target and the load have one core each; 4 KiB random reads from memory, one request in flight per connection. The duration
//! of a round is the reactor's busy and idle time over its loops.
//!
//! With `--beside PROGRAM`, this benchmark built from another commit, both programs measure each configuration in turn, and the medians
//! of the ratios are printed.

#[path = "../tests/support/servers.rs"]
mod servers;

use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use pilotlight_host::ConnectOptions;
use pilotlight_host::load::{LoadSpec, run};
use pilotlight_nvmf_target::{Server, ServerConfig};

const NQN: &str = "nqn.2014-08.org.pilotlight:bench";
const SERVER_CPU: u32 = 0;
const CLIENT_CPU: usize = 1;

fn serve(io_threads: u32) -> Server {
    let backend = "mem:64MiB".parse().expect("a backend");
    let namespace = servers::namespace(1, backend);
    let subsystem = servers::subsystem(NQN, vec![namespace]);
    Server::start(ServerConfig {
        cores: vec![SERVER_CPU],
        main_core: SERVER_CPU,
        io_threads,
        ..servers::config(vec![subsystem])
    })
    .expect("the server starts")
}

/// Round duration in nanoseconds, requests per second, and median latency in nanoseconds.
fn measure(io_threads: u32, hosts: u16, depth: u16, run_ns: u64) -> [f64; 3] {
    let server = serve(io_threads);
    server.set_policy(pilotlight_policy::build("static", &[]).expect("a policy")).expect("a supported policy");
    std::thread::sleep(Duration::from_millis(20));
    let before = server.stats().runtime.reactors[0].clone();
    let [mut rate, mut p50] = [0.0; 2];
    if hosts == 0 {
        std::thread::sleep(Duration::from_nanos(run_ns));
    } else {
        let options = ConnectOptions::new(server.local_addrs()[0], NQN);
        let spec = LoadSpec {
            depth,
            jobs: hosts,
            cpus: vec![CLIENT_CPU],
            runtime_ns: Some(run_ns),
            ramp_ns: run_ns / 10,
            ..LoadSpec::default()
        };
        let report = run(&options, &spec, &AtomicBool::new(false), &mut |_| {}).expect("the load runs to its end");
        (rate, p50) = (report.total.rate_iops, report.total.latency.p50_ns as f64);
    }
    let after = &server.stats().runtime.reactors[0];
    let time_ns = (after.busy_ns + after.idle_ns - before.busy_ns - before.idle_ns) as f64;
    let round_ns = time_ns / (after.loops - before.loops) as f64;
    server.stop(Duration::from_secs(5)).expect("the server stops");
    [round_ns, rate, p50]
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn arg(name: &str) -> Option<String> {
    let mut args = std::env::args().skip_while(|a| a != name);
    args.next().and_then(|_| args.next())
}

/// The same measurement by another program.
fn by(program: &str, threads: u32, hosts: u16, depth: u16, ms: u64) -> [f64; 3] {
    let configuration = [threads, hosts.into(), depth.into()].map(|number| number.to_string()).join(",");
    let output = Command::new(program).args(["--one", &configuration, "--ms", &ms.to_string()]).output();
    let line = String::from_utf8(output.expect("the program starts").stdout).expect("text");
    let numbers: Vec<f64> = line.split_whitespace().map(|number| number.parse().expect("a number")).collect();
    numbers.try_into().expect("three numbers")
}

fn main() {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        println!("SKIPPED: one CPU for the target and one for the load are needed");
        return;
    }
    let number = |name: &str, default: u64| arg(name).map_or(default, |value| value.parse().expect("a number"));
    let (rounds, ms) = (number("--rounds", 5), number("--ms", 200));
    if let Some(one) = arg("--one") {
        let parts: Vec<u16> = one.split(',').map(|part| part.parse().expect("a number")).collect();
        let [round, rate, p50] = measure(parts[0].into(), parts[1], parts[2], ms * 1_000_000);
        println!("{round} {rate} {p50}");
        return;
    }
    let beside = arg("--beside");
    let only = arg("--threads").map(|threads| threads.parse::<u16>().expect("a number"));
    println!("{rounds} measurements of {ms} ms each, medians");
    println!("threads hosts depth   round ns      IOPS    p50 us   ratios to the other program: round, IOPS, p50");
    for threads in [1, 2, 8, 48].into_iter().filter(|threads| only.is_none_or(|only| only == *threads)) {
        let mut cases = vec![(0, 1), (1, 1), (1, 32)];
        if threads > 1 {
            cases.push((threads, 1));
        }
        for (hosts, depth) in cases {
            let (mut own, mut ratios) = (vec![], vec![]);
            for _ in 0..rounds {
                let now = measure(threads.into(), hosts, depth, ms * 1_000_000);
                own.push(now);
                if let Some(program) = &beside {
                    let other = by(program, threads.into(), hosts, depth, ms);
                    ratios.push([0, 1, 2].map(|at| now[at] / other[at]));
                }
            }
            let of = |rows: &[[f64; 3]], at: usize| median(rows.iter().map(|row| row[at]).collect());
            print!(
                "{threads:7} {hosts:5} {depth:5} {:10.0} {:9.0} {:9.1}",
                of(&own, 0),
                of(&own, 1),
                of(&own, 2) / 1e3
            );
            if beside.is_some() {
                print!("   {:.3} {:.3} {:.3}", of(&ratios, 0), of(&ratios, 1), of(&ratios, 2));
            }
            println!();
        }
    }
}
