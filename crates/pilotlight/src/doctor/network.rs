//! Network: cores that handle received packets, and how to move them off sleeping cores.
//!
//! An interrupt ends a wait as a store does, and the packet's softirq then runs on that core: a receive queue on a worker core wakes it for
//! other cores' packets. Queues should be on the main core, or on CPUs that the server does not use.

use serde_json::{Value, json};

use super::facts::{Chosen, Coalescing, Facts};
use super::interrupts::{self, Interrupt};
use super::lists::{self, count};
use super::report::{Reason, Section};
use super::tree::Tree;

const NET: &str = "/sys/class/net";
/// IFF_UP and IFF_LOOPBACK (`linux/if.h`).
const UP: u32 = 0x1;
const LOOPBACK: u32 = 0x8;

/// An interface and the CPUs of its packets.
struct Interface {
    name: String,
    /// Mbit/s, if known to the driver.
    speed_mbit: Option<u32>,
    driver: Option<String>,
    node: Option<u32>,
    receive_queues: usize,
    interrupts: Vec<Interrupt>,
    /// CPUs of receive packet steering.
    steered: Vec<u32>,
}

/// The names of interfaces that are up.
pub(super) fn interfaces_up(tree: &Tree) -> Vec<String> {
    let up = |name: &String| flags(tree, name) & UP != 0 && carries(tree, name);
    tree.names(NET).into_iter().filter(up).collect()
}

/// Whether there is a link; virtual interfaces report `unknown`.
fn carries(tree: &Tree, name: &str) -> bool {
    matches!(tree.text(&format!("{NET}/{name}/operstate")).as_deref(), Some("up" | "unknown") | None)
}

fn flags(tree: &Tree, name: &str) -> u32 {
    let text = tree.text(&format!("{NET}/{name}/flags")).unwrap_or_default();
    u32::from_str_radix(text.trim_start_matches("0x"), 16).unwrap_or(0)
}

pub(super) fn examine(facts: &Facts, chosen: &Chosen) -> Section {
    let mut section = Section::new("network", "Network");
    for name in interfaces_up(&facts.tree) {
        let found = read(&facts.tree, &name);
        if found.driver.is_some() {
            hardware(&mut section, facts, chosen, &found);
        } else {
            software(&mut section, &facts.tree, &found);
        }
    }
    if section.rows.is_empty() {
        section.ok("interfaces", "none is up", json!({}));
    }
    section
}

fn read(tree: &Tree, name: &str) -> Interface {
    let dir = format!("{NET}/{name}");
    let queues = tree.numbered(&format!("{dir}/queues"), "rx-");
    let steered = |(queue, _): &(String, u32)| tree.text(&format!("{dir}/queues/{queue}/rps_cpus"));
    let steered: Vec<Vec<u32>> = queues.iter().filter_map(steered).map(|mask| lists::parse_mask(&mask)).collect();
    Interface {
        name: name.to_owned(),
        // -1: unknown
        speed_mbit: tree.number(&format!("{dir}/speed")),
        driver: tree.link(&format!("{dir}/device/driver")),
        // -1: the machine has one node
        node: tree.number(&format!("{dir}/device/numa_node")),
        receive_queues: queues.len(),
        interrupts: interrupts::of_receiving(tree, name),
        steered: lists::union(&steered.iter().map(Vec::as_slice).collect::<Vec<_>>()),
    }
}

/// A virtual interface: loopback, bridges, pairs.
fn software(section: &mut Section, tree: &Tree, found: &Interface) {
    let text = if flags(tree, &found.name) & LOOPBACK != 0 {
        "loopback: no interrupts, packets are handled on the core that sends them"
    } else {
        "virtual interface: packets are handled on the CPUs of the interface below or of their sender"
    };
    section.ok(&found.name, text, json!({ "receive_queues": found.receive_queues }));
}

fn hardware(section: &mut Section, facts: &Facts, chosen: &Chosen, found: &Interface) {
    let landing = landing(found);
    let (workers, text) = (lists::intersection(&landing, &chosen.workers()), describe(facts, found, &landing, chosen));
    let value = value(facts, found, &workers);
    if found.interrupts.is_empty() {
        let reason = Reason {
            why: "the device's interrupts could not be identified in /proc/interrupts",
            costs: "it is unknown which cores its packets wake",
            remedy: &["find it in /proc/interrupts under load, and set /proc/irq/N/smp_affinity_list"],
        };
        section.limited(&found.name, text, value, reason);
    } else if workers.is_empty() {
        section.ok(&found.name, text, value);
    } else {
        on_workers(section, &facts.tree, chosen, found, text, value);
    }
}

/// CPUs of interrupts and of packet steering.
fn landing(found: &Interface) -> Vec<u32> {
    let mut landing: Vec<&[u32]> = found.interrupts.iter().map(|interrupt| interrupt.cpus.as_slice()).collect();
    landing.push(&found.steered);
    lists::union(&landing)
}

fn describe(facts: &Facts, found: &Interface, landing: &[u32], chosen: &Chosen) -> String {
    let mut parts = vec![found.driver.clone().unwrap_or_default()];
    parts.push(found.speed_mbit.map_or_else(|| "speed unknown".to_owned(), speed));
    parts.extend(found.node.map(|node| format!("NUMA node {node}")));
    parts.push(count(found.receive_queues, "receive queue", "receive queues"));
    let mut text = format!("{}; {}", parts.join(", "), lands(landing, chosen));
    if !found.steered.is_empty() {
        text += &format!(" (steered by RPS to {})", lists::format(&found.steered));
    }
    if let Some(coalescing) = facts.coalescing.get(&found.name) {
        text += &format!("; {}", waits(coalescing));
    }
    text
}

