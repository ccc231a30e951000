//! Static placement: I/O threads spread evenly over all cores.

use pilotlight_plant::{Command, CompletionMode, CoreId, CoreState, Start, ThreadId};

/// Wakes every core, and moves I/O thread `i` to core `i` modulo the number of cores; on a plant that cannot move I/O threads
/// they stay.
pub(crate) fn spread(start: &Start<'_>, how: CompletionMode, out: &mut Vec<Command>) {
    let cores = start.topology.len();
    let asleep = |core: &CoreId| start.cores[core.index()].state != CoreState::Awake;
    out.extend(start.topology.cores().filter(asleep).map(|core| Command::Wake { core }));
    for (thread, &home) in start.homes.iter().enumerate() {
        let to = CoreId((thread % cores) as u16);
        let thread = ThreadId(thread as u16);
        out.push(Command::Completions { thread, mode: how });
        if home != to && start.capabilities.moves.is_some() {
            out.push(Command::Move { thread, to });
        }
    }
}
