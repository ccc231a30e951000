//! NVMe drives and their power states.

use pilotlight_drive::IDENTIFY_BYTES;
use serde_json::json;

use super::facts::{Facts, PowerState};
use super::report::{Reason, Section};
use super::tree::Tree;

const DRIVES: &str = "/sys/class/nvme";

/// Local drives (not across a network) that respond, such as `nvme0`.
pub(super) fn local(tree: &Tree) -> Vec<String> {
    let is =
        |name: &str, file: &str, wanted: &str| tree.text(&format!("{DRIVES}/{name}/{file}")).as_deref() == Some(wanted);
    let local = |name: &String| is(name, "transport", "pcie") && is(name, "state", "live");
    tree.names(DRIVES).into_iter().filter(local).collect()
}

pub(super) fn examine(section: &mut Section, facts: &Facts) {
    let names = facts.tree.names(DRIVES);
    if names.is_empty() {
        let why = match &facts.cpu.hypervisor {
            Some(name) => {
                format!("{name} shows this guest no NVMe controller, or the kernel's nvme driver is not loaded")
            }
            None => "the machine has none, or the kernel's nvme driver is not loaded".to_owned(),
        };
        let reason = Reason {
            why: &why,
            costs: "nothing, where namespaces are in memory or files; drives' power states cannot be set or measured",
            remedy: &["`modprobe nvme`; in a guest: have the drive passed through (VFIO)"],
        };
        section.missing("NVMe drives", "none", json!({ "drives": [] }), reason);
    }
    names.iter().for_each(|name| drive(section, facts, name));
}

fn drive(section: &mut Section, facts: &Facts, name: &str) {
    let file = |file: &str| {
        facts.tree.non_empty_text(&format!("{DRIVES}/{name}/{file}")).unwrap_or_else(|| "unknown".to_owned())
    };
    let node: Option<u32> = facts.tree.number(&format!("{DRIVES}/{name}/numa_node"));
    let states = facts.power_states.get(name);
    let place = node.map_or(String::new(), |node| format!(", NUMA node {node}"));
    let about = format!("{}, {}, {}{place}", file("model"), file("transport"), file("state"));
    let value = json!({
        "model": file("model"),
        "transport": file("transport"),
        "state": file("state"),
        "numa_node": node,
        "power_states": states.map(|states| states.iter().map(state_json).collect::<Vec<_>>()),
    });
    match states {
        Some(states) => section.ok(name, format!("{about}; {}", describe(states)), value),
        None if file("transport") != "pcie" => {
            section.ok(name, format!("{about}; across a network: its power states are another machine's"), value);
        }
        None => {
            let reason = Reason {
                why: "asking a drive for its power states (Identify Controller) is refused to this process, or the drive is \
                      not live",
                costs: "power policies cannot choose a power state of this drive",
                remedy: &["run as root (CAP_SYS_ADMIN), with /dev/nvmeN visible"],
            };
            section.limited(name, format!("{about}; power states not readable"), value, reason);
        }
    }
}

fn describe(states: &[PowerState]) -> String {
    let of = |(number, state): (usize, &PowerState)| {
        let most = if state.max_uw == 0 { "?".to_owned() } else { watts(state.max_uw) };
        let idle = if state.non_operational { " (no I/O)" } else { "" };
        format!("PS{number} {most}{idle}{}{}", latency("enters", state.entry_us), latency("leaves", state.exit_us))
    };
    states.iter().enumerate().map(of).collect::<Vec<_>>().join("; ")
}

fn state_json(state: &PowerState) -> serde_json::Value {
    json!({
        "max_power_uw": state.max_uw,
        "non_operational": state.non_operational,
        "entry_us": state.entry_us,
        "exit_us": state.exit_us,
    })
}

/// `None` if the drive does not report it.
fn latency(verb: &str, us: u32) -> String {
    if us == 0 { String::new() } else { format!(", {verb} in {us} us") }
}

fn watts(uw: u64) -> String {
    format!("{} W", uw as f64 / 1e6)
}

/// Power states in the data of Identify Controller (Base 5.1.13.2.1): byte 263 is their number less one (NPSS); from byte 2048 on, 32 bytes
/// each.
pub(super) fn power_states(data: &[u8; IDENTIFY_BYTES]) -> Vec<PowerState> {
    const MOST: usize = 32;
    let count = (usize::from(data[263]) + 1).min(MOST);
    data[2048..].chunks_exact(32).take(count).map(power_state).collect()
}

/// A Power State Descriptor: Maximum Power in units of 0.01 W, or of 0.0001 W if bit 24 (MXPS) is set; bit 25 (NOPS) for non-operational;
/// entry and exit latency in us at bytes 4 and 8.
fn power_state(descriptor: &[u8]) -> PowerState {
    let word = |at: usize| descriptor[at..at + 4].iter().rev().fold(0_u32, |word, &byte| word << 8 | u32::from(byte));
    let unit_uw = if word(0) & (1 << 24) != 0 { 100 } else { 10_000 };
    PowerState {
        max_uw: u64::from(word(0) & 0xffff) * unit_uw,
        non_operational: word(0) & (1 << 25) != 0,
        entry_us: word(4),
        exit_us: word(8),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn power_states_are_decoded() {
        let mut data = [0; IDENTIFY_BYTES];
        data[263] = 1;
        data[2048..2050].copy_from_slice(&2500_u16.to_le_bytes());
        data[2080..2082].copy_from_slice(&50_u16.to_le_bytes());
        data[2083] = 0b11;
        data[2084..2088].copy_from_slice(&210_u32.to_le_bytes());
        data[2088..2092].copy_from_slice(&1_200_u32.to_le_bytes());
        let operational = PowerState { max_uw: 25_000_000, non_operational: false, entry_us: 0, exit_us: 0 };
        let idle = PowerState { max_uw: 5_000, non_operational: true, entry_us: 210, exit_us: 1_200 };
        assert_eq!(power_states(&data), [operational, idle]);
    }

    #[test]
    fn a_drive_with_too_many_states_is_ignored() {
        let mut data = [0; IDENTIFY_BYTES];
        data[263] = 255;
        assert_eq!(power_states(&data).len(), 32);
    }
}
