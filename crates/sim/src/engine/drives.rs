//! What drives take over a stretch that have figures of their own: by state, by byte, and for moving data.

use crate::scenario::Scenario;
use crate::ssd::{Doing, DriveEnergy, Span};

/// Femtojoule in a microjoule.
const FJ: u128 = 1_000_000_000;

#[derive(Debug)]
pub(crate) struct OwnDrives {
    stretch_ns: u64,
    drives: Vec<(DriveEnergy, Spent)>,
    rest_fj: u128,
}

#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    rests_ns: u64,
    sleeps_ns: u64,
    moves_fj: u128,
}

impl OwnDrives {
    /// `None` if drives have no figures of their own.
    pub(crate) fn new(scenario: &Scenario) -> Option<Self> {
        let drives: Option<Vec<_>> =
            scenario.drives.iter().map(|drive| drive.energy.map(|energy| (energy, Spent::default()))).collect();
        let drives = drives.filter(|drives| !drives.is_empty())?;
        Some(Self { stretch_ns: scenario.series_ns, drives, rest_fj: 0 })
    }

    pub(crate) fn span(&mut self, drive: usize, span: &Span, moving_uw: u64) {
        let Some((_, spent)) = self.drives.get_mut(drive) else { return };
        let ns = span.to_ns - span.from_ns;
        match span.doing {
            Doing::Moves => spent.moves_fj += u128::from(ns) * u128::from(moving_uw),
            Doing::Rests => spent.rests_ns += ns,
            Doing::Sleeps => spent.sleeps_ns += ns,
        }
    }

    /// What all took since the last call, in microjoules, having moved so many bytes.
    pub(crate) fn take(&mut self, moved: &[(u64, u64)]) -> u64 {
        let mut sum_fj = self.rest_fj;
        for ((energy, spent), &(read, written)) in self.drives.iter_mut().zip(moved) {
            let Spent { rests_ns, sleeps_ns, moves_fj } = std::mem::take(spent);
            let awake_ns = self.stretch_ns - rests_ns - sleeps_ns;
            let over = |uw: u64, ns: u64| u128::from(uw) * u128::from(ns);
            sum_fj +=
                over(energy.awake_uw, awake_ns) + over(energy.rest_uw, rests_ns) + over(energy.asleep_uw, sleeps_ns);
            sum_fj +=
                moves_fj + 1_000 * (over(energy.read_pj_per_byte, read) + over(energy.write_pj_per_byte, written));
        }
        self.rest_fj = sum_fj % FJ;
        (sum_fj / FJ) as u64
    }
}
