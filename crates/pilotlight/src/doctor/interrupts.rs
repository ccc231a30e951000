//! /proc/interrupts and /proc/irq: interrupts of devices and their CPUs.

use super::lists;
use super::tree::Tree;

/// An interrupt of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Interrupt {
    pub(super) number: u32,
    /// Name given by the driver.
    pub(super) name: String,
    /// CPUs that it is delivered to.
    pub(super) cpus: Vec<u32>,
    /// CPUs that have handled it since boot, the busiest first.
    pub(super) taken_by: Vec<u32>,
    /// Whether this process may move it.
    pub(super) writable: bool,
}

/// A line of /proc/interrupts.
struct Line {
    number: u32,
    name: String,
    /// CPU and its number of interrupts.
    counts: Vec<(u32, u64)>,
}

/// The receive interrupts of an interface, by number.
pub(super) fn of_receiving(tree: &Tree, interface: &str) -> Vec<Interrupt> {
    let text = tree.text("/proc/interrupts").unwrap_or_default();
    let lines = parse(&text);
    let own = numbers_of(tree, interface);
    let ours = |line: &&Line| {
        if own.is_empty() { name_parts(&line.name).any(|word| word == interface) } else { own.contains(&line.number) }
    };
    let ours: Vec<&Line> = lines.iter().filter(ours).filter(|line| tells_of_packets(&line.name)).collect();
    ours.into_iter().map(|line| interrupt(tree, line)).collect()
}

/// The numbers of a device's interrupts; a virtio device's belong to the PCI device above it.
fn numbers_of(tree: &Tree, interface: &str) -> Vec<u32> {
    let device = format!("/sys/class/net/{interface}/device");
    let dirs = [format!("{device}/msi_irqs"), format!("{device}/../msi_irqs")];
    let numbers = |dir: &String| tree.names(dir).iter().filter_map(|name| name.parse().ok()).collect::<Vec<u32>>();
    dirs.iter().map(numbers).find(|numbers| !numbers.is_empty()).unwrap_or_default()
}

/// Whether the name is that of an interrupt for received packets. Most drivers have one per queue pair, some one per
/// direction, and most have more for device events.
fn tells_of_packets(name: &str) -> bool {
    const OTHER: [&str; 14] = [
        "config", "control", "ctrl", "output", "async", "mgmt", "mgmnt", "misc", "admin", "event", "fw", "cmd",
        "pages", "aux",
    ];
    let words: Vec<String> = name_parts(&name.to_lowercase()).map(str::to_owned).collect();
    let has = |wanted: &str| words.iter().any(|word| word.contains(wanted));
    let transmits_only = has("tx") && !has("rx");
    !transmits_only && !OTHER.iter().any(|other| words.iter().any(|word| word.starts_with(other)))
}

/// The parts of an interrupt's name: `ice-ens1f0-TxRx-0` has four.
fn name_parts(name: &str) -> impl Iterator<Item = &str> {
    name.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty())
}

fn interrupt(tree: &Tree, line: &Line) -> Interrupt {
    let dir = format!("/proc/irq/{}", line.number);
    let set = |name: &str| tree.non_empty_text(&format!("{dir}/{name}"));
    let list = set("effective_affinity_list").or_else(|| set("smp_affinity_list")).unwrap_or_default();
    let mut taken: Vec<(u32, u64)> = line.counts.iter().copied().filter(|(_, count)| *count > 0).collect();
    taken.sort_by_key(|(cpu, count)| (u64::MAX - count, *cpu));
    Interrupt {
        number: line.number,
        name: line.name.clone(),
        cpus: lists::parse(&list),
        taken_by: taken.into_iter().map(|(cpu, _)| cpu).collect(),
        writable: tree.writable(&format!("{dir}/smp_affinity_list")),
    }
}

/// The numbered interrupts of /proc/interrupts; its first line names the CPUs.
fn parse(text: &str) -> Vec<Line> {
    let mut lines = text.lines();
    let header = lines.next().unwrap_or_default();
    let cpus: Vec<u32> = header.split_whitespace().filter_map(|name| name.strip_prefix("CPU")?.parse().ok()).collect();
    lines.filter_map(|line| parse_line(line, &cpus)).collect()
}

fn parse_line(line: &str, cpus: &[u32]) -> Option<Line> {
    let (number, rest) = line.trim().split_once(':')?;
    let number = number.parse().ok()?;
    let mut fields = rest.split_whitespace();
    let counts: Vec<(u32, u64)> = cpus.iter().map_while(|&cpu| Some((cpu, fields.next()?.parse().ok()?))).collect();
    Some(Line { number, name: fields.next_back()?.to_owned(), counts })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_drivers_give() {
        for name in [
            "virtio2-input.0",
            "ice-ens1f0-TxRx-3",
            "eth0-TxRx-0",
            "i40e-ens2f1-TxRx-11",
            "mlx5_comp3@pci:0000:41:00.0",
            "eth0-Tx-Rx-0",
            "eth0-rx-1",
            "eth0-rxtx-0",
            "eth0",
        ] {
            assert!(tells_of_packets(name), "{name}");
        }
        for name in [
            "virtio2-output.0",
            "virtio2-config",
            "mlx5_async0@pci:0000:41:00.0",
            "ena-mgmnt@pci:0000:00:05.0",
            "ice-0000:3b:00.0:misc",
            "eth0-tx-0",
            "eth0-fp-event",
        ] {
            assert!(!tells_of_packets(name), "{name}");
        }
    }

    #[test]
    fn lines_have_a_count_for_each_cpu_that_is_online() {
        let text = "           CPU0       CPU2\n 38:          5       1308 PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0\nNMI: 0 0 Non-maskable interrupts\n";
        let lines = parse(text);
        assert_eq!(lines.len(), 1);
        assert_eq!((lines[0].number, lines[0].name.as_str()), (38, "virtio2-input.0"));
        assert_eq!(lines[0].counts, [(0, 5), (2, 1308)]);
    }
}
