//! Boards beside a naive sum: I/O threads poll and move, and boards are read at any time, one after the other.

use proptest::prelude::*;

use crate::board::{Board, COUNT, Places, ahead};

const CORES: usize = 3;
const THREADS: usize = 80; // more than the first line and a block hold

#[derive(Clone, Copy, Debug)]
enum Step {
    Poll { thread: usize, requests: u64 },
    Leave(usize),
    Arrive { thread: usize, core: usize },
    Read(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..THREADS, 1..1000_u64).prop_map(|(thread, requests)| Step::Poll { thread, requests }),
        2 => (0..THREADS).prop_map(Step::Leave),
        3 => (0..THREADS, 0..CORES).prop_map(|(thread, core)| Step::Arrive { thread, core }),
        3 => (0..CORES).prop_map(Step::Read),
    ];
    prop::collection::vec(step, 0..400)
}

struct Plant {
    boards: Vec<Board>,
    places: Vec<Places>,
    /// Home and place, unless on its way.
    at: Vec<Option<(usize, u32)>>,
    /// The naive sum.
    polled: Vec<u64>,
    seen: Vec<u64>,
    known: Vec<u64>,
}

impl Plant {
    /// All live on the first core; each has polled `began` requests.
    fn new(began: u64) -> Self {
        let boards = (0..CORES).map(|_| Board::default()).collect();
        let places = (0..CORES).map(|_| Places::default()).collect();
        let (at, polled) = (vec![None; THREADS], vec![began; THREADS]);
        let mut plant = Self { boards, places, at, polled, seen: vec![0; CORES], known: vec![began; THREADS] };
        (0..THREADS).for_each(|thread| plant.arrive(thread, 0));
        plant
    }

    fn arrive(&mut self, thread: usize, core: usize) {
        if self.at[thread].is_some() {
            return;
        }
        let place = self.places[core].take(&self.boards[core]);
        self.at[thread] = Some((core, place));
        self.boards[core].publish(place, thread as u32, self.polled[thread]);
    }

    fn leave(&mut self, thread: usize) {
        if let Some((core, place)) = self.at[thread].take() {
            self.places[core].give_back(place);
        }
    }

    fn poll(&mut self, thread: usize, requests: u64) {
        if let Some((core, place)) = self.at[thread] {
            self.polled[thread] += requests;
            self.boards[core].publish(place, thread as u32, self.polled[thread]);
        }
    }

    fn read(&mut self, core: usize) {
        let known = &mut self.known;
        self.boards[core].read(&mut self.seen[core], |thread, count| known[thread] += ahead(count, known[thread]));
    }
}

proptest! {
    #[test]
    fn no_request_is_lost_or_counted_twice(began in prop_oneof![Just(0), Just(COUNT - 2000)], steps in steps()) {
        let mut plant = Plant::new(began);
        for step in steps {
            match step {
                Step::Poll { thread, requests } => plant.poll(thread, requests),
                Step::Leave(thread) => plant.leave(thread),
                Step::Arrive { thread, core } => plant.arrive(thread, core),
                Step::Read(core) => plant.read(core),
            }
            prop_assert!(plant.known.iter().zip(&plant.polled).all(|(known, polled)| known <= polled));
        }
        (0..THREADS).for_each(|thread| plant.arrive(thread, thread % CORES));
        (0..CORES).for_each(|core| plant.read(core));
        prop_assert_eq!(plant.known, plant.polled);
    }
}

#[test]
fn each_place_is_a_word_of_its_own() {
    let (board, mut places) = (Board::default(), Places::default());
    let threads = 5000;
    for thread in 0..threads {
        let place = places.take(&board);
        board.publish(place, thread, 3 * u64::from(thread));
    }
    let mut read = Vec::new();
    board.read(&mut 0, |thread, requests| read.push((thread as u32, requests)));
    assert!(read.into_iter().eq((0..threads).map(|thread| (thread, 3 * u64::from(thread)))));
}

#[test]
fn a_board_without_news_is_not_read() {
    let (board, mut places) = (Board::default(), Places::default());
    let (place, mut seen) = (places.take(&board), 0);
    board.publish(place, 7, 1);
    for expected in [vec![(7, 1)], vec![]] {
        let mut read = Vec::new();
        board.read(&mut seen, |thread, requests| read.push((thread, requests)));
        assert_eq!(read, expected);
    }
}
