//! The division of a budget between servers: the floor of each first, then by priority and by what each would lose.
//!
//! # The problem
//! Storage servers have a wide range between their floor and their full power (PASS, section 2.2), so a rack's budget can be met by lowering
//! some of them much and others not at all. Equal shares, and shares by size, lower a server that needs its power as much as one that does
//! not.
//!
//! # The algorithm
//! Each server has its floor. What is left goes to the pieces of all curves, those of the highest priority first, within a priority those
//! that deliver most for a watt first; pieces that deliver the same get parts of the same proportion. As curves are concave, this greedy order
//! is optimal. What is left after that delivers nothing at present: it is spread in proportion to the distance from full power, so that a
//! burst finds room before the next division.
//!
//! # Properties
//! - The sum is the budget at most, and no server has more than its full power.
//! - Unless floors exceed the budget, each server has its floor at least, and the budget is used up to one microwatt for each server.
//! - No other division delivers more to the highest priority, and none that delivers it as much delivers more to the next.
//! - A larger budget lowers no share.

use std::cmp::Ordering;

use super::curve::{Curve, Segment};

/// What the division knows of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Higher ones come first.
    pub priority: u8,
    /// What the server delivers by its power, for what its hosts ask at present.
    pub curve: Curve,
}

/// A division.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Division {
    /// Share of each server in microwatts. If `missing_uw` is not 0: floors.
    pub shares_uw: Vec<u64>,
    /// By how much the floors exceed the budget, in microwatts: no division can keep it.
    pub missing_uw: u64,
}

/// Divides `budget_uw` microwatts.
#[must_use]
pub fn divide(servers: &[Server], budget_uw: u64) -> Division {
    let mut shares_uw: Vec<u64> = servers.iter().map(|server| server.curve.floor_uw()).collect();
    let floors_uw = shares_uw.iter().fold(0, |sum: u64, uw| sum.saturating_add(*uw));
    let Some(mut rest_uw) = budget_uw.checked_sub(floors_uw) else {
        return Division { shares_uw, missing_uw: floors_uw - budget_uw };
    };
    let mut pieces: Vec<Piece> = servers.iter().enumerate().flat_map(|(at, server)| pieces(at, server)).collect();
    pieces.sort_by(Piece::order);
    for equals in pieces.chunk_by(|one, other| one.order(other).is_eq()) {
        let wanted: Vec<(usize, u64)> = equals.iter().map(|piece| (piece.server, piece.segment.width_uw)).collect();
        rest_uw = spread(&wanted, rest_uw, &mut shares_uw);
    }
    let room = |(at, server): (usize, &Server)| (at, server.curve.full_uw() - shares_uw[at]);
    let rooms: Vec<(usize, u64)> = servers.iter().enumerate().map(room).collect();
    spread(&rooms, rest_uw, &mut shares_uw);
    Division { shares_uw, missing_uw: 0 }
}

/// A piece of the curve of `server`.
struct Piece {
    server: usize,
    priority: u8,
    segment: Segment,
}

fn pieces(at: usize, server: &Server) -> impl Iterator<Item = Piece> {
    server.curve.segments().map(move |segment| Piece { server: at, priority: server.priority, segment })
}

impl Piece {
    /// The order of service; equal pieces are served together.
    fn order(&self, other: &Self) -> Ordering {
        other.priority.cmp(&self.priority).then_with(|| other.segment.compare(self.segment))
    }
}

/// Adds what is `wanted`, or the same proportion of it if `rest_uw` is less. Returns what is left.
fn spread(wanted: &[(usize, u64)], rest_uw: u64, shares_uw: &mut [u64]) -> u64 {
    let total_uw: u128 = wanted.iter().map(|(_, uw)| u128::from(*uw)).sum();
    let given_uw = total_uw.min(u128::from(rest_uw));
    for &(at, uw) in wanted {
        shares_uw[at] += (u128::from(uw) * given_uw / total_uw.max(1)) as u64;
    }
    rest_uw - given_uw as u64
}

#[cfg(test)]
#[path = "divide_tests.rs"]
mod tests;
