//! A thread that waits is woken: whatever a channel says ends the wait, ends it.

use pilotlight_reactor::CompletionMode;

use super::super::{Op, Random};
use super::{Driver, Subject, ok};
use crate::wait::Wait;

/// Requests at once: fewer than the channel has room for.
const AT_ONCE: usize = 8;
/// Blocks that each request has for itself, so that none is busy because of another.
const APART: u64 = 40;
const ROUNDS: usize = 40;

/// Waits for each round of requests as the channel says, and polls only then.
pub(super) fn ring(subject: &Subject<'_>, block_size: u32) {
    let backend = (subject.create)(block_size, AT_ONCE as u64 * APART);
    let mut driver = Driver::open(&*backend, 64);
    let mut random = Random::new(subject.seed);
    for round in 0..ROUNDS {
        driver.set_completions(CompletionMode::Interrupt);
        submit_some(&mut driver, &mut random, block_size);
        finish(&mut driver);
        // What was submitted before is owed an answer as well.
        driver.set_completions(CompletionMode::Poll);
        submit_some(&mut driver, &mut random, block_size);
        if round % 2 == 0 {
            driver.poll();
        }
        driver.set_completions(CompletionMode::Interrupt);
        finish(&mut driver);
    }
    assert_eq!(driver.rest(), Wait::Event, "nothing is in flight");
}

fn submit_some(driver: &mut Driver, random: &mut Random, block_size: u32) {
    let data = vec![7; 4 * block_size as usize];
    for n in 0..1 + random.below(AT_ONCE as u64) {
        let (op, blocks) = match random.below(8) {
            0 => (Op::Flush, 0),
            1 => (Op::WriteZeroes { fua: random.one_in(2), deallocate: random.one_in(2) }, APART as u32),
            2 => (Op::Deallocate, APART as u32),
            3..6 => (Op::Write { fua: random.one_in(8) }, 4),
            _ => (Op::Read, 4),
        };
        let data = matches!(op, Op::Write { .. }).then_some(&data[..]);
        driver.submit(op, n * APART, blocks, data);
    }
}

fn finish(driver: &mut Driver) {
    while driver.in_flight() > 0 {
        driver.rest();
        driver.poll();
    }
    driver.take_finished().for_each(|result| drop(ok(result)));
}
