//! The output of a section when one property of a machine differs.

use super::super::facts::{Architecture, Chosen, Facts, Ring};
use super::super::report::{Lack, Mark, Row, Section};
use super::super::{actuators, cores, cpu, frequency, idle, limits, network, sensors, storage, wait};
use super::fixture::Fixture;
use super::machines::{Recorded, amd, intel, vm};
use super::{empty, examine};

const CPUS: &str = "/sys/devices/system/cpu";

fn row<'a>(section: &'a Section, item: &str) -> &'a Row {
    section.rows.iter().find(|row| row.item == item).unwrap_or_else(|| panic!("no {item} in {section:#?}"))
}

fn lack<'a>(section: &'a Section, what: &str) -> &'a Lack {
    section.lacks.iter().find(|lack| lack.what == what).unwrap_or_else(|| panic!("no {what} in {section:#?}"))
}

/// A machine of which only these files are known.
fn only(fixture: Fixture) -> Recorded {
    let mut recorded = empty();
    recorded.facts.tree = fixture.tree();
    Recorded { fixture, ..recorded }
}

fn with_cores(cores: &[u32], main: u32) -> Chosen {
    Chosen { cores: cores.to_vec(), main, ..empty().chosen }
}

#[test]
fn the_cost_of_a_software_wake_up_is_measured_or_attributed() {
    let mut recorded = vm();
    let costs = |facts: &Facts| lack(&wait::examine(facts), "umwait").costs.clone();
    assert!(
        costs(&recorded.facts).contains("measured here just now: waker pays 12.6 us"),
        "{}",
        costs(&recorded.facts)
    );
    recorded.facts.wake_up = Err(anyhow::anyhow!("one CPU"));
    assert!(
        costs(&recorded.facts).contains("measured in the design: waker pays 13-15 us"),
        "{}",
        costs(&recorded.facts)
    );
}

#[test]
fn a_mouse_s_battery_is_ignored_and_an_ina3221_is_used() {
    let mouse = [("type", "Battery"), ("scope", "Device"), ("power_now", "1")];
    let chip = [("name", "ina3221"), ("curr1_input", "1250"), ("in1_input", "3312"), ("curr4_input", "1250")];
    let fixture = Fixture::default()
        .files("/sys/class/power_supply/hidpp_battery_0", &mouse)
        .files("/sys/class/hwmon/hwmon0", &chip);
    let section = sensors::examine(&only(fixture).facts);
    assert!(section.rows.iter().all(|row| row.item != "hidpp_battery_0"), "{section:#?}");
    assert_eq!(row(&section, "hwmon").found, "ina3221: curr1_input");
}

#[test]
fn figures_of_a_busy_cpu_are_told_as_such() {
    let mut recorded = vm();
    let mark = |facts: &Facts| row(&wait::examine(facts), "futex wake-up").mark;
    assert_eq!(mark(&recorded.facts), Mark::Ok);
    recorded.facts.wake_up.as_mut().unwrap().busy_percent = 60;
    assert_eq!(mark(&recorded.facts), Mark::Limited);
}

#[test]
fn the_remedy_for_a_hidden_wait_instruction_depends_on_the_cause() {
    let wait_row = |hypervisor: Option<&str>, vendor: &str| {
        let mut recorded = vm();
        recorded.facts.cpu.hypervisor = hypervisor.map(str::to_owned);
        recorded.facts.cpu.vendor = vendor.to_owned();
        let section = wait::examine(&recorded.facts);
        let lack = &section.lacks[0];
        (lack.what.clone(), lack.why.clone(), lack.remedy.join(" "))
    };
    let (what, _, remedy) = wait_row(Some("KVM"), "GenuineIntel");
    assert!(what == "umwait" && remedy.contains("-overcommit cpu-pm=on") && remedy.contains("+waitpkg"), "{remedy}");
    let (what, why, remedy) = wait_row(Some("KVM"), "AuthenticAMD");
    assert!(what == "mwaitx" && why.contains("KVM shows no guest monitorx") && !remedy.contains("cpu-pm"), "{why}");
    let (_, why, remedy) = wait_row(None, "GenuineIntel");
    assert!(why.contains("older than Tremont") && remedy.contains("newer processor"), "{why}");
    let (_, why, _) = wait_row(Some("VMware"), "GenuineIntel");
    assert!(why.starts_with("VMware hides it"), "{why}");
}

