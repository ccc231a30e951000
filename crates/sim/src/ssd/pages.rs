//! Flash reads of a drive with stages: placement and duration of page reads.
//!
//! *Partial unit writes.* The mapping has one entry per unit (4 KiB on most drives). A write that covers a unit in part first reads the unit from its
//! die (read-modify-write). *Algorithm.* Only the first and the last unit of a request can be covered in part. A sequential write that starts within
//! a unit continues the unit that the previous write began: that unit is in the buffer, and nothing is read. *Properties.* A write of whole units
//! reads nothing; a write reads at most two units; sequential writes read each unit that they do not cover in one write once.

use super::model::{Placement, Service};
use super::stage_model::SlowReads;
use super::{Activity, Die, Reads, Request, around, exponential_ns, remix};
use crate::rng::{self, Draws};

/// First draw index for units, above those for the pages of a request.
const UNIT_DRAWS: u64 = 1 << 32;

/// The dies, for page reads.
pub(super) struct Pages<'a> {
    pub(super) dies: &'a mut [Die],
    pub(super) reads: &'a Reads,
    pub(super) activity: &'a mut Activity,
    pub(super) slow: Option<SlowReads>,
    /// Die of the request's first page, once determined.
    pub(super) first: &'a mut Option<u64>,
}

impl Pages<'_> {
    /// Reads the part of a request at `offset`; returns the end of the read.
    pub(super) fn read(
        &mut self,
        at_ns: u64,
        (offset, bytes): (u64, u64),
        request: &Request,
        draws: &mut Draws,
    ) -> u64 {
        let page_bytes = u64::from(self.reads.flash.page_bytes);
        let (mut offset, end, mut done_ns) = (offset, offset + bytes, at_ns);
        while offset < end {
            let next = (offset / page_bytes + 1) * page_bytes;
            let part = next.min(end) - offset;
            let place = self.place(offset, at_ns, request, draws);
            let page = (offset >> self.reads.page_shift) - (request.offset >> self.reads.page_shift);
            let draw = if page == 0 { request.draw } else { remix(request.draw, page) };
            let service_ns =
                self.service_ns(draw) + self.reads.flash.read_ns_per_kib * part / 1024 + self.longer_ns(draws);
            done_ns = done_ns.max(self.on_die(at_ns, place, service_ns));
            offset += part;
        }
        done_ns
    }

    /// Reads the partially covered units (of `unit_bytes`, 0 for none) of the part of a write at `offset`; returns the end of the reads.
    pub(super) fn complete(
        &mut self,
        at_ns: u64,
        (offset, bytes): (u64, u64),
        request: &Request,
        unit_bytes: u64,
        draws: &mut Draws,
    ) -> u64 {
        if unit_bytes == 0 {
            return at_ns;
        }
        let mut done_ns = at_ns;
        for start in partial_units(request, unit_bytes).into_iter().flatten() {
            let first_byte = start.max(request.offset);
            if (offset..offset + bytes).contains(&first_byte) {
                let die = self.place(first_byte, at_ns, request, draws);
                let draw = remix(request.draw, UNIT_DRAWS + start / unit_bytes);
                let service_ns = self.service_ns(draw)
                    + self.reads.flash.read_ns_per_kib * unit_bytes / 1024
                    + self.longer_ns(draws);
                done_ns = done_ns.max(self.on_die(at_ns, die, service_ns));
            }
        }
        done_ns
    }

    fn on_die(&mut self, at_ns: u64, die: usize, service_ns: u64) -> u64 {
        self.activity.page_reads += 1;
        self.activity.die_busy_ns += service_ns;
        self.dies[die].read(at_ns, service_ns, self.reads.suspend_ns)
    }

    fn service_ns(&self, draw: u64) -> u64 {
        let flash = &self.reads.flash;
        match flash.service {
            Service::Uniform => around(flash.read_ns, flash.read_spread_ns, draw),
            Service::Exponential => exponential_ns(flash.read_ns, draw),
        }
    }

    /// Extra time of a page read.
    fn longer_ns(&self, draws: &mut Draws) -> u64 {
        let Some(slow) = self.slow else { return 0 };
        if rng::below(draws.draw(), 1_000_000) < slow.pages_ppm {
            exponential_ns(slow.mean_ns, draws.draw())
        } else {
            0
        }
    }

    /// Die of the page at `offset`.
    fn place(&mut self, offset: u64, at_ns: u64, request: &Request, draws: &mut Draws) -> usize {
        if self.reads.flash.placement == Placement::Scattered {
            return self.any(draws);
        }
        let first = *self.first.get_or_insert_with(|| place(self.dies, self.reads, request, at_ns));
        let further = (offset >> self.reads.page_shift) - (request.offset >> self.reads.page_shift);
        ((first + further) % self.dies.len() as u64) as usize
    }

    fn any(&self, draws: &mut Draws) -> usize {
        if self.dies.len() > 1 { rng::below(draws.draw(), self.dies.len() as u64) as usize } else { 0 }
    }

    /// Reads the mapping entry of a random write; returns the end of the read.
    pub(super) fn look_up(&mut self, at_ns: u64, draws: &mut Draws) -> u64 {
        let die = self.any(draws);
        self.on_die(at_ns, die, self.reads.flash.read_ns)
    }
}

/// Offsets of the units that a write covers in part, without one begun by the previous sequential write.
fn partial_units(request: &Request, unit_bytes: u64) -> [Option<u64>; 2] {
    let end = request.offset + u64::from(request.bytes.max(1));
    let (head, tail) = (request.offset - request.offset % unit_bytes, end - end % unit_bytes);
    let is_begun = request.sequential && head < request.offset;
    let cuts_head = !is_begun && (head < request.offset || end < head + unit_bytes);
    let cuts_tail = tail > head && tail < end;
    [cuts_head.then_some(head), cuts_tail.then_some(tail)]
}

/// Die of the first page of a request, if pages are on consecutive dies.
fn place(dies: &[Die], reads: &Reads, request: &Request, at_ns: u64) -> u64 {
    let count = dies.len() as u64;
    match reads.flash.placement {
        Placement::Random | Placement::Scattered => rng::below(request.draw, count),
        Placement::Striped => (request.offset >> reads.page_shift) % count,
        Placement::FirstFree => {
            let free = |die: &u64| dies[*die as usize].idle_at().max(at_ns);
            (0..count).min_by_key(free).unwrap_or(0)
        }
    }
}
