//! Baseline policies in a running server: `hybrid-poll` and `dynamic` under load; `governor` is refused without frequency control.
//! Timing is not asserted, because the machine is shared.

#[path = "support/servers.rs"]
mod servers;

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use pilotlight_host::ConnectOptions;
use pilotlight_host::load::{LoadSpec, OpenLoop, Report, run};
use pilotlight_host::schedule::{Process, Schedule};
use pilotlight_nvmf_target::{Server, ServerConfig};
use pilotlight_plant::{CoreId, CoreState, Topology};
use pilotlight_reactor::{Idle, RuntimeOptions, RuntimeStats};

const NQN: &str = "nqn.2026-01.test:policies";
const CORES: u16 = 4;
const TIMEOUT: Duration = Duration::from_secs(30);

/// One test at a time.
static MACHINE: Mutex<()> = Mutex::new(());

struct Live {
    server: Server,
    address: SocketAddr,
}

/// Four reactors on as many CPUs as there are, before this backend.
fn serve(backend: &str) -> Live {
    let backend = backend.parse().expect("a backend");
    let namespace = servers::namespace(1, backend);
    let subsystem = servers::subsystem(NQN, vec![namespace]);
    let config = ServerConfig { io_threads: u32::from(CORES), ..servers::config(vec![subsystem]) };
    let mut options = RuntimeOptions::new(vec![None; usize::from(CORES)], Idle::Yield);
    options.topology = Topology::paired(CORES).expect("cores");
    let server = servers::start_on(config, options);
    let address = server.local_addrs()[0];
    Live { server, address }
}

impl Live {
    fn policy(&self, name: &str, settings: &[(&str, &str)]) {
        self.server.set_policy(pilotlight_policy::build(name, settings).expect("settings")).expect("a policy");
    }

    fn stats(&self) -> RuntimeStats {
        self.server.stats().runtime
    }

    /// Runs a load, which must have no errors.
    fn load(&self, spec: &LoadSpec) -> Report {
        let options = ConnectOptions::new(self.address, NQN);
        let report = run(&options, spec, &AtomicBool::new(false), &mut |_| {}).expect("the load runs");
        assert!(report.is_clean(), "{:?}", report.faults);
        report
    }

    /// A number of the policy's view.
    fn view_value(&self, key: &str) -> f64 {
        let (_, view) = self.server.policy().expect("a policy");
        let value = &view.iter().find(|(name, _)| *name == key).expect("it is in the view").1;
        value.parse().expect("a number")
    }

    fn stop(self) {
        let began = Instant::now();
        self.server.stop(TIMEOUT).expect("it stops in time");
        assert!(began.elapsed() < Duration::from_secs(5), "the stop took {:?}", began.elapsed());
    }
}

fn reads(jobs: u16, depth: u16, seconds: f64) -> LoadSpec {
    let runtime_ns = Some((seconds * 1e9) as u64);
    LoadSpec { depth, jobs, runtime_ns, yield_when_idle: true, ..LoadSpec::default() }
}

#[test]
fn hybrid_polling_sleeps_for_part_of_the_request_time() {
    const DEVICE_US: f64 = 8_000.0;
    let _alone = MACHINE.lock();
    let live = serve("delay:8ms-8ms:mem:16MiB");
    live.policy("hybrid-poll", &[("interval", "20ms"), ("max_rest", "100ms")]);
    assert_eq!(live.view_value("longest rest, us"), 10.0);
    let before = live.stats();
    let mut ios = 0;
    // Half of the device's latency, plus the overhead of the sleeps and of other programs: on a busy machine after more than one round.
    servers::eventually("rests of half the device's latency", || {
        ios += live.load(&reads(CORES, 1, 0.5)).total.ios; // one request at a time: a core with requests in progress polls
        let rest_us = live.view_value("longest rest, us");
        assert!(rest_us <= 100_000.0, "rests of {rest_us} us");
        ios > 20 && rest_us >= 0.45 * DEVICE_US
    });
    let after = live.stats();
    for core in 0..usize::from(CORES) {
        let rested_ns = |stats: &RuntimeStats| stats.reactors[core].asleep.iter().map(|sleep| sleep.ns).sum::<u64>();
        assert!(rested_ns(&after) - rested_ns(&before) > 50_000_000, "core {core} sleeps too little");
    }
    live.stop();
}

#[test]
fn the_dynamic_scheduler_uses_one_core_when_idle_and_more_under_load() {
    let _alone = MACHINE.lock();
    let live = serve("mem:16MiB");
    // The paper's interval of 10 us is a decision every few rounds on shared CPUs.
    live.policy("dynamic", &[]);
    let rests = || {
        let stats = live.stats();
        let asleep = stats.reactors[1..].iter().all(|reactor| reactor.state != CoreState::Awake);
        asleep && stats.threads.iter().all(|thread| thread.home == CoreId(0))
    };
    servers::eventually("sleep of all workers", rests);
    let before = live.stats().director.moves;
    let report = live.load(&reads(CORES, 8, 1.0));
    assert!(report.total.ios > 100, "{} reads", report.total.ios);
    assert!(live.stats().director.moves > before, "threads move from a full main core");
    servers::eventually("sleep of all workers again", rests);
    let moves = live.stats().director.moves;
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(live.stats().director.moves, moves, "no moves without requests");
    live.stop();
}

#[test]
fn a_steady_load_completes_under_policy_changes() {
    let _alone = MACHINE.lock();
    let live = serve("delay:100us-2ms:mem:16MiB");
    let schedule = Schedule::constant(2_000.0).expect("a rate");
    let open = Some(OpenLoop { schedule, process: Process::Linear });
    std::thread::scope(|scope| {
        let load = scope.spawn(|| live.load(&LoadSpec { open, ..reads(CORES, 16, 2.0) }));
        let fine = [("fine_interval", "1ms"), ("coarse_interval", "20ms"), ("detect", "load")];
        while !load.is_finished() {
            for (name, settings) in [
                ("hybrid-poll", &[("interval", "5ms")][..]),
                ("dynamic", &[("interval", "1ms")]),
                ("sandman", &fine),
                ("interrupt", &[]),
                ("dynamic", &[]),
                ("static", &[]),
            ] {
                live.policy(name, settings);
                std::thread::sleep(Duration::from_millis(25));
            }
        }
        assert!(load.join().expect("no panic").total.ios > 1_000);
    });
    live.stop();
}

#[test]
fn governor_without_frequency_control_is_refused_with_advice() {
    let _alone = MACHINE.lock();
    let live = serve("mem:4MiB");
    let refused = live.server.set_policy(pilotlight_policy::build("governor", &[]).expect("settings")).unwrap_err();
    assert!(refused.to_string().contains("policy governor needs cores whose frequency"), "{refused}");
    assert!(refused.to_string().contains("cpufreq"), "{refused}");
    live.stop();
}
