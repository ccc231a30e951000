//! Frequency control: the driver, the limits, and the permissions of this process.

use std::collections::BTreeMap;

use serde_json::json;

use super::facts::{Chosen, Facts};
use super::lists::{self, cpus};
use super::report::{Reason, Section};
use super::tree::Tree;

const CPUFREQ: &str = "/sys/devices/system/cpu/cpufreq";
const COSTS: &str = "policies that set frequencies (SPDK's Governor, PACER, ondemand) are refused or do nothing here; policies that \
                     let cores sleep need none of it";

/// The settings of a policy (a group of CPUs with one clock). Equal policies are merged.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Setting {
    driver: String,
    governor: String,
    /// User limits in kHz.
    allowed_khz: [u64; 2],
    /// Hardware limits in kHz.
    hardware_khz: [u64; 2],
    /// Energy performance preference, where the driver has one.
    preference: Option<String>,
    /// Transition latency in ns, if the driver reports it.
    transition_ns: Option<u64>,
    writable: bool,
}

pub(super) fn examine(facts: &Facts, chosen: &Chosen) -> Section {
    let mut section = Section::new("frequency", "Frequency control");
    let settings = settings(&facts.tree, &chosen.cores);
    if settings.is_empty() {
        none(&mut section, facts);
        return section;
    }
    for (setting, cores) in &settings {
        list(&mut section, setting, cores);
    }
    boost(&mut section, &facts.tree);
    section
}

fn settings(tree: &Tree, cores: &[u32]) -> BTreeMap<Setting, Vec<u32>> {
    let mut settings: BTreeMap<Setting, Vec<u32>> = BTreeMap::new();
    for (policy, _) in tree.numbered(CPUFREQ, "policy") {
        let dir = format!("{CPUFREQ}/{policy}");
        let list = tree.text(&format!("{dir}/related_cpus")).unwrap_or_default();
        // the kernel separates them by spaces
        let theirs = lists::parse(&list.split_whitespace().collect::<Vec<_>>().join(","));
        let ours = lists::intersection(&theirs, cores);
        if !ours.is_empty() {
            settings.entry(setting(tree, &dir)).or_default().extend(ours);
        }
    }
    settings.values_mut().for_each(|cores| cores.sort_unstable());
    settings
}

fn setting(tree: &Tree, dir: &str) -> Setting {
    let text = |name: &str| tree.non_empty_text(&format!("{dir}/{name}"));
    let khz = |name: &str| tree.number(&format!("{dir}/{name}")).unwrap_or(0);
    Setting {
        driver: text("scaling_driver").unwrap_or_else(|| "unknown".to_owned()),
        governor: text("scaling_governor").unwrap_or_else(|| "unknown".to_owned()),
        allowed_khz: [khz("scaling_min_freq"), khz("scaling_max_freq")],
        hardware_khz: [khz("cpuinfo_min_freq"), khz("cpuinfo_max_freq")],
        preference: text("energy_performance_preference"),
        // 2^32 - 1: unknown to the driver (CPUFREQ_ETERNAL)
        transition_ns: tree.number(&format!("{dir}/cpuinfo_transition_latency")).filter(|&ns| ns < u64::from(u32::MAX)),
        writable: tree.writable(&format!("{dir}/scaling_max_freq")),
    }
}

fn list(section: &mut Section, setting: &Setting, cores: &[u32]) {
    let item = cpus(cores);
    let preference = setting.preference.as_ref().map_or(String::new(), |word| format!(", energy preference {word}"));
    let transition = setting.transition_ns.filter(|ns| *ns > 0);
    let transition = transition.map_or(String::new(), |ns| format!("; a change takes {} us", ns.div_ceil(1000)));
    let found = format!(
        "{}, governor {}{preference}; {} of {} allowed{transition}",
        setting.driver,
        setting.governor,
        mhz(setting.allowed_khz),
        mhz(setting.hardware_khz),
    );
    let value = json!({
        "driver": setting.driver,
        "governor": setting.governor,
        "energy_performance_preference": setting.preference,
        "min_khz": setting.allowed_khz[0],
        "max_khz": setting.allowed_khz[1],
        "hardware_min_khz": setting.hardware_khz[0],
        "hardware_max_khz": setting.hardware_khz[1],
        "transition_ns": setting.transition_ns,
        "writable": setting.writable,
        "cpus": cores,
    });
    if setting.writable {
        return section.ok(item, found, value);
    }
    let remedy = [
        "run as root, or give the server's user the files: `chgrp GROUP` and `chmod g+w` on scaling_min_freq, \
         scaling_max_freq and scaling_governor of each policy, at boot (tmpfiles.d)",
        "in a container: /sys is mounted read-only there",
    ];
    let reason =
        Reason { why: "this process may not write scaling_max_freq of these cores", costs: COSTS, remedy: &remedy };
    section.limited(item, format!("{found}; not writable"), value, reason);
}

/// Whether frequencies above the nominal one are enabled: `boost` of most drivers, `no_turbo` of intel_pstate.
fn boost(section: &mut Section, tree: &Tree) {
    let on = |file: &str| tree.number::<u32>(file).map(|value| value != 0);
    let turbo = "/sys/devices/system/cpu/intel_pstate/no_turbo";
    let boost = on(&format!("{CPUFREQ}/boost")).or_else(|| on(turbo).map(|off| !off));
    let value = json!({ "boost": boost });
    match boost {
        Some(true) => section.ok("boost", "on", value),
        Some(false) => section.ok("boost", "off: clocks stay at the nominal frequency", value),
        None => section.ok("boost", "not reported by this driver", value),
    }
}

fn none(section: &mut Section, facts: &Facts) {
    let value = json!({ "driver": null });
    let Some(name) = &facts.cpu.hypervisor else {
        let reason = Reason {
            why: "no cpufreq driver: the firmware keeps frequencies to itself, or the driver is not loaded",
            costs: COSTS,
            remedy: &[
                "in the firmware's settings let the operating system manage power",
                "`modprobe acpi-cpufreq` (intel_pstate and amd_pstate are built in where kernels have them)",
            ],
        };
        return section.missing("frequency", "no control", value, reason);
    };
    let why = format!("{name} leaves frequencies to the host and shows the guest no cpufreq driver");
    let reason =
        Reason { why: &why, costs: COSTS, remedy: &["set frequencies on the host, or run on the machine itself"] };
    section.missing("frequency", "no control", value, reason);
}

/// `800-3500 MHz`.
fn mhz(khz: [u64; 2]) -> String {
    format!("{}-{} MHz", khz[0] / 1000, khz[1] / 1000)
}
