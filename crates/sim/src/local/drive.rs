//! The drive of such a machine: [`crate::ssd`] with the stages that its figures make, and what it did in slots of time.

use super::load::Load;
use super::machine::Drive as Model;
use super::tally::Tally;
use crate::rng::{Purpose, Stream};
use crate::ssd::{
    Cache, Controller, Doing, DriveState, Flash, Front, Op, Placement, Request, Rest, Service, Ssd, SsdModel,
};

/// A drive within a run.
pub struct Drive {
    ssd: Ssd,
    draws: Stream,
    sequential: bool,
}

impl Drive {
    /// At rest for less than it takes to go to its own rest, with nothing to move.
    #[must_use]
    pub fn new(model: &Model, load: &Load) -> Self {
        let mut ssd = Ssd::new(&model.ssd());
        ssd.set_state(load.state);
        ssd.set_autonomous(load.autonomous);
        Self { ssd, draws: Stream::new(load.seed, Purpose::Devices, 0), sequential: load.sequential }
    }

    /// When a request that comes now is done; not before the one that came last.
    pub fn submit(&mut self, now: u64, bytes: u64, write: bool, tally: &mut Tally) -> u64 {
        let (op, bytes) = (if write { Op::Write } else { Op::Read }, bytes as u32);
        let (draw, taken) = (self.draws.seed_of_next(), self.ssd.draws_taken());
        let request = Request { at_ns: now, op, offset: 0, bytes, draw, sequential: self.sequential };
        let done = self.ssd.submit(&request);
        self.draws.pass(self.ssd.draws_taken() - taken);
        self.tell(tally);
        done
    }

    /// What it does without work until then.
    pub fn idle(&mut self, to: u64, tally: &mut Tally) {
        self.ssd.advance(to);
        self.tell(tally);
    }

    fn tell(&mut self, tally: &mut Tally) {
        for span in self.ssd.spans() {
            tally.over(span.from_ns, span.to_ns, |slot, ns| match span.doing {
                Doing::Moves => slot.gc_ns += ns,
                Doing::Rests => slot.rest_ns += ns,
                Doing::Sleeps => slot.asleep_ns += ns,
            });
        }
    }

    /// How long moving everything that is to be moved takes, in nanoseconds.
    #[must_use]
    pub fn to_move_ns(&self) -> u64 {
        self.ssd.to_move_ns()
    }

    /// When it has nothing in progress.
    #[must_use]
    pub fn quiet_ns(&self) -> u64 {
        self.ssd.quiet_ns()
    }
}

impl Model {
    /// The same as a drive with stages.
    #[must_use]
    pub fn ssd(&self) -> SsdModel {
        let front = Front { read_latency_ns: self.front_ns, write_latency_ns: self.write_ns, ..Front::default() };
        let waits = self.units > 0;
        let flash = Flash {
            dies: self.units.max(1),
            page_bytes: self.page_bytes as u32,
            read_ns: if waits { self.unit_ns } else { 0 },
            read_spread_ns: 0,
            read_ns_per_kib: if waits { self.unit_ns_per_kib } else { 0 },
            service: Service::Uniform,
            placement: Placement::Scattered,
        };
        let controller = Controller {
            command_ns: self.command_ns,
            bytes_per_s: self.link_bytes_per_s,
            random_ppm: self.random_ppm,
            stream_bytes_per_s: self.stream_bytes_per_s,
            turn_ns: self.turn_ns,
            most_bytes: self.mdts_bytes,
        };
        let cache = Cache {
            buffer_bytes: self.buffer_bytes,
            cache_bytes: self.cache_bytes,
            full_bytes_per_s: self.full_bytes_per_s,
            map_reads: self.map_reads,
            gc_after_ns: self.gc_after_ns,
        };
        let state = self.state.iter().map(|state| DriveState {
            name: state.name.clone(),
            read_bytes_per_s: state.read_bytes_per_s,
            write_bytes_per_s: state.write_bytes_per_s,
            gc_bytes_per_s: state.gc_bytes_per_s,
            gc_uw: state.gc_uw,
            duty: None,
        });
        SsdModel {
            name: String::new(),
            source: String::new(),
            front,
            flash,
            program: None,
            gc: None,
            power: None,
            controller: Some(controller),
            cache: Some(cache),
            state: state.collect(),
            rest: Some(Rest {
                after_ns: self.rest_after_ns,
                wake_ns: self.wake_ns,
                asleep_after_ns: self.asleep_after_ns,
            }),
            slow: None,
            energy: None,
        }
    }
}
