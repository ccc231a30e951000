//! Wait instructions: whether a store can wake a sleeping core, and the cost of other wake-ups.

use std::time::Duration;

use serde_json::json;

use super::facts::{Architecture, Cpu, Facts, WakeUp};
use super::report::{Reason, Section};

const UMWAIT: &str = "/sys/devices/system/cpu/umwait_control";
/// Design figures of a software wake-up, used if none could be measured.
const MEASURED_ELSEWHERE: &str =
    "measured in the design: waker pays 13-15 us, sleeper back after 37-46 us, p99 up to 300 us";

/// Load of the sleeper's CPU from which the figures are unreliable.
const BUSY_PERCENT: u32 = 20;

pub(super) fn examine(facts: &Facts) -> Section {
    let mut section = Section::new("wait", "Wait instructions");
    match facts.cpu.architecture {
        Architecture::X86 => x86(&mut section, facts),
        Architecture::Arm => arm(&mut section, facts),
        Architecture::Other => nothing(&mut section, facts),
    }
    software(&mut section, facts);
    section
}

/// Either is sufficient: no processor has both.
fn x86(section: &mut Section, facts: &Facts) {
    let cpu = &facts.cpu;
    if cpu.waitpkg {
        section.ok("umwait", "offered (waitpkg): a store by the waker ends the wait", json!({ "offered": true }));
        umwait_limits(section, facts);
    }
    if cpu.monitorx {
        section.ok("mwaitx", "offered (monitorx): a store by the waker ends the wait", json!({ "offered": true }));
    }
    if !cpu.waitpkg && !cpu.monitorx {
        absent(section, facts);
    }
}

fn absent(section: &mut Section, facts: &Facts) {
    let amd = facts.cpu.vendor.contains("AMD") || facts.cpu.vendor.contains("Hygon");
    let (item, found) = if amd {
        ("mwaitx", "not offered: monitorx (CPUID leaf 8000_0001h, ECX bit 29) is 0")
    } else {
        ("umwait", "not offered: waitpkg (CPUID leaf 7, ECX bit 5) is 0")
    };
    let why = why_absent(&facts.cpu, amd);
    let costs = costs(facts);
    let remedy = remedy_absent(&facts.cpu, amd);
    section.missing(item, found, json!({ "offered": false }), Reason { why: &why, costs: &costs, remedy: &remedy });
}

fn why_absent(cpu: &Cpu, amd: bool) -> String {
    match (&cpu.hypervisor, amd) {
        (Some(name), true) if name == "KVM" => {
            "KVM shows no guest monitorx: it is not among the CPUID bits that KVM passes on".to_owned()
        }
        (Some(name), _) => format!("{name} hides it from this guest, or the host's processor has none"),
        (None, true) => "this processor is older than Excavator and Zen, the first with monitorx".to_owned(),
        (None, false) => {
            "this processor is older than Tremont, Alder Lake and Sapphire Rapids, the first with waitpkg".to_owned()
        }
    }
}

fn remedy_absent(cpu: &Cpu, amd: bool) -> Vec<&'static str> {
    let bare = "or run on the machine itself, without a hypervisor";
    match (cpu.hypervisor.as_deref(), amd) {
        (Some("KVM"), false) => vec![
            "on the host, if its processor has waitpkg: `-cpu host -overcommit cpu-pm=on` (QEMU; with a named model add \
             `+waitpkg`), a host core for each virtual one: a waiting guest then keeps its core. Firecracker always hides it",
            bare,
        ],
        (Some(_), true) => vec!["run on the machine itself, without a hypervisor"],
        (Some(_), false) => vec!["ask the operator of the host to enable waitpkg for the guest", bare],
        (None, _) => vec!["a newer processor; software-wait works until then"],
    }
}

/// The cost of sleep without a wait instruction, measured here if possible.
fn costs(facts: &Facts) -> String {
    let figures = match &facts.wake_up {
        Ok(wake_up) => format!(
            "measured here just now{}: waker pays {}, sleeper back after {} (median), {} (p99)",
            if wake_up.busy_percent < BUSY_PERCENT { "" } else { ", under other load" },
            us(wake_up.waker[0]),
            us(wake_up.back[0]),
            us(wake_up.back[1])
        ),
        Err(_) => MEASURED_ELSEWHERE.to_owned(),
    };
    format!(
        "cores sleep in the kernel instead (software-wait) and every wake-up is a system call and an interrupt: {figures}"
    )
}

fn nothing(section: &mut Section, facts: &Facts) {
    let costs = costs(facts);
    let reason = Reason {
        why: "Pilotlight knows wait instructions on x86-64 and 64-bit Arm only",
        costs: &costs,
        remedy: &["none on this processor; software-wait works"],
    };
    section.missing("wait instruction", "none known", json!({ "offered": false }), reason);
}

