//! Encoding of simulated servers and drives, and of hosts with one drive and their jobs.

use pilotlight_sim::jobs::{IoMethod, Job, JobCosts, Scheduler};
use pilotlight_sim::machine::{
    ByState, Client, DirectorCosts, Family, Governor, Hotplug, KernelCosts, Limits, Machine, Network, PollCosts, Power,
    ScheduledPower, SleepCosts, Sockets, Speed,
};
use pilotlight_sim::ssd::{
    Cache, Controller, DriveEnergy, DrivePower, DriveState, Flash, Front, Gc, IdleState, Placement, Program, Rest,
    Service, SlowReads, SsdModel,
};

use super::{Encode, Values, values};
use crate::simulated::host::{Host, Load};

values!(Machine: poll, speed, sleep, kernel, director, network, power; but name; added 1 jobs = JobCosts::default(), 2 limits = Limits::default(), 3 governor = Governor::Performance, 4 hotplug = None, 5 sockets = Sockets::default());
values!(Sockets: memory, connection_ns, between_polls, server_sleep_ns, client, wait_ns, cold_ns, warm_ns, host_polls_ns, host_wakes_ns; added 1 timer_ns = 0);
values!(Client: look_ns, receive_ns, response_ns, send_ns, request_ns, stall_gap_ns, stall_ns);
values!(Hotplug: offline_ns, online_ns);
values!(Limits: quota_period_ns, power_period_ns; added 1 quota_slice_ns = 5_000_000, 2 quota_of_main = false);
values!(
    JobCosts: job_ns, submit_ns, complete_ns, page_ns_per_kib, interrupt_ns, switch_ns, timer_ns, look_ns, libaio_ns, uring_ns,
    ring_ns, hand_over_ns, bypass_ns, kyber_ns, deadline_ns, sibling_slows_ppm; added 1 lock_sleeps = false, 2 command_bytes = 0
);
values!(PollCosts: loop_ns, thread_ns, queue_ns, receive_ns, submit_ns, complete_ns, respond_ns, parity_ns_per_kib, batch);
values!(Speed: min_khz, max_khz, step_khz, transition_ns, transition_restarts, stalled_ppm, sibling_gain_ppm);
values!(SleepCosts: monitor, monitor_wake_ns, software_wake_ns, software_waker_ns, rest_wake_ns);
values!(
    KernelCosts: coalesce_ns, interrupt_ns, switch_ns, request_ns, shallow_exit_ns, deep_exit_ns, deep_residency_ns;
    added 1 drive_queues = 0, 2 network_queues = 0, 3 ipi_ns = 0, 4 md = false, 5 md_page_ns = 0
);
values!(DirectorCosts: decide_ns, decide_thread_ns, fill_ns, move_ns, frequency_ns; added 1 fails_ppm = 0, 2 leaves_at_once = false);
values!(Network: ports, port_mbit_s, round_trip_ns, overhead_bytes);
values!(Power: physical_cores, cpu_uw, others_uw, drives_idle_uw, read_4k_nj, write_4k_nj, family; added 1 scheduled = None, 2 uncore_uw = None);
values!(ScheduledPower: looks_ppm, of_all_ppm, base_uw, slope_ppm);
values!(ByState: poll, slow, shallow, deep);
values!(Family: package_ppm, sibling_saves_ppm, frequency_exponent, others_exponent, kernel_idles_deep; added 1 exit_at_rest = false);

values!(
    SsdModel: front, flash, program, gc;
    but name, source;
    added 1 power = None, 2 controller = None, 3 cache = None, 4 state = Vec::new(), 5 rest = None, 6 slow = None, 7 energy = None, 8 idle = Vec::new()
);
values!(
    Controller: command_ns, bytes_per_s, random_ppm, stream_bytes_per_s, turn_ns, most_bytes;
    added 1 streams = 0, 2 stream_window_bytes = 0, 3 unit_bytes = 0
);
values!(Cache: buffer_bytes, cache_bytes, full_bytes_per_s, map_reads, gc_after_ns; added 1 map_of_reads = false, 2 map_cached_ppm = 0, 3 programs = false);
values!(DriveState: read_bytes_per_s, write_bytes_per_s, gc_bytes_per_s, gc_uw; but name);
values!(Rest: after_ns, wake_ns, asleep_after_ns);
values!(IdleState: after_ns, wake_ns, uw; but name);
values!(SlowReads: pages_ppm, mean_ns);
values!(DrivePower: most_load_uw);
values!(DriveEnergy: awake_uw, rest_uw, asleep_uw, read_pj_per_byte, write_pj_per_byte);
values!(
    Front: read_latency_ns, write_latency_ns, max_iops, max_write_iops, max_bytes_per_s, queues, reorder_window, write_lanes,
    write_lane_ns
);
values!(Flash: dies, page_bytes, read_ns, read_spread_ns, service, placement; added 1 read_ns_per_kib = 0);
values!(
    Program: program_ns, program_spread_ns, program_bytes, buffer_bytes, erase_ns, programs_per_erase, suspend_ns
);
values!(Gc: spare_permille, pool_bytes, start_permille, duty_permille);

impl Encode for Governor {
    fn encode(&self, out: &mut Values) {
        out.choice(match self {
            Self::Performance => 0,
            Self::Schedutil => 1,
        });
    }
}

impl Encode for Service {
    fn encode(&self, out: &mut Values) {
        out.choice(match self {
            Self::Uniform => 0,
            Self::Exponential => 1,
        });
    }
}

impl Encode for Placement {
    fn encode(&self, out: &mut Values) {
        out.choice(match self {
            Self::Random => 0,
            Self::Striped => 1,
            Self::FirstFree => 2,
            Self::Scattered => 3,
        });
    }
}

impl Encode for Host {
    fn encode(&self, out: &mut Values) {
        // `window_ns` is in the load; processors and power are in the machine.
        (self.processors.cores, self.processors.threads_per_core).encode(out);
        (self.machine(), &self.drive).encode(out);
    }
}

values!(Load: job, jobs, drive_state, drive_autonomous, ramp_ns, duration_ns, after_ns, seed; added 1 beside = Vec::new());
values!(
    Job: background, quota, method, depth, drive, bytes, sequential, writes_ppm, scheduler, cpu_ns, think_after, think_ns, think_spin_ns;
    but cores, helper;
    added 1 write_cpu_ns = None, 2 hits_ppm = 0, 3 write_hits_ppm = 0, 4 fetches = false, 5 adds = 0, 6 backlog_ppm = 0, 7 stalls_bytes = 0
);

impl Encode for IoMethod {
    fn encode(&self, out: &mut Values) {
        out.choice(match self {
            Self::Interrupt => 0,
            Self::Classic => 1,
            Self::Hybrid => 2,
            Self::Libaio => 3,
            Self::Uring => 4,
            Self::UringPolled => 5,
            Self::PosixAio => 6,
            Self::Bypass => 7,
        });
    }
}

impl Encode for Scheduler {
    fn encode(&self, out: &mut Values) {
        out.choice(match self {
            Self::None => 0,
            Self::Kyber => 1,
            Self::Deadline => 2,
        });
    }
}
