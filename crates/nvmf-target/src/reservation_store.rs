//! Keeps reservations over a restart (Persist Through Power Loss).

use std::io;

use pilotlight_nvmf_proto::reservation::State;
use pilotlight_nvmf_proto::reservation::published::Reservation;
use pilotlight_storage::OpenError;

/// Keeps a record for each namespace, by its UUID. It may block; reactors do not call it.
pub trait ReservationStore: Send + Sync {
    /// The record of a namespace, if there is one.
    ///
    /// # Errors
    /// If it cannot be read.
    fn load(&self, uuid: &[u8; 16]) -> io::Result<Option<String>>;

    /// Replaces the record of a namespace. It is on the medium when this returns.
    ///
    /// # Errors
    /// If it cannot be written; the former record is kept then.
    fn save(&self, uuid: &[u8; 16], record: &str) -> io::Result<()>;

    /// Removes the record of a namespace, if there is one, as durably.
    ///
    /// # Errors
    /// If it cannot be removed.
    fn remove(&self, uuid: &[u8; 16]) -> io::Result<()>;
}

/// The reservation of an added namespace: as recorded, or without registrants.
pub(crate) fn open(uuid: &[u8; 16], store: Option<&dyn ReservationStore>) -> Result<Reservation, OpenError> {
    let read = |store: &dyn ReservationStore| match store.load(uuid)? {
        Some(record) => State::from_record(&record).map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why)),
        None => Ok(State::default()),
    };
    let state = store.map_or_else(|| Ok(State::default()), read);
    let state = state.map_err(|source| OpenError::System { spec: "its recorded reservation".to_owned(), source })?;
    Ok(Reservation::new(*uuid, store.is_some(), state))
}
