//! Dispatcher: assigns tasks to CPUs.
//!
//! *Problem.* Interrupts, kernel workers, programs and background work share cores, and a CPU quota may limit a group of them per period. *Terms.* A
//! *task* has *pieces* of work, each with a continuation; a piece may also *look* (poll): it ends when a result is found. A task that *spins* polls
//! whenever it has no piece. A *turn* is a number that orders tasks of one class by the time they became ready. A *grant* is a part of a group's
//! quota that a CPU has taken and may use within the period.
//! *Rules.* Tasks are served by class, within a class by turn. A piece is not preempted, with two exceptions: any other ready task preempts
//! background work and spinning, and interrupts preempt computation outside the kernel. Between two pieces of a task, interrupts and tasks of a
//! better class run first; otherwise it continues until it has no piece left, or yields. A task whose group has no time left waits for the next
//! period, even within a piece. At equal times: pieces end first, by CPU; then periods begin; then grants end; then tasks are woken.
//! *Algorithm.* One event per CPU: the end of its piece or grant. The owner receives the ended piece ([`Dispatch::step`]), gives the task further
//! pieces, and releases the CPU ([`Dispatch::release`]).
//! *Properties* (tests below, against [`super::naive`]): no CPU is idle while a task that may run on it is ready; a group never exceeds its quota in
//! a period; tasks of a class take turns; work is conserved.

use std::collections::VecDeque;

use super::task::{Class, Cpu, CpuActivity, Ended, Group, Hardware, Piece, Rest, Running, State, Task, Turn, Used};
use crate::engine::shared::scaled;

/// All CPUs and tasks; `T` is the continuation of a piece.
#[derive(Clone, Debug)]
pub(crate) struct Dispatch<T> {
    hardware: Hardware,
    cpus: Vec<Cpu>,
    tasks: Vec<Task<T>>,
    /// Tasks that may run on each CPU.
    by_cpu: Vec<Vec<usize>>,
    groups: Vec<Group>,
    turns_given: u64,
    /// Activities of CPUs and their times since last taken.
    pub(crate) turns: Vec<Turn>,
    pub(crate) used: Vec<Used>,
}

impl<T: Copy> Dispatch<T> {
    /// Idle CPUs with the given siblings.
    pub(crate) fn new(siblings: Vec<Option<usize>>, hardware: Hardware) -> Self {
        let cpu = |sibling| Cpu {
            running: None,
            held: None,
            rest: Rest::Undecided(0),
            activity: None,
            factor: 1 << 16,
            sibling,
        };
        Self {
            hardware,
            by_cpu: vec![Vec::new(); siblings.len()],
            cpus: siblings.into_iter().map(cpu).collect(),
            tasks: Vec::new(),
            groups: Vec::new(),
            turns_given: 0,
            turns: Vec::new(),
            used: Vec::new(),
        }
    }

    pub(crate) fn add_group(&mut self, group: Group) -> usize {
        self.groups.push(group);
        self.groups.len() - 1
    }

    /// Adds a task without pieces; one that spins begins at once.
    pub(crate) fn add_task(&mut self, class: Class, cpus: (usize, usize), group: Option<usize>, spins: bool) -> usize {
        let task = self.tasks.len();
        let (pieces, state, last) = (VecDeque::new(), State::Asleep, cpus.0);
        self.tasks.push(Task { class, cpus, group, spins, pieces, state, turn: 0, last, early: true });
        self.by_cpu[cpus.0..cpus.0 + cpus.1].iter_mut().for_each(|tasks| tasks.push(task));
        if spins {
            self.ready(0, task);
        }
        task
    }

    /// Gives a task a piece; does not wake it ([`Dispatch::wake`]).
    pub(crate) fn push(&mut self, task: usize, piece: Piece, then: T) {
        self.tasks[task].pieces.push_back((piece, then));
    }

    pub(crate) fn is_asleep(&self, task: usize) -> bool {
        self.tasks[task].state == State::Asleep
    }

    /// The current or last CPU of a task.
    pub(crate) fn cpu_of(&self, task: usize) -> usize {
        self.tasks[task].last
    }

