//! The fast engine: events are processed by windows.

use super::Simulation;
use super::core::Core;
use super::meter::EPOCH_NS;
use super::scheduled::Scheduled;
use crate::ssd::Ssd;

pub(crate) fn run(sim: &mut Simulation<'_>) {
    let longest_ns = sim.window_ns();
    let duration_ns = sim.scenario.duration_ns;
    let mut from_ns = 0;
    while from_ns < duration_ns {
        sim.shared.quota.advance(from_ns);
        let until_ns = limit(sim, from_ns, longest_ns.min(sim.shared.interrupts.window_ns())).min(duration_ns);
        from_ns = window(sim, from_ns, until_ns);
        let grid_ns = from_ns / EPOCH_NS * EPOCH_NS;
        sim.account(grid_ns);
        let lead_ns = sim.lead_ns();
        sim.shared.recorder.settle(grid_ns.saturating_sub(lead_ns)); // hosts send before requests arrive
    }
    sim.advance_clients(duration_ns);
}

/// The latest end of a window that begins at `from_ns`.
fn limit(sim: &mut Simulation<'_>, from_ns: u64, longest_ns: u64) -> u64 {
    let stability = stability(sim);
    let epoch_ns = (from_ns / EPOCH_NS + 1) * EPOCH_NS;
    let mut until_ns = from_ns + longest_ns;
    if stability != Stability::Lasting {
        until_ns = until_ns.min(epoch_ns);
    }
    if stability != Stability::None && !sim.shared.due_ns.iter().any(|&due_ns| due_ns < until_ns) {
        until_ns = until_ns.max(next_event(sim)); // costly search, only if the next event may be distant
    }
    let step = sim.scenario.series_ns;
    until_ns.min((from_ns / step + 1) * step).min(sim.sensed_ns())
}

/// How long cores remain in their states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stability {
    /// Some core may change its state by itself or by a pending command.
    None,
    /// Until an event for a core that waits in the kernel.
    UntilEvent,
    /// Until a command of the policy: all cores with I/O threads poll.
    Lasting,
}

fn stability(sim: &mut Simulation<'_>) -> Stability {
    let Simulation { cores, shared, meter, scheduled, .. } = sim;
    if scheduled.as_ref().is_some_and(|scheduled| !scheduled.is_quiet()) {
        return Stability::None;
    }
    if !meter.is_calm(shared.changed_ns) || !cores.iter_mut().all(|core| core.is_settled(shared)) {
        return Stability::None;
    }
    if scheduled.is_some() || cores.iter().any(Core::idles) { Stability::UntilEvent } else { Stability::Lasting }
}

/// The next event of any core.
fn next_event(sim: &Simulation<'_>) -> u64 {
    let half_ns = sim.half_trip_ns;
    let sent = sim.next_arrival_ns();
    let due = sim.shared.due_ns.iter().copied().min().unwrap_or(u64::MAX);
    let submitted = sim.shared.submissions.iter().map(|submission| submission.at_ns).min().unwrap_or(u64::MAX);
    let answered = sim.shared.answers.iter().map(|answer| answer.at_ns).min().unwrap_or(u64::MAX);
    let traced = sim.next_arrival.map_or(u64::MAX, |arrival| arrival.at_ns.saturating_add(half_ns));
    let job = sim.scheduled.as_ref().map_or(u64::MAX, |scheduled| scheduled.next_ns());
    let capped = sim.shared.caps.next_ns();
    let interrupt = sim.shared.interrupts.first_ns();
    let stripes = sim.md.as_ref().and_then(|md| md.first()).map_or(u64::MAX, |submission| submission.at_ns);
    let waited = sim.cores.iter().map(Core::idle_until_ns).min().unwrap_or(u64::MAX);
    let sent = sent.min(waited);
    sent.min(due).min(submitted).min(answered).min(traced).min(job).min(capped).min(interrupt).min(stripes)
}

