//! The cap on bandwidth that saves a power, of users with different rates.

/// What a cap saves of users with these bytes a second and slopes.
pub(super) fn saved(users: &[(f64, f64)], cap: f64) -> f64 {
    users.iter().map(|(bytes, slope)| (bytes - cap).max(0.0) * slope).sum()
}

/// The highest cap, not below the floor, that saves at least so much.
pub(super) fn level(users: &[(f64, f64)], floor: f64, wanted_uw: f64) -> f64 {
    if saved(users, floor) <= wanted_uw {
        return floor;
    }
    let most = users.iter().map(|(bytes, _)| *bytes).fold(floor, f64::max);
    let (mut low, mut high) = (floor, most);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if saved(users, middle) >= wanted_uw { low = middle } else { high = middle }
    }
    low
}
