//! The server, the load and the CPUs that they share.
//!
//! The load polls, so it gets a CPU of its own where there is one, and the target gets the others, up to eight.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context as _, bail};
use pilotlight_host::ConnectOptions;
use pilotlight_host::load::{LoadSpec, Report, run as run_load};
use pilotlight_nvmf_target::{NamespaceConfig, Server, ServerConfig, SubsystemConfig};
use pilotlight_plant::{Goals, Policy};
use pilotlight_reactor::{Idle, RuntimeOptions, RuntimeStats};
use pilotlight_storage::{BackendSpec, MemoryBudget, open};

use crate::serve::knobs::{self, KnobAccess, Settings};
use crate::serve::power::{Meter, Power};

pub(super) const NQN: &str = "nqn.2014-08.org.pilotlight:demo";
const NAMESPACE_BYTES: u64 = 1 << 30;
const VERIFIED_BYTES: u64 = 64 << 20;
/// Most reactors.
const MAX_REACTORS: usize = 8;
/// How long the drain may take at the end.
const DRAIN: Duration = Duration::from_secs(5);
/// Commands in flight per connection, at most.
pub(super) const DEPTH: u16 = 128;

/// A running server and the CPUs.
pub(super) struct Stage {
    server: Server,
    address: SocketAddr,
    reactors: Vec<u32>,
    load_cpu: Option<u32>,
}

impl Stage {
    pub(super) fn new() -> anyhow::Result<Self> {
        let cpus = allowed_cpus();
        let load_cpu = (cpus.len() > 1).then(|| cpus[cpus.len() - 1]);
        let reactors: Vec<u32> = cpus[..cpus.len().max(2) - 1].iter().take(MAX_REACTORS).copied().collect();
        let server = serve(&reactors, RuntimeOptions::new(pinned(&reactors), idle(load_cpu.is_none())))?;
        let address = server.local_addrs()[0];
        Ok(Self { server, address, reactors, load_cpu })
    }

    /// A server with a power meter and knobs. It has a worker core in addition to the main core, which has no quota;
    /// on two CPUs the load shares the main core's.
    pub(super) fn under_budget(meter: Meter) -> anyhow::Result<(Self, Power)> {
        let cpus = allowed_cpus();
        let is_shared = cpus.len() < 3;
        let own = if is_shared { cpus.len() } else { cpus.len() - 1 };
        let reactors: Vec<u32> = cpus[..own].iter().take(MAX_REACTORS).copied().collect();
        if reactors.len() < 2 {
            bail!("a power budget needs a worker core in addition to the main core: two CPUs");
        }
        let cores = pinned(&reactors);
        let power = meter.start(&cores)?;
        let knobs = knobs::open(&ServerConfig::default(), &cores, &KnobAccess::this_machine(), &Settings::default());
        let options = RuntimeOptions {
            knobs: Some(knobs),
            readings: Some(power.readings()),
            ..RuntimeOptions::new(cores, if is_shared { Idle::YieldMain } else { Idle::Spin })
        };
        let server = serve(&reactors, options)?;
        let address = server.local_addrs()[0];
        let load_cpu = Some(if is_shared { reactors[0] } else { cpus[cpus.len() - 1] });
        Ok((Self { server, address, reactors, load_cpu }, power))
    }

    /// CPUs used.
    pub(super) fn cpus(&self) -> usize {
        self.reactors.len() + usize::from(self.load_cpu.is_some())
    }

    /// Reactors, which is also the number of connections.
    pub(super) fn reactors(&self) -> usize {
        self.reactors.len()
    }

    pub(super) fn description(&self) -> String {
        let load = match self.load_cpu {
            Some(cpu) => format!("the load on CPU {cpu}"),
            None => "and the load on the same, since there is no other".to_owned(),
        };
        let cpus: Vec<String> = self.reactors.iter().map(u32::to_string).collect();
        let plural = if cpus.len() > 1 { "CPUs" } else { "CPU" };
        format!("Serving 1 GiB of memory at {}: the target on {plural} {}, {load}.", self.address, cpus.join(", "))
    }

