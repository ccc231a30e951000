//! The worker applies the last setpoint of each knob; without the re-check, it misses one.

use loom::thread;

use crate::check;
use crate::setpoints::setpoints;
use crate::sync::{Step, leave_out};
use crate::wake_up::Kept;

/// A main core that writes these in order and stops; `holds` checks the values that the worker applied to each knob.
fn model(knobs: usize, written: &'static [(usize, Option<u64>)], holds: fn(&[Vec<Option<u64>>])) {
    check(move || {
        let (setpoints, worker) = setpoints(knobs);
        let (kept, mut worker) = (Kept::new(setpoints), Kept::new(worker));
        let main = thread::spawn(move || {
            written.iter().for_each(|&(knob, value)| kept.0.set(knob, value));
        });
        let mut done = vec![Vec::new(); knobs];
        while let Some((knob, value)) = worker.0.next() {
            done[knob].push(value);
        }
        main.join().expect("writes");
        holds(&done);
    });
}

#[test]
fn the_last_value_is_applied_and_restored_at_the_end() {
    model(1, &[(0, Some(5)), (0, Some(7))], |done| {
        let allowed: [&[Option<u64>]; 4] = [&[None], &[Some(5), None], &[Some(7), None], &[Some(5), Some(7), None]];
        assert!(allowed.contains(&done[0].as_slice()), "{done:?}");
    });
}

#[test]
fn each_knob_has_its_own_value() {
    model(2, &[(0, Some(5)), (1, Some(7))], |done| {
        for (knob, value) in [(0, 5), (1, 7)] {
            assert!(done[knob] == [None] || done[knob] == [Some(value), None], "{done:?}");
        }
    });
}

/// The first may have been refused.
#[test]
fn a_value_written_again_is_applied_again() {
    model(1, &[(0, Some(5)), (0, Some(5))], |done| {
        let allowed: [&[Option<u64>]; 3] = [&[None], &[Some(5), None], &[Some(5), Some(5), None]];
        assert!(allowed.contains(&done[0].as_slice()), "{done:?}");
    });
}

/// Also if the worker has not seen that it was restored meanwhile: the first may have been refused.
#[test]
fn a_value_restored_and_written_again_is_applied_again() {
    model(1, &[(0, Some(5)), (0, None), (0, Some(5))], |done| {
        // Any of the four in order, as a later value may replace an earlier one; never the first value alone.
        let all = [Some(5), None, Some(5), None];
        let mut rest = all.iter();
        assert!(done[0].iter().all(|one| rest.any(|other| other == one)), "{done:?}");
        assert_eq!(done[0].last(), Some(&None), "{done:?}");
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn without_a_re_check_a_setpoint_is_missed() {
    leave_out(Step::Recheck);
    model(1, &[(0, Some(5))], |_| {});
}

#[test]
#[should_panic(expected = "deadlock")]
fn without_arming_a_setpoint_is_missed() {
    leave_out(Step::Arm);
    model(1, &[(0, Some(5))], |_| {});
}

#[test]
#[should_panic(expected = "deadlock")]
fn without_the_senders_fence_a_setpoint_is_missed() {
    leave_out(Step::SenderFence);
    model(1, &[(0, Some(5))], |_| {});
}
