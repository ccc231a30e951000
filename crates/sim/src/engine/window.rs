//! The fast order of events: by windows.

use super::World;
use super::core::Core;
use super::meter::EPOCH_NS;
use super::scheduled::Scheduled;
use crate::ssd::Ssd;

pub(crate) fn run(world: &mut World<'_>) {
    let longest_ns = world.window_ns();
    let duration_ns = world.scenario.duration_ns;
    let mut from_ns = 0;
    while from_ns < duration_ns {
        world.floor.quota.advance(from_ns);
        let until_ns = limit(world, from_ns, longest_ns.min(world.floor.interrupts.window_ns())).min(duration_ns);
        from_ns = window(world, from_ns, until_ns);
        let grid_ns = from_ns / EPOCH_NS * EPOCH_NS;
        world.account(grid_ns);
        let half_ns = world.half_trip_ns;
        world.floor.recorder.settle(grid_ns.saturating_sub(half_ns)); // hosts have sent before it arrives
    }
}

/// How far a window may reach that begins at `from_ns`.
fn limit(world: &mut World<'_>, from_ns: u64, longest_ns: u64) -> u64 {
    let calm = calm(world);
    let epoch_ns = (from_ns / EPOCH_NS + 1) * EPOCH_NS;
    let mut until_ns = from_ns + longest_ns;
    if calm != Calm::Lasting {
        until_ns = until_ns.min(epoch_ns);
    }
    if calm != Calm::None && !world.floor.due_ns.iter().any(|&due_ns| due_ns < until_ns) {
        until_ns = until_ns.max(next_event(world)); // looked for among all, but only where it may be far
    }
    let step = world.scenario.series_ns;
    until_ns.min((from_ns / step + 1) * step).min(world.sensed_ns())
}

/// Whether cores stay in the states in which they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Calm {
    /// Some core may change its state by itself, or by what it has been told.
    None,
    /// Until something comes for a core that waits for it in the kernel.
    UntilSomethingComes,
    /// Whatever comes, unless the policy commands: all that have I/O threads poll.
    Lasting,
}

fn calm(world: &mut World<'_>) -> Calm {
    let World { cores, floor, meter, scheduled, .. } = world;
    if scheduled.as_ref().is_some_and(|scheduled| !scheduled.is_quiet()) {
        return Calm::None;
    }
    if !meter.is_calm(floor.changed_ns) || !cores.iter_mut().all(|core| core.is_settled(floor)) {
        return Calm::None;
    }
    if scheduled.is_some() || cores.iter().any(Core::idles) { Calm::UntilSomethingComes } else { Calm::Lasting }
}

/// The next moment at which anything comes to a core.
fn next_event(world: &World<'_>) -> u64 {
    let half_ns = world.half_trip_ns;
    let sent = world.hosts.iter().map(|host| host.next_event_ns().saturating_add(half_ns)).min().unwrap_or(u64::MAX);
    let due = world.floor.due_ns.iter().copied().min().unwrap_or(u64::MAX);
    let submitted = world.floor.submissions.iter().map(|submission| submission.at_ns).min().unwrap_or(u64::MAX);
    let answered = world.floor.answers.iter().map(|answer| answer.at_ns).min().unwrap_or(u64::MAX);
    let traced = world.coming.map_or(u64::MAX, |arrival| arrival.at_ns.saturating_add(half_ns));
    let job = world.scheduled.as_ref().map_or(u64::MAX, |scheduled| scheduled.next_ns());
    let capped = world.floor.caps.next_ns();
    let interrupt = world.floor.interrupts.first_ns();
    let stripes = world.md.as_ref().and_then(|md| md.first()).map_or(u64::MAX, |submission| submission.at_ns);
    sent.min(due).min(submitted).min(answered).min(traced).min(job).min(capped).min(interrupt).min(stripes)
}

/// One window, from `from_ns` until `until_ns` or until the policy is asked; where it has ended.
fn window(world: &mut World<'_>, from_ns: u64, until_ns: u64) -> u64 {
    arrivals(world, until_ns);
    let needs_order = world.floor.moving > 0 || uses_quota(world, until_ns);
    let (until_ns, asks) = if needs_order { together(world, until_ns) } else { alone(world, until_ns) };
    if world.md.is_some() {
        stripes(world, until_ns);
    }
    let mut scheduled = world.scheduled.take();
    if let Some(scheduled) = &mut scheduled {
        jobs(world, scheduled, from_ns, until_ns);
    } else if world.floor.caps.is_active() {
        capped(world, until_ns);
    } else {
        drives(world, from_ns, until_ns);
    }
    world.scheduled = scheduled;
    network(world, from_ns, until_ns);
    if asks {
        world.ask();
        pass(world, until_ns);
    }
    until_ns
}

