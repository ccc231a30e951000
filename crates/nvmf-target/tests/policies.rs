//! The policies that others are compared with, in a running server: `hybrid-poll` and `dynamic` carry a load, `governor` is
//! refused where nothing sets frequencies. What happens is asserted; how fast is no matter on a shared machine.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use pilotlight_host::ConnectOptions;
use pilotlight_host::load::{LoadSpec, OpenLoop, Report, run};
use pilotlight_host::schedule::{Process, Schedule};
use pilotlight_nvmf_target::backend::{MemoryBudget, open};
use pilotlight_nvmf_target::{NamespaceConfig, Server, ServerConfig, SubsystemConfig};
use pilotlight_plant::{CoreId, CoreState, Topology};
use pilotlight_reactor::{Idle, RuntimeOptions, RuntimeStats};

const NQN: &str = "nqn.2026-01.test:policies";
const CORES: u16 = 4;
const PATIENCE: Duration = Duration::from_secs(30);

/// One test at a time.
static MACHINE: Mutex<()> = Mutex::new(());

struct Live {
    server: Server,
    address: SocketAddr,
}

/// Four reactors on as many CPUs as there are, before this backend.
fn serve(backend: &str) -> Live {
    let backend = backend.parse().expect("a backend");
    let namespace = NamespaceConfig { nsid: 1, backend, block_size: 4096, uuid: None, hosts: Vec::new() };
    let subsystem = SubsystemConfig {
        nqn: NQN.into(),
        serial: None,
        allowed_hosts: Vec::new(),
        controller_ids: None,
        namespaces: vec![namespace],
    };
    let config = ServerConfig {
        listeners: vec![(Ipv4Addr::LOCALHOST, 0).into()],
        subsystems: vec![subsystem],
        io_threads: u32::from(CORES),
        ..ServerConfig::default()
    };
    let mut options = RuntimeOptions::new(vec![None; usize::from(CORES)], Idle::Yield);
    options.topology = Topology::paired(CORES).expect("cores");
    let budget = std::sync::Arc::new(MemoryBudget::unlimited());
    let opener = move |ns: &NamespaceConfig| open(&ns.backend, ns.block_size, &budget);
    let server = Server::start_with(config, options, Box::new(opener)).expect("the server starts");
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

    /// Nothing lost, nothing wrong.
    fn load(&self, spec: &LoadSpec) -> Report {
        let options = ConnectOptions::new(self.address, NQN);
        let report = run(&options, spec, &AtomicBool::new(false), &mut |_| {}).expect("the load runs");
        assert!(report.is_clean(), "{:?}", report.faults);
        report
    }

    /// A number of the policy's view.
    fn sees(&self, what: &str) -> f64 {
        let (_, view) = self.server.policy().expect("a policy");
        let value = &view.iter().find(|(name, _)| *name == what).expect("it is in the view").1;
        value.parse().expect("a number")
    }

    fn stop(self) {
        let began = Instant::now();
        self.server.stop(PATIENCE).expect("it stops in time");
        assert!(began.elapsed() < Duration::from_secs(5), "the end took {:?}", began.elapsed());
    }
}

fn reads(jobs: u16, depth: u16, seconds: f64) -> LoadSpec {
    let runtime_ns = Some((seconds * 1e9) as u64);
    LoadSpec { depth, jobs, runtime_ns, yield_when_idle: true, ..LoadSpec::default() }
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "{what} did not come about within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn hybrid_polling_rests_for_a_part_of_what_requests_take() {
    const DEVICE_US: f64 = 8_000.0;
    let _alone = MACHINE.lock();
    let live = serve("delay:8ms-8ms:mem:16MiB");
    live.policy("hybrid-poll", &[("interval", "20ms"), ("max_rest", "100ms")]);
    assert_eq!(live.sees("longest rest, us"), 10.0);
    let before = live.stats();
    let report = live.load(&reads(CORES, 1, 0.5)); // one at a time: with something always in progress a core polls
    assert!(report.total.ios > 20, "{} reads", report.total.ios);
    // Half of the device's time, plus what the rests themselves and a machine with other work add.
    let rest_us = live.sees("longest rest, us");
    assert!((0.45 * DEVICE_US..100_000.0).contains(&rest_us), "rests of {rest_us} us");
    let after = live.stats();
    for core in 0..usize::from(CORES) {
        let rested_ns = |stats: &RuntimeStats| stats.reactors[core].asleep.iter().map(|sleep| sleep.ns).sum::<u64>();
        assert!(rested_ns(&after) - rested_ns(&before) > 50_000_000, "core {core} hardly rests");
    }
    live.stop();
}

#[test]
fn the_dynamic_scheduler_gathers_an_idle_server_and_serves_a_load() {
    let _alone = MACHINE.lock();
    let live = serve("mem:16MiB");
    // Ten microseconds, as in the paper: on shared CPUs a decision every few rounds.
    live.policy("dynamic", &[]);
    let rests = || {
        let stats = live.stats();
        let asleep = stats.reactors[1..].iter().all(|reactor| reactor.state != CoreState::Awake);
        asleep && stats.threads.iter().all(|thread| thread.home == CoreId(0))
    };
    eventually("sleep of all workers", rests);
    let before = live.stats().director.moves;
    let report = live.load(&reads(CORES, 8, 1.0));
    assert!(report.total.ios > 100, "{} reads", report.total.ios);
    assert!(live.stats().director.moves > before, "a full main core gives threads away");
    eventually("sleep of all workers again", rests);
    let quiet = live.stats().director.moves;
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(live.stats().director.moves, quiet, "nothing moves while nothing comes");
    live.stop();
}

#[test]
fn a_steady_load_survives_every_change_between_policies() {
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
fn the_governor_is_refused_with_what_would_help_where_nothing_sets_frequencies() {
    let _alone = MACHINE.lock();
    let live = serve("mem:4MiB");
    let refused = live.server.set_policy(pilotlight_policy::build("governor", &[]).expect("settings")).unwrap_err();
    assert!(refused.to_string().contains("policy governor needs cores whose frequency"), "{refused}");
    assert!(refused.to_string().contains("cpufreq"), "{refused}");
    live.stop();
}
