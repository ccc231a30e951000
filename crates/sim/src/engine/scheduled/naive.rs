//! Naive nanosecond-by-nanosecond model of [`super::dispatch`], the reference for small cases.
//!
//! Every nanosecond: completed pieces end and their CPUs select the next task, periods begin, grants end, tasks are woken, and every busy CPU works
//! for a nanosecond. Nothing is computed ahead.

use super::task::Class;

/// A task: class, allowed CPUs, group, and the work of its pieces by arrival time.
#[derive(Clone, Debug)]
pub(super) struct Script {
    pub(super) class: Class,
    pub(super) cpus: (usize, usize),
    pub(super) group: Option<usize>,
    /// Work by arrival time: (time, nanoseconds), in time order.
    pub(super) work: Vec<(u64, u64)>,
}

/// Quota, period and slice of a group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quota {
    pub(super) quota_ns: u64,
    pub(super) period_ns: u64,
    pub(super) slice_ns: u64,
}

#[derive(Clone, Debug, Default)]
struct Task {
    pieces: Vec<u64>,
    given: usize,
    ready: bool,
    throttled: bool,
    turn: u64,
    last: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cpu {
    task: Option<usize>,
    grant: u64,
}

/// Ends of all pieces: (time, CPU, task), in this order.
pub(super) fn run(cpus: usize, scripts: &[Script], quotas: &[Quota], until_ns: u64) -> Vec<(u64, usize, usize)> {
    let mut sim = Simulation {
        scripts,
        quotas,
        tasks: scripts.iter().map(|script| Task { last: script.cpus.0, ..Task::default() }).collect(),
        cpus: vec![Cpu::default(); cpus],
        left: quotas.iter().map(|quota| quota.quota_ns).collect(),
        turns: 0,
        ended: Vec::new(),
    };
    for now in 0..until_ns {
        sim.ends(now);
        sim.periods(now);
        (0..cpus).for_each(|cpu| sim.continues(cpu));
        sim.wakes(now);
        sim.work();
    }
    sim.ended
}

struct Simulation<'a> {
    scripts: &'a [Script],
    quotas: &'a [Quota],
    tasks: Vec<Task>,
    cpus: Vec<Cpu>,
    left: Vec<u64>,
    turns: u64,
    ended: Vec<(u64, usize, usize)>,
}

