//! Three machines: an Intel server, an AMD server, a bare virtual machine.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::facts::{Architecture, Chosen, Coalescing, Cpu, Facts, Limit, PowerState, Ring, WakeUp};
use super::fixture::Fixture;

const CPUS: &str = "/sys/devices/system/cpu";
const V2: &str = "30 24 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate";

/// A recorded machine, and the server to check for.
pub(super) struct Recorded {
    /// Owner of the tree.
    pub(super) fixture: Fixture,
    pub(super) facts: Facts,
    pub(super) chosen: Chosen,
}

/// Sapphire Rapids, two packages of two cores with two hyper-threads each (siblings are N and N + 4), with typical
/// server features: waitpkg, C-states, intel_pstate, a 25 Gbit/s interface with four queues, RAPL, IPMI, a drive.
pub(super) fn intel() -> Recorded {
    let mut fixture = processors(&[(0, 0, "0,4"), (1, 0, "1,5"), (2, 1, "2,6"), (3, 1, "3,7")]);
    fixture = more_processors(fixture, &[(4, 0, "0,4"), (5, 0, "1,5"), (6, 1, "2,6"), (7, 1, "3,7")])
        .files(CPUS, &[("online", "0-7"), ("isolated", "1-3"), ("nohz_full", "1-3"), ("smt/control", "on")])
        .fixed("/sys/devices/system/node/node0/cpulist", "0-1,4-5")
        .fixed("/sys/devices/system/node/node1/cpulist", "2-3,6-7")
        .file(&format!("{CPUS}/umwait_control/max_time"), "100000")
        .file(&format!("{CPUS}/umwait_control/enable_c02"), "1")
        .files(&format!("{CPUS}/cpuidle"), &[("current_driver", "intel_idle"), ("current_governor", "menu")])
        .file(&format!("{CPUS}/intel_pstate/no_turbo"), "0");
    for cpu in 0..8 {
        fixture = idle(fixture, cpu, &[("POLL", 0, 0), ("C1", 1, 1), ("C1E", 2, 4), ("C6", 290, 800)]);
        fixture = fixture.file(&format!("{CPUS}/cpu{cpu}/power/pm_qos_resume_latency_us"), "0");
        fixture = policy(fixture, cpu, "intel_pstate", "powersave", [800_000, 4_000_000], 0o644)
            .file(&format!("{CPUS}/cpufreq/policy{cpu}/energy_performance_preference"), "balance_performance");
    }
    let fixture = fixture
        // state 3 (C6) is disabled on core 1 only
        .file(&format!("{CPUS}/cpu1/cpuidle/state3/disable"), "1")
        .fixed("/proc/sys/kernel/osrelease", "6.12.9")
        .files("/proc/sys/fs", &[("aio-nr", "2048"), ("aio-max-nr", "65536")])
        .fixed("/proc/self/mountinfo", V2)
        .fixed("/proc/self/cgroup", "0::/system.slice/pilotlight.service")
        .file("/sys/fs/cgroup/system.slice/pilotlight.service/cpu.max", "max 100000")
        .file("/sys/fs/cgroup/system.slice/pilotlight.service/cgroup.procs", "")
        .fixed("/sys/fs/cgroup/system.slice/pilotlight.service/cgroup.controllers", "cpu pids")
        .file("/dev/ipmi0", "");
    let fixture = nic(rapl(hwmon(drive(fixture))));
    let mut facts = facts(&fixture, cpu("GenuineIntel", "Intel(R) Xeon(R) Gold 6442Y", None), 8);
    facts.cpu.waitpkg = true;
    facts.cpu.tsc_khz = Some(2_600_000);
    facts.wake_up = Ok(wake_up([6_200, 9_800], [1_400, 2_900]));
    facts.coalescing = BTreeMap::from([("ens1f0".to_owned(), Coalescing { rx_us: 50, rx_frames: 0, adaptive: true })]);
    facts.power_states = BTreeMap::from([(
        "nvme0".to_owned(),
        vec![
            PowerState { max_uw: 25_000_000, non_operational: false, entry_us: 0, exit_us: 0 },
            PowerState { max_uw: 5_000, non_operational: true, entry_us: 210, exit_us: 1_200 },
        ],
    )]);
    let chosen = Chosen {
        cores: vec![0, 1, 2, 4],
        main: 0,
        by: "the configuration chooses",
        io_threads: 8,
        files: Some(12),
        max_connections: 16_384,
    };
    Recorded { fixture, facts, chosen }
}

