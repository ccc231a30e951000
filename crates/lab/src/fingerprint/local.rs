//! The values of a machine that does its own I/O, and of what it is asked to do.

use pilotlight_sim::local::machine::{Costs, Drive, Host, Power, State};
use pilotlight_sim::local::{Load, Local, Scheduler, Way};

use super::{Encode, Values, values};

values!(Local: window_ns, host, costs, drive, power; but name);
values!(Host: cores, threads_per_core, sibling_slows_ppm, light_exit_ns, deep_exit_ns, deep_after_ns);
values!(
    Costs: job_ns, submit_ns, complete_ns, page_ns_per_kib, interrupt_ns, switch_ns, timer_ns, look_ns, libaio_ns, uring_ns,
    ring_ns, hand_over_ns, bypass_ns, kyber_ns, deadline_ns
);
values!(
    Drive: front_ns, write_ns, command_ns, link_bytes_per_s, random_ppm, units, unit_ns, unit_ns_per_kib, page_bytes,
    stream_bytes_per_s, turn_ns, mdts_bytes, buffer_bytes, cache_bytes, full_bytes_per_s, map_reads, gc_after_ns, rest_after_ns,
    wake_ns, asleep_after_ns, state
);
values!(State: read_bytes_per_s, write_bytes_per_s, gc_bytes_per_s, gc_uw; but name);
values!(
    Power: cpu_idle_uw, uncore_uw, core_uw, core_of_all_uw, spin_ppm, light_ppm, switch_nj, drive_rest_uw, drive_asleep_uw,
    drive_awake_uw, drive_read_pj_per_byte, drive_write_pj_per_byte, system_base_uw, system_slope_ppm
);
values!(
    Load: way, jobs, depth, bytes, sequential, writes_ppm, scheduler, state, autonomous, think_after, think_ns, think_spin_ns,
    ramp_ns, duration_ns, after_ns, seed
);

impl Encode for Way {
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
