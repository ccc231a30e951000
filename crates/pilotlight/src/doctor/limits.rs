//! Limits of this process.

use pilotlight_storage::format_size;
use serde_json::json;

use super::facts::{Chosen, Facts, Limit};
use super::report::{Reason, Section};

/// Descriptors of a server in addition to its connections; `serve` computes the exact number.
const BESIDE: u64 = 256;

pub(super) fn examine(facts: &Facts, chosen: &Chosen) -> Section {
    let mut section = Section::new("limits", "Limits");
    open_files(&mut section, facts, chosen);
    locked_memory(&mut section, facts.locked_memory);
    section
}

fn open_files(section: &mut Section, facts: &Facts, chosen: &Chosen) {
    let limit = facts.open_files;
    let item = "open files";
    let number = |limit: Option<u64>| limit.map_or_else(|| "no limit".to_owned(), |limit| limit.to_string());
    let needed = u64::from(chosen.max_connections) + BESIDE;
    let found = format!(
        "{}, can be raised to {}; {} connections take about {needed}",
        number(limit.soft),
        if facts.raises_limits { "any number".to_owned() } else { number(limit.hard) },
        chosen.max_connections
    );
    let value = json!({ "soft": limit.soft, "hard": limit.hard, "raises_hard": facts.raises_limits, "needed": needed });
    if facts.raises_limits || limit.hard.is_none_or(|hard| hard >= needed) {
        return section.ok(item, found, value);
    }
    let remedy =
        format!("`ulimit -n {needed}` as root, or `LimitNOFILE={needed}` in a unit; or lower limits.max_connections");
    let reason = Reason {
        why: "the hard limit (RLIMIT_NOFILE) is below what limits.max_connections promises",
        costs: "connections beyond it are closed at once",
        remedy: &[&remedy],
    };
    section.limited(item, found, value, reason);
}

/// The server locks no memory.
fn locked_memory(section: &mut Section, limit: Limit) {
    let size = limit.soft.map_or_else(|| "no limit".to_owned(), |bytes| format_size(bytes).to_string());
    section.ok(
        "locked memory",
        format!("{size}; the server locks none"),
        json!({ "soft_bytes": limit.soft, "hard_bytes": limit.hard }),
    );
}
