//! Requests on the target: the template of a connection, and requests in progress.
//!
//! Direction and size of a request are determined on arrival and stored in its [`Job`].

use super::host::{Contents, SPAN, Sent, places};
use crate::scenario::{Connection, Kind, Step, Traced};
use crate::ssd::{self, Op, SsdModel};

/// Structure of a connection's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// One command.
    Plain,
    /// One command, replayed from a trace.
    Traced,
    /// Steps of several commands.
    Steps,
}

/// The template of a connection's requests.
#[derive(Clone, Debug)]
pub(crate) struct RequestTemplate<'a> {
    shape: Shape,
    sequential: bool,
    thread: u16,
    /// Its drives: from, number.
    drives: (u16, u16),
    /// The port of each direction that its packets take.
    pub(crate) port: u32,
    writes_ppm: u32,
    /// Size of its single command, or of the response data.
    bytes: u32,
    /// Data sent with a request with steps.
    bytes_in: u32,
    /// Number of possible offsets; 0 if the offset does not matter.
    places: u64,
    pub(crate) contents: Contents,
    steps: &'a [Step],
}

/// A request in progress on the target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    /// When the host has sent it; when it was due, if hosts keep to their schedule.
    pub(crate) sent_ns: u64,
    /// Which of the connection's requests.
    pub(crate) number: u64,
    pub(crate) connection: u32,
    /// Size of its single command, or of its response with steps.
    pub(crate) bytes: u32,
    pub(crate) thread: u16,
    /// Label of the phase that it was due in.
    pub(crate) label: u8,
    /// Whether its single command writes.
    pub(crate) write: bool,
    pub(crate) shape: Shape,
    /// The current step, and its incomplete commands.
    pub(crate) step: u8,
    pub(crate) left: u8,
}

impl<'a> RequestTemplate<'a> {
    pub(crate) fn new(index: usize, connection: &'a Connection, ports: u32, drives: &[SsdModel], seed: u64) -> Self {
        let (first, count) = connection.drives;
        let mut mine = drives.iter().skip(usize::from(first)).take(usize::from(count));
        let plan = Self {
            shape: Shape::Traced,
            sequential: false,
            thread: connection.thread,
            drives: connection.drives,
            port: index as u32 % ports,
            writes_ppm: 0,
            bytes: 0,
            bytes_in: 0,
            places: 0,
            contents: Contents::new(index, seed),
            steps: &[],
        };
        match &connection.request {
            &Kind::Plain { writes_ppm, bytes, sequential } => {
                let minded = mine.any(|drive| drive.minds_offset(bytes));
                let places = if minded { places(bytes) } else { 0 };
                Self { shape: Shape::Plain, writes_ppm, bytes, sequential, places, ..plan }
            }
            Kind::Steps { steps, bytes_in, bytes_out } => {
                Self { shape: Shape::Steps, steps, bytes_in: *bytes_in, bytes: *bytes_out, ..plan }
            }
            Kind::Traced { .. } => plan,
        }
    }

    /// Creates a request of this connection.
    #[inline]
    pub(crate) fn job(&self, sent: &Sent) -> Job {
        let (write, bytes) = match self.shape {
            Shape::Plain => (self.contents.writes(sent.number, self.writes_ppm), self.bytes),
            Shape::Steps => (false, self.bytes),
            Shape::Traced => {
                let Traced { write, bytes, .. } = self.contents.traced(sent.number);
                (write, bytes)
            }
        };
        Job {
            sent_ns: sent.due_ns,
            number: sent.number,
            connection: sent.connection,
            bytes,
            thread: self.thread,
            label: sent.label,
            write,
            shape: self.shape,
            step: 0,
            left: 0,
        }
    }

    /// A step of its requests; none after the last, or where they have none.
    pub(crate) fn step(&self, step: u8) -> Option<Step> {
        self.steps.get(usize::from(step)).copied()
    }

    /// Size of the data sent with a request.
    #[inline]
    pub(crate) fn bytes_in(&self, job: &Job) -> u32 {
        if job.write { job.bytes } else { self.bytes_in }
    }

    /// Drive and request of a command.
    #[inline(always)] // as a call it would return through memory
    pub(crate) fn command(&self, job: &Job, command: &Command) -> (u16, ssd::Request) {
        let Command { at_ns, part, write, bytes } = *command;
        let op = if write { Op::Write } else { Op::Read };
        if self.shape == Shape::Traced {
            let Traced { drive, offset, .. } = self.contents.traced(job.number);
            let draw = self.contents.device_draw(job.number, 0);
            return (drive, ssd::Request { at_ns, op, offset, bytes, draw, sequential: false });
        }
        let offset = self.offset(job.number, part, bytes);
        let draw = self.contents.device_draw(job.number, u64::from(job.step) * 16 + u64::from(part));
        (self.drive(job, part), ssd::Request { at_ns, op, offset, bytes, draw, sequential: self.sequential })
    }

    /// The drive of a command.
    #[inline(always)]
    pub(crate) fn drive(&self, job: &Job, part: u8) -> u16 {
        if self.shape == Shape::Traced {
            return self.contents.traced(job.number).drive;
        }
        let (first, count) = self.drives;
        let place = u64::from(self.contents.drive(job.number, 0, count)) + u64::from(part);
        let place = if place < u64::from(count) { place } else { place % u64::from(count) };
        first + place as u16
    }

    /// Offset of a command on its drive.
    #[inline]
    fn offset(&self, number: u64, part: u8, bytes: u32) -> u64 {
        if self.sequential {
            return (number / u64::from(self.drives.1)).wrapping_mul(u64::from(bytes)) % SPAN;
        }
        match self.shape {
            Shape::Plain if self.places == 0 => 0, // spares a draw: 43 instructions
            Shape::Plain => self.contents.offset(number, u64::from(part), self.places, bytes),
            Shape::Steps | Shape::Traced => self.contents.offset(number, u64::from(part), places(bytes), bytes),
        }
    }
}

/// A command of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Command {
    pub(crate) at_ns: u64,
    /// Index of the command in its step.
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

    /// Size of the response data.
    #[inline]
    pub(crate) fn bytes_out(&self) -> u32 {
        if self.write { 0 } else { self.bytes }
    }
}

/// Whether requests of a connection contain data.
pub(crate) fn brings_data(connection: &Connection) -> bool {
    match connection.request {
        Kind::Plain { writes_ppm, bytes, .. } => writes_ppm > 0 && bytes > 0,
        Kind::Steps { bytes_in, .. } => bytes_in > 0,
        Kind::Traced { .. } => true, // unknown
    }
}

/// Whether commands of a connection write.
pub(crate) fn writes(connection: &Connection) -> bool {
    match &connection.request {
        Kind::Plain { writes_ppm, .. } => *writes_ppm > 0,
        Kind::Steps { steps, .. } => steps.iter().any(|step| step.writes > 0),
        Kind::Traced { .. } => true, // unknown
    }
}

/// The submission of a command to a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Submission {
    pub(crate) at_ns: u64,
    pub(crate) core: u16,
    pub(crate) number: u32,
    pub(crate) job: u32,
    pub(crate) part: u8,
    pub(crate) write: bool,
    pub(crate) bytes: u32,
}

impl Submission {
    #[inline]
    pub(crate) fn command(&self) -> Command {
        Command { at_ns: self.at_ns, part: self.part, write: self.write, bytes: self.bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_fits_half_a_cache_line() {
        assert_eq!(size_of::<Job>(), 32);
    }
}