fn arm(section: &mut Section, facts: &Facts) {
    section.ok("wfe", "offered: a store to the monitored line ends the wait", json!({ "offered": true }));
    if facts.cpu.wfxt {
        return section.ok("wfet", "offered (wfxt): the wait has a deadline", json!({ "offered": true }));
    }
    let reason = Reason {
        why: "the processor has no FEAT_WFxT (Armv8.7), or a hypervisor hides it",
        costs: "a wait ends only by a store, an interrupt, or the kernel's event stream: a core looks at its deadlines \
                each time the event stream wakes it",
        remedy: &["a processor with FEAT_WFxT; `wfe` works until then"],
    };
    section.limited("wfet", "not offered: wfxt is not among the features", json!({ "offered": false }), reason);
}

/// Maximum duration and depth of `umwait`: the kernel's setting of IA32_UMWAIT_CONTROL.
fn umwait_limits(section: &mut Section, facts: &Facts) {
    match facts.tree.number::<u64>(&format!("{UMWAIT}/max_time")) {
        Some(cycles) => longest(section, facts, cycles),
        None => section.ok("longest umwait", "not reported by this kernel", json!({ "max_cycles": null })),
    }
    let deeper = facts.tree.text(&format!("{UMWAIT}/enable_c02"));
    let value = json!({ "c02": deeper.as_deref() == Some("1") });
    match deeper.as_deref() {
        Some("1") => section.ok("umwait depth", "C0.1 and C0.2", value),
        None => section.ok("umwait depth", "not reported by this kernel", value),
        Some(_) => {
            let reason = Reason {
                why: "the kernel has C0.2 switched off (enable_c02 is 0)",
                costs: "every umwait is the lighter C0.1: faster out, and less saved",
                remedy: &["`echo 1 > /sys/devices/system/cpu/umwait_control/enable_c02`"],
            };
            section.limited("umwait depth", "C0.1 only", value, reason);
        }
    }
}

fn longest(section: &mut Section, facts: &Facts, cycles: u64) {
    let item = "longest umwait";
    let value = |us: Option<u64>| json!({ "max_cycles": cycles, "max_us": us });
    if cycles == 0 {
        return section.ok(item, "no limit", value(None));
    }
    let Some(khz) = facts.cpu.tsc_khz else {
        return bounded(
            section,
            &format!("{cycles} TSC cycles"),
            "a sleeping core wakes that often for nothing",
            value(None),
        );
    };
    let wait_us = cycles * 1000 / khz.max(1);
    let found = format!("{cycles} TSC cycles = {wait_us} us");
    let costs = format!("a sleeping core wakes for nothing about {} times a second", khz * 1000 / cycles);
    bounded(section, &found, &costs, value(Some(wait_us)));
}

fn bounded(section: &mut Section, found: &str, costs: &str, value: serde_json::Value) {
    let reason = Reason {
        why: "the kernel bounds every umwait (IA32_UMWAIT_CONTROL; 100000 cycles by default)",
        costs,
        remedy: &["no limit: `echo 0 > /sys/devices/system/cpu/umwait_control/max_time`"],
    };
    section.limited("longest umwait", found, value, reason);
}

/// The software wake-up: always available, and used by `server-sleep` even with a wait instruction.
fn software(section: &mut Section, facts: &Facts) {
    let item = "futex wake-up";
    match &facts.wake_up {
        Ok(wake_up) if wake_up.busy_percent >= BUSY_PERCENT => {
            let why = format!("CPU {} was {} % busy with other work meanwhile", wake_up.cpus[1], wake_up.busy_percent);
            let reason = Reason {
                why: &why,
                costs: "the figures are not those of a sleeping core: there was no idle state to leave, and other work delayed it",
                remedy: &["run it again while the machine is quiet"],
            };
            section.limited(item, measured(wake_up), wake_up_json(wake_up), reason);
        }
        Ok(wake_up) => section.ok(item, measured(wake_up), wake_up_json(wake_up)),
        Err(why) => section.ok(item, format!("not measured: {why}"), json!({ "samples": 0 })),
    }
}

fn measured(wake_up: &WakeUp) -> String {
    format!(
        "sleeper back after {} (median), {} (p99); waker pays {}, {}; {} wake-ups from CPU {} to CPU {}, each after {} us \
         of sleep",
        us(wake_up.back[0]),
        us(wake_up.back[1]),
        us(wake_up.waker[0]),
        us(wake_up.waker[1]),
        wake_up.samples,
        wake_up.cpus[0],
        wake_up.cpus[1],
        wake_up.asleep.as_micros()
    )
}

fn wake_up_json(wake_up: &WakeUp) -> serde_json::Value {
    let ns = |duration: Duration| duration.as_nanos() as u64;
    json!({
        "samples": wake_up.samples,
        "asleep_us": wake_up.asleep.as_micros() as u64,
        "back_p50_ns": ns(wake_up.back[0]),
        "back_p99_ns": ns(wake_up.back[1]),
        "waker_p50_ns": ns(wake_up.waker[0]),
        "waker_p99_ns": ns(wake_up.waker[1]),
        "waker_cpu": wake_up.cpus[0],
        "sleeper_cpu": wake_up.cpus[1],
        "sleeper_cpu_busy_percent": wake_up.busy_percent,
    })
}

fn us(duration: Duration) -> String {
    format!("{:.1} us", duration.as_nanos() as f64 / 1e3)
}
