//! What a simulated machine can do, and what it can measure. Its costs are those that it has.

use pilotlight_plant::{
    Capabilities, Cost, Depth, Kind, Knob, Of, Quantity, SleepCost, Source, Stat, Topology, Values,
};

use crate::machine::{Machine, Speed};
use crate::scenario::Scenario;

/// Time of a core that stores a message for another, in nanoseconds at full speed.
pub(super) const STORE_NS: u32 = 20;

/// What the machine of a scenario can do.
#[must_use]
pub fn capabilities(scenario: &Scenario) -> Capabilities {
    let machine = &scenario.machine;
    Capabilities {
        sleeps: sleeps(machine),
        moves: Some(Cost::Measured(u64::from(machine.director.move_ns))),
        interrupts: true,
        rests: true,
        server_sleep: None,
        knobs: frequencies(machine, &scenario.topology),
        sources: sources(scenario),
    }
}

fn sleeps(machine: &Machine) -> Vec<SleepCost> {
    let cost =
        |depth, waker_ns, wake_ns| SleepCost { depth, waker: Cost::Measured(waker_ns), wake: Cost::Measured(wake_ns) };
    let sleep = machine.sleep;
    let monitor = cost(Depth::MonitorWait, u64::from(STORE_NS), sleep.monitor_wake_ns);
    let software_wake_ns = sleep.software_wake_ns + kernel_exit_ns(machine);
    let software = cost(Depth::SoftwareWait, sleep.software_waker_ns, software_wake_ns);
    if sleep.monitor { vec![monitor, software] } else { vec![software] }
}

/// How long the way back from the state takes in which the kernel lets a core rest that nobody needs.
fn kernel_exit_ns(machine: &Machine) -> u64 {
    let deep = machine.power.family.kernel_idles_deep;
    if deep { machine.kernel.deep_exit_ns } else { machine.kernel.shallow_exit_ns }
}

/// The frequency of each core, where it can be set.
fn frequencies(machine: &Machine, topology: &Topology) -> Vec<Knob> {
    let Speed { min_khz, max_khz, step_khz, transition_ns, .. } = machine.speed;
    let [min, max, step] = [min_khz, max_khz, step_khz.max(1)].map(u64::from);
    let knob = |core| Knob {
        of: Of::Core(core),
        kind: Kind::FrequencyKhz,
        values: Values::Range { min, max, step },
        found: max,
        caller: Cost::Measured(u64::from(machine.director.frequency_ns)),
        effect: Cost::Measured(transition_ns),
    };
    if min < max { topology.cores().map(knob).collect() } else { Vec::new() }
}

/// Power of the CPU, of the server and of each drive, bytes a second of each drive, and latencies.
fn sources(scenario: &Scenario) -> Vec<Source> {
    let (window_ns, lag) = (scenario.sensors.window_ns, Cost::Measured(scenario.sensors.lag_ns));
    let source = |of, quantity| Source { of, quantity, window_ns, lag };
    let drives = || (0..scenario.drives.len() as u16).map(Of::Device);
    let mut all = vec![source(Of::Package(0), Quantity::PowerUw), source(Of::Server, Quantity::PowerUw)];
    all.extend(drives().map(|drive| source(drive, Quantity::PowerUw)));
    all.extend(drives().map(|drive| source(drive, Quantity::BytesPerS)));
    all.extend([Stat::Mean, Stat::P50, Stat::P99].map(|stat| source(Of::Server, Quantity::LatencyNs(stat))));
    all
}
