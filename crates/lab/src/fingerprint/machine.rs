//! The values of a simulated server and of its drives.

use pilotlight_sim::machine::{
    ByState, DirectorCosts, Family, KernelCosts, Machine, Network, PollCosts, Power, SleepCosts, Speed,
};
use pilotlight_sim::ssd::{DrivePower, Flash, Front, Gc, Placement, Program, Service, SsdModel};

use super::{Encode, Values, values};

values!(Machine: poll, speed, sleep, kernel, director, network, power; but name);
values!(PollCosts: loop_ns, thread_ns, queue_ns, receive_ns, submit_ns, complete_ns, respond_ns, parity_ns_per_kib, batch);
values!(Speed: min_khz, max_khz, step_khz, transition_ns, transition_restarts, stalled_ppm, sibling_gain_ppm);
values!(SleepCosts: monitor, monitor_wake_ns, software_wake_ns, software_waker_ns, rest_wake_ns);
values!(
    KernelCosts: coalesce_ns, interrupt_ns, switch_ns, request_ns, shallow_exit_ns, deep_exit_ns, deep_residency_ns
);
values!(DirectorCosts: decide_ns, decide_thread_ns, fill_ns, move_ns, frequency_ns; added 1 fails_ppm = 0);
values!(Network: ports, port_mbit_s, round_trip_ns, overhead_bytes);
values!(Power: physical_cores, cpu_uw, others_uw, drives_idle_uw, read_4k_nj, write_4k_nj, family);
values!(ByState: poll, slow, shallow, deep);
values!(Family: package_ppm, sibling_saves_ppm, frequency_exponent, others_exponent, kernel_idles_deep; added 1 exit_at_rest = false);

values!(SsdModel: front, flash, program, gc; but name, source; added 1 power = None);
values!(DrivePower: most_load_uw);
values!(
    Front: read_latency_ns, write_latency_ns, max_iops, max_write_iops, max_bytes_per_s, queues, reorder_window, write_lanes,
    write_lane_ns
);
values!(Flash: dies, page_bytes, read_ns, read_spread_ns, service, placement);
values!(
    Program: program_ns, program_spread_ns, program_bytes, buffer_bytes, erase_ns, programs_per_erase, suspend_ns
);
values!(Gc: spare_permille, pool_bytes, start_permille, duty_permille);

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
        });
    }
}