/// Runs one window, from `from_ns` until `until_ns` or a policy call; returns its end.
fn window(sim: &mut Simulation<'_>, from_ns: u64, until_ns: u64) -> u64 {
    arrivals(sim, until_ns);
    let needs_order = sim.shared.moving > 0 || sim.shared.round_ns != u64::MAX || uses_quota(sim, until_ns);
    let (until_ns, calls_policy) = if needs_order { together(sim, until_ns) } else { alone(sim, until_ns) };
    if sim.md.is_some() {
        stripes(sim, until_ns);
    }
    let mut scheduled = sim.scheduled.take();
    if let Some(scheduled) = &mut scheduled {
        jobs(sim, scheduled, from_ns, until_ns);
    } else if sim.shared.caps.is_active() {
        capped(sim, until_ns);
    } else {
        drives(sim, from_ns, until_ns);
    }
    sim.scheduled = scheduled;
    network(sim, from_ns, until_ns);
    if calls_policy {
        sim.call_policy();
        pass(sim, until_ns);
    }
    until_ns
}

/// Skips ticks at which the policy is not called, because no event occurs.
fn pass(sim: &mut Simulation<'_>, now_ns: u64) {
    let walks = sim.shared.polls.is_some();
    if walks || !sim.director.may_skip() || sim.shared.moving > 0 || stability(sim) == Stability::None {
        return;
    }
    let step = sim.scenario.series_ns;
    let until_ns = next_event(sim).min((now_ns / step + 1) * step).min(sim.scenario.duration_ns);
    let Simulation { cores, shared, director, main, .. } = sim;
    director.pass(&mut cores[*main], shared, until_ns);
}

#[inline(never)]
fn arrivals(sim: &mut Simulation<'_>, until_ns: u64) {
    let mut sent = std::mem::take(&mut sim.sent);
    sim.advance_clients(until_ns.saturating_sub(sim.lead_ns()));
    if let Some(clients) = &mut sim.clients {
        clients.take_sent(until_ns, &mut sent);
        sent.sort_unstable(); // those of two threads may leave at once
    }
    let until_ns = until_ns.saturating_sub(sim.half_trip_ns);
    sim.read_trace(until_ns);
    if sim.clients.is_none() {
        for host in &mut sim.hosts {
            host.send(until_ns, &mut sent);
        }
    }
    if sim.shared.interrupts.takes_packets() {
        sent.sort_unstable();
        sent.iter().for_each(|sent| sim.arrive_any(sent));
    } else if sim.in_order {
        let mut order = std::mem::take(&mut sim.order);
        let from_ns = sent.iter().map(|sent| sent.at_ns).min().unwrap_or(0);
        order.until(&sent, from_ns, until_ns, |sent| (sent.at_ns, 0));
        order.places().for_each(|place| sim.arrive(&sent[place]));
        sim.order = order;
    } else {
        sent.iter().for_each(|sent| sim.arrive(sent));
    }
    sent.clear();
    sim.sent = sent;
}

/// Advances every core independently; the main core first, because its policy call ends the window of the others.
fn alone(sim: &mut Simulation<'_>, until_ns: u64) -> (u64, bool) {
    let Simulation { cores, shared, main, polls, .. } = sim;
    let cores = &mut cores[..*polls];
    if *main >= cores.len() {
        return (until_ns, false); // no polling cores
    }
    let calls_policy = cores[*main].advance(shared, until_ns, true);
    let until_ns = if calls_policy { cores[*main].now_ns } else { until_ns };
    for (index, core) in cores.iter_mut().enumerate() {
        if index != *main && !core.rests_until(shared, until_ns) {
            core.advance(shared, until_ns, true);
        }
    }
    (until_ns, calls_policy)
}

/// Whether cores may take CPU time from the quota, or return it, before `until_ns`.
fn uses_quota(sim: &mut Simulation<'_>, until_ns: u64) -> bool {
    let Simulation { cores, shared, .. } = sim;
    shared.quota.is_active() && cores.iter_mut().any(|core| core.uses_quota(shared, until_ns))
}

