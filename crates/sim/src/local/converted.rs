//! Such a machine as one whose cores are scheduled ([`crate::engine`]): the same figures in the other's places.

use pilotlight_plant::{CoreId, Topology};

use super::load::Load;
use super::machine::{Local, Power};
use crate::jobs::{Job, JobCosts, Scheduled};
use crate::machine::{
    ByState, DirectorCosts, Family, KernelCosts, Limits, Machine, Network, PollCosts, Power as Watts, ScheduledPower,
    SleepCosts, Speed,
};
use crate::scenario::{Scenario, Sensors, Workload};
use crate::ssd::{DriveEnergy, SsdModel};

const MILLION: u64 = 1_000_000;

impl Local {
    /// A run of a load on the machine: jobs begin at its start, and the measured time begins after the ramp.
    #[must_use]
    pub fn scenario(&self, load: &Load) -> Scenario {
        let work_ns = load.ramp_ns + load.duration_ns;
        let all_ns = work_ns + load.after_ns;
        let series_ns = [100_000_000, 10_000_000, 1_000_000, 100_000]
            .into_iter()
            .find(|step| all_ns / step >= 100 && load.ramp_ns.is_multiple_of(*step) && work_ns.is_multiple_of(*step))
            .unwrap_or(10_000);
        // Cores without a job are always asleep.
        let used = load.jobs * if load.way == crate::jobs::Way::UringPolled { 2 } else { 1 };
        let both = self.host.threads_per_core == 2 && used > self.host.cores;
        let cores = if both { 2 * self.host.cores } else { used.clamp(1, self.host.cores) } as u16;
        let siblings = |core: u16| both.then_some(CoreId((core + self.host.cores as u16) % cores));
        let topology = Topology::new(CoreId(0), (0..cores).map(siblings).collect());
        Scenario {
            machine: self.machine(),
            family: Vec::new(),
            topology: topology.unwrap_or_else(|_| unreachable!("siblings are apart by the number of cores")),
            threads: 0,
            drives: vec![SsdModel { energy: Some(self.power.drive()), ..self.drive.ssd() }],
            workload: Workload::default(),
            scheduled: Some(Scheduled {
                first_core: 0,
                jobs: (0..load.jobs as u16).map(|at| job(load, at, cores)).collect(),
                quotas: Vec::new(),
                until_ns: work_ns,
                drive_state: load.state,
                drive_autonomous: load.autonomous,
            }),
            duration_ns: all_ns.next_multiple_of(series_ns),
            warm_up_ns: load.ramp_ns,
            series_ns,
            seed: load.seed,
            eager: false,
            sensors: Sensors::default(),
            goals: Vec::new(),
            changes: Vec::new(),
        }
    }

    /// The machine alone.
    #[must_use]
    pub fn machine(&self) -> Machine {
        let (host, costs) = (&self.host, &self.costs);
        Machine {
            name: self.name.clone(),
            poll: PollCosts {
                loop_ns: 1,
                thread_ns: 0,
                queue_ns: 0,
                receive_ns: 0,
                submit_ns: 0,
                complete_ns: 0,
                respond_ns: 0,
                parity_ns_per_kib: 0,
                batch: 1,
            },
            speed: Speed {
                min_khz: 1_000_000,
                max_khz: 1_000_000,
                step_khz: 1,
                transition_ns: 0,
                transition_restarts: false,
                stalled_ppm: 0,
                sibling_gain_ppm: 0,
            },
            sleep: SleepCosts {
                monitor: false,
                monitor_wake_ns: 0,
                software_wake_ns: 0,
                software_waker_ns: 0,
                rest_wake_ns: 0,
            },
            kernel: KernelCosts {
                coalesce_ns: 0,
                interrupt_ns: costs.interrupt_ns as u32,
                switch_ns: costs.switch_ns as u32,
                request_ns: 0,
                shallow_exit_ns: host.light_exit_ns,
                deep_exit_ns: host.deep_exit_ns,
                deep_residency_ns: host.deep_after_ns,
            },
            director: DirectorCosts {
                decide_ns: 0,
                decide_thread_ns: 0,
                fill_ns: 0,
                move_ns: 0,
                frequency_ns: 0,
                fails_ppm: 0,
            },
            network: Network { ports: 1, port_mbit_s: 1, round_trip_ns: 2, overhead_bytes: 0 },
            power: self.power.watts(u64::from(host.cores)),
            limits: Limits::default(),
            jobs: JobCosts {
                job_ns: costs.job_ns,
                submit_ns: costs.submit_ns,
                complete_ns: costs.complete_ns,
                page_ns_per_kib: costs.page_ns_per_kib,
                interrupt_ns: costs.interrupt_ns,
                switch_ns: costs.switch_ns,
                timer_ns: costs.timer_ns,
                look_ns: costs.look_ns,
                libaio_ns: costs.libaio_ns,
                uring_ns: costs.uring_ns,
                ring_ns: costs.ring_ns,
                hand_over_ns: costs.hand_over_ns,
                bypass_ns: costs.bypass_ns,
                kyber_ns: costs.kyber_ns,
                deadline_ns: costs.deadline_ns,
                sibling_slows_ppm: host.sibling_slows_ppm,
            },
        }
    }
}

fn job(load: &Load, at: u16, cores: u16) -> Job {
    Job {
        background: false,
        cores: (at % cores, 1),
        helper: (load.jobs as u16 + at) % cores,
        quota: None,
        way: load.way,
        depth: load.depth,
        drive: 0,
        bytes: load.bytes as u32,
        sequential: load.sequential,
        writes_ppm: load.writes_ppm as u32,
        scheduler: load.scheduler,
        cpu_ns: 0,
        think_after: load.think_after,
        think_ns: load.think_ns,
        think_spin_ns: load.think_spin_ns,
    }
}

impl Power {
    fn watts(&self, cores: u64) -> Watts {
        let light_uw = self.core_uw * self.light_ppm / MILLION;
        let deep = self.cpu_idle_uw;
        let shallow = deep + self.uncore_uw + cores * light_uw;
        let poll = shallow + cores * (self.core_uw - light_uw);
        let share = |part: u64, of: u64| (part * MILLION).checked_div(of).unwrap_or(0) as u32;
        let same = ByState { poll: 0, slow: 0, shallow: 0, deep: 0 };
        Watts {
            physical_cores: cores as u32,
            cpu_uw: ByState { poll, slow: poll, shallow, deep },
            others_uw: same,
            drives_idle_uw: 0,
            read_4k_nj: 0,
            write_4k_nj: 0,
            family: Family {
                package_ppm: share(self.uncore_uw, shallow - deep),
                sibling_saves_ppm: 0,
                frequency_exponent: 1.0,
                others_exponent: 1.0,
                kernel_idles_deep: true,
                exit_at_rest: false,
            },
            scheduled: Some(ScheduledPower {
                looks_ppm: share(self.spin_ppm.saturating_sub(self.light_ppm), MILLION - self.light_ppm),
                of_all_ppm: share(self.core_of_all_uw, self.core_uw),
                base_uw: self.system_base_uw,
                slope_ppm: self.system_slope_ppm,
            }),
        }
    }

    fn drive(&self) -> DriveEnergy {
        DriveEnergy {
            awake_uw: self.drive_awake_uw,
            rest_uw: self.drive_rest_uw,
            asleep_uw: self.drive_asleep_uw,
            read_pj_per_byte: self.drive_read_pj_per_byte,
            write_pj_per_byte: self.drive_write_pj_per_byte,
        }
    }
}