#[test]
fn a_umwait_without_limit_and_with_c02_is_good() {
    let section = |max_time: &str, c02: &str| {
        let fixture = Fixture::default()
            .file(&format!("{CPUS}/umwait_control/max_time"), max_time)
            .file(&format!("{CPUS}/umwait_control/enable_c02"), c02);
        let mut recorded = only(fixture);
        recorded.facts.cpu.architecture = Architecture::X86;
        recorded.facts.cpu.waitpkg = true;
        wait::examine(&recorded.facts)
    };
    assert_eq!(section("0", "1").lacks.len(), 0);
    let shallow = section("0", "0");
    assert_eq!(row(&shallow, "umwait depth").mark, Mark::Limited);
    // without the counter's frequency the limit is in cycles
    assert_eq!(row(&section("100000", "1"), "longest umwait").found, "100000 TSC cycles");
}

#[test]
fn arm_waits_by_wfe() {
    let mut recorded = only(Fixture::default());
    recorded.facts.cpu.architecture = Architecture::Arm;
    let section = wait::examine(&recorded.facts);
    assert_eq!((row(&section, "wfe").mark, row(&section, "wfet").mark), (Mark::Ok, Mark::Limited));
    recorded.facts.cpu.wfxt = true;
    assert_eq!(wait::examine(&recorded.facts).lacks.len(), 0);
}

#[test]
fn pairs_are_whole_when_both_siblings_are_chosen() {
    let recorded = intel();
    let pairs = |cores: &[u32]| cores::examine(&recorded.facts, &with_cores(cores, cores[0])).rows[3].clone();
    assert_eq!((pairs(&[0, 4]).mark, pairs(&[0, 4]).found.as_str()), (Mark::Ok, "0+4"));
    assert_eq!(pairs(&[0, 1, 4, 5]).found, "0+4, 1+5");
    assert_eq!(
        (pairs(&[1]).mark, pairs(&[1]).found.as_str()),
        (Mark::Limited, "none whole; core 1 without the siblings 5")
    );
}

#[test]
fn missing_siblings_are_reported_only_under_a_hypervisor() {
    let mut recorded = vm();
    let mark = |facts: &Facts| row(&cores::examine(facts, &with_cores(&[0, 1], 0)), "sibling pairs").mark;
    assert_eq!(mark(&recorded.facts), Mark::Missing);
    recorded.facts.cpu.hypervisor = None;
    assert_eq!(mark(&recorded.facts), Mark::Ok);
}

#[test]
fn isolated_cores_are_good_and_missing_from_masks() {
    let recorded = intel();
    let section = cores::examine(&recorded.facts, &with_cores(&[0, 1, 2], 0));
    assert_eq!(row(&section, "isolation").mark, Mark::Ok);
    let fixture = Fixture::default().files(CPUS, &[("online", "0-3"), ("isolated", "1-3")]);
    let section = cores::examine(&only(fixture).facts, &with_cores(&[0], 0));
    assert_eq!(lack(&section, "allowed").remedy, ["`taskset -c 0-3 pilotlight serve ...`"]);
}

#[test]
fn a_resume_latency_limit_excludes_deep_states() {
    let mut recorded = amd();
    let mark = |facts: &Facts| row(&idle::examine(facts, &with_cores(&[1], 1)), "wake-up bound").mark;
    assert_eq!(mark(&recorded.facts), Mark::Limited);
    recorded.fixture = recorded.fixture.replaced(&format!("{CPUS}/cpu1/power/pm_qos_resume_latency_us"), "20");
    assert_eq!(mark(&recorded.facts), Mark::Ok);
}

#[test]
fn a_disabled_state_is_not_chosen() {
    // C6 is off on core 1 of the recorded machine
    let recorded = intel();
    let section = idle::examine(&recorded.facts, &with_cores(&[1], 1));
    assert_eq!(row(&section, "wake-up bound").found, "no state that takes longer than 2 us to leave");
    assert!(row(&section, "C6").found.ends_with("; disabled"));
}

#[test]
fn the_kernels_command_line_explains_missing_idle_states() {
    let recorded = only(Fixture::default().fixed("/proc/cmdline", "quiet idle=poll panic=1"));
    let section = idle::examine(&recorded.facts, &recorded.chosen);
    assert_eq!(lack(&section, "idle states").why, "`idle=poll` is on the kernel's command line");
}

#[test]
fn haltpoll_is_the_hosts_sleep() {
    let fixture = Fixture::default()
        .fixed(&format!("{CPUS}/cpuidle/current_driver"), "haltpoll")
        .files(&format!("{CPUS}/cpu0/cpuidle/state1"), &[("name", "haltpoll idle"), ("latency", "1")]);
    let recorded = only(fixture);
    let section = idle::examine(&recorded.facts, &recorded.chosen);
    assert_eq!(row(&section, "driver").mark, Mark::Limited);
    assert!(section.rows.iter().all(|row| row.item != "wake-up bound"), "the driver's latencies say nothing");
}

