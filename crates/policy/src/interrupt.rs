//! `interrupt`: every I/O thread waits in the kernel for requests and completions; I/O threads are spread evenly over all cores (as in
//! the Linux kernel's target; SANDMAN sections 3.1 and 3.3).

use pilotlight_plant::{Command, CompletionMode, CoreId, Next, Policy, SleepGoal, Start, Unsupported, Wants};

use crate::spread::spread;

/// Interrupts instead of polling. Workers without an I/O thread sleep.
#[derive(Clone, Copy, Debug, Default)]
pub struct Interrupt;

impl Policy for Interrupt {
    fn name(&self) -> &'static str {
        "interrupt"
    }

    fn wants(&self) -> Wants {
        Wants::default()
    }

    fn start(&mut self, start: &Start<'_>, out: &mut Vec<Command>) -> Result<Next, Unsupported> {
        if !start.capabilities.interrupts {
            return Err(Unsupported {
                policy: self.name(),
                feature: "I/O threads that wait in the kernel",
                remedy: "choose backends that can signal completions, or policy static",
            });
        }
        spread(start, CompletionMode::Interrupt, out);
        let empty = |core: CoreId| core.index() >= start.homes.len() && core != start.topology.main();
        out.retain(|command| !matches!(*command, Command::Wake { core } if empty(core)));
        if !start.capabilities.sleeps.is_empty() {
            let goal = SleepGoal::DEEPEST;
            out.extend(start.topology.cores().filter(|&core| empty(core)).map(|core| Command::Sleep { core, goal }));
        }
        Ok(Next::NEVER)
    }
}

#[cfg(test)]
mod tests {
    use pilotlight_plant::{Capabilities, CoreSample, CoreState, Cost, Depth, Goals, SleepCost, ThreadId, Topology};

    use super::*;

    fn start(capabilities: &Capabilities, threads: usize) -> Result<Vec<Command>, Unsupported> {
        let topology = Topology::flat(3).unwrap();
        let asleep = CoreState::Asleep(Depth::SoftwareWait);
        let cores = [CoreState::Awake, CoreState::Awake, asleep].map(CoreSample::new);
        let homes = vec![CoreId(0); threads];
        let mut out = Vec::new();
        let plant = Start {
            now_ns: 7,
            topology: &topology,
            capabilities,
            cores: &cores,
            homes: &homes,
            goals: &Goals::default(),
        };
        let next = Interrupt.start(&plant, &mut out)?;
        assert_eq!(next, Next::NEVER);
        Ok(out)
    }

    #[test]
    fn every_thread_waits_in_the_kernel_and_threads_are_spread() {
        let capabilities = Capabilities { interrupts: true, moves: Some(Cost::Measured(1)), ..Capabilities::default() };
        let how = |thread| Command::Completions { thread: ThreadId(thread), mode: CompletionMode::Interrupt };
        let to = |thread, core| Command::Move { thread: ThreadId(thread), to: CoreId(core) };
        let expected = [Command::Wake { core: CoreId(2) }, how(0), how(1), to(1, 1), how(2), to(2, 2), how(3)];
        assert_eq!(start(&capabilities, 4).unwrap(), expected);
    }

    #[test]
    fn workers_without_a_thread_sleep() {
        let sleeps = vec![SleepCost { depth: Depth::SoftwareWait, waker: Cost::Measured(1), wake: Cost::Measured(1) }];
        let capabilities =
            Capabilities { interrupts: true, moves: Some(Cost::Measured(1)), sleeps, ..Capabilities::default() };
        let (core, goal) = (CoreId(2), SleepGoal::DEEPEST);
        let commands = start(&capabilities, 2).unwrap();
        assert_eq!(commands.last(), Some(&Command::Sleep { core, goal }));
        assert!(!commands.contains(&Command::Wake { core }), "a core without an I/O thread is woken");
    }

    #[test]
    fn a_plant_without_interrupts_is_refused() {
        let refused = start(&Capabilities::default(), 4).unwrap_err();
        assert!(refused.to_string().contains("policy interrupt needs"), "{refused}");
    }
}
