//! The plain order of events: always the earliest one next, looked for among all. Slow, short, and the measure for [`super::window`].

use super::World;
use super::meter::EPOCH_NS;

/// What happens next; of things at the same time, the first in this list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Epoch,
    Send,
    Submit,
    Answer,
    /// The main core first.
    Step(bool, usize),
}

pub(crate) fn run(world: &mut World<'_>) {
    let duration_ns = world.scenario.duration_ns;
    loop {
        let (at_ns, event) = next(world);
        if at_ns >= duration_ns && event != Event::Epoch {
            world.account(duration_ns);
            return;
        }
        match event {
            Event::Epoch => world.account(at_ns),
            Event::Send => send(world, at_ns),
            Event::Submit => submit(world),
            Event::Answer => answer(world),
            Event::Step(_, core) => step(world, core, at_ns),
        }
        if at_ns >= duration_ns {
            return;
        }
    }
}

fn next(world: &World<'_>) -> (u64, Event) {
    let half_ns = world.half_trip_ns;
    let floor = &world.floor;
    let sent = world.hosts.iter().map(|host| host.next_event_ns().saturating_add(half_ns)).min().unwrap_or(u64::MAX);
    let submitted = floor.submissions.iter().min().map_or(u64::MAX, |submission| submission.at_ns);
    let stripes = world.md.as_ref().and_then(|md| md.first()).map_or(u64::MAX, |submission| submission.at_ns);
    let submitted = submitted.min(floor.caps.next_ns()).min(stripes);
    let answered = floor.answers.iter().min().map_or(u64::MAX, |answer| answer.at_ns);
    let step =
        |(index, core): (usize, &super::core::Core)| (core.next_ns(floor), Event::Step(index != world.main, index));
    let others = [
        (world.meter.until_ns() + EPOCH_NS, Event::Epoch),
        (sent, Event::Send),
        (submitted, Event::Submit),
        (answered, Event::Answer),
    ];
    world.cores.iter().enumerate().map(step).chain(others).min().unwrap_or(others[0])
}

/// Hosts send what arrives at `at_ns`; several at once in the order of connections.
fn send(world: &mut World<'_>, at_ns: u64) {
    let mut sent = Vec::new();
    let until_ns = at_ns - world.half_trip_ns + 1;
    for host in &mut world.hosts {
        host.send(until_ns, &mut sent);
    }
    sent.sort_unstable();
    for sent in sent {
        world.arrive_any(&sent);
    }
}

fn submit(world: &mut World<'_>) {
    if stripes(world) {
        return;
    }
    let submissions = &mut world.floor.submissions;
    let first = submissions.iter().enumerate().min_by_key(|&(_, submission)| *submission);
    let first = first.map(|(at, submission)| (at, submission.at_ns));
    let caps_ns = world.floor.caps.next_ns();
    match first {
        Some((at, at_ns)) if at_ns < caps_ns => {
            let submission = submissions.swap_remove(at);
            world.offer(&submission);
        }
        _ => world.advance_caps(),
    }
}

/// The thread of md gets or hands on the first command of all; whether it did.
fn stripes(world: &mut World<'_>) -> bool {
    let World { md: Some(md), floor, .. } = world else { return false };
    let first = floor.submissions.iter().enumerate().min_by_key(|&(_, submission)| *submission);
    let first = first.map(|(at, submission)| (*submission, at));
    if let Some(ready) = md.first().copied().filter(|ready| first.is_none_or(|(first, _)| *ready < first)) {
        md.pop(ready.at_ns + 1);
        world.offer(&ready);
        return true;
    }
    let Some((first, at)) = first.filter(|(first, _)| floor.goes_through(md, first)) else { return false };
    floor.submissions.swap_remove(at);
    md.enter(first);
    true
}

fn answer(world: &mut World<'_>) {
    let answers = &mut world.floor.answers;
    let Some(first) = answers.iter().enumerate().min_by_key(|&(_, answer)| *answer).map(|(at, _)| at) else { return };
    let answer = answers.swap_remove(first);
    world.answer(&answer);
}

fn step(world: &mut World<'_>, core: usize, at_ns: u64) {
    if world.cores[core].advance(&mut world.floor, at_ns + 1, false) {
        world.ask();
    }
    world.deliver();
}
