//! Get Log Page (Base 5.16).

use std::collections::{BTreeMap, VecDeque};

use pilotlight_nvme::ana;
use pilotlight_nvme::command::opcode::{admin, io};
use pilotlight_nvme::identify::ascii_field;
use pilotlight_nvme::le::{U16, U32, U64, U128};
use pilotlight_nvme::log::{CHANGED_NAMESPACES_LEN, ErrorEntry, FirmwareSlotLog, GetLogPage, SmartLog, effects, lid};
use pilotlight_nvme::{Sqe, Status};
use zerocopy::{FromZeros, IntoBytes};

use super::{AdminEnv, Controller, Outcome};

/// Entries of the error information log.
pub(super) const ERROR_ENTRIES: usize = 64;
/// Maximum allocation of the error log in bytes.
pub(super) const HEAP_BYTES: usize = ERROR_ENTRIES * size_of::<ErrorEntry>();
/// The composite temperature is required; without a sensor it is 25 °C.
const TEMPERATURE_KELVIN: u16 = 298;

/// The last errors, newest first.
#[derive(Debug, Default)]
pub(super) struct ErrorLog {
    count: u64,
    entries: VecDeque<ErrorEntry>,
}

impl ErrorLog {
    pub(super) fn record(&mut self, sqid: u16, cid: u16, status: Status, nsid: u32) {
        self.count += 1;
        self.entries.truncate(ERROR_ENTRIES - 1);
        self.entries.push_front(ErrorEntry {
            error_count: U64::new(self.count),
            sqid: U16::new(sqid),
            cid: U16::new(cid),
            status: U16::new(status.to_field()),
            location: U16::new(0xffff),
            nsid: U32::new(nsid),
            ..ErrorEntry::new_zeroed()
        });
    }

    fn page(&self) -> Vec<u8> {
        let mut page = vec![0; ERROR_ENTRIES * size_of::<ErrorEntry>()];
        for (to, entry) in page.chunks_exact_mut(size_of::<ErrorEntry>()).zip(&self.entries) {
            to.copy_from_slice(entry.as_bytes());
        }
        page
    }
}

impl Controller {
    pub(super) fn get_log_page(&mut self, sqe: &Sqe, out: &mut [u8], env: &AdminEnv) -> Outcome {
        let get = GetLogPage::decode(sqe);
        let Some(page) = self.log_page(&get, env) else { return Outcome::error(Status::INVALID_LOG_PAGE) };
        let effects_of_another_command_set = get.lid == lid::COMMAND_EFFECTS && get.csi != 0;
        if get.index_offset || effects_of_another_command_set {
            return Outcome::error(Status::INVALID_FIELD); // no log page can be indexed; NVM is the only command set
        }
        if get.lid == lid::SMART && !matches!(sqe.nsid.get(), 0 | u32::MAX) {
            return Outcome::error(Status::INVALID_FIELD); // only for the controller (LPA)
        }
        if !get.offset.is_multiple_of(4) || get.offset > self.end_of(get.lid, page.len() as u64) {
            return Outcome::error(Status::INVALID_FIELD);
        }
        let rest = page.get(get.offset as usize..).unwrap_or_default();
        let len = rest.len().min(out.len()); // zeroes beyond the page's end
        out[..len].copy_from_slice(&rest[..len]);
        if !get.retain_event {
            match get.lid {
                lid::CHANGED_NAMESPACES => self.events.changed_read(),
                lid::DISCOVERY => self.events.discovery_read(),
                lid::ANA => self.events.paths_read(),
                lid::RESERVATION => self.notification_read(),
                _ => {}
            }
        }
        Outcome::SUCCESS
    }

    /// The greatest offset at which a page of `len` bytes may be read. A discovery log may shrink while a host reads it in parts: the
    /// rest of the longer one reads as zeroes, and the host reads again because the generation has changed (Base 5.1.12.3.1).
    fn end_of(&mut self, page: u8, len: u64) -> u64 {
        if page != lid::DISCOVERY {
            return len;
        }
        self.discovery_len = self.discovery_len.max(len);
        self.discovery_len
    }