    /// Makes a task with pieces ready, unless it already is. `early`: a timer has woken the CPU in advance.
    pub(crate) fn wake(&mut self, now_ns: u64, task: usize, early: bool) {
        match self.tasks[task].state {
            State::Asleep => {
                self.tasks[task].early = early;
                self.ready(now_ns, task);
            }
            // A task that was ready to spin now has work.
            State::Ready if self.tasks[task].spins && self.tasks[task].pieces.len() == 1 => self.ready(now_ns, task),
            State::Runs(cpu) if self.cpus[cpu].held.is_none() && self.spins_on(cpu) => {
                self.stop(now_ns, cpu);
                self.tasks[task].state = State::Ready;
                self.pick(now_ns, cpu);
            }
            _ => {}
        }
    }

    /// Sets the time at which the task's poll succeeds.
    pub(crate) fn found(&mut self, task: usize, at_ns: u64) {
        let Some((Piece::Look { found_ns, more_ns }, _)) = self.tasks[task].pieces.front_mut() else { return };
        *found_ns = at_ns;
        let more_ns = *more_ns;
        if let State::Runs(cpu) = self.tasks[task].state
            && let Some(running) = &mut self.cpus[cpu].running
        {
            running.ends_ns = running.begins_ns.max(at_ns) + more_ns;
        }
    }

    /// Sets a CPU's speed from `now_ns` on.
    pub(crate) fn set_factor(&mut self, now_ns: u64, cpu: usize, factor: u32) {
        let old = std::mem::replace(&mut self.cpus[cpu].factor, factor);
        let Some(running) = self.cpus[cpu].running.as_mut().filter(|running| !running.looks) else { return };
        let from_ns = running.begins_ns.max(now_ns);
        if old != factor && running.ends_ns > from_ns {
            let left_ns = running.ends_ns - from_ns;
            running.ends_ns = from_ns + (u128::from(left_ns) * u128::from(factor) / u128::from(old)) as u64;
        }
    }

    /// Time of the next event.
    pub(crate) fn next_ns(&self) -> u64 {
        let cpus = self.cpus.iter().map(Cpu::next_ns).min().unwrap_or(u64::MAX);
        let groups = self.groups.iter().map(|group| group.ends_ns).min().unwrap_or(u64::MAX);
        cpus.min(groups)
    }

    /// Advances to [`Dispatch::next_ns`]; returns the piece that ends there, whose CPU then waits for [`Dispatch::release`].
    pub(crate) fn step(&mut self) -> Option<Ended<T>> {
        let now_ns = self.next_ns();
        let ends = |cpu: &Cpu| cpu.running.is_some_and(|running| running.ends_ns == now_ns);
        let Some(cpu) = self.cpus.iter().position(ends) else {
            match self.groups.iter().position(|group| group.ends_ns == now_ns) {
                Some(group) => self.refill(now_ns, group),
                None => self.regrant(now_ns, self.cpus.iter().position(|cpu| cpu.next_ns() == now_ns)?),
            }
            return None;
        };
        let task = self.cpus[cpu].running?.task;
        self.end(now_ns, cpu);
        self.cpus[cpu].held = Some(task);
        let (_, then) = self.tasks[task].pieces.pop_front()?;
        Some(Ended { at_ns: now_ns, cpu, task, then })
    }

    /// Releases a CPU whose piece has ended.
    pub(crate) fn release(&mut self, now_ns: u64, cpu: usize, yields: bool) {
        let Some(task) = self.cpus[cpu].held.take() else { return };
        let mine = &mut self.tasks[task];
        if mine.pieces.is_empty() && !mine.spins {
            mine.state = State::Asleep;
        } else {
            mine.state = State::Ready;
            mine.early = true;
            mine.turn = 0;
            if yields {
                self.turns_given += 1;
                self.tasks[task].turn = self.turns_given;
            }
        }
        self.pick(now_ns, cpu);
        self.move_preempted(now_ns, task);
    }

