//! The class of the knob of a namespace or a host.

use pilotlight_plant::{Goals, Scope};

/// The highest class that a request of this host, or to this namespace, can have; future hosts have no priority.
pub(super) fn highest_class(scope: Scope, others: &[Scope], goals: &Goals) -> u8 {
    let meets = |other: &&Scope| {
        matches!((scope, other), (Scope::Host(_), Scope::Namespace(_)) | (Scope::Namespace(_), Scope::Host(_)))
    };
    let classes = others.iter().filter(meets).map(|&other| goals.class(scope, other));
    classes.chain([goals.priority(scope)]).max().unwrap_or(0)
}
