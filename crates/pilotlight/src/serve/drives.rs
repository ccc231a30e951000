//! The numbers of drives that hold namespaces, in addition to the knobs of the machine.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use pilotlight_actuators::Roots;
use pilotlight_actuators::machine::holding_drive;
use pilotlight_plant::{Knob, KnobId, Refusal};
use pilotlight_reactor::{Knobs, Refusals};

/// The knobs of a machine, if it has any, and its drives.
#[derive(Debug)]
pub(super) struct KnobsAndDrives {
    machine: Option<Arc<dyn Knobs>>,
    roots: Roots,
    /// The drives that have been numbered, by number.
    drives: Mutex<Vec<String>>,
}

impl KnobsAndDrives {
    /// `drives` have the numbers that they have as places of knobs ([`pilotlight_plant::Of::Device`]); others get the next ones.
    pub(super) fn new(machine: Option<Arc<dyn Knobs>>, roots: Roots, drives: Vec<String>) -> Self {
        Self { machine, roots, drives: Mutex::new(drives) }
    }
}

impl Knobs for KnobsAndDrives {
    fn knobs(&self) -> Vec<Knob> {
        self.machine.as_ref().map(|machine| machine.knobs()).unwrap_or_default()
    }

    fn drive_of(&self, path: &Path) -> Option<u16> {
        let name = holding_drive(&self.roots, path)?;
        let mut drives = self.drives.lock().unwrap_or_else(PoisonError::into_inner);
        let number = drives.iter().position(|known| *known == name).unwrap_or(drives.len());
        if number == drives.len() {
            drives.push(name);
        }
        u16::try_from(number).ok()
    }

    fn connect(&self, refusals: Refusals, workers: &[u32]) {
        if let Some(machine) = &self.machine {
            machine.connect(refusals, workers);
        }
    }

    fn set(&self, knob: KnobId, value: u64) -> Result<(), Refusal> {
        self.machine.as_ref().ok_or(Refusal::Unknown)?.set(knob, value)
    }

    fn restore(&self) {
        if let Some(machine) = &self.machine {
            machine.restore();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn namespaces_on_one_drive_share_its_number() {
        let folder = tempfile::tempdir().unwrap();
        let roots = Roots::below(folder.path());
        let disks = roots.sys.join("devices/pci0/block");
        for part in ["sda/sda1", "sda/sda2", "sdb"] {
            fs::create_dir_all(disks.join(part)).unwrap();
        }
        fs::create_dir_all(roots.sys.join("class/block")).unwrap();
        fs::create_dir_all(&roots.dev).unwrap();
        for (name, part) in [("sda", "sda"), ("sda1", "sda/sda1"), ("sda2", "sda/sda2"), ("sdb", "sdb")] {
            symlink(disks.join(part), roots.sys.join("class/block").join(name)).unwrap();
            fs::write(roots.dev.join(name), "").unwrap();
            if part.contains('/') {
                fs::write(disks.join(part).join("partition"), "1\n").unwrap();
            }
        }
        let knobs = KnobsAndDrives::new(None, roots, vec!["nvme0".to_owned()]);
        let numbers = ["sdb", "sda1", "sda2", "sda", "none"].map(|name| knobs.drive_of(&Path::new("/dev").join(name)));
        assert_eq!(numbers, [Some(1), Some(2), Some(2), Some(2), None], "drives with knobs come first");
        assert_eq!(knobs.set(KnobId(0), 1), Err(Refusal::Unknown));
        assert!(knobs.knobs().is_empty() && knobs.drives().is_empty());
    }
}