/// With moving I/O threads, CPU time taken from the quota, or cores that report long rounds: advances the cores involved in moves, all in the quota's group,
/// or all, step by step in time order, the others independently.
fn together(sim: &mut Simulation<'_>, until_ns: u64) -> (u64, bool) {
    let mut involved = std::mem::take(&mut sim.involved);
    let quota = uses_quota(sim, until_ns);
    involve(sim, quota, &mut involved);
    let Simulation { cores, shared, main, .. } = sim;
    let mut end = (until_ns, false);
    if !involved.contains(main) && cores[*main].advance(shared, until_ns, true) {
        end = (cores[*main].now_ns, true);
    }
    let end = in_turn(sim, &involved, end);
    let Simulation { cores, shared, main, polls, .. } = sim;
    for (index, core) in cores.iter_mut().enumerate().take(*polls) {
        if index != *main && !core.rests_until(shared, end.0) && !involved.contains(&index) {
            core.advance(shared, end.0, true);
        }
    }
    sim.involved = involved;
    end
}

/// Collects the cores involved in moves; with `quota`, all in the quota's group.
fn involve(sim: &Simulation<'_>, quota: bool, involved: &mut Vec<usize>) {
    involved.clear();
    let moving = sim.shared.threads.iter().filter(|thread| thread.home != Some(thread.destination));
    involved.extend(moving.flat_map(|thread| thread.home.into_iter().chain([thread.destination])).map(usize::from));
    let reports = sim.shared.round_ns != u64::MAX;
    let is_involved = |core: &Core| core.has_messages() || (quota && core.is_limited());
    let is_involved = |&(index, core): &(usize, &Core)| reports && index < sim.polls || is_involved(core);
    involved.extend(sim.cores.iter().enumerate().filter(is_involved).map(|(index, _)| index));
    involved.sort_unstable();
    involved.dedup();
}

/// Repeatedly advances the involved core that acts first, until the next one does or it sends a message.
fn in_turn(sim: &mut Simulation<'_>, involved: &[usize], (until_ns, calls_policy): (u64, bool)) -> (u64, bool) {
    let mut turns = std::mem::take(&mut sim.turns);
    find_turns(sim, involved, until_ns, &mut turns);
    // Otherwise a step of one core changes when another acts only by a message.
    let shares = sim.shared.quota.is_active() || sim.shared.interrupts.is_active();
    let end = loop {
        let (mut first, mut second_ns, mut place) = ((u64::MAX, true, 0), until_ns, 0);
        for (at, &turn) in turns.iter().enumerate() {
            second_ns = second_ns.min(first.0.max(turn.0));
            if turn < first {
                (first, place) = (turn, at);
            }
        }
        let (at_ns, _, index) = first;
        if turns.is_empty() {
            break (until_ns, calls_policy);
        }
        let Simulation { cores, shared, .. } = &mut *sim;
        if cores[index].advance(shared, second_ns.max(at_ns + 1), true) {
            break (cores[index].now_ns, true);
        }
        if shares || !shared.messages.is_empty() {
            sim.deliver();
            find_turns(sim, involved, until_ns, &mut turns);
        } else {
            turns[place].0 = cores[index].acts_ns(shared);
            if turns[place].0 >= until_ns {
                turns.swap_remove(place);
            }
        }
    };
    for &index in involved {
        sim.cores[index].poll_in_vain(&mut sim.shared, end.0);
    }
    sim.turns = turns;
    end
}

/// When cores act before `until_ns`, the main core first.
fn find_turns(sim: &mut Simulation<'_>, involved: &[usize], until_ns: u64, turns: &mut Vec<(u64, bool, usize)>) {
    let Simulation { cores, shared, main, .. } = sim;
    turns.clear();
    turns.extend(involved.iter().map(|&index| (cores[index].acts_ns(shared), index != *main, index)));
    turns.retain(|turn| turn.0 < until_ns);
}

