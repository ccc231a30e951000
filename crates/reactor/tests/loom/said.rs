//! Whatever is said last about each knob is what the worker carries out last; and, without its second look, a wish that it sleeps
//! through.

use loom::thread;

use crate::check;
use crate::sync::{Step, leave_out};
use crate::wake_up::Kept;
use crate::wishes::wishes;

/// A main core that says these, one after the other, and stops; then what the worker has carried out for each knob.
fn model(knobs: usize, said: &'static [(usize, Option<u64>)], holds: fn(&[Vec<Option<u64>>])) {
    check(move || {
        let (wishes, worker) = wishes(knobs);
        let (kept, mut worker) = (Kept::new(wishes), Kept::new(worker));
        let main = thread::spawn(move || {
            said.iter().for_each(|&(knob, value)| kept.0.say(knob, value));
        });
        let mut done = vec![Vec::new(); knobs];
        while let Some((knob, value)) = worker.0.next() {
            done[knob].push(value);
        }
        main.join().expect("says");
        holds(&done);
    });
}

#[test]
fn the_last_value_is_carried_out_and_put_back_at_the_end() {
    model(1, &[(0, Some(5)), (0, Some(7))], |done| {
        let allowed: [&[Option<u64>]; 4] = [&[], &[Some(5), None], &[Some(7), None], &[Some(5), Some(7), None]];
        assert!(allowed.contains(&done[0].as_slice()), "{done:?}");
    });
}

#[test]
fn each_knob_has_its_own() {
    model(2, &[(0, Some(5)), (1, Some(7))], |done| {
        for (knob, value) in [(0, 5), (1, 7)] {
            assert!(done[knob].is_empty() || done[knob] == [Some(value), None], "{done:?}");
        }
    });
}

/// It may have been refused.
#[test]
fn what_is_said_again_is_carried_out_again() {
    model(1, &[(0, Some(5)), (0, Some(5))], |done| {
        let allowed: [&[Option<u64>]; 3] = [&[], &[Some(5), None], &[Some(5), Some(5), None]];
        assert!(allowed.contains(&done[0].as_slice()), "{done:?}");
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn without_a_second_look_a_wish_is_slept_through() {
    leave_out(Step::Recheck);
    model(1, &[(0, Some(5))], |_| {});
}

#[test]
#[should_panic(expected = "deadlock")]
fn without_arming_a_wish_is_slept_through() {
    leave_out(Step::Arm);
    model(1, &[(0, Some(5))], |_| {});
}

#[test]
#[should_panic(expected = "deadlock")]
fn without_the_sender_s_fence_a_wish_is_slept_through() {
    leave_out(Step::SenderFence);
    model(1, &[(0, Some(5))], |_| {});
}
