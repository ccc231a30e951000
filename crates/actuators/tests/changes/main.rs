//! What changes the machine puts it back: on a made-up kernel at every moment at which a process can be killed, with processes
//! that really are, and on a real loop device.

mod cgroups;
mod crash;
mod fake;
mod hands;
mod hotplug;
mod kill;
mod knobs;
mod loops;
mod machine;
mod quota;
mod refusals;
