//! Settings that a controller changes repeatedly, such as a power limit.
//!
//! **Problem.** The journal is flushed before each change, which is too slow for a controller that sets a limit ten times a second.
//!
//! **Algorithm.** The old value is written to the journal once, before the first value, as a change with an unknown result. Later values
//! are set and read back without journal entries.
//!
//! **Properties.** Wherever the process is killed, the journal restores the value before the first one. A value that another program
//! sets meanwhile cannot be distinguished and is overwritten.

use super::change::Change;
use super::error::Error;
use super::report::RestoreReport;
use super::restore::Options;
use super::setting::Setting;
use super::{Changes, in_force, unreadable};

/// An entry whose value varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Varied {
    /// Number of the entry.
    pub(super) id: u32,
    /// Owner of the setting.
    owner: u32,
}

impl Changes {
    /// Applies a change that may be followed by others of the same settings, for `owner`, a number chosen by the caller. A setting has one
    /// owner and is not changed by `make` too.
    ///
    /// # Errors
    /// The journal cannot be written, or the kernel refuses or ignores a value. Values set before the error are kept until the next value
    /// or [`Changes::restore_of`].
    pub fn vary(&mut self, owner: u32, change: &Change) -> Result<(), Error> {
        let steps = change.steps(self.kernel.as_mut(), &self.roots)?;
        let vary =
            |changes: &mut Self, setting: Setting, wanted: Option<&str>| changes.vary_place(owner, &setting, wanted);
        steps.into_iter().try_for_each(|step| step.carry_out(self, vary))
    }

    fn vary_place(&mut self, owner: u32, setting: &Setting, wanted: Option<&str>) -> Result<(), Error> {
        if !self.is_varied(setting) {
            match self.announce(setting.clone(), wanted, Setting::same)? {
                Some(id) => self.varied.push(Varied { id, owner }),
                None => return Ok(()),
            }
        }
        let Some(wanted) = wanted else { return Ok(()) };
        let now = setting.read(self.kernel.as_mut()).map_err(|source| unreadable(setting, source))?;
        if setting.same(&now, wanted) && !setting.drifts() {
            return Ok(());
        }
        in_force(self.kernel.as_mut(), setting, &now, wanted).map(drop)
    }

    fn is_varied(&self, setting: &Setting) -> bool {
        let varied = |id: u32| self.varied.iter().any(|varied| varied.id == id);
        self.entries.iter().any(|entry| entry.setting == *setting && varied(entry.id))
    }

    /// Restores the settings varied for `owner`.
    ///
    /// # Errors
    /// As of [`Changes::restore`].
    pub fn restore_of(&mut self, owner: u32) -> Result<Vec<RestoreReport>, Error> {
        let ours: Vec<u32> =
            self.varied.iter().filter(|varied| varied.owner == owner).map(|varied| varied.id).collect();
        let all = std::mem::take(&mut self.entries);
        let (entries, others) = all.into_iter().partition(|entry| ours.contains(&entry.id));
        self.entries = others;
        self.restore_entries(entries, Options::default())
    }
}
