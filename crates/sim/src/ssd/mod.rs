//! A solid-state drive: when a request is done, given all that came before it.
//!
//! *Problem.* A drive's latency is made by who shares a die with whom: a read behind a read waits tens of microseconds, behind a
//! program or an erase hundreds or thousands, and garbage collection goes on after the writes that caused it. A simulator
//! asks millions of times per second, so there is no list of events.
//!
//! *Words.* A *die* works on one thing at a time. A *page* is what one read fetches, a *unit* what one program stores. The *front*
//! is all before the dies. *Lanes* take writes into the *buffer*, from which units go to the dies in turn.
//!
//! *Algorithm.* Requests come in order of time, so every stage is a recursion over the time at which it is free:
//! `start = max(at, free); free = start + service`. A read passes the front (a limit on rate), then its die, then a fixed latency. A write
//! passes the front and a lane, waits until the buffer has room, and is done after a fixed latency; what it does to dies
//! happens later (`collect.rs`). A request over several pages is done with the last.
//!
//! *Stages* (`stages.rs`) are what some drives have beside that: a controller that takes one command at a time, a buffer that empties at a
//! rate, power states, rests, page reads that take longer. A drive without any pays one comparison for
//! them and for garbage collection together.
//!
//! *Properties* (`tests/ssd_*.rs`): no completion before `at + least_latency_ns`; the dies' busy time is the sum of what was
//! asked of them; a die serves reads in order and is never idle while it has work; equal requests give equal completions; what
//! was written is programmed, copied and erased in the proportions of the profile; closed forms of queues come out.

mod collect;
mod die;
mod front;
mod model;
mod pages;
mod programs;
mod stage_model;
mod stages;

pub use model::{DrivePower, Flash, Front, Gc, Placement, Program, Service, SsdModel, SsdModelError};
pub use stage_model::{Cache, Controller, DriveEnergy, DriveState, IdleState, Rest, SlowReads};
pub use stages::{AutonomousActivity, Span};

use crate::rng;
use collect::Writer;
use die::Die;
use stages::Stages;

/// What a request asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Data from flash.
    Read,
    /// Data into the buffer, and later to flash.
    Write,
}

/// A request as the drive gets it.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// When it comes, in ns.
    pub at_ns: u64,
    /// What it asks.
    pub op: Op,
    /// Where, in bytes.
    pub offset: u64,
    /// How much, in bytes.
    pub bytes: u32,
    /// 64 random bits: all that is random about this request comes from them.
    pub draw: u64,
    /// Whether it follows the request before it of the same stream; only drives with a controller mind.
    pub sequential: bool,
}

/// What a drive has done, for models of energy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Read commands.
    pub reads: u64,
    /// Write commands.
    pub writes: u64,
    /// Bytes read by the host.
    pub read_bytes: u64,
    /// Bytes written by the host.
    pub written_bytes: u64,
    /// Page reads for the host.
    pub page_reads: u64,
    /// Programs of host data.
    pub host_programs: u64,
    /// Programs of garbage collection, each with the read of what it copies.
    pub copy_programs: u64,
    /// Erases.
    pub erases: u64,
    /// Time that dies were given to do, summed over dies, in ns. Suspensions are not counted.
    pub die_busy_ns: u64,
}

/// A drive in simulated time.
#[derive(Clone, Debug)]
pub struct Ssd {
    front: front::Front,
    dies: Vec<Die>,
    reads: Reads,
    writer: Option<Writer>,
    write_latency_ns: u64,
    least_ns: u64,
    least_read_ns: u64,
    activity: Activity,
    /// From when on a request finds more to do than its own way through front and dies: copies of garbage collection, or stages.
    busy_from_ns: u64,
    stages: Option<Box<Stages>>,
}

/// How dies read: the constants of the hot path.
#[derive(Clone, Copy, Debug)]
struct Reads {
    flash: Flash,
    page_shift: u32,
    suspend_ns: Option<u64>,
    latency_ns: u64,
}

impl Ssd {
    /// A drive that has done nothing yet.
    #[must_use]
    pub fn new(model: &SsdModel) -> Self {
        let suspend_ns = model.program.and_then(|program| program.suspend_ns);
        Self {
            front: front::Front::new(&model.front),
            dies: vec![Die::default(); model.flash.dies as usize],
            reads: Reads {
                flash: model.flash,
                page_shift: model.flash.page_bytes.trailing_zeros(),
                suspend_ns,
                latency_ns: model.front.read_latency_ns,
            },
            writer: model.program.as_ref().map(|program| Writer::new(program, model)),
            write_latency_ns: model.front.write_latency_ns,
            least_ns: least_read_ns(model).min(least_write_ns(model)),
            least_read_ns: least_read_ns(model),
            activity: Activity::default(),
            busy_from_ns: if model.has_stages() { 0 } else { u64::MAX },
            stages: model.has_stages().then(|| Box::new(Stages::new(model))),
        }
    }

    /// Takes requests in order of `at_ns` (ties in the order of calls); when its completion is there, in ns.
    /// Never before `at_ns + least_latency_ns()`.
    #[inline(always)] // as a call it would get its request through memory
    pub fn submit(&mut self, request: &Request) -> u64 {
        if request.at_ns >= self.busy_from_ns
            && let Some(done) = self.submit_busy(*request)
        {
            return done;
        }
        let inside = self.front.enter(request.at_ns, request.bytes);
        let done = match request.op {
            Op::Read => self.read(inside, request),
            Op::Write => self.write(inside, request),
        };
        self.front.report(done, request.draw)
    }

    /// A request to a drive that has more to do than its own way; when it is done, where that is no way of front and dies alone.
    #[cold]
    #[inline(never)]
    fn submit_busy(&mut self, request: Request) -> Option<u64> {
        if self.stages.is_some() {
            return Some(self.submit_staged(&request));
        }
        self.copy(request.at_ns);
        None
    }

