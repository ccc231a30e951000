//! The data of Reservation Report, in the extended form (Base 7.5.1).

use pilotlight_nvme::reservation::{ReportEntry, ReportHeader};
use zerocopy::IntoBytes;

use super::{Identity, State};

/// Identifier of no controller.
const NO_CONTROLLER: u16 = 0xffff;

impl State {
    /// One entry for each controller of each registrant, and one for a registrant without any.
    pub(super) fn report(&self, controllers: impl Fn(&Identity) -> Vec<u16>) -> Vec<u8> {
        let mut entries: Vec<ReportEntry> = Vec::new();
        for (at, registrant) in self.registrants.iter().enumerate() {
            let mut ids = controllers(&registrant.host);
            if ids.is_empty() {
                ids.push(NO_CONTROLLER);
            }
            entries.extend(ids.into_iter().map(|cntlid| ReportEntry {
                cntlid: cntlid.into(),
                status: u8::from(self.is_holder(at)),
                key: registrant.key.into(),
                hostid: registrant.host.hostid,
                ..ReportEntry::default()
            }));
        }
        let header = ReportHeader {
            generation: self.generation.into(),
            kind: self.held.map_or(0, |held| held.kind as u8),
            entries: u16::try_from(entries.len()).unwrap_or(u16::MAX).into(),
            persists: self.persists.into(),
            ..ReportHeader::default()
        };
        let mut data = header.as_bytes().to_vec();
        entries.iter().for_each(|entry| data.extend_from_slice(entry.as_bytes()));
        data
    }
}