/// An EPYC with monitorx, one package of four cores with two hyper-threads each (siblings are N and N + 4), read by a
/// user without write permission.
pub(super) fn amd() -> Recorded {
    let mut fixture = processors(&[(0, 0, "0,4"), (1, 0, "1,5"), (2, 0, "2,6"), (3, 0, "3,7")]);
    fixture = more_processors(fixture, &[(4, 0, "0,4"), (5, 0, "1,5"), (6, 0, "2,6"), (7, 0, "3,7")])
        .files(CPUS, &[("online", "0-7"), ("isolated", ""), ("smt/control", "on"), ("cpufreq/boost", "1")])
        .fixed("/sys/devices/system/node/node0/cpulist", "0-7")
        .files(&format!("{CPUS}/cpuidle"), &[("current_driver", "acpi_idle"), ("current_governor_ro", "menu")]);
    for cpu in 0..8 {
        fixture = idle(fixture, cpu, &[("POLL", 0, 0), ("C1", 1, 2), ("C2", 800, 1600)]);
        fixture = fixture.fixed(&format!("{CPUS}/cpu{cpu}/power/pm_qos_resume_latency_us"), "0");
        fixture = policy(fixture, cpu, "acpi-cpufreq", "performance", [400_000, 3_650_000], 0o444);
    }
    let fixture = fixture
        .fixed("/proc/sys/kernel/osrelease", "5.14.0")
        .fixed("/proc/sys/kernel/io_uring_disabled", "2")
        .files("/proc/sys/fs", &[("aio-nr", "61440"), ("aio-max-nr", "65536")])
        .fixed("/proc/self/mountinfo", V2)
        .fixed("/proc/self/cgroup", "0::/user.slice")
        .fixed("/sys/fs/cgroup/user.slice/cpu.max", "200000 100000")
        .fixed("/sys/fs/cgroup/user.slice/cgroup.procs", "")
        .fixed("/sys/fs/cgroup/user.slice/cgroup.controllers", "cpu memory")
        .with_mode("/dev/ipmi0", "", 0)
        .files("/sys/class/powercap/intel-rapl:0", &[("name", "package-0")])
        .with_mode("/sys/class/powercap/intel-rapl:0/energy_uj", "1", 0)
        .files("/sys/class/net/lo", &[("flags", "0x9"), ("operstate", "unknown")])
        .files("/sys/class/net/eth1", &[("flags", "0x1002"), ("operstate", "down")]);
    let fixture = mlx5(fixture);
    let mut facts = facts(&fixture, cpu("AuthenticAMD", "AMD EPYC 9454P 48-Core Processor", None), 6);
    facts.cpu.monitorx = true;
    facts.wake_up = Ok(wake_up([9_100, 812_000], [1_900, 4_400]));
    facts.ring = Err(anyhow::anyhow!("operation not permitted"));
    facts.open_files = Limit { soft: Some(1024), hard: Some(4096) };
    let chosen = on_all(&facts);
    Recorded { fixture, facts, chosen }
}