    /// Activities of CPUs since the last call, without those of zero length.
    pub(crate) fn take_turns(&mut self) -> Vec<Turn> {
        let mut later_ns = vec![u64::MAX; self.cpus.len()];
        let mut turns = std::mem::take(&mut self.turns);
        turns.reverse();
        turns.retain(|turn| std::mem::replace(&mut later_ns[turn.cpu], turn.at_ns) != turn.at_ns);
        turns.reverse();
        turns
    }

    /// Whether all CPUs are idle in a decided state.
    pub(crate) fn rests(&self) -> bool {
        self.cpus.iter().all(|cpu| cpu.is_free() && matches!(cpu.rest, Rest::Light | Rest::Deep))
    }

    /// Stops all tasks: CPUs are idle from `now_ns` on.
    pub(crate) fn halt(&mut self, now_ns: u64) {
        self.count(now_ns);
        (self.tasks, self.groups) = (Vec::new(), Vec::new());
        self.by_cpu.iter_mut().for_each(Vec::clear);
        for cpu in &mut self.cpus {
            let begins_ns = cpu.running.map_or(0, |running| running.begins_ns);
            (cpu.running, cpu.held) = (None, None);
            if cpu.rest == Rest::No {
                cpu.rest = Rest::Undecided(now_ns.max(begins_ns)); // a CPU that exits an idle state completes the exit
            }
        }
        for cpu in 0..self.cpus.len() {
            if self.cpus[cpu].rest == Rest::Light {
                self.turn(now_ns, cpu, CpuActivity::IdlesDeep);
                self.cpus[cpu].rest = Rest::Deep;
            }
        }
    }

    /// Idle CPUs without a decided state, and the start of their idle time.
    pub(crate) fn undecided(&self) -> impl Iterator<Item = (usize, u64)> {
        self.cpus.iter().enumerate().filter_map(|(cpu, state)| match state.rest {
            Rest::Undecided(since_ns) => Some((cpu, since_ns)),
            _ => None,
        })
    }

    /// Decides a CPU's idle state, from the beginning of its idle time on.
    pub(crate) fn decide(&mut self, cpu: usize, deep: bool) {
        let Rest::Undecided(since_ns) = self.cpus[cpu].rest else { return };
        self.cpus[cpu].rest = if deep { Rest::Deep } else { Rest::Light };
        self.turn(since_ns, cpu, if deep { CpuActivity::IdlesDeep } else { CpuActivity::IdlesShallow });
    }

    /// Accounts for running tasks until `until_ns`.
    pub(crate) fn count(&mut self, until_ns: u64) {
        for cpu in 0..self.cpus.len() {
            self.charge(until_ns, cpu);
        }
    }

    fn spins_on(&self, cpu: usize) -> bool {
        self.cpus[cpu]
            .running
            .is_some_and(|running| self.tasks[running.task].spins && running.ends_ns == u64::MAX && running.looks)
    }

    fn ready(&mut self, now_ns: u64, task: usize) {
        self.turns_given += 1;
        self.tasks[task].turn = self.turns_given;
        self.tasks[task].state = State::Ready;
        if let Some(cpu) = self.place(task, now_ns) {
            let before = self.cpus[cpu].running.map(|running| running.task);
            self.stop(now_ns, cpu);
            self.pick(now_ns, cpu);
            if let Some(before) = before {
                self.move_preempted(now_ns, before);
            }
        }
    }

    /// Moves a preempted task to a free CPU, if any.
    fn move_preempted(&mut self, now_ns: u64, task: usize) {
        let mine = &self.tasks[task];
        if mine.state == State::Ready
            && let Some(cpu) = (mine.cpus.0..mine.cpus.0 + mine.cpus.1).find(|cpu| self.cpus[*cpu].is_free())
        {
            self.pick(now_ns, cpu);
        }
    }