/// Passes over moments at which the policy would be left out: it has been, and nothing comes for some time.
fn pass(world: &mut World<'_>, now_ns: u64) {
    let walks = world.floor.polls.is_some();
    if walks || !world.director.leaves_out() || world.floor.moving > 0 || calm(world) == Calm::None {
        return;
    }
    let step = world.scenario.series_ns;
    let until_ns = next_event(world).min((now_ns / step + 1) * step).min(world.scenario.duration_ns);
    let World { cores, floor, director, main, .. } = world;
    director.pass(&mut cores[*main], floor, until_ns);
}

#[inline(never)]
fn arrivals(world: &mut World<'_>, until_ns: u64) {
    let until_ns = until_ns.saturating_sub(world.half_trip_ns);
    world.read_trace(until_ns);
    let mut sent = std::mem::take(&mut world.sent);
    for host in &mut world.hosts {
        host.send(until_ns, &mut sent);
    }
    if world.floor.interrupts.takes_packets() {
        sent.sort_unstable();
        sent.iter().for_each(|sent| world.arrive_any(sent));
    } else if world.in_order {
        let mut order = std::mem::take(&mut world.order);
        let from_ns = sent.iter().map(|sent| sent.at_ns).min().unwrap_or(0);
        order.until(&sent, from_ns, until_ns, |sent| (sent.at_ns, 0));
        order.places().for_each(|place| world.arrive(&sent[place]));
        world.order = order;
    } else {
        sent.iter().for_each(|sent| world.arrive(sent));
    }
    sent.clear();
    world.sent = sent;
}

/// Every core alone: the main core first, for where it asks is the end for the others.
fn alone(world: &mut World<'_>, until_ns: u64) -> (u64, bool) {
    let World { cores, floor, main, polls, .. } = world;
    let cores = &mut cores[..*polls];
    if *main >= cores.len() {
        return (until_ns, false); // nobody polls
    }
    let asks = cores[*main].advance(floor, until_ns, true);
    let until_ns = if asks { cores[*main].now_ns } else { until_ns };
    for (index, core) in cores.iter_mut().enumerate() {
        if index != *main && !core.rests_until(floor, until_ns) {
            core.advance(floor, until_ns, true);
        }
    }
    (until_ns, asks)
}

/// Whether cores may take CPU time from the quota, or return any, before `until_ns`.
fn uses_quota(world: &mut World<'_>, until_ns: u64) -> bool {
    let World { cores, floor, .. } = world;
    floor.quota.is_active() && cores.iter_mut().any(|core| core.uses_quota(floor, until_ns))
}

/// Some I/O threads are on their way, or some cores take CPU time from the quota: the cores between which they are, or all that the
/// quota counts for, go step by step in the order of time, the others alone.
fn together(world: &mut World<'_>, until_ns: u64) -> (u64, bool) {
    let mut involved = std::mem::take(&mut world.involved);
    let quota = uses_quota(world, until_ns);
    involve(world, quota, &mut involved);
    let World { cores, floor, main, .. } = world;
    let mut end = (until_ns, false);
    if !involved.contains(main) && cores[*main].advance(floor, until_ns, true) {
        end = (cores[*main].now_ns, true);
    }
    let end = in_turn(world, &involved, end);
    let World { cores, floor, main, polls, .. } = world;
    for (index, core) in cores.iter_mut().enumerate().take(*polls) {
        if index != *main && !core.rests_until(floor, end.0) && !involved.contains(&index) {
            core.advance(floor, end.0, true);
        }
    }
    world.involved = involved;
    end
}

/// The cores that can send each other I/O threads, or get any; with `quota` all for which it counts.
fn involve(world: &World<'_>, quota: bool, involved: &mut Vec<usize>) {
    involved.clear();
    let moving = world.floor.threads.iter().filter(|thread| thread.home != Some(thread.destination));
    involved.extend(moving.flat_map(|thread| thread.home.into_iter().chain([thread.destination])).map(usize::from));
    let is_involved = |core: &Core| core.has_mail() || (quota && core.is_limited());
    involved.extend(world.cores.iter().enumerate().filter(|(_, core)| is_involved(core)).map(|(index, _)| index));
    involved.sort_unstable();
    involved.dedup();
}

/// Goes on with the earliest of some cores, up to where the next one begins or one sends another something.
fn in_turn(world: &mut World<'_>, involved: &[usize], (until_ns, asks): (u64, bool)) -> (u64, bool) {
    loop {
        let World { cores, floor, main, .. } = &mut *world;
        let (mut first, mut second_ns) = ((u64::MAX, true, 0), u64::MAX);
        for &index in involved {
            let next = (cores[index].next_ns(floor), index != *main, index);
            second_ns = second_ns.min(first.0.max(next.0));
            first = first.min(next);
        }
        let (at_ns, _, index) = first;
        if at_ns >= until_ns {
            return (until_ns, asks);
        }
        if cores[index].advance(floor, second_ns.clamp(at_ns + 1, until_ns), true) {
            return (cores[index].now_ns, true);
        }
        world.deliver();
    }
}

