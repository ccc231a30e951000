//! Energy of drives over a stretch: by byte up to a ceiling, or, if the profile has these figures, by state, byte and autonomous activity.

use super::requests::Moved;
use super::{Findings, Law};
use crate::scenario::Scenario;
use crate::trace::{Record, RecordKind};

/// Femtojoules in a microjoule.
const MICROJOULE: u128 = 1_000_000_000;

#[derive(Clone, Copy, Debug, Default)]
struct Drive {
    /// Bytes in the current stretch.
    read: u64,
    written: u64,
    /// Time moving data, resting, sleeping, and in each of four idle states.
    did_ns: [u64; 7],
    /// Commands in progress, time of the last change, and busy time in the current stretch.
    commands: u64,
    since_ns: u64,
    busy_ns: u64,
}

impl Drive {
    /// Accounts for the time until `at_ns`.
    fn pass(&mut self, at_ns: u64) {
        self.busy_ns += if self.commands > 0 { at_ns - self.since_ns } else { 0 };
        self.since_ns = at_ns;
    }
}

pub(super) struct DriveCheck<'a> {
    scenario: &'a Scenario,
    drives: Vec<Drive>,
    rest_fj: u128,
}

impl<'a> DriveCheck<'a> {
    pub(super) fn new(scenario: &'a Scenario) -> Self {
        Self { scenario, drives: vec![Drive::default(); scenario.drives.len()], rest_fj: 0 }
    }

    pub(super) fn moved(&mut self, moved: &Moved) {
        let Some(drive) = self.drives.get_mut(moved.drive) else { return };
        *(if moved.write { &mut drive.written } else { &mut drive.read }) += u64::from(moved.bytes);
    }

    /// Records autonomous activity.
    pub(super) fn did(&mut self, record: &Record) {
        let (drive, what) = ((record.a & u64::from(u32::MAX)) as usize, (record.a >> 32) as usize);
        if let Some(ns) = self.drives.get_mut(drive).and_then(|drive| drive.did_ns.get_mut(what)) {
            *ns = ns.saturating_add(record.b);
        }
    }

    /// Counts commands in progress.
    pub(super) fn command(&mut self, record: &Record) {
        let number = match record.kind {
            RecordKind::Submitted | RecordKind::Completed => record.b,
            RecordKind::Background | RecordKind::BackgroundDone => record.a & u64::from(u32::MAX),
            _ => return,
        };
        let Some(drive) = self.drives.get_mut(number as usize) else { return };
        drive.pass(record.at_ns);
        drive.commands = match record.kind {
            RecordKind::Submitted | RecordKind::Background => drive.commands + 1,
            _ => drive.commands.saturating_sub(1), // of a command that there is not: found elsewhere
        };
    }

    /// Energy of all drives in the stretch that ends at `end_ns`, in microjoules.
    pub(super) fn stretch_uj(&mut self, end_ns: u64, findings: &mut Findings) -> u64 {
        self.drives.iter_mut().for_each(|drive| drive.pass(end_ns));
        let next = |drive: &Drive| Drive { commands: drive.commands, since_ns: end_ns, ..Drive::default() };
        let next = self.drives.iter().map(next).collect();
        let drives = std::mem::replace(&mut self.drives, next);
        let own = !drives.is_empty() && self.scenario.drives.iter().all(|drive| drive.energy.is_some());
        if own {
            self.find_overlaps(&drives, end_ns, findings);
            self.by_state_uj(&drives)
        } else {
            self.by_byte_uj(&drives)
        }
    }

    /// Autonomous activities do not overlap each other or commands.
    fn find_overlaps(&self, drives: &[Drive], end_ns: u64, findings: &mut Findings) {
        let series_ns = self.scenario.series_ns;
        for (index, drive) in drives.iter().enumerate() {
            let own_ns: u128 = drive.did_ns.iter().map(|&ns| u128::from(ns)).sum();
            let busy_ns = u128::from(drive.busy_ns);
            if own_ns + busy_ns > u128::from(series_ns) {
                let text = format!(
                    "drive {index} has commands for {busy_ns} ns and autonomous activity for {own_ns} ns of {series_ns}"
                );
                findings.add_for_run(Law::Bounds, end_ns, text);
            }
        }
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
            let own_ns =
                idle_ns.iter().fold(rests_ns.saturating_add(sleeps_ns), |sum: u64, &ns| sum.saturating_add(ns));
            let awake_ns = self.scenario.series_ns.saturating_sub(own_ns); // more is a violation
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
