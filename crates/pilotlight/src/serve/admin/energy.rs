//! Energy by host and namespace: once a second, the energy of each zone since the last window is divided among the users of the CPUs
//! (`pilotlight_power::shares`).
//!
//! *CPU time of a user.* An I/O thread counts its own time, empty polls included, and the requests and bytes of each host on each namespace.
//! Its time in a window goes to its users in proportion to [`cost`]; the time of a thread without requests stays unassigned. The power of the
//! whole system is divided by CPU time and bytes. *Windows.* The thread that reads a sensor can fail for a while: a zone's energy is divided
//! after its next reading, among the users since the previous one, with idle energy for that time. *Idle power* is the model's for a machine
//! at rest, else the lowest power of any window. *Privacy.* RAPL readings leak secrets of code that runs at the same time (CVE-2020-8694): this is off
//! by default, and no finer than a second.
//!
//! *Property* (tests): in each zone the energy of all hosts and unassigned energy add up to the total, to the microjoule.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pilotlight_nvmf_target::NamespaceUsage;
use pilotlight_nvmf_target::hosts::usage::Counts;
use pilotlight_power::shares::{Idle, Rule, Use, deal, divide};
use pilotlight_reactor::housekeeping::{Next, Task, Waker};

use super::Admin;
use crate::config::format_idle;
use crate::metrics::{OTHER_HOSTS, PowerFacts};
use crate::policies::BudgetDomain;
use crate::serve::power::SYSTEM;
use crate::status::report::{EnergySharesReport, EnergyUserReport, EnergyZoneReport};

/// Length of a window.
const WINDOW: Duration = Duration::from_secs(1);
/// A request costs about as much CPU time as moving this number of bytes: busy time of a polling reactor for reads of 4 KiB and of 128 KiB from memory (depth 8, static,
/// 2026-11-26: 4.3 us and 65 us, which is 4.7 KiB; writes 7.9 us and 192 us, 1.3 KiB; medians of three runs on a machine that was not quiet).
const REQUEST_BYTES: u64 = 4 * 1024;

/// A host on a namespace: its NQN or [`OTHER_HOSTS`], the subsystem and the number.
type User = (String, String, u32);

/// Divided energy.
#[derive(Debug, Default)]
pub(super) struct Energy(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    zones: BTreeMap<String, Zone>,
}

/// A zone.
#[derive(Debug, Default)]
struct Zone {
    /// Its counter when it was last divided, and when that was read.
    energy_uj: u64,
    read_ns: u64,
    /// The counters at that time.
    before: Arc<Counters>,
    unassigned_uj: u64,
    users_uj: BTreeMap<User, u64>,
    /// The lowest power of a window, in microwatts.
    lowest_uw: Option<u64>,
}

/// Counters read together.
#[derive(Debug, Default)]
struct Counters {
    /// By I/O thread, in nanoseconds.
    cpu_ns: Vec<u64>,
    counts: Vec<BTreeMap<User, Counts>>,
}

impl Admin {
    /// Divides energy once a second until the result is dropped; `None` if that is disabled.
    pub(in crate::serve) fn watch_energy(self: &Arc<Self>) -> Option<Task> {
        // a change needs a restart, and housekeeping must not wait for the state during a reload
        let idle = self.state().operation.energy_shares?;
        let housekeeping = self.server.housekeeping()?;
        if let Some((counters, power)) = self.energy_sources() {
            self.energy.lock().begin(&counters, &power);
        }
        let (admin, waker) = (Arc::clone(self), Waker::default());
        let task = housekeeping.add("energy", &waker, move |now_ns| {
            admin.divide_energy(idle);
            Next::At(now_ns + WINDOW.as_nanos() as u64)
        });
        waker.wake();
        Some(task)
    }

    fn energy_sources(&self) -> Option<(Arc<Counters>, PowerFacts)> {
        let power = self.server.power_facts()?;
        let threads = self.server.runtime_stats().threads;
        let counters = Counters {
            cpu_ns: threads.iter().map(|thread| thread.busy_ns + thread.idle_ns).collect(),
            counts: self.server.usages_by_thread().into_iter().map(by_user).collect(),
        };
        Some((Arc::new(counters), power))
    }

    fn divide_energy(&self, idle: Idle) {
        let Some((counters, power)) = self.energy_sources() else { return };
        self.energy.lock().add(&counters, &power, self.server.floor_uw(BudgetDomain::Cpu), idle);
    }

    /// Energy divided since the start; `None` if it is disabled, or power is not measured.
    pub(super) fn energy_shares(&self) -> Option<EnergySharesReport> {
        let idle = self.state().operation.energy_shares?;
        let power = self.server.power_facts()?;
        Some(self.energy.lock().report(&power, idle))
    }
}

