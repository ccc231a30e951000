//! Reads of flash by a drive that has stages: where pages lie, and how long each takes.

use super::model::{Placement, Service};
use super::stages::Stages;
use super::{Activity, Die, Reads, Request, around, exponential_ns, remix};
use crate::rng::{self, Draws};

/// The dies, as pages are read from them.
pub(super) struct Pages<'a> {
    pub(super) dies: &'a mut [Die],
    pub(super) reads: &'a Reads,
    pub(super) activity: &'a mut Activity,
    /// Where the first page of the request lies, once it has been looked for.
    pub(super) first: &'a mut Option<u64>,
}

impl Pages<'_> {
    /// When a part of a request is read that begins at `offset`.
    pub(super) fn read(
        &mut self,
        at_ns: u64,
        (offset, bytes): (u64, u64),
        request: &Request,
        stages: &Stages,
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
                self.service_ns(draw) + self.reads.flash.read_ns_per_kib * part / 1024 + stages.longer_ns(draws);
            done_ns = done_ns.max(self.on_die(at_ns, place, service_ns));
            offset += part;
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

    /// Where the page at `offset` lies.
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

    /// When a random write knows where its block is mapped.
    pub(super) fn look_up(&mut self, at_ns: u64, draws: &mut Draws) -> u64 {
        let die = self.any(draws);
        self.on_die(at_ns, die, self.reads.flash.read_ns)
    }
}

/// Where the first page of a request lies, if pages follow each other.
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