#[test]
fn frequencies_without_a_driver_have_a_reason() {
    let recorded = only(Fixture::default());
    let section = frequency::examine(&recorded.facts, &recorded.chosen);
    assert!(lack(&section, "frequency").why.starts_with("no cpufreq driver"));
}

#[test]
fn queues_off_the_workers_are_good() {
    let recorded = vm();
    let mark = |main, cores: &[u32]| row(&network::examine(&recorded.facts, &with_cores(cores, main)), "eth0").mark;
    assert_eq!(mark(0, &[0, 1]), Mark::Limited, "its interrupt lands on worker 1");
    assert_eq!(mark(1, &[0, 1]), Mark::Ok, "on the main core");
    assert_eq!(mark(0, &[0]), Mark::Ok, "on a CPU that the server does not use");
}

#[test]
fn packets_steered_to_workers_are_reported() {
    let recorded = amd();
    let section = network::examine(&recorded.facts, &with_cores(&[0, 3], 0));
    let remedy = lack(&section, "eth0").remedy.join("\n");
    assert!(remedy.contains("rps_cpus") && !remedy.contains("smp_affinity_list"), "{remedy}");
    assert_eq!(row(&network::examine(&recorded.facts, &with_cores(&[0, 4], 0)), "eth0").mark, Mark::Ok);
}

#[test]
fn aio_has_room_or_says_what_to_write() {
    let mut recorded = intel();
    recorded.chosen.files = Some(1);
    let aio = |recorded: &Recorded| storage::examine(&recorded.facts, &recorded.chosen);
    assert_eq!(row(&aio(&recorded), "Linux AIO").mark, Mark::Ok);
    recorded.chosen.files = Some(32);
    let section = aio(&recorded);
    // 2048 taken, and twice 8 x 32 x 256
    assert_eq!(lack(&section, "Linux AIO").remedy[0], "`sysctl -w fs.aio-max-nr=133120`");
}

#[test]
fn missing_io_uring_features_are_listed() {
    let mut recorded = intel();
    recorded.facts.ring = Ok(Ring { coop_taskrun: true, single_issuer: false, defer_taskrun: false });
    let section = storage::examine(&recorded.facts, &recorded.chosen);
    let found = &row(&section, "io_uring").found;
    assert!(found.contains("with COOP_TASKRUN; not SINGLE_ISSUER (Linux 6.0), DEFER_TASKRUN (Linux 6.1)"), "{found}");
}

#[test]
fn the_boot_cpu_cannot_be_taken_offline() {
    let recorded = intel();
    let mark =
        |cores: &[u32], main| row(&actuators::examine(&recorded.facts, &with_cores(cores, main)), "hotplug").mark;
    assert_eq!((mark(&[0, 1], 0), mark(&[0, 1], 1)), (Mark::Ok, Mark::Limited));
}

#[test]
fn the_remedy_under_cgroup_v2_is_a_separate_group() {
    let fixture = Fixture::default()
        .fixed("/proc/self/mountinfo", "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw")
        .fixed("/proc/self/cgroup", "0::/");
    let recorded = only(fixture);
    let section = actuators::examine(&recorded.facts, &recorded.chosen);
    let remedy = &lack(&section, "CPU quota").remedy;
    assert!(remedy.len() == 1 && remedy[0].contains("Delegate=cpu"), "{remedy:?}");
}

#[test]
fn the_hard_limit_of_open_files_counts() {
    let mut recorded = amd();
    let mut chosen = recorded.chosen.clone();
    assert_eq!(limits::examine(&recorded.facts, &chosen).rows[0].mark, Mark::Limited);
    chosen.max_connections = 1000;
    assert_eq!(limits::examine(&recorded.facts, &chosen).rows[0].mark, Mark::Ok);
    chosen.max_connections = 16_384;
    recorded.facts.raises_limits = true;
    assert_eq!(limits::examine(&recorded.facts, &chosen).rows[0].mark, Mark::Ok, "`serve` raises it by itself");
}

#[test]
fn this_machine_can_be_examined() {
    let mut recorded = empty();
    recorded.facts.tree = super::super::tree::Tree::live();
    recorded.facts.cpu = cpu::this(&recorded.facts.tree);
    let report = examine(&recorded.facts, &recorded.chosen);
    assert_eq!(report.sections.len(), 9);
}
