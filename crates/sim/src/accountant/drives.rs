//! Energy of drives over a stretch: by byte and up to a ceiling, or, where a profile says, by state, byte and what they do of their own.

use super::requests::Moved;
use crate::scenario::Scenario;
use crate::trace::Record;

/// Femtojoules in a microjoule.
const MICROJOULE: u128 = 1_000_000_000;

#[derive(Clone, Copy, Debug, Default)]
struct Drive {
    /// Bytes in the present stretch.
    read: u64,
    written: u64,
    /// Time in which it moved data, rested, slept, was in each of four idle states.
    did_ns: [u64; 7],
}

pub(super) struct DriveBook<'a> {
    scenario: &'a Scenario,
    drives: Vec<Drive>,
    rest_fj: u128,
}

impl<'a> DriveBook<'a> {
    pub(super) fn new(scenario: &'a Scenario) -> Self {
        Self { scenario, drives: vec![Drive::default(); scenario.drives.len()], rest_fj: 0 }
    }

    pub(super) fn moved(&mut self, moved: &Moved) {
        let Some(drive) = self.drives.get_mut(moved.drive) else { return };
        *(if moved.write { &mut drive.written } else { &mut drive.read }) += u64::from(moved.bytes);
    }

    /// Something of its own.
    pub(super) fn did(&mut self, record: &Record) {
        let (drive, what) = ((record.a & u64::from(u32::MAX)) as usize, (record.a >> 32) as usize);
        if let Some(ns) = self.drives.get_mut(drive).and_then(|drive| drive.did_ns.get_mut(what)) {
            *ns += record.b;
        }
    }

    /// What all took in the stretch that ends, in microjoules.
    pub(super) fn stretch_uj(&mut self) -> u64 {
        let drives = std::mem::take(&mut self.drives);
        self.drives = vec![Drive::default(); drives.len()];
        let own = !drives.is_empty() && self.scenario.drives.iter().all(|drive| drive.energy.is_some());
        if own { self.by_state_uj(&drives) } else { self.by_byte_uj(&drives) }
    }

    fn by_byte_uj(&self, drives: &[Drive]) -> u64 {
        let power = &self.scenario.machine.power;
        let series_ns = u128::from(self.scenario.series_ns);
        let mut sum = 0;
        for (drive, model) in drives.iter().zip(&self.scenario.drives) {
            let bytes_nj = u128::from(drive.read) * u128::from(power.read_4k_nj)
                + u128::from(drive.written) * u128::from(power.write_4k_nj);
            let most = |uw: u64| u128::from(uw) * series_ns * 4_096 / 1_000_000;
            sum += model.power.map_or(bytes_nj, |power| bytes_nj.min(most(power.most_load_uw)));
        }
        (u128::from(power.drives_idle_uw) * series_ns / MICROJOULE) as u64 + (sum / (4_096 * 1_000)) as u64
    }

    fn by_state_uj(&mut self, drives: &[Drive]) -> u64 {
        let state = self.scenario.scheduled.as_ref().map_or(0, |scheduled| scheduled.drive_state);
        let mut sum_fj = self.rest_fj;
        for (drive, model) in drives.iter().zip(&self.scenario.drives) {
            let Some(energy) = model.energy else { continue };
            let [moves_ns, rests_ns, sleeps_ns, idle_ns @ ..] = drive.did_ns;
            let all_idle_ns: u64 = idle_ns.iter().sum();
            let awake_ns = self.scenario.series_ns.saturating_sub(rests_ns + sleeps_ns + all_idle_ns);
            for (state, ns) in model.idle.iter().zip(idle_ns) {
                sum_fj += u128::from(state.uw) * u128::from(ns);
            }
            let moving_uw = model.state.get(state).map_or(0, |state| state.gc_uw);
            for (each, count) in [
                (energy.awake_uw, awake_ns),
                (energy.rest_uw, rests_ns),
                (energy.asleep_uw, sleeps_ns),
                (moving_uw, moves_ns),
            ] {
                sum_fj += u128::from(each) * u128::from(count);
            }
            let bytes_fj = u128::from(1_000 * energy.read_pj_per_byte) * u128::from(drive.read)
                + u128::from(1_000 * energy.write_pj_per_byte) * u128::from(drive.written);
            let most_uw = model.power.map_or(u64::MAX, |power| power.most_load_uw);
            sum_fj += bytes_fj.min(u128::from(most_uw) * u128::from(self.scenario.series_ns));
        }
        self.rest_fj = sum_fj % MICROJOULE;
        (sum_fj / MICROJOULE) as u64
    }
}
