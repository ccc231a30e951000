//! A fixed number of sends and receives, for counting instructions, which are more stable than times.
//!
//! ```text
//! cargo bench -p pilotlight-reactor --bench instructions --no-run        # prints the program's path
//! valgrind --tool=callgrind --callgrind-out-file=/tmp/ring.out PATH
//! callgrind_annotate --inclusive=yes /tmp/ring.out | grep instructions::
//! ```
//!
//! Each function below is called once and repeats its work 1,024,000 times: divide by that. The loop itself (`nothing`)
//! is part of each figure.

use std::hint::black_box;

use pilotlight_reactor::bench::{Arriving, Gathering, Pair};
use pilotlight_reactor::{Inbox, Sender};

/// As large as a reactor's event.
type Message = [u64; 4];

const ROOM: u64 = 1024;
const BATCHES: u64 = 1000;

#[inline(never)]
fn nothing(times: u64) {
    for n in 0..times {
        black_box([n; 4]);
    }
}

#[inline(never)]
fn send(sender: &Sender<Message>, times: u64) {
    for n in 0..times {
        black_box(sender.send(black_box([n; 4])).is_ok());
    }
}

#[inline(never)]
fn receive(inbox: &mut Inbox<Message>, times: u64) {
    for _ in 0..times {
        black_box(inbox.take());
    }
}

#[inline(never)]
fn take_on_empty(inbox: &mut Inbox<Message>, times: u64) {
    for _ in 0..times {
        black_box(inbox.take());
    }
}

#[inline(never)]
fn go(pair: &mut Pair, times: u64) {
    for _ in 0..times {
        pair.move_thread();
    }
}

/// Of 48 I/O threads with a request each.
#[inline(never)]
fn gather(gathering: &mut Gathering, arriving: &Arriving, times: u64) {
    for _ in 0..times {
        arriving.add_request_to_each();
        black_box(gathering.tick());
    }
}

fn main() {
    let mut inbox = Inbox::new(ROOM as usize);
    let sender = inbox.sender();
    for _ in 0..BATCHES {
        send(&sender, ROOM);
        receive(&mut inbox, ROOM);
    }
    take_on_empty(&mut inbox, ROOM * BATCHES);
    nothing(ROOM * BATCHES);
    go(&mut Pair::new(), ROOM * BATCHES);
    let mut gathering = Gathering::new(48);
    let arriving = gathering.arriving();
    gather(&mut gathering, &arriving, ROOM * BATCHES);
    println!("{} of each", ROOM * BATCHES);
}
