//! Model of a solid-state drive: the completion time of a request, given all previous ones.
//!
//! *Problem.* Sharing of dies determines a drive's latency: a read behind a read waits tens of microseconds, behind a program or an erase hundreds or
//! thousands, and garbage collection continues after the writes that caused it. A simulation submits millions of requests per second, so there is no
//! event list.
//!
//! *Terms.* A *die* performs one operation at a time. A *page* is the unit of a read, a *unit* that of a program. The *front* is everything before
//! the dies. *Lanes* take writes into the *buffer*, from which units go to the dies in turn.
//!
//! *Algorithm.* Requests arrive in time order, so every stage is a recursion over the time at which it is free: `start = max(at, free); free = start
//! + service`. A read passes the front (a rate limit), then its die, then a fixed latency. A write passes the front and a lane, waits for room in the
//! buffer, and completes after a fixed latency; its effect on dies comes later (`collect.rs`). A request over several pages completes with the last.
//!
//! *Stages* (`stages.rs`) are optional parts: a controller that processes one command at a time, a buffer that drains at a fixed rate, power states,
//! idle states, slow page reads. A drive without stages spends one comparison on them and garbage collection together.
//!
//! *Properties* (`tests/ssd_*.rs`): no completion before `at + least_latency_ns`; the dies' busy time is the sum of their operations; a die serves
//! reads in order and is never idle while it has work; equal requests yield equal completions; written data is programmed, copied and erased in the
//! proportions of the profile; closed forms of queues hold.

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

/// Operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Read from flash.
    Read,
    /// Write to the buffer, and later to flash.
    Write,
}

/// A request to a drive.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Arrival time in ns.
    pub at_ns: u64,
    /// Operation.
    pub op: Op,
    /// Offset in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u32,
    /// 64 random bits, the source of all randomness of this request.
    pub draw: u64,
    /// Whether it continues the previous request of its stream; matters only to drives with a controller.
    pub sequential: bool,
}

/// Activity of a drive, for energy models.
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
    /// Programs of garbage collection, each including the read of its source.
    pub copy_programs: u64,
    /// Erases.
    pub erases: u64,
    /// Total operation time of dies, in ns, without suspensions.
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
    /// Time from which garbage collection copies or stages affect requests.
    busy_from_ns: u64,
    stages: Option<Box<Stages>>,
}

/// Read parameters of dies: the constants of the hot path.
#[derive(Clone, Copy, Debug)]
struct Reads {
    flash: Flash,
    page_shift: u32,
    suspend_ns: Option<u64>,
    latency_ns: u64,
}

impl Ssd {
    /// A drive without previous requests.
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

    /// Submits a request and returns its completion time in ns, never before `at_ns + least_latency_ns()`. Calls are in order of `at_ns` (ties in
    /// order of calls).
    #[inline(always)] // a call would pass the request through memory
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

    /// Handles pending garbage collection and stages; returns the completion time if stages determine it.
    #[cold]
    #[inline(never)]
    fn submit_busy(&mut self, request: Request) -> Option<u64> {
        if self.stages.is_some() {
            return Some(self.submit_staged(&request));
        }
        self.copy(request.at_ns);
        None
    }

    /// Minimum latency of a request, in ns.
    #[must_use]
    pub fn least_latency_ns(&self) -> u64 {
        self.least_ns
    }

    /// Minimum latency of a read, in ns.
    #[must_use]
    pub fn least_read_ns(&self) -> u64 {
        self.least_read_ns
    }

    /// Advances garbage collection and autonomous activity to `now_ns`; `submit` does so too. For totals of a drive without requests.
    pub fn advance(&mut self, now_ns: u64) {
        if let Some(stages) = &mut self.stages {
            stages.left_alone(now_ns);
            if let Some(writer) = &mut self.writer {
                stages.program_until(now_ns, writer, &mut self.dies, &mut self.activity);
            }
        }
        self.copy(now_ns);
    }

    /// Advances garbage collection.
    fn copy(&mut self, now_ns: u64) {
        let Some(writer) = &mut self.writer else { return };
        writer.advance(now_ns, &mut self.dies, &mut self.activity);
        if self.stages.is_none() {
            self.busy_from_ns = writer.busy_from_ns();
        }
    }

    /// End of all operations of the dies, in ns.
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

    /// Die of the first page of a request.
    #[inline]
    fn place(&self, request: &Request, at: u64) -> usize {
        let dies = self.dies.len() as u64;
        match self.reads.flash.placement {
            Placement::Random | Placement::Scattered => rng::below(request.draw, dies) as usize,
            Placement::Striped => ((request.offset >> self.reads.page_shift) % dies) as usize,
            Placement::FirstFree => self.first_free(at),
        }
    }

    #[inline(never)] // outside the hot path
    fn first_free(&self, at: u64) -> usize {
        let free = |(_, die): &(usize, &Die)| die.idle_at().max(at);
        self.dies.iter().enumerate().min_by_key(free).map_or(0, |(index, _)| index)
    }

    #[inline(always)] // a call would cost 20 instructions per request
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

    #[inline(never)] // a call is cheap relative to a write
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
        return model.front.read_latency_ns + controller.least_ns(); // data read ahead waits for no die
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

/// Exponential, by another draw. Outside the hot path: only closed-form tests use it.
#[inline(never)]
fn exponential_ns(mean: u64, draw: u64) -> u64 {
    (rng::exponential(remix(draw, 0)) * mean as f64) as u64
}

/// Time of `bytes` at a rate, in nanoseconds.
fn time_of(bytes: u64, bytes_per_s: u64) -> u64 {
    (u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_s.max(1))) as u64
}

/// Derives a draw for page `index` of a request.
#[inline]
fn remix(draw: u64, index: u64) -> u64 {
    let mixed = (draw ^ (index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93)
}