    fn log_page(&self, get: &GetLogPage, env: &AdminEnv) -> Option<Vec<u8>> {
        let lid = get.lid;
        if self.is_discovery() {
            return match lid {
                lid::SUPPORTED => Some(supported(&[lid::SUPPORTED, lid::ERROR, lid::DISCOVERY])),
                lid::ERROR => Some(self.errors.page()),
                lid::DISCOVERY => Some(env.directory.log().page(&self.params.hostnqn, env.local)),
                _ => None,
            };
        }
        match lid {
            lid::SUPPORTED => Some(supported(&[
                lid::SUPPORTED,
                lid::ERROR,
                lid::SMART,
                lid::FIRMWARE_SLOT,
                lid::CHANGED_NAMESPACES,
                lid::COMMAND_EFFECTS,
                lid::ANA,
                lid::RESERVATION,
            ])),
            lid::ERROR => Some(self.errors.page()),
            lid::SMART => Some(self.smart(env).as_bytes().to_vec()),
            lid::FIRMWARE_SLOT => Some(firmware_slot()),
            lid::CHANGED_NAMESPACES => Some(self.changed_namespaces()),
            lid::COMMAND_EFFECTS => Some(command_effects()),
            lid::ANA => Some(self.paths(get.lsp & ana::RETURN_GROUPS_ONLY != 0, env)),
            lid::RESERVATION => Some(self.reservations.page().as_bytes().to_vec()),
            _ => None,
        }
    }

    fn smart(&self, env: &AdminEnv) -> SmartLog {
        let units = |bytes: u64| U128::new(u128::from(bytes.div_ceil(512_000)));
        SmartLog {
            temperature: U16::new(TEMPERATURE_KELVIN),
            available_spare: 100,
            data_units_read: units(env.counters.read_bytes),
            data_units_written: units(env.counters.written_bytes),
            host_reads: U128::new(u128::from(env.counters.reads)),
            host_writes: U128::new(u128::from(env.counters.writes)),
            power_cycles: U128::new(1),
            power_on_hours: U128::new(u128::from(env.power_on.as_secs() / 3600)),
            error_entries: U128::new(u128::from(self.errors.count)),
            ..SmartLog::default()
        }
    }

    /// The groups of the namespaces that the host sees.
    fn paths(&self, groups_only: bool, env: &AdminEnv) -> Vec<u8> {
        let mut groups: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (nsid, info) in env.namespaces.iter() {
            groups.entry(info.ana_group).or_default().push(*nsid);
        }
        let with_state = |(group, nsids)| (group, env.directory.ana_state(env.port, group), nsids);
        let groups: Vec<_> = groups.into_iter().map(with_state).collect();
        ana::page(self.path_changes, &groups, groups_only)
    }

    fn changed_namespaces(&self) -> Vec<u8> {
        let mut page = vec![0; CHANGED_NAMESPACES_LEN];
        match self.events.changed() {
            None => page[..4].fill(0xff), // they exceed the list
            Some(changed) => {
                for (to, nsid) in page.chunks_exact_mut(4).zip(changed) {
                    to.copy_from_slice(&nsid.to_le_bytes());
                }
            }
        }
        page
    }
}

fn dwords(values: impl IntoIterator<Item = (usize, u32)>, len: usize) -> Vec<u8> {
    let mut page = vec![0; len];
    for (at, value) in values {
        page[at * 4..at * 4 + 4].copy_from_slice(&value.to_le_bytes());
    }
    page
}

fn supported(pages: &[u8]) -> Vec<u8> {
    dwords(pages.iter().map(|&lid| (usize::from(lid), 1)), 1024)
}

fn firmware_slot() -> Vec<u8> {
    let mut log = FirmwareSlotLog { active: 1, ..FirmwareSlotLog::default() };
    log.revisions[0] = ascii_field(env!("CARGO_PKG_VERSION"));
    log.as_bytes().to_vec()
}

fn command_effects() -> Vec<u8> {
    use effects::{CSUPP, LBCC};
    const IO: usize = 256;
    let admin = [
        admin::GET_LOG_PAGE,
        admin::IDENTIFY,
        admin::ABORT,
        admin::SET_FEATURES,
        admin::GET_FEATURES,
        admin::ASYNC_EVENT_REQUEST,
        admin::KEEP_ALIVE,
    ];
    let io = [
        (io::FLUSH, CSUPP),
        (io::WRITE, CSUPP | LBCC),
        (io::READ, CSUPP),
        (io::COMPARE, CSUPP),
        (io::WRITE_ZEROES, CSUPP | LBCC),
        (io::DATASET_MANAGEMENT, CSUPP | LBCC),
        (io::VERIFY, CSUPP),
        (io::RESERVATION_REGISTER, CSUPP),
        (io::RESERVATION_REPORT, CSUPP),
        (io::RESERVATION_ACQUIRE, CSUPP),
        (io::RESERVATION_RELEASE, CSUPP),
    ];
    let admin = admin.into_iter().map(|opcode| (usize::from(opcode), CSUPP));
    let io = io.into_iter().map(|(opcode, effects)| (IO + usize::from(opcode), effects));
    dwords(admin.chain(io), 4096)
}
