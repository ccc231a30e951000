//! Sensors of power and energy.

use serde_json::json;

use super::facts::Facts;
use super::report::{Reason, Section};
use super::tree::Tree;

const POWERCAP: &str = "/sys/class/powercap";
const HWMON: &str = "/sys/class/hwmon";
const SUPPLY: &str = "/sys/class/power_supply";
const IPMI: [&str; 3] = ["/dev/ipmi0", "/dev/ipmi/0", "/dev/ipmidev/0"];

/// A zone of RAPL: a package, or a part of one.
pub(super) struct Zone {
    /// The directory.
    pub(super) dir: String,
    /// `package-0`, `dram`.
    pub(super) name: String,
}

/// RAPL's zones (AMD's are named `intel-rapl` as well).
pub(super) fn zones(tree: &Tree) -> Vec<Zone> {
    let names = tree.names(POWERCAP).into_iter().filter(|name| name.starts_with("intel-rapl:"));
    let zone = |name: String| {
        let dir = format!("{POWERCAP}/{name}");
        Some(Zone { name: tree.non_empty_text(&format!("{dir}/name"))?, dir })
    };
    names.filter_map(zone).collect()
}

pub(super) fn examine(facts: &Facts) -> Section {
    let mut section = Section::new("sensors", "Sensors");
    rapl(&mut section, facts);
    hwmon(&mut section, &facts.tree);
    ipmi(&mut section, facts);
    battery(&mut section, &facts.tree);
    section
}

fn rapl(section: &mut Section, facts: &Facts) {
    let item = "RAPL";
    let zones = zones(&facts.tree);
    if zones.is_empty() {
        return no_rapl(section, facts, item);
    }
    let readable = |zone: &Zone| facts.tree.readable(&format!("{}/energy_uj", zone.dir));
    let closed = zones.iter().filter(|zone| !readable(zone)).count();
    let names: Vec<&str> = zones.iter().map(|zone| zone.name.as_str()).collect();
    let value = json!({ "zones": names, "readable": closed == 0 });
    let list = format!("{} (energy in uJ)", names.join(", "));
    if closed == 0 {
        return section.ok(item, list, value);
    }
    let reason = Reason {
        why: "energy_uj is readable by root alone since Linux 5.10, as it can leak secrets (CVE-2020-8694)",
        costs: "no measured power of the processor: tables show `modelled`",
        remedy: &[
            "run as root, or give the server's user the files at boot (`chgrp`, `chmod g+r`, tmpfiles.d) where no \
                   stranger runs code",
        ],
    };
    section.limited(item, format!("{list}, not readable"), value, reason);
}

fn no_rapl(section: &mut Section, facts: &Facts, item: &str) {
    let why = match &facts.cpu.hypervisor {
        Some(name) => {
            format!("{name} does not pass RAPL's registers to this guest: a guest's share of a package is not measured")
        }
        None => "no powercap zones: the kernel's intel_rapl_msr is not loaded, or the processor has no RAPL".to_owned(),
    };
    let remedy: &[&str] = match facts.cpu.hypervisor {
        Some(_) => &["measure on the host, or outside (a meter at the plug)"],
        None => &["`modprobe intel_rapl_msr` (AMD Zen as well)"],
    };
    let costs = "no measured power of the processor: tables show power `modelled` from a profile";
    section.missing(item, "none", json!({ "zones": [] }), Reason { why: &why, costs, remedy });
}

/// Chips with power (uW) or energy (uJ), or with current and voltage of the same rails.
fn hwmon(section: &mut Section, tree: &Tree) {
    let chips: Vec<(String, Vec<String>)> = tree.names(HWMON).iter().filter_map(|chip| power_of(tree, chip)).collect();
    let value = json!({
        "chips": chips.iter().map(|(name, files)| json!({ "name": name, "files": files })).collect::<Vec<_>>(),
    });
    let text: Vec<String> = chips.iter().map(|(name, files)| format!("{name}: {}", files.join(", "))).collect();
    if !chips.is_empty() {
        return section.ok("hwmon", text.join("; "), value);
    }
    let reason = Reason {
        why: "no chip that the kernel knows measures power or energy",
        costs: "no measured power of the whole system from this source",
        remedy: &[
            "with an ACPI power meter in the firmware: `modprobe acpi_power_meter`; else IPMI or a meter at the plug",
        ],
    };
    section.missing("hwmon", "no power or energy", value, reason);
}

fn power_of(tree: &Tree, chip: &str) -> Option<(String, Vec<String>)> {
    let dir = format!("{HWMON}/{chip}");
    let name = tree.non_empty_text(&format!("{dir}/name")).unwrap_or_else(|| chip.to_owned());
    let measures = |file: &String| {
        (file.starts_with("power") && (file.ends_with("_average") || file.ends_with("_input")))
            || (file.starts_with("energy") && file.ends_with("_input"))
            || (name == "ina3221" && ["curr1_input", "curr2_input", "curr3_input"].contains(&&**file))
    };
    let files: Vec<String> = tree.names(&dir).into_iter().filter(measures).collect();
    (!files.is_empty()).then_some((name, files))
}

fn ipmi(section: &mut Section, facts: &Facts) {
    let Some(device) = IPMI.iter().find(|device| facts.tree.has(device)) else {
        let (why, remedy) = if facts.cpu.hypervisor.is_some() {
            ("a guest sees no management controller", "measure on the host, or outside (a meter at the plug)")
        } else {
            let why = "no management controller, or the kernel's drivers are not loaded";
            (why, "on a server: `modprobe -a ipmi_si ipmi_devintf`")
        };
        let costs = "no measured power of the whole system from this source (DCMI power reading)";
        let reason = Reason { why, costs, remedy: &[remedy] };
        return section.missing("IPMI", "no device", json!({ "device": null }), reason);
    };
    let value = json!({ "device": device });
    if facts.tree.readable(device) && facts.tree.writable(device) {
        return section.ok("IPMI", format!("{device} (whole system, if it has DCMI power reading)"), value);
    }
    let reason = Reason {
        why: "the device belongs to root",
        costs: "no measured power of the whole system from this source (DCMI power reading)",
        remedy: &["run as root, or give the server's user the device (a udev rule)"],
    };
    section.limited("IPMI", format!("{device}, not open to this process"), value, reason);
}

/// A battery measures the whole machine, while it is not charging. Batteries of peripherals have the scope `Device`.
fn battery(section: &mut Section, tree: &Tree) {
    let says = |name: &str, file: &str| tree.text(&format!("{SUPPLY}/{name}/{file}"));
    let is = |name: &String| {
        says(name, "type").as_deref() == Some("Battery") && says(name, "scope").as_deref() != Some("Device")
    };
    let has = |name: &str, file: &str| tree.has(&format!("{SUPPLY}/{name}/{file}"));
    for name in tree.names(SUPPLY).into_iter().filter(is) {
        let measures = has(&name, "power_now") || (has(&name, "current_now") && has(&name, "voltage_now"));
        let text =
            if measures { "measures the whole machine while it runs on it" } else { "does not report its power" };
        section.ok(&name, text, json!({ "measures_power": measures }));
    }
}
