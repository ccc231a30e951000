//! Power states of an NVMe drive (feature 02h) and its autonomous power state transitions (feature 0Ch; NVMe Base 2.1, 8.1.17
//! and 5.1.25).
//!
//! In a non-operational state a drive serves no I/O; at the next request it returns to its last operational state, which it does not
//! report. Such a drive is restored to state 0, the initial state of every drive.

use std::io;

use pilotlight_drive::{Drive, IDENTIFY_BYTES};

const POWER_MANAGEMENT: u8 = 0x02;
const TRANSITIONS: u8 = 0x0c;
const TABLE_BYTES: usize = 256;
/// Number of Power States Support (less one), APST attributes, and the descriptors of the states in Identify Controller.
const NPSS: usize = 263;
const APSTA: usize = 265;
const DESCRIPTORS: usize = 2048;
const DESCRIPTOR_BYTES: usize = 32;
/// Entry Latency and Exit Latency, in a descriptor.
const ENTRY_LATENCY: usize = 4;
const EXIT_LATENCY: usize = 8;
/// Non-Operational State, in byte 3 of a descriptor.
const NON_OPERATIONAL: u8 = 1 << 1;
pub(super) const ON: &str = "on";
pub(super) const OFF: &str = "off";

pub(super) fn read_state(drive: &mut dyn Drive) -> io::Result<String> {
    let value = drive.feature(POWER_MANAGEMENT, &mut [])?;
    Ok(match (value & 0x1f, value >> 5 & 7) {
        (state, 0) => state.to_string(),
        (state, hint) => format!("{state}/{hint}"),
    })
}

pub(super) fn state_to_return_to(drive: &mut dyn Drive) -> io::Result<String> {
    let identity = drive.identify()?;
    let value = read_state(drive)?;
    let rests = parse_state(&value).is_some_and(|(state, _)| is_non_operational(&identity, state));
    Ok(if rests { "0".into() } else { value })
}

/// Whether the drive has this state.
pub(super) fn check_state(drive: &mut dyn Drive, value: &str) -> io::Result<()> {
    let last = drive.identify()?[NPSS].min(31);
    match (parse(value)?, last) {
        ((state, _), last) if state <= last => Ok(()),
        (_, 0) => Err(invalid("the drive has only state 0")),
        (_, last) => Err(invalid(format!("the drive has states 0 to {last}"))),
    }
}

pub(super) fn set_state(drive: &mut dyn Drive, value: &str) -> io::Result<()> {
    let (state, hint) = parse(value)?;
    drive.set_feature(POWER_MANAGEMENT, u32::from(state) | u32::from(hint) << 5, &[])
}

fn invalid(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why.into())
}

fn parse(value: &str) -> io::Result<(u8, u8)> {
    parse_state(value).ok_or_else(|| invalid(format!("{value:?} is not a power state")))
}

fn parse_state(value: &str) -> Option<(u8, u8)> {
    let (state, hint) = value.split_once('/').unwrap_or((value, "0"));
    let (state, hint) = (state.parse().ok()?, hint.parse().ok()?);
    (state < 32 && hint < 8).then_some((state, hint))
}

/// The operational power states of a drive, and the longest change between two of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PowerStates {
    /// The operational states, from the fastest down.
    pub(crate) operational: Vec<u8>,
    /// The state to restore.
    pub(crate) now: u8,
    /// Longest time to leave one and enter another (EXLAT and ENLAT), in microseconds; 0 if not reported.
    pub(crate) change_us: u64,
}

pub(crate) fn states(drive: &mut dyn Drive) -> io::Result<PowerStates> {
    let identity = drive.identify()?;
    let operational: Vec<u8> =
        (0..=identity[NPSS].min(31)).filter(|&state| !is_non_operational(&identity, state)).collect();
    let latency_us = |field| operational.iter().map(|&state| latency_us(&identity, state, field)).max().unwrap_or(0);
    let change_us = latency_us(ENTRY_LATENCY) + latency_us(EXIT_LATENCY);
    let now = parse_state(&state_to_return_to(drive)?).map_or(0, |(state, _)| state);
    Ok(PowerStates { operational, now, change_us })
}