/// Advances scheduled cores, then all drives with the submissions of jobs and I/O threads in time order.
#[inline(never)] // keeps the loop over windows small for polling cores
fn jobs(sim: &mut Simulation<'_>, scheduled: &mut Scheduled, from_ns: u64, until_ns: u64) {
    scheduled.advance(from_ns, until_ns, &sim.cores, &mut sim.shared);
    let mut ios = scheduled.take_ios();
    ios.sort_unstable();
    let mut submissions = std::mem::take(&mut sim.shared.submissions);
    submissions.sort_unstable();
    let later = submissions.split_off(submissions.partition_point(|submission| submission.at_ns < until_ns));
    let (mut ios, mut submissions) = (ios.iter().peekable(), submissions.iter().peekable());
    loop {
        match (ios.peek(), submissions.peek()) {
            (Some(io), Some(submission)) if (submission.at_ns, submission.core) < (io.at_ns, io.core) => {
                submissions.next().into_iter().for_each(|submission| sim.submit_any(submission));
            }
            (Some(_), _) => ios.next().into_iter().for_each(|io| sim.submit_io(scheduled, io)),
            (None, Some(_)) => submissions.next().into_iter().for_each(|submission| sim.submit_any(submission)),
            (None, None) => break,
        }
    }
    sim.shared.submissions = later;
    if scheduled.halts(until_ns) {
        scheduled.jobs.to_move_ns = sim.drives.iter().map(Ssd::to_move_ns).max().unwrap_or(0);
    }
    scheduled.settle(until_ns, &mut sim.cores, &mut sim.shared);
}

/// Processes md's commands before `until_ns`, and its submissions to drives, in time order with all others.
#[inline(never)]
fn stripes(sim: &mut Simulation<'_>, until_ns: u64) {
    let Simulation { md, shared, .. } = sim;
    let Some(md) = md else { return };
    let mut submissions = std::mem::take(&mut shared.submissions);
    submissions.sort_unstable();
    submissions.retain(|submission| {
        let stays = submission.at_ns >= until_ns || !shared.goes_through(md, submission);
        if !stays {
            md.enter(*submission);
        }
        stays
    });
    submissions.extend(std::iter::from_fn(|| md.pop(until_ns)));
    submissions.sort_unstable();
    shared.submissions = submissions;
}

#[inline(never)]
fn drives(sim: &mut Simulation<'_>, from_ns: u64, until_ns: u64) {
    let mut submissions = std::mem::replace(&mut sim.shared.submissions, std::mem::take(&mut sim.submissions));
    let mut order = std::mem::take(&mut sim.order);
    order.until(&submissions, from_ns, until_ns, |submission| (submission.at_ns, submission.core));
    if sim.submits_requests_only() {
        order.places().for_each(|place| sim.submit::<false>(&submissions[place]));
    } else {
        order.places().for_each(|place| sim.submit_any(&submissions[place]));
    }
    sim.shared.submissions.extend(order.later().map(|place| submissions[place]));
    submissions.clear();
    sim.submissions = submissions;
    sim.order = order;
}

/// Processes I/O threads' commands under caps, in time order with delayed ones.
#[inline(never)] // keeps the loop over windows small without caps
fn capped(sim: &mut Simulation<'_>, until_ns: u64) {
    let mut submissions = std::mem::take(&mut sim.shared.submissions);
    submissions.sort_unstable();
    let later = submissions.split_off(submissions.partition_point(|submission| submission.at_ns < until_ns));
    let mut next_arrival = submissions.iter().peekable();
    loop {
        let caps_ns = sim.shared.caps.next_ns();
        let comes_ns = next_arrival.peek().map_or(u64::MAX, |submission| submission.at_ns);
        if caps_ns < until_ns && caps_ns <= comes_ns {
            sim.advance_caps();
        } else if let Some(submission) = next_arrival.next() {
            sim.offer(submission);
        } else {
            break;
        }
    }
    sim.shared.submissions = later;
}

#[inline(never)]
fn network(sim: &mut Simulation<'_>, from_ns: u64, until_ns: u64) {
    let mut answers = std::mem::replace(&mut sim.shared.answers, std::mem::take(&mut sim.answers));
    let mut order = std::mem::take(&mut sim.order);
    order.until(&answers, from_ns, until_ns, |answer| (answer.at_ns, answer.core));
    order.places().for_each(|place| sim.answer(&answers[place]));
    sim.shared.answers.extend(order.later().map(|place| answers[place]));
    answers.clear();
    sim.answers = answers;
    sim.order = order;
}