    /// What no request can be faster than, in ns.
    #[must_use]
    pub fn least_latency_ns(&self) -> u64 {
        self.least_ns
    }

    /// What no read can be faster than, in ns.
    #[must_use]
    pub fn least_read_ns(&self) -> u64 {
        self.least_read_ns
    }

    /// Lets the drive go on until `now_ns`: garbage collection, and what it does when left alone; `submit` does it too. For totals of a
    /// drive that nobody asks.
    pub fn advance(&mut self, now_ns: u64) {
        if let Some(stages) = &mut self.stages {
            stages.left_alone(now_ns);
            if let Some(writer) = &mut self.writer {
                stages.program_until(now_ns, writer, &mut self.dies, &mut self.activity);
            }
        }
        self.copy(now_ns);
    }

    /// Lets garbage collection go on.
    fn copy(&mut self, now_ns: u64) {
        let Some(writer) = &mut self.writer else { return };
        writer.advance(now_ns, &mut self.dies, &mut self.activity);
        if self.stages.is_none() {
            self.busy_from_ns = writer.busy_from_ns();
        }
    }

    /// When all that the dies have been asked to do is done, in ns.
    #[must_use]
    pub fn idle_at_ns(&self) -> u64 {
        self.dies.iter().map(Die::idle_at).max().unwrap_or(0)
    }

    /// Totals since the start.
    #[must_use]
    pub fn activity(&self) -> Activity {
        self.activity
    }

    #[inline(always)]
    fn read(&mut self, inside: u64, request: &Request) -> u64 {
        self.activity.reads += 1;
        self.activity.read_bytes += u64::from(request.bytes);
        let last = request.offset + u64::from(request.bytes.max(1)) - 1;
        let pages = (last >> self.reads.page_shift) - (request.offset >> self.reads.page_shift) + 1;
        let mut die = self.place(request, inside);
        let mut done = self.read_page(inside, die, request.draw);
        for further in 1..pages {
            die = if die + 1 == self.dies.len() { 0 } else { die + 1 };
            done = done.max(self.read_page(inside, die, remix(request.draw, further)));
        }
        done + self.reads.latency_ns
    }

    /// Where the first page of a request lies.
    #[inline]
    fn place(&self, request: &Request, at: u64) -> usize {
        let dies = self.dies.len() as u64;
        match self.reads.flash.placement {
            Placement::Random | Placement::Scattered => rng::below(request.draw, dies) as usize,
            Placement::Striped => ((request.offset >> self.reads.page_shift) % dies) as usize,
            Placement::FirstFree => self.first_free(at),
        }
    }

    #[inline(never)] // beside the hot path
    fn first_free(&self, at: u64) -> usize {
        let free = |(_, die): &(usize, &Die)| die.idle_at().max(at);
        self.dies.iter().enumerate().min_by_key(free).map_or(0, |(index, _)| index)
    }

    #[inline(always)] // a call would be 20 instructions a request
    fn read_page(&mut self, at: u64, die: usize, draw: u64) -> u64 {
        let flash = &self.reads.flash;
        let service = match flash.service {
            Service::Uniform => around(flash.read_ns, flash.read_spread_ns, draw),
            Service::Exponential => exponential_ns(flash.read_ns, draw),
        };
        self.activity.page_reads += 1;
        self.activity.die_busy_ns += service;
        self.dies[die].read(at, service, self.reads.suspend_ns)
    }

    #[inline(never)] // a call is little beside what a write does
    fn write(&mut self, inside: u64, request: &Request) -> u64 {
        self.activity.writes += 1;
        self.activity.written_bytes += u64::from(request.bytes);
        let passed = self.front.lane(inside, request.draw);
        let stored = match &mut self.writer {
            Some(writer) => {
                let stored = writer.write(inside, request.bytes, request.draw, &mut self.dies, &mut self.activity);
                self.busy_from_ns = writer.busy_from_ns();
                stored
            }
            None => inside,
        };
        passed.max(stored) + self.write_latency_ns
    }
}

fn least_read_ns(model: &SsdModel) -> u64 {
    if let Some(controller) = &model.controller {
        return model.front.read_latency_ns + controller.least_ns(); // what is read ahead waits for no die
    }
    let read = match model.flash.service {
        Service::Uniform => model.flash.read_ns - model.flash.read_spread_ns,
        Service::Exponential => 0,
    };
    model.front.read_latency_ns + read
}

fn least_write_ns(model: &SsdModel) -> u64 {
    let controller = model.controller.as_ref().map_or(0, Controller::least_ns);
    let lane = if model.front.write_lanes == 0 { 0 } else { model.front.write_lane_ns };
    model.front.write_latency_ns + lane + controller
}

/// Uniform from `spread` below to `spread` above `mean`, by the low half of a draw (the high half chooses the die).
#[inline]
fn around(mean: u64, spread: u64, draw: u64) -> u64 {
    mean - spread + ((2 * spread * (draw & 0xffff_ffff)) >> 32)
}

/// Exponential, by another draw. Beside the hot path, because only closed forms are so.
#[inline(never)]
fn exponential_ns(mean: u64, draw: u64) -> u64 {
    (rng::exponential(remix(draw, 0)) * mean as f64) as u64
}

/// Time of so many bytes at a rate, in nanoseconds.
fn time_of(bytes: u64, bytes_per_s: u64) -> u64 {
    (u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_s.max(1))) as u64
}

/// Another draw out of one, for page `index` of a request.
#[inline]
fn remix(draw: u64, index: u64) -> u64 {
    let mixed = (draw ^ (index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93)
}