    /// The CPU on which a newly ready task can start at once: its last one, a free one, or one whose task it preempts.
    fn place(&self, task: usize, now_ns: u64) -> Option<usize> {
        let mine = &self.tasks[task];
        let all = mine.cpus.0..mine.cpus.0 + mine.cpus.1;
        let free = |cpu: &usize| self.cpus[*cpu].is_free();
        let preempts = |cpu: &usize| {
            let running = self.cpus[*cpu].running.filter(|running| running.begins_ns <= now_ns);
            running.is_some_and(|running| self.makes_room(*cpu, running.task, task))
        };
        Some(mine.last).filter(free).or_else(|| all.clone().find(free)).or_else(|| all.clone().find(preempts))
    }

    /// Whether `task` preempts the running task of a CPU.
    fn makes_room(&self, cpu: usize, running: usize, task: usize) -> bool {
        let (running, mine) = (&self.tasks[running], &self.tasks[task]);
        match running.class {
            _ if self.spins_on(cpu) => mine.rank() < 4,
            Class::Background => mine.class < Class::Background,
            // Only outside the kernel.
            class => {
                let computes = matches!(running.pieces.front(), Some((Piece::Compute(_), _)));
                computes && mine.class == Class::Interrupt && class > Class::Interrupt
            }
        }
    }

    /// Preempts the running task; it stays first of its class.
    fn stop(&mut self, now_ns: u64, cpu: usize) {
        let Some(running) = self.cpus[cpu].running else { return };
        self.end(now_ns, cpu);
        let factor = u128::from(self.cpus[cpu].factor);
        let task = &mut self.tasks[running.task];
        if let (Some((Piece::Work(ns) | Piece::Compute(ns), _)), false) = (task.pieces.front_mut(), running.looks) {
            let left_ns = running.ends_ns.saturating_sub(now_ns.max(running.begins_ns));
            *ns = (u128::from(left_ns) << 16).div_ceil(factor) as u64;
        }
        (task.state, task.turn, task.early) = (State::Ready, 0, true);
    }

    /// Ends the running task of a CPU: accounts for its time and returns the rest of its grant.
    fn end(&mut self, now_ns: u64, cpu: usize) {
        self.charge(now_ns, cpu);
        let Some(running) = self.cpus[cpu].running.take() else { return };
        if let Some(group) = self.tasks[running.task].group {
            self.groups[group].left_ns += running.granted_ns.saturating_sub(now_ns.max(running.begins_ns));
        }
    }

    fn charge(&mut self, now_ns: u64, cpu: usize) {
        let Some(running) = &mut self.cpus[cpu].running else { return };
        let from_ns = running.counted_ns;
        if from_ns < now_ns {
            running.counted_ns = now_ns;
            self.used.push(Used { task: running.task, looks: running.looks, from_ns, to_ns: now_ns });
        }
    }

    /// Selects the next task for a free CPU.
    fn pick(&mut self, now_ns: u64, cpu: usize) {
        loop {
            let candidate = |&index: &usize| {
                let task = &self.tasks[index];
                (task.state == State::Ready).then(|| (task.rank(), task.turn, index))
            };
            let Some((_, _, task)) = self.by_cpu[cpu].iter().filter_map(candidate).min() else { break };
            if self.begin(now_ns, cpu, task) {
                return;
            }
            self.tasks[task].state = State::Throttled;
        }
        if self.cpus[cpu].rest == Rest::No {
            self.cpus[cpu].rest = Rest::Undecided(now_ns);
        }
    }

    /// Begins the first piece of a task; `false` if its group has no time left.
    fn begin(&mut self, now_ns: u64, cpu: usize, task: usize) -> bool {
        let grant_ns = self.grant(task);
        if grant_ns == Some(0) {
            return false;
        }
        let exit_ns = self.out_of_rest(now_ns, cpu, self.tasks[task].early);
        let begins_ns = now_ns + exit_ns;
        let beside =
            self.cpus[cpu].sibling.is_some_and(|sibling| !self.cpus[sibling].is_free() && !self.spins_on(sibling));
        let piece = self.tasks[task].pieces.front().map(|(piece, _)| *piece);
        let (ends_ns, looks) = match piece {
            Some(Piece::Work(ns) | Piece::Compute(ns)) => {
                let ns = if beside { ns + ns * self.hardware.sibling_slows_ppm / 1_000_000 } else { ns };
                (begins_ns + long(ns, self.cpus[cpu].factor), false)
            }
            Some(Piece::Look { found_ns: u64::MAX, .. }) | None => (u64::MAX, true),
            Some(Piece::Look { found_ns, more_ns }) => (begins_ns.max(found_ns) + more_ns, true),
        };
        let granted_ns = grant_ns.map_or(u64::MAX, |grant_ns| begins_ns + grant_ns);
        self.cpus[cpu].running = Some(Running { task, begins_ns, ends_ns, granted_ns, counted_ns: begins_ns, looks });
        (self.tasks[task].state, self.tasks[task].last) = (State::Runs(cpu), cpu);
        self.turn(begins_ns, cpu, if looks { CpuActivity::Spins } else { CpuActivity::Works });
        true
    }

