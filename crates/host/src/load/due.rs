//! What is due when: an open loop's arrivals, or a trace's commands.

use crate::load::picker::Kind;
use crate::load::replay::Feed;
use crate::schedule::Arrivals;

/// The source of an open loop.
#[derive(Debug)]
pub(crate) enum Due {
    /// Times from a schedule; what is sent is the picker's choice.
    Arrivals(Arrivals),
    /// A trace.
    Trace { feed: Feed, start_ns: u64 },
}

/// The next request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Next {
    /// Monotonic nanoseconds.
    pub(crate) due_ns: u64,
    /// Of the schedule.
    pub(crate) phase: u8,
    /// What it is, where that is given: kind, first block, blocks.
    pub(crate) command: Option<(Kind, u64, u32)>,
}

impl Due {
    /// The next request, where one is known by now.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Next> {
        match self {
            Self::Arrivals(arrivals) => Some(of_schedule(arrivals)),
            Self::Trace { feed, start_ns } => feed.peek().map(|item| of_trace(*start_ns, item)),
        }
    }

    /// The next request, waited for where it must still be read.
    pub(crate) fn next_waiting(&mut self) -> Option<Next> {
        match self {
            Self::Arrivals(arrivals) => Some(of_schedule(arrivals)),
            Self::Trace { feed, start_ns } => feed.peek_waiting().map(|item| of_trace(*start_ns, item)),
        }
    }

    /// Moves on to the request after.
    #[inline]
    pub(crate) fn advance(&mut self) {
        match self {
            Self::Arrivals(arrivals) => arrivals.advance(),
            Self::Trace { feed, .. } => feed.advance(),
        }
    }

    /// Whether nothing will ever be due again.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self, Self::Trace { feed, .. } if feed.is_over())
    }
}

fn of_schedule(arrivals: &Arrivals) -> Next {
    Next { due_ns: arrivals.due_ns(), phase: arrivals.phase() as u8, command: None }
}

fn of_trace(start_ns: u64, item: crate::load::replay::Item) -> Next {
    let due_ns = start_ns.saturating_add(item.at_ns);
    Next { due_ns, phase: 0, command: Some((item.kind, item.lba, item.blocks)) }
}
