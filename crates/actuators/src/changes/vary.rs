//! Values that follow each other: what a controller sets again and again while it runs, such as a power limit.
//!
//! **Problem.** The journal is on the medium before each change; a controller that sets a limit ten times a second would wait for the
//! medium ten times a second and fill it.
//!
//! **Algorithm.** What a place was goes on record once, before its first value, as a change whose outcome is unknown. Later values are
//! set and read back, and leave the journal alone.
//!
//! **Properties.** Wherever the process is killed, the journal brings the place back to what it was before the first value. A value
//! that another program sets at such a place meanwhile cannot be told from our own, and is overwritten.

use super::change::Change;
use super::error::Error;
use super::place::Place;
use super::restore::{Back, Options};
use super::{Changes, in_force, unreadable};

/// An entry whose value varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Varied {
    /// Its number.
    pub(super) id: u32,
    /// For whom.
    owner: u32,
}

impl Changes {
    /// Makes a change that another of the same places may follow, for `owner`: a number that the caller
    /// chooses. A place is varied for one owner, and not made as well.
    ///
    /// # Errors
    /// It cannot be put on record, the kernel refuses it, or takes it and does nothing. What was set until then stays, until the
    /// next value or [`Changes::put_back_of`].
    pub fn vary(&mut self, owner: u32, change: &Change) -> Result<(), Error> {
        let steps = change.steps(self.kernel.as_mut(), &self.roots)?;
        let vary = |changes: &mut Self, place: Place, wanted: Option<&str>| changes.vary_place(owner, &place, wanted);
        steps.into_iter().try_for_each(|step| step.carry_out(self, vary))
    }

    fn vary_place(&mut self, owner: u32, place: &Place, wanted: Option<&str>) -> Result<(), Error> {
        if !self.is_varied(place) {
            match self.announce(place.clone(), wanted, Place::same)? {
                Some(id) => self.varied.push(Varied { id, owner }),
                None => return Ok(()),
            }
        }
        let Some(wanted) = wanted else { return Ok(()) };
        let now = place.read(self.kernel.as_mut()).map_err(|source| unreadable(place, source))?;
        if place.same(&now, wanted) && !place.drifts() {
            return Ok(());
        }
        in_force(self.kernel.as_mut(), place, &now, wanted).map(drop)
    }

    fn is_varied(&self, place: &Place) -> bool {
        let varied = |id: u32| self.varied.iter().any(|varied| varied.id == id);
        self.entries.iter().any(|entry| entry.place == *place && varied(entry.id))
    }

    /// Puts back what was varied for `owner`.
    ///
    /// # Errors
    /// As of [`Changes::put_back`].
    pub fn put_back_of(&mut self, owner: u32) -> Result<Vec<Back>, Error> {
        let ours: Vec<u32> =
            self.varied.iter().filter(|varied| varied.owner == owner).map(|varied| varied.id).collect();
        let all = std::mem::take(&mut self.entries);
        let (entries, others) = all.into_iter().partition(|entry| ours.contains(&entry.id));
        self.entries = others;
        self.put_back_entries(entries, Options::default())
    }
}
