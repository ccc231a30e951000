//! The bandwidth cap that saves a given power, for users with different rates.

/// A namespace or a host.
#[derive(Clone, Copy, Debug)]
pub(super) struct User {
    /// Bandwidth used.
    pub(super) bytes_per_s: f64,
    /// Microwatts for each byte a second.
    pub(super) slope: f64,
    /// Its lowest cap, in bytes a second.
    pub(super) floor: f64,
}

/// Power that a cap saves, in microwatts.
pub(super) fn saved(users: &[User], cap: f64) -> f64 {
    users.iter().map(|user| (user.bytes_per_s - cap.max(user.floor)).max(0.0) * user.slope).sum()
}

/// The highest cap, not below `lowest`, that saves at least `wanted_uw`.
pub(super) fn level(users: &[User], lowest: f64, wanted_uw: f64) -> f64 {
    if saved(users, lowest) <= wanted_uw {
        return lowest;
    }
    let most = users.iter().map(|user| user.bytes_per_s).fold(lowest, f64::max);
    let (mut low, mut high) = (lowest, most);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if saved(users, middle) >= wanted_uw { low = middle } else { high = middle }
    }
    low
}