/// Two virtual CPUs and a virtio interface under KVM, with few other features.
pub(super) fn vm() -> Recorded {
    let interrupts = "\
           CPU0       CPU1
 24:          1          0  IO-APIC   5-edge      ACPI:Ged
 37:          0          0 PCI-MSIX-0000:00:03.0   0-edge      virtio2-config
 38:          0       1308 PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0
 39:        870          0 PCI-MSIX-0000:00:03.0   2-edge      virtio2-output.0
NMI:          0          0   Non-maskable interrupts";
    let fixture = processors(&[(0, 0, "0"), (1, 0, "1")])
        .files(CPUS, &[("online", "0-1"), ("isolated", ""), ("smt/control", "notsupported")])
        .fixed("/sys/devices/system/node/node0/cpulist", "0-1")
        .files(&format!("{CPUS}/cpuidle"), &[("current_driver", "none"), ("current_governor", "menu")])
        .file(&format!("{CPUS}/cpu0/power/pm_qos_resume_latency_us"), "0")
        .file(&format!("{CPUS}/cpu1/power/pm_qos_resume_latency_us"), "0")
        .fixed("/proc/sys/kernel/osrelease", "6.18.44")
        .fixed("/proc/sys/kernel/io_uring_disabled", "0")
        .files("/proc/sys/fs", &[("aio-nr", "0"), ("aio-max-nr", "65536")])
        .fixed("/proc/cmdline", "console=ttyS0 reboot=k panic=1")
        .fixed("/proc/self/mountinfo", "31 24 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu")
        .fixed("/proc/self/cgroup", "1:cpu:/\n0::/")
        .fixed("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1")
        .fixed("/proc/interrupts", interrupts)
        .files("/sys/class/net/eth0", &[("flags", "0x1003"), ("operstate", "up"), ("speed", "-1")])
        .files("/sys/class/net/eth0/queues", &[("rx-0/rps_cpus", "0"), ("tx-0/xps_cpus", "0")])
        .link("/sys/class/net/eth0/device", "/sys/devices/pci0000:00/0000:00:03.0/virtio2")
        .dir("/sys/bus/virtio/drivers/virtio_net")
        .link("/sys/devices/pci0000:00/0000:00:03.0/virtio2/driver", "/sys/bus/virtio/drivers/virtio_net")
        .files("/sys/devices/pci0000:00/0000:00:03.0/msi_irqs", &[("37", "msix"), ("38", "msix"), ("39", "msix")])
        .fixed("/proc/irq/38/effective_affinity_list", "1")
        .file("/proc/irq/38/smp_affinity_list", "0-1")
        .files("/sys/class/net/ifb0", &[("flags", "0x82"), ("operstate", "down")])
        .files("/sys/class/net/lo", &[("flags", "0x9"), ("operstate", "unknown")]);
    let mut facts = facts(&fixture, cpu("GenuineIntel", "Intel(R) Xeon(R) Processor", Some("KVM")), 2);
    facts.wake_up = Ok(wake_up([30_000, 56_000], [12_600, 23_600]));
    facts.coalescing = BTreeMap::from([("eth0".to_owned(), Coalescing { rx_us: 0, rx_frames: 1, adaptive: false })]);
    facts.open_files = Limit { soft: Some(20_000), hard: Some(20_000) };
    facts.locked_memory = Limit { soft: Some(8 << 20), hard: Some(8 << 20) };
    let chosen = on_all(&facts);
    Recorded { fixture, facts, chosen }
}

fn cpu(vendor: &str, model: &str, hypervisor: Option<&str>) -> Cpu {
    Cpu {
        architecture: Architecture::X86,
        vendor: vendor.to_owned(),
        model: model.to_owned(),
        hypervisor: hypervisor.map(str::to_owned),
        waitpkg: false,
        monitorx: false,
        wfxt: false,
        tsc_khz: None,
    }
}

/// The facts of a machine on which this process may use the CPUs below `allowed`.
fn facts(fixture: &Fixture, cpu: Cpu, allowed: u32) -> Facts {
    Facts {
        tree: fixture.tree(),
        cpu,
        allowed: (0..allowed).collect(),
        raises_limits: false,
        open_files: Limit { soft: Some(1024), hard: Some(524_288) },
        locked_memory: Limit { soft: None, hard: None },
        wake_up: Err(anyhow::anyhow!("not measured")),
        ring: Ok(Ring { coop_taskrun: true, single_issuer: true, defer_taskrun: true }),
        coalescing: BTreeMap::new(),
        power_states: BTreeMap::new(),
    }
}

