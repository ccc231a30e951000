//! A waiting thread is woken by the condition that the channel's `wait` returns.

use pilotlight_reactor::CompletionMode;

use super::super::{Op, Random};
use super::{Driver, Subject, ok};
use crate::wait::Wait;

/// Requests in flight: fewer than the channel's depth.
const AT_ONCE: usize = 8;
/// Blocks per request: disjoint, so that none is busy because of another.
const STRIDE: u64 = 40;
const ROUNDS: usize = 40;

/// Waits as the channel's `wait` says before each poll.
pub(super) fn ring(subject: &Subject<'_>, block_size: u32) {
    let backend = (subject.create)(block_size, AT_ONCE as u64 * STRIDE);
    let mut driver = Driver::open(&*backend, 64);
    let mut random = Random::new(subject.seed);
    for round in 0..ROUNDS {
        driver.set_completions(CompletionMode::Interrupt);
        submit_some(&mut driver, &mut random, block_size);
        finish(&mut driver);
        // Requests submitted in polling mode complete after the change, too.
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
            1 => (Op::WriteZeroes { fua: random.one_in(2), deallocate: random.one_in(2) }, STRIDE as u32),
            2 => (Op::Deallocate, STRIDE as u32),
            3..6 => (Op::Write { fua: random.one_in(8) }, 4),
            _ => (Op::Read, 4),
        };
        let data = matches!(op, Op::Write { .. }).then_some(&data[..]);
        driver.submit(op, n * STRIDE, blocks, data);
    }
}

fn finish(driver: &mut Driver) {
    while driver.in_flight() > 0 {
        driver.rest();
        driver.poll();
    }
    driver.take_finished().for_each(|result| drop(ok(result)));
}