    pub(super) fn set_policy(&self, policy: Box<dyn Policy>) -> anyhow::Result<()> {
        Ok(self.server.set_policy(policy)?)
    }

    pub(super) fn set_goals(&self, goals: Goals) {
        self.server.set_goals(goals);
    }

    pub(super) fn stats(&self) -> RuntimeStats {
        self.server.stats().runtime
    }

    /// Writes and reads back a part of the namespace, checking every block.
    pub(super) fn verify(&self, runtime_ns: u64) -> anyhow::Result<Report> {
        self.load(LoadSpec {
            read_percent: 50,
            trim_percent: 5,
            depth: 32,
            jobs: 2,
            size_bytes: Some(VERIFIED_BYTES),
            runtime_ns: Some(runtime_ns),
            verify: true,
            ..LoadSpec::default()
        })
    }

    /// Writes the whole namespace once, so that reads find data rather than holes.
    pub(super) fn fill(&self) -> anyhow::Result<()> {
        let (random, read_percent, block_bytes, depth) = (false, 0, 131_072, 16);
        self.load(LoadSpec { random, read_percent, block_bytes, depth, ..LoadSpec::default() })
            .context("filling the namespace")?;
        Ok(())
    }

    /// 4 KiB random reads a second with every core polling, as many as the load can send.
    pub(super) fn maximum(&self) -> anyhow::Result<f64> {
        self.set_policy(Box::new(pilotlight_policy::Static))?;
        let report = self.load(LoadSpec {
            depth: 32,
            jobs: self.reactors.len() as u16,
            ramp_ns: 200_000_000,
            runtime_ns: Some(1_000_000_000),
            ..LoadSpec::default()
        })?;
        Ok(report.total.rate_iops)
    }

    pub(super) fn load(&self, spec: LoadSpec) -> anyhow::Result<Report> {
        let options = ConnectOptions::new(self.address, NQN);
        let cpus = self.load_cpu.iter().map(|&cpu| cpu as usize).collect();
        let is_shared = self.load_cpu.is_none_or(|cpu| self.reactors.contains(&cpu));
        let spec = LoadSpec { cpus, yield_when_idle: is_shared, ..spec };
        Ok(run_load(&options, &spec, &AtomicBool::new(false), &mut |_| {})?)
    }

    pub(super) fn stop(self) -> anyhow::Result<()> {
        Ok(self.server.stop(DRAIN)?)
    }
}

/// The CPUs that this process may run on.
fn allowed_cpus() -> Vec<u32> {
    let set = rustix::thread::sched_getaffinity(None);
    let Ok(set) = set else { return vec![0] };
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).map(|cpu| cpu as u32).collect()
}

fn pinned(cpus: &[u32]) -> Vec<Option<u32>> {
    cpus.iter().map(|&cpu| Some(cpu)).collect()
}

/// If the load shares a reactor's CPU, the reactor has to yield.
fn idle(is_shared: bool) -> Idle {
    if is_shared { Idle::Yield } else { Idle::Spin }
}

fn serve(cpus: &[u32], options: RuntimeOptions) -> anyhow::Result<Server> {
    let backend = BackendSpec::Memory(NAMESPACE_BYTES);
    let namespace = NamespaceConfig::new(1, backend, 4096);
    let config = ServerConfig {
        listeners: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
        subsystems: vec![SubsystemConfig::new(NQN, vec![namespace])],
        cores: cpus.to_vec(),
        main_core: cpus[0],
        io_threads: cpus.len() as u32,
        ..ServerConfig::default()
    };
    let budget = Arc::new(MemoryBudget::unlimited());
    let opener = move |ns: &NamespaceConfig| open(&ns.backend, ns.block_size, &budget);
    Ok(Server::start_with(config, options, Box::new(opener))?)
}