/// Scheduled cores, and then all drives: what jobs and I/O threads submit goes in the order of time.
#[inline(never)] // the loop over windows is for cores that poll
fn jobs(world: &mut World<'_>, scheduled: &mut Scheduled, from_ns: u64, until_ns: u64) {
    scheduled.advance(from_ns, until_ns, &world.cores, &mut world.floor);
    let mut ios = scheduled.take_ios();
    ios.sort_unstable();
    let mut submissions = std::mem::take(&mut world.floor.submissions);
    submissions.sort_unstable();
    let later = submissions.split_off(submissions.partition_point(|submission| submission.at_ns < until_ns));
    let (mut ios, mut submissions) = (ios.iter().peekable(), submissions.iter().peekable());
    loop {
        match (ios.peek(), submissions.peek()) {
            (Some(io), Some(submission)) if (submission.at_ns, submission.core) < (io.at_ns, io.core) => {
                submissions.next().into_iter().for_each(|submission| world.submit_any(submission));
            }
            (Some(_), _) => ios.next().into_iter().for_each(|io| world.submit_io(scheduled, io)),
            (None, Some(_)) => submissions.next().into_iter().for_each(|submission| world.submit_any(submission)),
            (None, None) => break,
        }
    }
    world.floor.submissions = later;
    if scheduled.halts(until_ns) {
        scheduled.jobs.to_move_ns = world.drives.iter().map(Ssd::to_move_ns).max().unwrap_or(0);
    }
    scheduled.settle(until_ns, &mut world.cores, &mut world.floor);
}

/// What the thread of md gets before `until_ns`, and what it hands to drives by then, in the order of time with the rest.
#[inline(never)]
fn stripes(world: &mut World<'_>, until_ns: u64) {
    let World { md, floor, .. } = world;
    let Some(md) = md else { return };
    let mut submissions = std::mem::take(&mut floor.submissions);
    submissions.sort_unstable();
    submissions.retain(|submission| {
        let stays = submission.at_ns >= until_ns || !floor.goes_through(md, submission);
        if !stays {
            md.enter(*submission);
        }
        stays
    });
    submissions.extend(std::iter::from_fn(|| md.pop(until_ns)));
    submissions.sort_unstable();
    floor.submissions = submissions;
}

#[inline(never)]
fn drives(world: &mut World<'_>, from_ns: u64, until_ns: u64) {
    let mut submissions = std::mem::replace(&mut world.floor.submissions, std::mem::take(&mut world.submissions));
    let mut order = std::mem::take(&mut world.order);
    order.until(&submissions, from_ns, until_ns, |submission| (submission.at_ns, submission.core));
    if world.submits_requests_only() {
        order.places().for_each(|place| world.submit::<false>(&submissions[place]));
    } else {
        order.places().for_each(|place| world.submit_any(&submissions[place]));
    }
    world.floor.submissions.extend(order.later().map(|place| submissions[place]));
    submissions.clear();
    world.submissions = submissions;
    world.order = order;
}

/// Commands of I/O threads while something is capped, in the order of time with those that have waited.
#[inline(never)] // the loop over windows is for what nobody caps
fn capped(world: &mut World<'_>, until_ns: u64) {
    let mut submissions = std::mem::take(&mut world.floor.submissions);
    submissions.sort_unstable();
    let later = submissions.split_off(submissions.partition_point(|submission| submission.at_ns < until_ns));
    let mut coming = submissions.iter().peekable();
    loop {
        let caps_ns = world.floor.caps.next_ns();
        let comes_ns = coming.peek().map_or(u64::MAX, |submission| submission.at_ns);
        if caps_ns < until_ns && caps_ns <= comes_ns {
            world.advance_caps();
        } else if let Some(submission) = coming.next() {
            world.offer(submission);
        } else {
            break;
        }
    }
    world.floor.submissions = later;
}

#[inline(never)]
fn network(world: &mut World<'_>, from_ns: u64, until_ns: u64) {
    let mut answers = std::mem::replace(&mut world.floor.answers, std::mem::take(&mut world.answers));
    let mut order = std::mem::take(&mut world.order);
    order.until(&answers, from_ns, until_ns, |answer| (answer.at_ns, answer.core));
    order.places().for_each(|place| world.answer(&answers[place]));
    world.floor.answers.extend(order.later().map(|place| answers[place]));
    answers.clear();
    world.answers = answers;
    world.order = order;
}
