//! Changes are restored: on a simulated kernel with crashes after every write, with killed processes, and on a loop device.

mod cgroups;
mod concurrent;
mod crash;
mod fake;
mod hotplug;
mod kill;
mod knobs;
mod loops;
mod machine;
mod quota;
mod refusals;