fn on_all(facts: &Facts) -> Chosen {
    Chosen {
        cores: facts.allowed.clone(),
        main: 0,
        by: "all that this process may use; --cores chooses",
        io_threads: facts.allowed.len() as u32,
        files: None,
        max_connections: 16_384,
    }
}

/// Median and 99th percentile in ns, of the sleeper and of the waker.
fn wake_up(back: [u64; 2], waker: [u64; 2]) -> WakeUp {
    WakeUp {
        samples: 200,
        asleep: Duration::from_millis(1),
        back: back.map(Duration::from_nanos),
        waker: waker.map(Duration::from_nanos),
        cpus: [0, 1],
        busy_percent: 3,
    }
}

/// CPUs as (number, package, siblings).
fn processors(cpus: &[(u32, u32, &str)]) -> Fixture {
    more_processors(Fixture::default(), cpus)
}

fn more_processors(fixture: Fixture, cpus: &[(u32, u32, &str)]) -> Fixture {
    cpus.iter().fold(fixture, |fixture, (cpu, package, siblings)| {
        let dir = format!("{CPUS}/cpu{cpu}");
        let fixture = fixture
            .fixed(&format!("{dir}/topology/physical_package_id"), &package.to_string())
            .fixed(&format!("{dir}/topology/core_cpus_list"), siblings);
        // the boot CPU has no switch
        if *cpu == 0 { fixture } else { fixture.file(&format!("{dir}/online"), "1") }
    })
}

/// Idle states as (name, exit latency in us, target residency in us).
fn idle(fixture: Fixture, cpu: u32, states: &[(&str, u32, u32)]) -> Fixture {
    states.iter().enumerate().fold(fixture, |fixture, (index, (name, exit, residency))| {
        let dir = format!("{CPUS}/cpu{cpu}/cpuidle/state{index}");
        let (exit, residency) = (exit.to_string(), residency.to_string());
        fixture
            .files(&dir, &[("name", name), ("latency", &exit), ("residency", &residency)])
            .file(&format!("{dir}/disable"), "0")
    })
}

fn policy(fixture: Fixture, cpu: u32, driver: &str, governor: &str, khz: [u32; 2], mode: u32) -> Fixture {
    let dir = format!("{CPUS}/cpufreq/policy{cpu}");
    let [low, high] = khz.map(|khz| khz.to_string());
    fixture
        .files(&dir, &[("related_cpus", &cpu.to_string()), ("scaling_driver", driver), ("scaling_governor", governor)])
        .files(&dir, &[("cpuinfo_min_freq", &low), ("cpuinfo_max_freq", &high), ("scaling_min_freq", &low)])
        .files(&dir, &[("cpuinfo_transition_latency", if driver == "acpi-cpufreq" { "1000" } else { "0" })])
        .with_mode(&format!("{dir}/scaling_max_freq"), &high, mode)
}

