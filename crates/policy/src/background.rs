//! The Background Task Scheduler (PACER IV-D), for `pacer` and `adaptive`: while the server is idle, background work runs at its highest rate until none
//! is left, so that drives reach their idle states; otherwise at its lowest rate. Steady work never ends: once it is done, or no longer shrinks at the highest rate, it
//! accumulates for the idle time while drives rest.
//!
//! A class without a reading of its backlog stays at its lowest rate.

use pilotlight_plant::{Capabilities, Command, Kind, KnobId, Quantity, Reading, ReadingId, Refusal, Scope};

use crate::backoff::Backoff;

/// The classes of background work.
#[derive(Debug, Default)]
pub(crate) struct Background(Vec<Class>);

#[derive(Debug)]
struct Class {
    knob: KnobId,
    /// The lowest rate and the highest.
    rates: (u64, u64),
    /// The reading of its backlog.
    backlog: Option<ReadingId>,
    /// Whether work is left, by the last reading.
    has_work: bool,
    /// The least backlog since it runs at the highest rate, and when it was read.
    left: Option<(u64, u64)>,
    /// Time until which work accumulates.
    accumulates_until_ns: u64,
    /// The last commanded rate.
    rate: Option<u64>,
    backoff: Backoff,
}

impl Background {
    /// Finds the classes of a plant; rates commanded before stay in force.
    pub(crate) fn find(&mut self, capabilities: &Capabilities) {
        let before = std::mem::take(&mut self.0);
        let classes =
            capabilities.knobs_of(Kind::RatePpm).filter(|(_, knob)| matches!(knob.scope, Scope::Background(_)));
        self.0 = classes
            .filter_map(|(id, knob)| {
                let known = before.iter().find(|class| class.knob == id);
                Some(Class {
                    knob: id,
                    rates: (knob.values.lowest()?, knob.values.highest()?),
                    backlog: capabilities.find_source(knob.scope, Quantity::BacklogBytes).map(|(id, _)| id),
                    has_work: known.is_some_and(|class| class.has_work),
                    left: None,
                    accumulates_until_ns: known.map_or(0, |class| class.accumulates_until_ns),
                    rate: known.and_then(|class| class.rate),
                    backoff: known.map(|class| class.backoff).unwrap_or_default(),
                })
            })
            .collect();
    }

    /// The readings that it needs.
    pub(crate) fn readings(&self) -> impl Iterator<Item = ReadingId> {
        self.0.iter().filter_map(|class| class.backlog)
    }

    /// Whether an idle server has to check for new work.
    pub(crate) fn has_backlog(&self) -> bool {
        self.0.iter().any(|class| class.backlog.is_some())
    }

    /// Reads the backlogs; work that is done, or has not shrunk for longer than the first of these times, accumulates for the second.
    pub(crate) fn update(&mut self, now_ns: u64, readings: &[Reading], (steady_ns, accumulation_ns): (u64, u64)) {
        for class in &mut self.0 {
            let reading = readings.iter().find(|reading| Some(reading.id) == class.backlog);
            let Some(bytes) = reading.and_then(|reading| reading.value) else { continue };
            let is_fast = class.rate == Some(class.rates.1);
            let (least, since_ns) = class.left.filter(|(least, _)| bytes >= *least).unwrap_or((bytes, now_ns));
            let is_steady = now_ns > since_ns.saturating_add(steady_ns);
            if is_fast && (bytes == 0 || is_steady) {
                class.accumulates_until_ns = now_ns.saturating_add(accumulation_ns);
            }
            class.left = is_fast.then_some((least, since_ns));
            class.has_work = bytes > 0 && now_ns >= class.accumulates_until_ns;
        }
    }

    /// Whether work is left that runs at the highest rate while the server is idle.
    pub(crate) fn is_left(&self) -> bool {
        self.0.iter().any(Class::is_left)
    }

    /// Sets rates for a server that is idle or not.
    pub(crate) fn set(&mut self, now_ns: u64, is_idle: bool, out: &mut Vec<Command>) {
        for class in &mut self.0 {
            let (lowest, highest) = class.rates;
            let value = if is_idle && class.backlog.is_some() && class.has_work { highest } else { lowest };
            if class.rate != Some(value) && class.backoff.is_over(now_ns) {
                class.rate = Some(value);
                out.push(Command::Set { knob: class.knob, value });
            }
        }
    }

    /// Starts a backoff; whether the knob is one of these.
    pub(crate) fn on_refused(&mut self, now_ns: u64, knob: KnobId, refusal: Refusal) -> bool {
        let Some(class) = self.0.iter_mut().find(|class| class.knob == knob) else { return false };
        class.rate = None;
        class.backoff.on_refused(now_ns, refusal);
        true
    }
}

impl Class {
    fn is_left(&self) -> bool {
        self.backlog.is_some() && self.has_work && self.rate.is_some()
    }
}
