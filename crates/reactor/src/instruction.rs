//! Requests of other threads to the director.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use pilotlight_plant::{Component, Goals, Knob, KnobId, Policy, Refusal, Source, Unreachable, Unsupported, View};

use crate::cells::ThreadCell;

/// A request to the director.
pub(crate) enum Instruction {
    /// Change the policy.
    Policy {
        /// The policy.
        policy: Box<dyn Policy>,
        /// Every I/O thread.
        cells: Vec<Arc<ThreadCell>>,
        /// The result.
        reply: SyncSender<Result<(), Unsupported>>,
    },
    /// Name and view of the policy.
    View(SyncSender<Option<(&'static str, View)>>),
    /// New goals of the operator.
    Goals(Goals),
    /// New classes of I/O threads.
    Classes(Vec<Option<u8>>),
    /// The goal that the policy does not reach.
    Unreachable(SyncSender<Option<Unreachable>>),
    /// The component that limits throughput.
    Bottleneck(SyncSender<Option<Component>>),
    /// Namespaces, hosts or devices were added or removed.
    Plant(Abilities),
    /// The machine has refused a setting.
    Refused {
        /// The knob.
        knob: KnobId,
        /// The requested value.
        value: u64,
        /// The reason.
        refusal: Refusal,
    },
}

/// Knobs, sources and the drives of namespaces.
#[derive(Debug)]
pub(crate) struct Abilities {
    pub(crate) knobs: Vec<Knob>,
    pub(crate) sources: Vec<Source>,
    pub(crate) drives: Vec<(u32, u16)>,
}
