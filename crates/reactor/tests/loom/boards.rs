//! A reader of boards beside an I/O thread that polls and moves: what it has seen is never more than was polled, and what was
//! published before it looked is seen.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

use crate::board::{Board, Places, ahead};
use crate::check;

fn read(boards: &[Board; 2], seen: &mut [u64; 2], known: &mut u64) {
    for (board, seen) in boards.iter().zip(seen) {
        board.read(seen, |_, count| *known += ahead(count, *known));
    }
}

#[test]
fn a_reader_sees_all_of_an_i_o_thread_that_moves_and_nothing_twice() {
    check(|| {
        let boards = Arc::new([Board::default(), Board::default()]);
        let mut places = [Places::default(), Places::default()];
        let at = [0, 1].map(|core: usize| places[core].take(&boards[core]));
        let polled = Arc::new(AtomicU32::new(0));
        let (writing, counting) = (Arc::clone(&boards), Arc::clone(&polled));
        let reactors = thread::spawn(move || {
            for (requests, core) in [(1, 0), (2, 1)] {
                writing[core].publish(at[core], 0, requests);
                places[core].give_back(at[core]);
                counting.store(requests as u32, Ordering::Release);
            }
        });
        let (mut seen, mut known) = ([0; 2], 0);
        for _ in 0..2 {
            let published = u64::from(polled.load(Ordering::Acquire));
            read(&boards, &mut seen, &mut known);
            assert!((published..=2).contains(&known), "{known} of {published}");
        }
        reactors.join().expect("no panic");
        read(&boards, &mut seen, &mut known);
        assert_eq!(known, 2);
    });
}