/// Four queues, two of them on worker cores.
fn nic(fixture: Fixture) -> Fixture {
    let device = "/sys/devices/pci0000:3a/0000:3b:00.0";
    let mut interrupts = "            CPU0 CPU1 CPU2 CPU3 CPU4 CPU5 CPU6 CPU7\n".to_owned()
        + " 129:  9 0 0 0 0 0 0 0  IR-PCI-MSIX-0000:3b:00.0 0-edge  ice-0000:3b:00.0:misc\n";
    let mut fixture = fixture
        .files("/sys/class/net/ens1f0", &[("flags", "0x1003"), ("operstate", "up"), ("speed", "25000")])
        .link("/sys/class/net/ens1f0/device", device)
        .dir("/sys/bus/pci/drivers/ice")
        .link(&format!("{device}/driver"), "/sys/bus/pci/drivers/ice")
        .files(device, &[("numa_node", "0"), ("msi_irqs/129", "msix")]);
    for (queue, cpu) in [(0, "0"), (1, "1"), (2, "2"), (3, "7")] {
        let irq = 130 + queue;
        interrupts +=
            &format!(" {irq}:  7 5 0 0 0 0 0 0  IR-PCI-MSIX-0000:3b:00.0 {queue}-edge  ice-ens1f0-TxRx-{queue}\n");
        fixture = fixture
            .fixed(&format!("{device}/msi_irqs/{irq}"), "msix")
            .fixed(&format!("/sys/class/net/ens1f0/queues/rx-{queue}/rps_cpus"), "00000000")
            .fixed(&format!("/proc/irq/{irq}/effective_affinity_list"), cpu)
            .file(&format!("/proc/irq/{irq}/smp_affinity_list"), cpu);
    }
    fixture.fixed("/proc/interrupts", &interrupts)
}

/// Two queues, both on the main core, and packet steering to cores 0 to 3; interrupts are found by number.
fn mlx5(fixture: Fixture) -> Fixture {
    let device = "/sys/devices/pci0000:40/0000:41:00.0";
    let interrupts = "\
            CPU0 CPU1 CPU2 CPU3 CPU4 CPU5 CPU6 CPU7
  80:  1 0 0 0 0 0 0 0  IR-PCI-MSI 1 mlx5_async0@pci:0000:41:00.0
  81:  9 0 0 0 0 0 0 0  IR-PCI-MSI 2 mlx5_comp0@pci:0000:41:00.0
  82:  9 0 0 0 0 0 0 0  IR-PCI-MSI 3 mlx5_comp1@pci:0000:41:00.0";
    fixture
        .files("/sys/class/net/eth0", &[("flags", "0x1003"), ("operstate", "up"), ("speed", "200000")])
        .files("/sys/class/net/eth0/queues", &[("rx-0/rps_cpus", "0000000f"), ("rx-1/rps_cpus", "0000000f")])
        .link("/sys/class/net/eth0/device", device)
        .dir("/sys/bus/pci/drivers/mlx5_core")
        .link(&format!("{device}/driver"), "/sys/bus/pci/drivers/mlx5_core")
        .files(&format!("{device}/msi_irqs"), &[("80", "msix"), ("81", "msix"), ("82", "msix")])
        .fixed("/proc/interrupts", interrupts)
        .files("/proc/irq/81", &[("effective_affinity_list", "0"), ("smp_affinity_list", "0-7")])
        .files("/proc/irq/82", &[("smp_affinity_list", "0")])
}

fn rapl(fixture: Fixture) -> Fixture {
    (0..2).fold(fixture, |fixture, package| {
        let dir = format!("/sys/class/powercap/intel-rapl:{package}");
        fixture
            .files(&dir, &[("name", &format!("package-{package}")), ("energy_uj", "262143328850")])
            .file(&format!("{dir}/constraint_0_power_limit_uw"), "225000000")
    })
}

fn hwmon(fixture: Fixture) -> Fixture {
    fixture
        .files("/sys/class/hwmon/hwmon0", &[("name", "nvme"), ("temp1_input", "36850")])
        .files("/sys/class/hwmon/hwmon1", &[("name", "power_meter"), ("power1_average", "310000000")])
}

fn drive(fixture: Fixture) -> Fixture {
    let remote = [("model", "Pilotlight"), ("transport", "tcp"), ("state", "live")];
    fixture
        .files("/sys/class/nvme/nvme0", &[("model", "Example NVMe 3.2TB  "), ("transport", "pcie")])
        .files("/sys/class/nvme/nvme0", &[("state", "live"), ("numa_node", "1")])
        .files("/sys/class/nvme/nvme1", &remote)
}
