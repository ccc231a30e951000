//! Storage: interfaces of asynchronous I/O, their limits, and the drives.

use serde_json::json;

use super::drives;
use super::facts::{Chosen, Facts, Ring};
use super::report::{Reason, Section};

/// Requests that an I/O thread takes for each file or drive that it uses.
const REQUESTS: u64 = pilotlight_storage::CHANNEL_DEPTH as u64;

pub(super) fn examine(facts: &Facts, chosen: &Chosen) -> Section {
    let mut section = Section::new("storage", "Storage");
    aio(&mut section, facts, chosen);
    io_uring(&mut section, facts);
    drives::examine(&mut section, facts);
    section
}

/// Linux AIO: direct I/O on files and drives.
fn aio(section: &mut Section, facts: &Facts, chosen: &Chosen) {
    let item = "Linux AIO";
    let read = |name: &str| facts.tree.number::<u64>(&format!("/proc/sys/fs/{name}"));
    let (Some(used), Some(most)) = (read("aio-nr"), read("aio-max-nr")) else {
        let reason = Reason {
            why: "there is no fs.aio-max-nr: the kernel was built without CONFIG_AIO",
            costs: "files and drives cannot be opened past the page cache",
            remedy: &["a kernel with CONFIG_AIO; namespaces in memory and on tmpfs work without"],
        };
        return section.missing(item, "none", json!({ "max_requests": null }), reason);
    };
    let fit = most.saturating_sub(used) / REQUESTS;
    let needed = chosen.files.map(|files| u64::from(files) * u64::from(chosen.io_threads));
    let requested = needed.map_or(String::new(), |needed| format!("; this configuration may use {needed}"));
    let found = format!(
        "{used} of {most} requests taken; room for {fit} x {REQUESTS} (I/O threads x files and drives){requested}"
    );
    let value = json!({
        "requests_taken": used,
        "max_requests": most,
        "requests_each": REQUESTS,
        "channels_that_fit": fit,
        "channels_needed": needed,
    });
    // without a configuration: at least one file or drive per I/O thread
    let wanted = needed.unwrap_or(u64::from(chosen.io_threads));
    if fit >= wanted {
        return section.ok(item, found, value);
    }
    let why =
        format!("each of {wanted} pairs of I/O thread and file may take {REQUESTS} requests of what the system allows");
    let remedy = [format!("`sysctl -w fs.aio-max-nr={}`", used + wanted * REQUESTS * 2), lasting()];
    let remedy: Vec<&str> = remedy.iter().map(String::as_str).collect();
    let reason =
        Reason { why: &why, costs: "threads serve the others: 64 requests of a namespace at once", remedy: &remedy };
    section.limited(item, found, value, reason);
}

fn lasting() -> String {
    "to keep it over a restart, write it to a file in /etc/sysctl.d".to_owned()
}

fn io_uring(section: &mut Section, facts: &Facts) {
    let item = "io_uring";
    let release = facts.tree.text("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".to_owned());
    match &facts.ring {
        Ok(ring) => section.ok(item, offers(ring, &release), ring_json(Some(ring), &release)),
        Err(error) => {
            let why = why_no_ring(facts, error);
            let reason = Reason {
                why: &why,
                costs: "nothing today: Pilotlight reaches files and drives through Linux AIO",
                remedy: &[
                    "`sysctl -w kernel.io_uring_disabled=0`; in a container: a seccomp profile that admits io_uring_setup",
                ],
            };
            section.missing(item, format!("none (Linux {release})"), ring_json(None, &release), reason);
        }
    }
}

fn why_no_ring(facts: &Facts, error: &anyhow::Error) -> String {
    match facts.tree.text("/proc/sys/kernel/io_uring_disabled").as_deref() {
        Some("2") => "kernel.io_uring_disabled is 2: no process may use it".to_owned(),
        Some("1") => {
            "kernel.io_uring_disabled is 1: it takes CAP_SYS_ADMIN or membership in kernel.io_uring_group".to_owned()
        }
        Some(_) => format!("io_uring_setup: {error}; where it is not disabled, a seccomp filter refuses it"),
        None => {
            format!("io_uring_setup: {error}; the kernel is older than 5.1, built without it, or a filter refuses it")
        }
    }
}

fn offers(ring: &Ring, release: &str) -> String {
    let ways = [
        ("COOP_TASKRUN", ring.coop_taskrun, "5.19"),
        ("SINGLE_ISSUER", ring.single_issuer, "6.0"),
        ("DEFER_TASKRUN", ring.defer_taskrun, "6.1"),
    ];
    let has = |wanted: bool| ways.iter().filter(move |(_, has, _)| *has == wanted);
    let with: Vec<&str> = has(true).map(|(name, ..)| *name).collect();
    let without: Vec<String> = has(false).map(|(name, _, since)| format!("{name} (Linux {since})")).collect();
    let with = if with.is_empty() { "plain".to_owned() } else { format!("with {}", with.join(", ")) };
    let without = if without.is_empty() { String::new() } else { format!("; not {}", without.join(", ")) };
    format!("Linux {release}, {with}{without}; not used: files and drives go through Linux AIO")
}

fn ring_json(ring: Option<&Ring>, release: &str) -> serde_json::Value {
    json!({
        "kernel": release,
        "available": ring.is_some(),
        "coop_taskrun": ring.is_some_and(|ring| ring.coop_taskrun),
        "single_issuer": ring.is_some_and(|ring| ring.single_issuer),
        "defer_taskrun": ring.is_some_and(|ring| ring.defer_taskrun),
    })
}
