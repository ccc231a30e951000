//! The class of the knob of a namespace or a host.

use pilotlight_plant::{Goals, Of};

/// The highest class that a request of this host, or to this namespace, can have; future hosts have no priority.
pub(super) fn highest_class(of: Of, others: &[Of], goals: &Goals) -> u8 {
    let meets = |other: &&Of| matches!((of, other), (Of::Host(_), Of::Namespace(_)) | (Of::Namespace(_), Of::Host(_)));
    let classes = others.iter().filter(meets).map(|&other| goals.class(of, other));
    classes.chain([goals.priority(of)]).max().unwrap_or(0)
}