impl Energy {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn by_user(usages: Vec<NamespaceUsage>) -> BTreeMap<User, Counts> {
    let mut sums = BTreeMap::<User, Counts>::new();
    for it in usages {
        *sums.entry((it.host.unwrap_or_else(|| OTHER_HOSTS.to_owned()), it.nqn, it.nsid)).or_default() += it.counts;
    }
    sums
}

/// The CPU cost of commands, in bytes moved.
fn cost(counts: &Counts) -> u64 {
    counts.requests.iter().sum::<u64>() * REQUEST_BYTES + moved(counts)
}

/// Bytes moved.
fn moved(counts: &Counts) -> u64 {
    counts.bytes.iter().sum()
}

impl State {
    /// Energy before the start is unassigned.
    fn begin(&mut self, counters: &Arc<Counters>, power: &PowerFacts) {
        for zone in &power.zones {
            let known = self.zones.entry(zone.name.clone()).or_default();
            (known.energy_uj, known.unassigned_uj, known.read_ns) = (zone.energy_uj, zone.energy_uj, zone.read_ns);
            known.before = Arc::clone(counters);
        }
    }

    /// Divides the energy of zones that have a new reading.
    fn add(&mut self, counters: &Arc<Counters>, power: &PowerFacts, floor_uw: Option<u64>, idle: Idle) {
        for zone in &power.zones {
            let known = self.zones.entry(zone.name.clone()).or_default();
            let elapsed_ns = zone.read_ns.saturating_sub(known.read_ns);
            if elapsed_ns == 0 {
                continue;
            }
            let before = std::mem::replace(&mut known.before, Arc::clone(counters));
            let (users, nobody) = uses(&before, counters);
            let uses: Vec<Use> = users.values().copied().collect();
            let energy_uj = zone.energy_uj.saturating_sub(known.energy_uj);
            known.energy_uj = known.energy_uj.max(zone.energy_uj);
            // of a sensor that was never read before, its first reading is of no known time
            let is_first = std::mem::replace(&mut known.read_ns, zone.read_ns) == 0;
            if let Some(uw) = zone.power_uw {
                known.lowest_uw = Some(known.lowest_uw.map_or(uw, |lowest| lowest.min(uw)));
            }
            if is_first {
                known.unassigned_uj += energy_uj;
                continue;
            }
            let idle_uw = floor_uw.or(known.lowest_uw).unwrap_or(0);
            let idle_uj = (u128::from(idle_uw) * u128::from(elapsed_ns) / 1_000_000_000) as u64;
            let rule = if zone.name == SYSTEM { Rule::SYSTEM } else { Rule::CPU };
            let division = divide(energy_uj, idle_uj, &uses, nobody, Rule { idle, ..rule });
            known.unassigned_uj += division.unassigned_uj;
            for (user, part_uj) in users.keys().zip(division.parts_uj) {
                *known.users_uj.entry(user.clone()).or_default() += part_uj;
            }
        }
    }

    fn report(&self, power: &PowerFacts, idle: Idle) -> EnergySharesReport {
        let user = |((host, nqn, nsid), energy_uj): (&User, &u64)| EnergyUserReport {
            host: host.clone(),
            nqn: nqn.clone(),
            nsid: *nsid,
            energy_uj: *energy_uj,
        };
        let zone = |(of, zone): (&String, &Zone)| EnergyZoneReport {
            of: of.clone(),
            energy_uj: zone.energy_uj,
            unassigned_uj: zone.unassigned_uj,
            users: zone.users_uj.iter().map(user).collect(),
        };
        EnergySharesReport {
            sensor: power.sensor.clone(),
            modelled: power.model.clone(),
            idle: format_idle(idle).to_owned(),
            zones: self.zones.iter().map(zone).collect(),
        }
    }
}

/// The use of each user between two snapshots, and unassigned use.
fn uses(before: &Counters, now: &Counters) -> (BTreeMap<User, Use>, Use) {
    let (mut users, mut nobody) = (BTreeMap::<User, Use>::new(), Use::default());
    for (at, (cpu_ns, counts)) in now.cpu_ns.iter().zip(&now.counts).enumerate() {
        let cpu_ns = cpu_ns.saturating_sub(before.cpu_ns.get(at).copied().unwrap_or(0));
        let known =
            |user: &User| before.counts.get(at).and_then(|counts| counts.get(user)).copied().unwrap_or_default();
        let costs: Vec<u64> = counts.iter().map(|(user, now)| cost(now).saturating_sub(cost(&known(user)))).collect();
        for (user, now) in counts {
            let bytes = moved(now).saturating_sub(moved(&known(user)));
            if bytes > 0 {
                users.entry(user.clone()).or_default().bytes += bytes;
            }
        }
        let parts_ns = deal(cpu_ns, &costs);
        nobody.cpu_ns += cpu_ns - parts_ns.iter().sum::<u64>();
        for (user, part_ns) in counts.keys().zip(parts_ns).filter(|(_, part_ns)| *part_ns > 0) {
            users.entry(user.clone()).or_default().cpu_ns += part_ns;
        }
    }
    (users, nobody)
}

#[cfg(test)]
mod tests;
