//! One power budget for many servers of a rack.
//!
//! A leader divides the budget ([`divide()`]) from what each server would deliver at each power ([`Curve`]), and changes the shares so that
//! their sum stays within the budget at every moment ([`Grants`]). Who leads, and how figures travel, is not decided here.

mod curve;
mod divide;
mod estimate;
mod grants;

pub use curve::{Curve, CurveError, Point};
pub use divide::{Division, Server, divide};
pub use estimate::{Work, cpu_uw, estimate, is_held_back, speed};
pub use grants::{Grant, Grants, JoinError, Known};