/// `packets land on the main core 0, workers 1-3 and 2 other CPUs`.
fn lands(landing: &[u32], chosen: &Chosen) -> String {
    let workers = lists::intersection(landing, &chosen.workers());
    let others = lists::without(landing, &chosen.cores);
    let mut on = Vec::new();
    if landing.contains(&chosen.main) {
        on.push(format!("the main core {}", chosen.main));
    }
    if !workers.is_empty() {
        on.push(format!("worker {}", lists::cores(&workers)));
    }
    if !others.is_empty() {
        on.push(format!("{} that the server does not use", lists::cpus(&others)));
    }
    if on.is_empty() {
        "where its packets land is unknown".to_owned()
    } else {
        format!("packets land on {}", on.join(" and "))
    }
}

fn waits(coalescing: &Coalescing) -> String {
    let adaptive = if coalescing.adaptive { ", varied by the driver" } else { "" };
    match (coalescing.rx_us, coalescing.rx_frames) {
        (0, 0 | 1) => format!("an interrupt per packet{adaptive}"),
        (us, 0) => format!("an interrupt within {us} us{adaptive}"),
        (us, frames) => format!("an interrupt within {us} us or {frames} packets{adaptive}"),
    }
}

/// `25 Gbit/s`, `100 Mbit/s`.
fn speed(mbit: u32) -> String {
    if mbit >= 1000 { format!("{} Gbit/s", f64::from(mbit) / 1000.0) } else { format!("{mbit} Mbit/s") }
}

fn on_workers(section: &mut Section, tree: &Tree, chosen: &Chosen, found: &Interface, text: String, value: Value) {
    let workers = lists::intersection(&landing(found), &chosen.workers());
    let why = format!("receive queues of {} land on worker {}", found.name, lists::cores(&workers));
    let remedy = remedies(tree, chosen, found, &workers);
    let remedy: Vec<&str> = remedy.iter().map(String::as_str).collect();
    let reason = Reason {
        why: &why,
        costs: "every interrupt wakes the core that it lands on, although the packet may be for an I/O thread elsewhere, and \
                handling it takes that core's time",
        remedy: &remedy,
    };
    section.limited(&found.name, text, value, reason);
}

/// Commands that move interrupts and steering from `workers` to the main core.
fn remedies(tree: &Tree, chosen: &Chosen, found: &Interface, workers: &[u32]) -> Vec<String> {
    let main = chosen.main;
    let mut remedies = Vec::new();
    let hits: Vec<&Interrupt> = found.interrupts.iter().filter(|interrupt| on(interrupt, workers)).collect();
    let numbers: Vec<u32> = hits.iter().map(|interrupt| interrupt.number).collect();
    if !hits.is_empty() {
        let numbers = lists::shell(&numbers);
        remedies.push(format!(
            "stop irqbalance if it runs; then `for i in {numbers}; do echo {main} > /proc/irq/$i/smp_affinity_list; done`"
        ));
    }
    if !lists::intersection(&found.steered, workers).is_empty() {
        let (mask, name) = (lists::format_mask(&[main]), &found.name);
        remedies.push(format!("`for q in {NET}/{name}/queues/rx-*; do echo {mask} > $q/rps_cpus; done`"));
    }
    let spare =
        lists::without(&lists::parse(&tree.text("/sys/devices/system/cpu/online").unwrap_or_default()), &chosen.cores);
    let elsewhere =
        if spare.is_empty() { String::new() } else { format!("; {} would serve as well", lists::cpus(&spare)) };
    remedies.push(format!(
        "the main core {main}, which never sleeps while others work, then handles all packets{elsewhere}"
    ));
    if hits.iter().any(|interrupt| !interrupt.writable) {
        remedies.push("this process may not move these interrupts: it takes root on the machine itself".to_owned());
    }
    remedies
}

fn on(interrupt: &Interrupt, cpus: &[u32]) -> bool {
    !lists::intersection(&interrupt.cpus, cpus).is_empty()
}

fn value(facts: &Facts, found: &Interface, workers: &[u32]) -> Value {
    let interrupt = |one: &Interrupt| {
        json!({
            "irq": one.number,
            "name": one.name,
            "cpus": one.cpus,
            "taken_by_cpus": one.taken_by,
            "writable": one.writable,
        })
    };
    let coalescing = facts
        .coalescing
        .get(&found.name)
        .map(|one| json!({ "rx_us": one.rx_us, "rx_packets": one.rx_frames, "adaptive": one.adaptive }));
    json!({
        "driver": found.driver,
        "speed_mbit_per_s": found.speed_mbit,
        "numa_node": found.node,
        "receive_queues": found.receive_queues,
        "interrupts": found.interrupts.iter().map(interrupt).collect::<Vec<_>>(),
        "rps_cpus": found.steered,
        "coalescing": coalescing,
        "worker_cores_woken": workers,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coalescing_in_words() {
        let waits = |rx_us, rx_frames, adaptive| waits(&Coalescing { rx_us, rx_frames, adaptive });
        assert_eq!(waits(0, 1, false), "an interrupt per packet");
        assert_eq!(waits(50, 0, true), "an interrupt within 50 us, varied by the driver");
        assert_eq!(waits(8, 64, false), "an interrupt within 8 us or 64 packets");
    }

    #[test]
    fn speeds_in_words() {
        assert_eq!([speed(100), speed(2500), speed(200_000)], ["100 Mbit/s", "2.5 Gbit/s", "200 Gbit/s"]);
    }
}
