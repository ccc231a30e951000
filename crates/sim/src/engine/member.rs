//! Energy of a member of the family of power models: that of the cores, of drives up to their ceilings, and of the other parts.

use crate::machine::Power;
use crate::outcome::Energy;
use crate::power::{Epoch, PPM, PowerModel, others_slope_ppm};
use crate::scenario::Scenario;

/// Femtojoule in a microjoule.
const FJ: u128 = 1_000_000_000;
/// 1/4096 nanojoule in a microjoule.
const UNITS: u128 = 4_096_000;
/// A member of the family of power models.
#[derive(Debug)]
pub(super) struct Member {
    power: Power,
    model: PowerModel,
    /// CPU energy below one microjoule.
    rest_fj: u128,
    pub(super) measured: Energy,
}

/// Activity of drives in a stretch.
pub(super) struct DrivesTook<'a> {
    /// Bytes read and written by each.
    pub(super) moved: &'a [(u64, u64)],
    pub(super) ceilings_uw: &'a [Option<u64>],
    /// Energy of all of them, from their own figures.
    pub(super) own_uj: Option<u64>,
}

impl Member {
    pub(super) fn new(power: &Power, scenario: &Scenario) -> Self {
        let model = PowerModel::new(power, &scenario.machine.speed);
        Self { power: *power, model, rest_fj: 0, measured: Energy::default() }
    }

    /// Energy of a stretch.
    pub(super) fn stretch(&mut self, epoch: &Epoch, stretch_ns: u64, drives: &DrivesTook<'_>) -> Energy {
        let shared_fj = self.model.shared_fj(epoch.cores_fj, stretch_ns);
        let cpu_fj = epoch.cpu_fj - epoch.cores_fj + shared_fj + self.rest_fj;
        self.rest_fj = cpu_fj % FJ;
        let over = |uw: u64| (u128::from(uw) * u128::from(stretch_ns) / FJ) as u64;
        let cpu_uj = (cpu_fj / FJ) as u64;
        let drives_uj = drives.own_uj.unwrap_or_else(|| {
            let each = drives.moved.iter().zip(drives.ceilings_uw);
            let load: u128 = each.map(|(&moved, &most_uw)| self.load(moved).min(most(most_uw, stretch_ns))).sum();
            over(self.power.drives_idle_uw) + (load / UNITS) as u64
        });
        let others_uj = match self.power.scheduled {
            None if self.power.uncore_uw.is_some() => {
                let above_uj = cpu_uj.saturating_sub(over(self.power.cpu_uw.deep));
                over(self.power.others_uw.deep) + above_uj * others_slope_ppm(&self.power) / PPM
            }
            None => over(self.model.others_uw(stretch_ns, epoch.polling, epoch.not_deep)),
            Some(line) => {
                let more_uj = u128::from(cpu_uj + drives_uj) * u128::from(line.slope_ppm) / u128::from(PPM);
                (u128::from(over(line.base_uw)) + more_uj).saturating_sub(u128::from(cpu_uj + drives_uj)) as u64
            }
        };
        Energy { cpu_uj, drives_uj, others_uj }
    }

    /// Idle power of all drives.
    pub(super) fn drives_idle_uw(&self) -> u64 {
        self.power.drives_idle_uw
    }

    /// Energy above idle of a drive that moved these bytes in a stretch.
    pub(super) fn load_uj(&self, moved: (u64, u64), ceiling_uw: Option<u64>, stretch_ns: u64) -> u64 {
        (self.load(moved).min(most(ceiling_uw, stretch_ns)) / UNITS) as u64
    }

    /// Energy above the drives' ceilings.
    pub(super) fn capped_uj(&self, moved: &[(u64, u64)], ceilings_uw: &[Option<u64>], stretch_ns: u64) -> u64 {
        let beyond = |(&moved, &uw): (&(u64, u64), &Option<u64>)| self.load(moved).saturating_sub(most(uw, stretch_ns));
        (moved.iter().zip(ceilings_uw).map(beyond).sum::<u128>() / UNITS) as u64
    }

    /// Unlimited energy to move these bytes, in 1/4096 nanojoule.
    fn load(&self, (read, written): (u64, u64)) -> u128 {
        let Power { read_4k_nj, write_4k_nj, .. } = self.power;
        u128::from(read) * u128::from(read_4k_nj) + u128::from(written) * u128::from(write_4k_nj)
    }
}

/// Energy ceiling of a drive over a stretch, in 1/4096 nanojoule.
///
/// Energy per request was measured with 16 drives at a third of their maximum rate (SANDMAN, Table 1). At the full rate it would give twice
/// the specified power of the drives, so a request must take less there, by an unpublished amount; only the ceiling is certain. The rates of
/// the drive's profile already hold within its power class. The mean over a stretch counts, as a drive's power limit is a mean too.
fn most(ceiling_uw: Option<u64>, stretch_ns: u64) -> u128 {
    ceiling_uw.map_or(u128::MAX, |uw| u128::from(uw) * u128::from(stretch_ns) * 4_096 / 1_000_000)
}
