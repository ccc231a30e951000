//! Reference engine: always processes the earliest event, found by search. Slow; it verifies [`super::window`].

use super::Simulation;
use super::meter::EPOCH_NS;

/// The next event; at equal times in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Epoch,
    Client,
    Send,
    Submit,
    Answer,
    /// The main core first.
    Step(bool, usize),
}

pub(crate) fn run(sim: &mut Simulation<'_>) {
    let duration_ns = sim.scenario.duration_ns;
    loop {
        let (at_ns, event) = next(sim);
        if at_ns >= duration_ns && event != Event::Epoch {
            sim.account(duration_ns);
            return;
        }
        match event {
            Event::Epoch => sim.account(at_ns),
            Event::Client => sim.advance_clients(at_ns + 1),
            Event::Send => send(sim, at_ns),
            Event::Submit => submit(sim),
            Event::Answer => answer(sim),
            Event::Step(_, core) => step(sim, core, at_ns),
        }
        if at_ns >= duration_ns {
            return;
        }
    }
}

fn next(sim: &Simulation<'_>) -> (u64, Event) {
    let shared = &sim.shared;
    let (client, sent) = match &sim.clients {
        Some(clients) => (clients.next_ns(&sim.hosts), clients.arrives_ns()),
        None => (u64::MAX, sim.next_arrival_ns()),
    };
    let submitted = shared.submissions.iter().min().map_or(u64::MAX, |submission| submission.at_ns);
    let stripes = sim.md.as_ref().and_then(|md| md.first()).map_or(u64::MAX, |submission| submission.at_ns);
    let submitted = submitted.min(shared.caps.next_ns()).min(stripes);
    let answered = shared.answers.iter().min().map_or(u64::MAX, |answer| answer.at_ns);
    let step =
        |(index, core): (usize, &super::core::Core)| (core.next_ns(shared), Event::Step(index != sim.main, index));
    let others = [
        (sim.meter.until_ns() + EPOCH_NS, Event::Epoch),
        (client, Event::Client),
        (sent, Event::Send),
        (submitted, Event::Submit),
        (answered, Event::Answer),
    ];
    sim.cores.iter().enumerate().map(step).chain(others).min().unwrap_or(others[0])
}

/// Sends the requests that arrive at `at_ns`, in order of connections.
fn send(sim: &mut Simulation<'_>, at_ns: u64) {
    let mut sent = Vec::new();
    if let Some(clients) = &mut sim.clients {
        clients.take_sent(at_ns + 1, &mut sent);
    } else {
        let until_ns = at_ns - sim.half_trip_ns + 1;
        for host in &mut sim.hosts {
            host.send(until_ns, &mut sent);
        }
    }
    sent.sort_unstable();
    for sent in sent {
        sim.arrive_any(&sent);
    }
}

fn submit(sim: &mut Simulation<'_>) {
    if stripes(sim) {
        return;
    }
    let submissions = &mut sim.shared.submissions;
    let first = submissions.iter().enumerate().min_by_key(|&(_, submission)| *submission);
    let first = first.map(|(at, submission)| (at, submission.at_ns));
    let caps_ns = sim.shared.caps.next_ns();
    match first {
        Some((at, at_ns)) if at_ns < caps_ns => {
            let submission = submissions.swap_remove(at);
            sim.offer(&submission);
        }
        _ => sim.advance_caps(),
    }
}

/// Passes the earliest command through md's thread; returns whether it did.
fn stripes(sim: &mut Simulation<'_>) -> bool {
    let Simulation { md: Some(md), shared, .. } = sim else { return false };
    let first = shared.submissions.iter().enumerate().min_by_key(|&(_, submission)| *submission);
    let first = first.map(|(at, submission)| (*submission, at));
    if let Some(ready) = md.first().copied().filter(|ready| first.is_none_or(|(first, _)| *ready < first)) {
        md.pop(ready.at_ns + 1);
        sim.offer(&ready);
        return true;
    }
    let Some((first, at)) = first.filter(|(first, _)| shared.goes_through(md, first)) else { return false };
    shared.submissions.swap_remove(at);
    md.enter(first);
    true
}

fn answer(sim: &mut Simulation<'_>) {
    let answers = &mut sim.shared.answers;
    let Some(first) = answers.iter().enumerate().min_by_key(|&(_, answer)| *answer).map(|(at, _)| at) else { return };
    let answer = answers.swap_remove(first);
    sim.answer(&answer);
}

fn step(sim: &mut Simulation<'_>, core: usize, at_ns: u64) {
    if sim.cores[core].advance(&mut sim.shared, at_ns + 1, false) {
        sim.call_policy();
    }
    sim.deliver();
}
