//! A request on the target: what its connection says once, and what it is itself.
//!
//! What a request is, a read or a write and how large, is found out once, when it arrives, and kept in its [`Job`].

use super::host::{Contents, Sent, places};
use crate::scenario::{Connection, Kind, Step, Traced};
use crate::ssd::{self, Op};

/// What all requests of a connection have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan<'a> {
    pub(crate) thread: u16,
    /// The port of each direction that its packets take.
    pub(crate) port: u32,
    /// Its drives: from, number.
    drives: (u16, u16),
    /// Where on a drive its one command can go.
    places: u64,
    kind: &'a Kind,
}

/// A request in progress on the target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    /// When the host has sent it.
    pub(crate) sent_ns: u64,
    /// Which of the connection's requests.
    pub(crate) number: u64,
    pub(crate) connection: u32,
    /// Size of its one command; of no meaning where it has steps.
    pub(crate) bytes: u32,
    pub(crate) thread: u16,
    /// Label of the phase that it was due in.
    pub(crate) label: u8,
    /// Whether its one command writes.
    pub(crate) write: bool,
    /// Whether it has steps ([`Kind::Steps`]), and which is the present one.
    pub(crate) stepped: bool,
    pub(crate) step: u8,
    /// Commands of the present step that drives have not completed.
    pub(crate) left: u8,
}

impl<'a> Plan<'a> {
    pub(crate) fn new(index: usize, connection: &'a Connection, ports: u32) -> Self {
        let kind = &connection.request;
        let places = if let Kind::Plain { bytes, .. } = *kind { places(bytes) } else { 0 };
        Self { thread: connection.thread, port: index as u32 % ports, drives: connection.drives, places, kind }
    }

    /// What a request of this connection is.
    #[inline]
    pub(crate) fn job(&self, contents: &Contents, sent: &Sent) -> Job {
        let (write, bytes) = match *self.kind {
            Kind::Plain { writes_ppm, bytes, .. } => (contents.writes(sent.number, writes_ppm), bytes),
            Kind::Steps { .. } => (false, 0),
            Kind::Traced => {
                let Traced { write, bytes, .. } = contents.traced(sent.number);
                (write, bytes)
            }
        };
        Job {
            sent_ns: sent.at_ns,
            number: sent.number,
            connection: sent.connection,
            bytes,
            thread: self.thread,
            label: sent.label,
            write,
            stepped: matches!(self.kind, Kind::Steps { .. }),
            step: 0,
            left: 0,
        }
    }

    pub(crate) fn is_traced(&self) -> bool {
        matches!(self.kind, Kind::Traced)
    }

    /// A step of its requests; none after the last, or where they have none.
    pub(crate) fn step(&self, step: u8) -> Option<Step> {
        match self.kind {
            Kind::Steps { steps, .. } => steps.get(usize::from(step)).copied(),
            Kind::Plain { .. } | Kind::Traced => None,
        }
    }

    /// Data that a request brings.
    #[inline]
    pub(crate) fn bytes_in(&self, job: &Job) -> u32 {
        match *self.kind {
            Kind::Steps { bytes_in, .. } => bytes_in,
            Kind::Plain { .. } | Kind::Traced => u32::from(job.write) * job.bytes,
        }
    }

    /// Data that its answer brings.
    #[inline]
    pub(crate) fn bytes_out(&self, job: &Job) -> u32 {
        match *self.kind {
            Kind::Steps { bytes_out, .. } => bytes_out,
            Kind::Plain { .. } | Kind::Traced => u32::from(!job.write) * job.bytes,
        }
    }

    /// A command as the drive gets it, and which drive.
    #[inline]
    pub(crate) fn command(&self, contents: &Contents, job: &Job, command: &Command) -> (u16, ssd::Request) {
        let Command { at_ns, part, write, bytes } = *command;
        let op = if write { Op::Write } else { Op::Read };
        if self.is_traced() {
            let Traced { drive, offset, .. } = contents.traced(job.number);
            let draw = contents.device_draw(job.number, 0);
            return (drive, ssd::Request { at_ns, op, offset, bytes, draw });
        }
        let (first, count) = self.drives;
        let place = u64::from(contents.drive(job.number, 0, count)) + u64::from(part);
        let place = if place < u64::from(count) { place } else { place % u64::from(count) };
        let offset = match self.kind {
            Kind::Plain { sequential: true, .. } => {
                (job.number / u64::from(count)).wrapping_mul(u64::from(bytes)) % (1 << 40)
            }
            Kind::Plain { .. } => contents.offset(job.number, 0, self.places, bytes),
            _ => contents.offset(job.number, u64::from(part), places(bytes), bytes),
        };
        let draw = contents.device_draw(job.number, u64::from(job.step) * 16 + u64::from(part));
        (first + place as u16, ssd::Request { at_ns, op, offset, bytes, draw })
    }
}

/// A command of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Command {
    pub(crate) at_ns: u64,
    /// Which of the step's commands.
    pub(crate) part: u8,
    pub(crate) write: bool,
    pub(crate) bytes: u32,
}

impl Job {
    /// By connection and number.
    #[inline]
    pub(crate) fn name(&self) -> u64 {
        (u64::from(self.connection) << 40) | self.number
    }
}

/// Whether requests of a connection bring data.
pub(crate) fn brings_data(connection: &Connection) -> bool {
    match connection.request {
        Kind::Plain { writes_ppm, bytes, .. } => writes_ppm > 0 && bytes > 0,
        Kind::Steps { bytes_in, .. } => bytes_in > 0,
        Kind::Traced => true, // not known before
    }
}

/// Whether commands of a connection write.
pub(crate) fn writes(connection: &Connection) -> bool {
    match &connection.request {
        Kind::Plain { writes_ppm, .. } => *writes_ppm > 0,
        Kind::Steps { steps, .. } => steps.iter().any(|step| step.writes > 0),
        Kind::Traced => true, // not known before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_in_progress_fill_half_a_line_of_cache_each() {
        assert_eq!(size_of::<Job>(), 32);
    }
}
