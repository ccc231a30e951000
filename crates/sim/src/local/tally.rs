//! What is counted, in slots of time: where each processor's time went, bytes, what the drive did, and events.

use super::machine::{Local, Power};
use crate::histogram::Histogram;

/// Most slots of a run.
const SLOTS: u64 = 600;
/// The shortest slot.
const LEAST_NS: u64 = 1_000_000;

/// What happened in a slot of time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Slot {
    /// Time of hardware threads at work.
    pub run_ns: f64,
    /// Time of hardware threads that look at queues.
    pub spin_ns: f64,
    /// Time of hardware threads in light sleep.
    pub light_ns: f64,
    /// Time of cores of which a thread works; of others of which a thread looks; of others of which one is in light sleep.
    pub core_ns: [f64; 3],
    /// Time in which some core was not in deep sleep.
    pub awake_ns: f64,
    /// Context switches.
    pub switches: f64,
    /// Interrupts of the drive.
    pub interrupts: f64,
    /// Interrupts of timers.
    pub timers: f64,
    /// Requests that were done.
    pub requests: f64,
    /// Bytes read.
    pub read_bytes: f64,
    /// Bytes written.
    pub written_bytes: f64,
    /// Time in which the drive rested by itself.
    pub rest_ns: f64,
    /// Time in which it was in its lowest power state instead.
    pub asleep_ns: f64,
    /// Time in which it moved data while it had nothing else to do.
    pub gc_ns: f64,
}

/// Energy of a slot by component, in microjoules.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Energy {
    /// Packages and memory.
    pub cpu_uj: f64,
    /// The drive.
    pub drive_uj: f64,
    /// Everything.
    pub system_uj: f64,
}

/// All slots of a run, and latencies of its measured part.
#[derive(Clone, Debug, PartialEq)]
pub struct Tally {
    /// Length of a slot.
    pub slot_ns: u64,
    /// One after the other from the start.
    pub slots: Vec<Slot>,
    /// Latencies of reads that ended within the measured time.
    pub reads: Histogram,
    /// Latencies of writes.
    pub writes: Histogram,
    /// The drive had so much left to move when the work ended, in nanoseconds of doing so.
    pub gc_after_ns: u64,
}

impl Tally {
    /// Nothing yet, over so much time.
    #[must_use]
    pub fn new(total_ns: u64) -> Self {
        let slot_ns = (total_ns / SLOTS).max(LEAST_NS);
        let slots = vec![Slot::default(); usize::try_from(total_ns.div_ceil(slot_ns)).unwrap_or(0)];
        Self { slot_ns, slots, reads: Histogram::default(), writes: Histogram::default(), gc_after_ns: 0 }
    }

    /// Adds what happened at a moment; nothing beyond the end.
    pub fn at(&mut self, at_ns: u64, add: impl Fn(&mut Slot)) {
        if let Some(slot) = self.slots.get_mut((at_ns / self.slot_ns) as usize) {
            add(slot);
        }
    }

    /// Adds a stretch of time, its parts to the slots where they lie.
    pub fn over(&mut self, from_ns: u64, to_ns: u64, add: impl Fn(&mut Slot, f64)) {
        let mut from = from_ns;
        while from < to_ns {
            let at = from / self.slot_ns;
            let Some(slot) = self.slots.get_mut(at as usize) else { return };
            let end = ((at + 1) * self.slot_ns).min(to_ns);
            add(slot, (end - from) as f64);
            from = end;
        }
    }

    /// What happened in a stretch of time; of a slot that it cuts, the share that it has of the slot's time.
    #[must_use]
    pub fn sum(&self, from_ns: u64, to_ns: u64) -> Slot {
        let (from, to) = (from_ns / self.slot_ns, to_ns.div_ceil(self.slot_ns));
        let mut sum = Slot::default();
        for (at, slot) in self.slots.iter().enumerate().take(to as usize).skip(from as usize) {
            let begin = at as u64 * self.slot_ns;
            let inside = to_ns.min(begin + self.slot_ns).saturating_sub(from_ns.max(begin));
            sum.add(slot, inside as f64 / self.slot_ns as f64);
        }
        sum
    }
}

impl Slot {
    /// Adds a share of another.
    fn add(&mut self, other: &Self, share: f64) {
        let more = |sum: &mut f64, of: f64| *sum += of * share;
        more(&mut self.run_ns, other.run_ns);
        more(&mut self.spin_ns, other.spin_ns);
        more(&mut self.light_ns, other.light_ns);
        self.core_ns.iter_mut().zip(other.core_ns).for_each(|(sum, of)| more(sum, of));
        more(&mut self.awake_ns, other.awake_ns);
        more(&mut self.switches, other.switches);
        more(&mut self.interrupts, other.interrupts);
        more(&mut self.timers, other.timers);
        more(&mut self.requests, other.requests);
        more(&mut self.read_bytes, other.read_bytes);
        more(&mut self.written_bytes, other.written_bytes);
        more(&mut self.rest_ns, other.rest_ns);
        more(&mut self.asleep_ns, other.asleep_ns);
        more(&mut self.gc_ns, other.gc_ns);
    }

    /// Energy of this slot, of so much time, with the drive working in a power state.
    #[must_use]
    pub fn energy(&self, machine: &Local, state: usize, length_ns: f64) -> Energy {
        let power = &machine.power;
        let cpu_uj = self.cpu_uj(power, f64::from(machine.host.cores), length_ns);
        let drive_uj = self.drive_uj(machine, state, length_ns);
        let system = power.system_base_uw as f64 * length_ns / 1e9;
        let system_uj = system + (cpu_uj + drive_uj) * power.system_slope_ppm as f64 / 1e6;
        Energy { cpu_uj, drive_uj, system_uj }
    }

    /// Working cores share one budget: the more of them work, the lower their clocks and what each takes.
    fn cpu_uj(&self, power: &Power, cores: f64, length_ns: f64) -> f64 {
        let share = |ppm: u64| ppm as f64 / 1e6;
        let [works_ns, looks_ns, rests_ns] = self.core_ns;
        let busy_ns = works_ns + looks_ns * share(power.spin_ppm) + rests_ns * share(power.light_ppm);
        let of_all = (busy_ns / length_ns / cores).min(1.0);
        let each_uw = power.core_uw as f64 + (power.core_of_all_uw as f64 - power.core_uw as f64) * of_all;
        let idle_uj = power.cpu_idle_uw as f64 * length_ns / 1e9;
        let uncore_uj = power.uncore_uw as f64 * self.awake_ns / 1e9;
        idle_uj + uncore_uj + busy_ns * each_uw / 1e9 + self.switches * power.switch_nj as f64 / 1e3
    }

    fn drive_uj(&self, machine: &Local, state: usize, length_ns: f64) -> f64 {
        let power = &machine.power;
        let gc_uw = machine.drive.state.get(state).map_or(0, |state| state.gc_uw);
        let awake_ns = length_ns - self.rest_ns - self.asleep_ns;
        let base_fj = power.drive_awake_uw as f64 * awake_ns
            + power.drive_rest_uw as f64 * self.rest_ns
            + power.drive_asleep_uw as f64 * self.asleep_ns;
        let bytes_pj = self.read_bytes * power.drive_read_pj_per_byte as f64
            + self.written_bytes * power.drive_write_pj_per_byte as f64;
        base_fj / 1e9 + bytes_pj / 1e6 + self.gc_ns * gc_uw as f64 / 1e9
    }
}
