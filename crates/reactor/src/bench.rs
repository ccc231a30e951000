//! Parts of reactors without their OS threads, for benchmarks: what a move and what gathering cost by themselves.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::sync_channel;

use pilotlight_plant::{Capabilities, Command, CoreId, Next, Policy, Start, ThreadId, Topology, Unsupported, Wants};

use crate::cells::{ThreadCell, add};
use crate::director::{Director, DirectorOptions};
use crate::event::{Event, Peer, Slot};
use crate::inbox::Inbox;
use crate::instruction::Instruction;
use crate::io_thread::{IoThread, Polled};
use crate::reactor::{Idle, Reactor};

struct IdleThread;

impl IoThread for IdleThread {
    fn id(&self) -> u32 {
        0
    }
    fn poll(&mut self, _now_ns: u64) -> Polled {
        Polled::default()
    }
}

/// Two reactors in one place, and an I/O thread that goes to and fro.
pub struct Pair {
    reactors: [Reactor; 2],
    home: usize,
}

impl Pair {
    /// Two reactors, an I/O thread on the first.
    #[must_use]
    pub fn new() -> Self {
        let inboxes: [Inbox<Event>; 2] = std::array::from_fn(|_| Inbox::new(1024));
        let peers: Arc<[Peer]> =
            inboxes.iter().map(|inbox| Peer { events: inbox.sender(), cell: Arc::default() }).collect();
        let mut id = 0;
        let mut reactors = inboxes.map(|inbox| {
            id += 1;
            Reactor::new(CoreId(id - 1), inbox, &peers, Idle::Spin)
        });
        let slot = Slot::new(Box::new(IdleThread), Arc::default());
        reactors[0].apply(Event::Adopt { slot, sent_ns: 0 });
        Self { reactors, home: 0 }
    }

    /// Moves the I/O thread: out of the old home's list, through the ring, into the new home's list.
    pub fn move_thread(&mut self) {
        let to = 1 - self.home;
        self.reactors[self.home].hand_over(ThreadId(0), CoreId(to as u16));
        while let Some(event) = self.reactors[to].inbox.take() {
            self.reactors[to].apply(event);
        }
        self.home = to;
    }
}

impl Default for Pair {
    fn default() -> Self {
        Self::new()
    }
}

/// Wants ticks and does nothing with them.
struct Listener;

impl Policy for Listener {
    fn name(&self) -> &'static str {
        "listener"
    }
    fn wants(&self) -> Wants {
        Wants { tick_ns: Some(1), ..Wants::default() }
    }
    fn start(&mut self, _start: &Start<'_>, _out: &mut Vec<Command>) -> Result<Next, Unsupported> {
        Ok(Next::NEVER)
    }
}

/// A director and the cells of this number of I/O threads.
pub struct Gathering {
    director: Director,
    cells: Vec<Arc<ThreadCell>>,
    now_ns: u64,
}

/// Counts requests, as the reactors of I/O threads do.
#[derive(Clone)]
pub struct Arriving(Vec<Arc<ThreadCell>>);

impl Arriving {
    /// One more request for each I/O thread.
    pub fn add_request_to_each(&self) {
        self.0.iter().for_each(|cell| add(&cell.requests, 1));
    }
}

impl Gathering {
    /// Of `threads` I/O threads.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        let inbox = Inbox::<Event>::new(8);
        let peers: Arc<[Peer]> = Arc::new([Peer { events: inbox.sender(), cell: Arc::default() }]);
        let topology = Topology::flat(1).unwrap_or_else(|_| unreachable!("there is a core"));
        let mut director =
            Director::new(peers, topology, Capabilities::default(), &DirectorOptions::default(), Arc::default());
        let cells: Vec<Arc<ThreadCell>> = (0..threads).map(|_| Arc::default()).collect();
        let (reply, _answer) = sync_channel(1);
        director.instruct(Instruction::Policy { policy: Box::new(Listener), cells: cells.clone(), reply });
        Self { director, cells, now_ns: u64::MAX >> 1 }
    }

    /// The other side of the cells; for another core.
    #[must_use]
    pub fn arriving(&self) -> Arriving {
        Arriving(self.cells.clone())
    }

    /// One tick: reads every cell, and hands a policy that does nothing what has come. Returns all requests so far.
    pub fn tick(&mut self) -> u64 {
        self.now_ns += 10_000;
        self.director.step(self.now_ns);
        self.cells.first().map_or(0, |cell| cell.requests.load(Relaxed))
    }
}
