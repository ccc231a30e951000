//! A small machine and workloads for tests.
#![allow(dead_code)] // each test uses a part of it

use pilotlight_plant::{Policy, Topology};
use pilotlight_sim::jobs::JobCosts;
use pilotlight_sim::machine::{
    ByState, DirectorCosts, Family, Governor, KernelCosts, Limits, Machine, Network, PollCosts, Power, SleepCosts,
    Sockets, Speed,
};
use pilotlight_sim::scenario::{Connection, Kind, Phase, Rate, Scenario, Sensors, Spacing, Workload};
use pilotlight_sim::ssd::SsdModel;

const DRIVE: &str = include_str!("../../../../profiles/ssd/pm1743.toml");

pub(crate) fn drive() -> SsdModel {
    SsdModel::parse(DRIVE).unwrap()
}

pub(crate) fn machine() -> Machine {
    Machine {
        name: "test".to_owned(),
        poll: PollCosts {
            loop_ns: 100,
            thread_ns: 60,
            queue_ns: 10,
            receive_ns: 350,
            submit_ns: 300,
            complete_ns: 250,
            respond_ns: 300,
            parity_ns_per_kib: 30,
            batch: 32,
        },
        speed: Speed {
            min_khz: 400_000,
            max_khz: 3_650_000,
            step_khz: 50_000,
            transition_ns: 450_000,
            transition_restarts: true,
            stalled_ppm: 100_000,
            sibling_gain_ppm: 250_000,
        },
        sleep: SleepCosts {
            monitor: true,
            monitor_wake_ns: 3_000,
            software_wake_ns: 27_000,
            software_waker_ns: 10_000,
            rest_wake_ns: 3_000,
        },
        kernel: KernelCosts {
            coalesce_ns: 8_000,
            interrupt_ns: 1_500,
            switch_ns: 1_500,
            request_ns: 1_000,
            shallow_exit_ns: 3_000,
            deep_exit_ns: 800_000,
            deep_residency_ns: 2_000_000,
            ..KernelCosts::default()
        },
        director: DirectorCosts {
            decide_ns: 70,
            decide_thread_ns: 40,
            fill_ns: 79,
            move_ns: 106,
            frequency_ns: 2_000,
            fails_ppm: 0,
            leaves_at_once: false,
        },
        network: Network { ports: 2, port_mbit_s: 200_000, round_trip_ns: 12_000, overhead_bytes: 100 },
        power: Power {
            physical_cores: 24,
            cpu_uw: ByState { poll: 244_000_000, slow: 144_000_000, shallow: 134_000_000, deep: 52_000_000 },
            others_uw: ByState { poll: 398_000_000, slow: 242_000_000, shallow: 204_000_000, deep: 126_000_000 },
            drives_idle_uw: 74_000_000,
            read_4k_nj: 18_000,
            write_4k_nj: 30_000,
            family: Family {
                package_ppm: 500_000,
                sibling_saves_ppm: 100_000,
                frequency_exponent: 2.0,
                others_exponent: 1.0,
                kernel_idles_deep: false,
                exit_at_rest: false,
            },
            uncore_uw: None,
            scheduled: None,
        },
        jobs: JobCosts::default(),
        limits: Limits::default(),
        governor: Governor::default(),
        hotplug: None,
        sockets: Sockets::default(),
    }
}

/// Distinct round numbers.
pub(crate) fn job_costs() -> JobCosts {
    JobCosts {
        job_ns: 100,
        submit_ns: 700,
        complete_ns: 300,
        page_ns_per_kib: 10,
        interrupt_ns: 900,
        switch_ns: 1_600,
        timer_ns: 1_200,
        look_ns: 80,
        libaio_ns: 50,
        uring_ns: 60,
        ring_ns: 200,
        hand_over_ns: 1_500,
        bypass_ns: 400,
        kyber_ns: 2_000,
        deadline_ns: 3_000,
        sibling_slows_ppm: 0,
        lock_sleeps: false,
        command_bytes: 0,
    }
}

/// Connections to all drives, distributed round robin over the I/O threads.
pub(crate) fn connections(count: u16, threads: u16, drives: u16, rate: f64) -> Vec<Connection> {
    let phase = Phase { label: 0, length_ns: u64::MAX, rate: Rate::PerSecond(rate / f64::from(count)) };
    (0..count)
        .map(|index| Connection {
            thread: index % threads,
            drives: (0, drives),
            request: Kind::Plain { writes_ppm: 0, bytes: 4_096, sequential: false },
            depth: u32::MAX,
            spacing: Spacing::Poisson,
            phases: vec![phase.clone()],
            think_ns: 0,
        })
        .collect()
}

pub(crate) fn scenario(cores: u16, drives: u16, rate: f64, duration_ns: u64, seed: u64) -> Scenario {
    Scenario {
        machine: machine(),
        family: Vec::new(),
        topology: Topology::paired(cores).unwrap(),
        threads: cores,
        drives: vec![drive(); usize::from(drives)],
        scheduled: None,
        workload: Workload { connections: connections(cores, cores, drives, rate), ..Workload::default() },
        duration_ns,
        warm_up_ns: 0,
        series_ns: duration_ns / 2,
        seed,
        eager: false,
        sensors: Sensors::default(),
        goals: Vec::new(),
        changes: Vec::new(),
    }
}

pub(crate) fn policy(name: &str, settings: &[(&str, &str)]) -> Box<dyn Policy> {
    pilotlight_policy::registry::build(name, settings).unwrap()
}
