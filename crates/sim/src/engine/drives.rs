//! Energy of drives with their own figures: by state, by byte, and for moving data.

use crate::scenario::Scenario;
use crate::ssd::{AutonomousActivity, DriveEnergy, Span};

/// Femtojoules per microjoule.
const FJ: u128 = 1_000_000_000;

#[derive(Debug)]
pub(crate) struct OwnDrives {
    stretch_ns: u64,
    drives: Vec<OwnDrive>,
    rest_fj: u128,
}

#[derive(Debug)]
struct OwnDrive {
    energy: DriveEnergy,
    /// Ceiling of its mean load power, in microwatts.
    most_load_uw: Option<u64>,
    /// Power in each idle state, in microwatts.
    idle_uw: Vec<u64>,
    rests_ns: u64,
    sleeps_ns: u64,
    idles_ns: Vec<u64>,
    moves_fj: u128,
}

impl OwnDrive {
    /// Energy since the last call, in femtojoules, for these bytes read and written.
    fn take_fj(&mut self, stretch_ns: u64, (read, written): (u64, u64)) -> u128 {
        let over = |uw: u64, ns: u64| u128::from(uw) * u128::from(ns);
        let Self { energy, most_load_uw, idle_uw, rests_ns, sleeps_ns, idles_ns, moves_fj } = self;
        let (mut sum_fj, mut awake_ns) = (std::mem::take(moves_fj), stretch_ns);
        let rests = [(&energy.rest_uw, rests_ns), (&energy.asleep_uw, sleeps_ns)];
        for (uw, ns) in rests.into_iter().chain(idle_uw.iter().zip(idles_ns)) {
            let ns = std::mem::take(ns);
            sum_fj += over(*uw, ns);
            awake_ns -= ns;
        }
        let bytes_fj = 1_000 * (over(energy.read_pj_per_byte, read) + over(energy.write_pj_per_byte, written));
        let most_fj = most_load_uw.map_or(u128::MAX, |uw| over(uw, stretch_ns));
        sum_fj + over(energy.awake_uw, awake_ns) + bytes_fj.min(most_fj)
    }
}

impl OwnDrives {
    /// `None` if a drive has no energy figures.
    pub(crate) fn new(scenario: &Scenario, stretch_ns: u64) -> Option<Self> {
        let own = |drive: &crate::ssd::SsdModel| {
            let idle_uw: Vec<u64> = drive.idle.iter().map(|state| state.uw).collect();
            let idles_ns = vec![0; idle_uw.len()];
            let most_load_uw = drive.power.map(|power| power.most_load_uw);
            Some(OwnDrive {
                energy: drive.energy?,
                most_load_uw,
                idle_uw,
                rests_ns: 0,
                sleeps_ns: 0,
                idles_ns,
                moves_fj: 0,
            })
        };
        let drives: Option<Vec<_>> = scenario.drives.iter().map(own).collect();
        let drives = drives.filter(|drives| !drives.is_empty())?;
        Some(Self { stretch_ns, drives, rest_fj: 0 })
    }

    pub(crate) fn span(&mut self, drive: usize, span: &Span, moving_uw: u64) {
        let Some(drive) = self.drives.get_mut(drive) else { return };
        let ns = span.to_ns - span.from_ns;
        match span.activity {
            AutonomousActivity::Moves => drive.moves_fj += u128::from(ns) * u128::from(moving_uw),
            AutonomousActivity::Rests => drive.rests_ns += ns,
            AutonomousActivity::Sleeps => drive.sleeps_ns += ns,
            AutonomousActivity::Idles(state) => drive.idles_ns[usize::from(state)] += ns,
        }
    }

    /// Energy of each since the last call, in microjoules.
    pub(crate) fn take_each(&mut self, moved: &[(u64, u64)]) -> Vec<u64> {
        let each = self.drives.iter_mut().zip(moved);
        each.map(|(drive, &moved)| (drive.take_fj(self.stretch_ns, moved) / FJ) as u64).collect()
    }

    /// Energy of all since the last call, in microjoules.
    pub(crate) fn take(&mut self, moved: &[(u64, u64)]) -> u64 {
        let each = self.drives.iter_mut().zip(moved);
        let sum_fj = self.rest_fj + each.map(|(drive, &moved)| drive.take_fj(self.stretch_ns, moved)).sum::<u128>();
        self.rest_fj = sum_fj % FJ;
        (sum_fj / FJ) as u64
    }
}
