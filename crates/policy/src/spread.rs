//! I/O threads over all cores, evenly and for good: the start of every policy that never moves one again.

use pilotlight_plant::{Command, CompletionMode, CoreId, CoreState, Start, ThreadId};

/// Wakes every core, and gives I/O thread `i` the core `i` modulo their number; where a plant cannot move I/O threads they
/// stay where they are.
pub(crate) fn spread(start: &Start<'_>, mode: CompletionMode, out: &mut Vec<Command>) {
    let cores = start.topology.len();
    let asleep = |core: &CoreId| start.cores[core.index()].state != CoreState::Awake;
    out.extend(start.topology.cores().filter(asleep).map(|core| Command::Wake { core }));
    for (thread, &home) in start.homes.iter().enumerate() {
        let to = CoreId((thread % cores) as u16);
        let thread = ThreadId(thread as u16);
        out.push(Command::Completions { thread, mode });
        if home != to && start.capabilities.moves.is_some() {
            out.push(Command::Move { thread, to });
        }
    }
}