impl Simulation<'_> {
    fn periods(&mut self, now: u64) {
        for group in 0..self.quotas.len() {
            if now == 0 || !now.is_multiple_of(self.quotas[group].period_ns) {
                continue;
            }
            self.left[group] = self.quotas[group].quota_ns;
            for cpu in 0..self.cpus.len() {
                if self.cpus[cpu].task.is_some_and(|task| self.scripts[task].group == Some(group)) {
                    self.cpus[cpu].grant = 0;
                    self.continues(cpu);
                }
            }
            let mut waiting: Vec<usize> = (0..self.tasks.len())
                .filter(|&task| self.scripts[task].group == Some(group) && self.tasks[task].throttled)
                .collect();
            waiting.sort_by_key(|&task| (self.tasks[task].turn, task));
            for task in waiting {
                self.tasks[task].throttled = false;
                self.becomes_ready(task);
            }
        }
    }

    /// Ends completed pieces.
    fn ends(&mut self, now: u64) {
        for cpu in 0..self.cpus.len() {
            let Some(task) = self.cpus[cpu].task else { continue };
            if self.tasks[task].pieces[0] == 0 {
                self.tasks[task].pieces.remove(0);
                self.ended.push((now, cpu, task));
                self.leaves(cpu);
                self.tasks[task].ready = !self.tasks[task].pieces.is_empty();
                self.tasks[task].turn = 0;
                self.pick(cpu);
                self.move_preempted(task);
            }
        }
    }

    fn move_preempted(&mut self, task: usize) {
        let (first, count) = self.scripts[task].cpus;
        let free = (first..first + count).find(|&cpu| self.cpus[cpu].task.is_none());
        if let (true, Some(cpu)) = (self.tasks[task].ready, free) {
            self.pick(cpu);
        }
    }

    /// Continues if a grant is left or available.
    fn continues(&mut self, cpu: usize) {
        let Some(task) = self.cpus[cpu].task else { return };
        if self.scripts[task].group.is_none() || self.cpus[cpu].grant > 0 {
            return;
        }
        self.cpus[cpu].grant = self.take(task);
        if self.cpus[cpu].grant == 0 {
            self.leaves(cpu);
            self.tasks[task].turn = 0;
            self.tasks[task].throttled = true;
            self.pick(cpu);
        }
    }

    fn take(&mut self, task: usize) -> u64 {
        let Some(group) = self.scripts[task].group else { return u64::MAX };
        let grant = self.left[group].min(self.quotas[group].slice_ns);
        self.left[group] -= grant;
        grant
    }

    fn leaves(&mut self, cpu: usize) {
        let Some(task) = self.cpus[cpu].task.take() else { return };
        if let Some(group) = self.scripts[task].group {
            self.left[group] += self.cpus[cpu].grant;
        }
        self.tasks[task].last = cpu;
    }

    fn pick(&mut self, cpu: usize) {
        loop {
            let mut best: Option<usize> = None;
            for task in 0..self.tasks.len() {
                let (first, count) = self.scripts[task].cpus;
                if !self.tasks[task].ready || cpu < first || cpu >= first + count {
                    continue;
                }
                let better = |other: usize| {
                    (self.scripts[task].class, self.tasks[task].turn)
                        < (self.scripts[other].class, self.tasks[other].turn)
                };
                if best.is_none_or(better) {
                    best = Some(task);
                }
            }
            let Some(task) = best else { return };
            self.tasks[task].ready = false;
            let grant = self.take(task);
            if grant == 0 {
                self.tasks[task].throttled = true;
                continue;
            }
            self.tasks[task].last = cpu;
            self.cpus[cpu] = Cpu { task: Some(task), grant };
            return;
        }
    }

    fn wakes(&mut self, now: u64) {
        for task in 0..self.tasks.len() {
            while let Some(&(at, ns)) = self.scripts[task].work.get(self.tasks[task].given)
                && at == now
            {
                self.tasks[task].given += 1;
                self.tasks[task].pieces.push(ns);
                let runs = self.cpus.iter().any(|cpu| cpu.task == Some(task));
                if !runs && !self.tasks[task].ready && !self.tasks[task].throttled {
                    self.becomes_ready(task);
                }
            }
        }
    }

    fn becomes_ready(&mut self, task: usize) {
        self.turns += 1;
        self.tasks[task].turn = self.turns;
        self.tasks[task].ready = true;
        let (first, count) = self.scripts[task].cpus;
        let free = |cpu: &usize| self.cpus[*cpu].task.is_none();
        let background = |cpu: &usize| {
            self.cpus[*cpu].task.is_some_and(|other| {
                let (other, mine) = (self.scripts[other].class, self.scripts[task].class);
                other == Class::Background && mine < other
            })
        };
        let all = || first..first + count;
        let place =
            Some(self.tasks[task].last).filter(free).or_else(|| all().find(free)).or_else(|| all().find(background));
        let Some(cpu) = place else { return };
        let before = self.cpus[cpu].task;
        if let Some(other) = before {
            self.leaves(cpu);
            self.tasks[other].ready = true;
            self.tasks[other].turn = 0;
        }
        self.pick(cpu);
        if let Some(other) = before {
            self.move_preempted(other);
        }
    }

    fn work(&mut self) {
        for cpu in &mut self.cpus {
            let Some(task) = cpu.task else { continue };
            self.tasks[task].pieces[0] -= 1;
            cpu.grant = cpu.grant.saturating_sub(1);
        }
    }
}