/// A non-operational state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IdleState {
    /// Longest time to enter it, in microseconds; 0 if not reported.
    pub(crate) entry_us: u64,
    /// Longest time to leave it, likewise.
    pub(crate) exit_us: u64,
}

/// The non-operational states; none without APST.
pub(crate) fn idle_states(drive: &mut dyn Drive) -> io::Result<Vec<IdleState>> {
    let identity = drive.identify()?;
    if identity[APSTA] & 1 == 0 {
        return Ok(Vec::new());
    }
    let latency_us = |state, field| latency_us(&identity, state, field);
    let idle = (0..=identity[NPSS].min(31)).filter(|&state| is_non_operational(&identity, state));
    let of = |state| IdleState { entry_us: latency_us(state, ENTRY_LATENCY), exit_us: latency_us(state, EXIT_LATENCY) };
    Ok(idle.map(of).collect())
}

/// A latency of the descriptor of a state.
fn latency_us(identity: &[u8; IDENTIFY_BYTES], state: u8, field: usize) -> u64 {
    let at = DESCRIPTORS + DESCRIPTOR_BYTES * usize::from(state) + field;
    identity[at..at + 4].iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

fn is_non_operational(identity: &[u8; IDENTIFY_BYTES], state: u8) -> bool {
    identity[DESCRIPTORS + DESCRIPTOR_BYTES * usize::from(state) + 3] & NON_OPERATIONAL != 0
}

pub(super) fn read_transitions(drive: &mut dyn Drive) -> io::Result<String> {
    if drive.identify()?[APSTA] & 1 == 0 {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "the drive does not support it"));
    }
    let mut table = [0; TABLE_BYTES];
    let value = drive.feature(TRANSITIONS, &mut table)?;
    let mut text = format!("{} ", if value & 1 == 1 { ON } else { OFF });
    table.iter().for_each(|byte| text += &format!("{byte:02x}"));
    Ok(text)
}

/// `on` or `off` alone keeps the current table.
pub(super) fn set_transitions(drive: &mut dyn Drive, value: &str) -> io::Result<()> {
    let mut table = [0; TABLE_BYTES];
    let (switch, digits) = value.split_once(' ').unwrap_or((value, ""));
    let on = switch == ON;
    if digits.is_empty() {
        drive.feature(TRANSITIONS, &mut table)?;
        if on && table.iter().all(|&byte| byte == 0) {
            return Err(invalid(
                "the drive has no transitions; set the kernel's parameter \
                 nvme_core.default_ps_max_latency_us",
            ));
        }
    } else if !parse_digits(digits, &mut table) {
        return Err(invalid("invalid table"));
    }
    drive.set_feature(TRANSITIONS, on.into(), &table)
}

fn parse_digits(digits: &str, table: &mut [u8; TABLE_BYTES]) -> bool {
    let bytes = digits.as_bytes();
    if bytes.len() != 2 * TABLE_BYTES || !bytes.is_ascii() {
        return false;
    }
    let parse = |pair: &[u8]| std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok());
    bytes.chunks(2).zip(table).all(|(pair, to)| parse(pair).map(|byte| *to = byte).is_some())
}

/// Whether the switch, and the table if wanted, have the wanted value.
pub(super) fn transitions_match(now: &str, wanted: &str) -> bool {
    now == wanted || (!wanted.contains(' ') && now.split(' ').next() == Some(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_parsed() {
        assert_eq!(parse_state("3"), Some((3, 0)));
        assert_eq!(parse_state("1/2"), Some((1, 2)));
        for text in ["", "32", "1/8", "-1", "on"] {
            assert_eq!(parse_state(text), None, "{text}");
        }
        let mut table = [0; TABLE_BYTES];
        assert!(parse_digits(&"0aff".repeat(128), &mut table) && table[..2] == [0x0a, 0xff]);
        assert!(!parse_digits("0a", &mut table) && !parse_digits(&"zz".repeat(256), &mut table));
    }

    #[test]
    fn a_switch_without_a_table_matches_any_table() {
        assert!(transitions_match("off 00ff", "off") && transitions_match("on 00", "on 00"));
        assert!(!transitions_match("on 00ff", "off") && !transitions_match("on 00", "on 01"));
    }
}