    /// Takes a grant from the quota of a task's group.
    fn grant(&mut self, task: usize) -> Option<u64> {
        let group = &mut self.groups[self.tasks[task].group?];
        let grant_ns = group.left_ns.min(group.slice_ns);
        group.left_ns -= grant_ns;
        Some(grant_ns)
    }

    /// Renews the ended grant of a CPU's running task.
    fn regrant(&mut self, now_ns: u64, cpu: usize) {
        let Some(running) = self.cpus[cpu].running else { return };
        let grant_ns = self.grant(running.task).unwrap_or(0);
        if let Some(running) = self.cpus[cpu].running.as_mut().filter(|_| grant_ns > 0) {
            running.granted_ns = now_ns.max(running.begins_ns) + grant_ns;
            return;
        }
        self.stop(now_ns, cpu);
        self.tasks[running.task].state = State::Throttled;
        self.pick(now_ns, cpu);
    }

    /// Begins a period: refills the quota and unthrottles waiting tasks.
    fn refill(&mut self, now_ns: u64, group: usize) {
        let (quota_ns, period_ns) = (self.groups[group].quota_ns, self.groups[group].period_ns);
        (self.groups[group].left_ns, self.groups[group].ends_ns) = (quota_ns, now_ns + period_ns);
        for cpu in 0..self.cpus.len() {
            let of_group = self.cpus[cpu].running.filter(|running| self.tasks[running.task].group == Some(group));
            if of_group.is_some() {
                self.charge(now_ns, cpu);
                self.regrant(now_ns, cpu);
            }
        }
        let mut waiting: Vec<usize> = (0..self.tasks.len())
            .filter(|&task| self.tasks[task].group == Some(group) && self.tasks[task].state == State::Throttled)
            .collect();
        waiting.sort_by_key(|&task| (self.tasks[task].turn, task));
        for task in waiting {
            self.tasks[task].early = true;
            self.ready(now_ns, task);
        }
    }

    /// Begins a CPU's exit from idle; returns the exit latency.
    fn out_of_rest(&mut self, now_ns: u64, cpu: usize, early: bool) -> u64 {
        self.decide(cpu, false);
        let rest = std::mem::replace(&mut self.cpus[cpu].rest, Rest::No);
        let exit_ns = match rest {
            Rest::No | Rest::Undecided(_) => 0,
            Rest::Light => self.hardware.light_exit_ns,
            Rest::Deep => self.hardware.deep_exit_ns,
        };
        if rest == Rest::Deep {
            self.turn(now_ns, cpu, CpuActivity::IdlesShallow);
        }
        if early { 0 } else { exit_ns }
    }

    fn turn(&mut self, at_ns: u64, cpu: usize, activity: CpuActivity) {
        if self.cpus[cpu].activity != Some(activity) {
            self.cpus[cpu].activity = Some(activity);
            self.turns.push(Turn { at_ns, cpu, activity });
        }
    }
}

/// Converts time at full speed to time at a CPU's speed.
fn long(ns: u64, factor: u32) -> u64 {
    u32::try_from(ns).map_or_else(|_| ((u128::from(ns) * u128::from(factor)) >> 16) as u64, |ns| scaled(ns, factor))
}

#[cfg(test)]
#[path = "dispatch_tests.rs"]
mod tests;
