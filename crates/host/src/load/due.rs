//! The source of requests of an open loop: arrivals or a trace.

use crate::load::picker::Kind;
use crate::load::replay::Feed;
use crate::schedule::Arrivals;

/// A source of requests.
#[derive(Debug)]
pub(crate) enum Due {
    /// Times from a schedule; the picker chooses the commands.
    Arrivals(Arrivals),
    /// A trace.
    Trace { feed: Feed, start_ns: u64 },
}

/// The next request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Next {
    /// Monotonic time.
    pub(crate) due_ns: u64,
    /// Phase of the schedule.
    pub(crate) phase: u8,
    /// Kind, first block and blocks, from a trace.
    pub(crate) command: Option<(Kind, u64, u32)>,
}

impl Due {
    /// The next request, if it is available.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Next> {
        match self {
            Self::Arrivals(arrivals) => Some(from_schedule(arrivals)),
            Self::Trace { feed, start_ns } => feed.peek().map(|item| from_trace(*start_ns, item)),
        }
    }

    /// The next request; waits for the trace.
    pub(crate) fn next_waiting(&mut self) -> Option<Next> {
        match self {
            Self::Arrivals(arrivals) => Some(from_schedule(arrivals)),
            Self::Trace { feed, start_ns } => feed.peek_waiting().map(|item| from_trace(*start_ns, item)),
        }
    }

    /// Advances to the following request.
    #[inline]
    pub(crate) fn advance(&mut self) {
        match self {
            Self::Arrivals(arrivals) => arrivals.advance(),
            Self::Trace { feed, .. } => feed.advance(),
        }
    }

    /// Whether the trace has ended.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self, Self::Trace { feed, .. } if feed.is_over())
    }
}

fn from_schedule(arrivals: &Arrivals) -> Next {
    Next { due_ns: arrivals.due_ns(), phase: arrivals.phase() as u8, command: None }
}

fn from_trace(start_ns: u64, item: crate::load::replay::Item) -> Next {
    let due_ns = start_ns.saturating_add(item.at_ns);
    Next { due_ns, phase: 0, command: Some((item.kind, item.lba, item.blocks)) }
}
