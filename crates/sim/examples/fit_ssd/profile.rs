//! A fitted model as a profile.

use pilotlight_sim::ssd::SsdModel;

/// The text of the profile of a drive that was fitted to the curves of `serial`.
pub(crate) fn text(model: &SsdModel, serial: &str) -> String {
    let (front, flash) = (&model.front, &model.flash);
    let Some(program) = &model.program else { return String::new() };
    let suspend = program.suspend_ns.map(|ns| format!("suspend_ns = {ns}\n")).unwrap_or_default();
    format!(
        "# Fitted by `cargo run --release -p pilotlight-sim --example fit_ssd -- fit FOLDER PROFILES`; crates/sim/src/ssd/README.md says how.\n\
         # Effective values: host and network of the measurement are inside the latencies, and what the drive copies for\n\
         # itself is inside program_bytes.\n\
         name = \"{}\"\n\
         source = \"Sandook (MIT), ssd_profiles: drive {serial}, 4 KiB, its curves at 0, 50 and 100 % writes\"\n\n\
         [front]\nread_latency_ns = {}\nwrite_latency_ns = {}\nmax_iops = {}\nmax_write_iops = {}\nqueues = {}\n\
         reorder_window = {}\nwrite_lanes = {}\nwrite_lane_ns = {}\n\n\
         [flash]\ndies = {}\npage_bytes = {}\nread_ns = {}\nread_spread_ns = {}\n\n\
         [program]\nprogram_ns = {}\nprogram_spread_ns = {}\nprogram_bytes = {}\nbuffer_bytes = {}\nerase_ns = {}\n\
         programs_per_erase = {}\n{suspend}",
        model.name,
        front.read_latency_ns,
        front.write_latency_ns,
        front.max_iops,
        front.max_write_iops,
        front.queues,
        front.reorder_window,
        front.write_lanes,
        front.write_lane_ns,
        flash.dies,
        flash.page_bytes,
        flash.read_ns,
        flash.read_spread_ns,
        program.program_ns,
        program.program_spread_ns,
        program.program_bytes,
        program.buffer_bytes,
        program.erase_ns,
        program.programs_per_erase,
    )
}
