//! Divides power between CPU and drives, and learns what their power costs the server.

/// CPU or drives, in microwatts of the server.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct User {
    /// With all limits at their lowest, and without limits.
    pub(super) least_uw: f64,
    pub(super) most_uw: f64,
    pub(super) demand_uw: f64,
}

impl User {
    /// With at least this allowance, as far as it can be used.
    pub(super) fn at_least(self, least_uw: f64) -> Self {
        Self { least_uw: self.least_uw.max(least_uw.min(self.most_uw)), ..self }
    }
}

/// The allowances, whose sum is at most `left_uw`, or the least of both.
pub(super) fn divide(left_uw: f64, users: [User; 2]) -> [f64; 2] {
    let sum = |of: fn(&User) -> f64| users.iter().map(of).sum::<f64>();
    let [least_uw, most_uw] = [sum(|user| user.least_uw), sum(|user| user.most_uw)];
    if left_uw >= most_uw {
        return users.map(|user| user.most_uw);
    }
    if left_uw <= least_uw {
        return users.map(|user| user.least_uw);
    }
    let demands = users.map(|user| user.demand_uw.clamp(user.least_uw, user.most_uw.max(user.least_uw)));
    let wanted_uw: f64 = demands.iter().sum();
    let part = |low: f64, high: f64| if high > low { (left_uw - low) / (high - low) } else { 0.0 };
    let [one, other] = users;
    if wanted_uw > left_uw {
        let part = part(least_uw, wanted_uw);
        let of = |user: User, demand: f64| user.least_uw + part * (demand - user.least_uw);
        return [of(one, demands[0]), of(other, demands[1])];
    }
    let (half_uw, spare_uw) = ((left_uw - wanted_uw) / 2.0, [one.most_uw - demands[0], other.most_uw - demands[1]]);
    let first_uw = half_uw.max(2.0 * half_uw - spare_uw[1]).min(spare_uw[0]);
    [demands[0] + first_uw, left_uw - demands[0] - first_uw]
}

/// Weight of a reading: about half a minute.
const WEIGHT: f64 = 1.0 / 30.0;
/// Power of the server for a watt of the CPU before it was measured, and its bounds (PASS's artifact, `polling-interval-rapl.csv`: 2.35 is the
/// largest between neighbouring rows, so that a draw larger than any before is carried).
const OF_CPU: (f64, f64, f64) = (2.35, 1.0, 4.0);
/// Power of the drives for a watt of their model, likewise: three kinds of drives draw 7 to 25 W more at their maximum.
const OF_DRIVES: (f64, f64, f64) = (1.0, 0.5, 4.0);
/// Deviations of both below which their effect is hardly seen, in microwatts: sensors of servers have steps of 1 W.
const MATERIAL_UW: (f64, f64) = (2e6, 0.5e6);

/// What a watt of the CPU, and of the drives by their model, costs the server: a regression over recent readings, drawn to the first values as long
/// as readings say little (ridge regression), since a burst raises both.
#[derive(Clone, Copy, Debug)]
pub(super) struct Response {
    /// Of the CPU, and of the drives.
    pub(super) slopes: (f64, f64),
    /// Means of the CPU's power, the drives' by their model, and the server's; `None` before the first reading.
    means: Option<[f64; 3]>,
    /// Covariances: CPU and CPU, drives and drives, CPU and drives, CPU and server, drives and server.
    of: [f64; 5],
}

impl Default for Response {
    fn default() -> Self {
        Self { slopes: (OF_CPU.0, OF_DRIVES.0), means: None, of: [0.0; 5] }
    }
}

impl Response {
    /// Powers in the same window.
    pub(super) fn update(&mut self, [server, cpu, drives]: [f64; 3]) {
        let means = self.means.get_or_insert([cpu, drives, server]);
        let [cpu, drives, server] = [cpu - means[0], drives - means[1], server - means[2]];
        means.iter_mut().zip([cpu, drives, server]).for_each(|(mean, by)| *mean += WEIGHT * by);
        if cpu.abs() < MATERIAL_UW.0 && drives.abs() < MATERIAL_UW.1 {
            return; // a constant load shows nothing, and nothing is forgotten for it
        }
        let products = [cpu * cpu, drives * drives, cpu * drives, cpu * server, drives * server];
        self.of.iter_mut().zip(products).for_each(|(old, new)| *old = (1.0 - WEIGHT) * (*old + WEIGHT * new));
        let [of_cpu, of_drives, both, cpu_server, drives_server] = self.of;
        let (a, d) = (of_cpu + MATERIAL_UW.0.powi(2), of_drives + MATERIAL_UW.1.powi(2));
        let e = cpu_server + MATERIAL_UW.0.powi(2) * OF_CPU.0;
        let f = drives_server + MATERIAL_UW.1.powi(2) * OF_DRIVES.0;
        let determinant = a * d - both * both; // positive, by Cauchy and Schwarz
        let (slope, price) = ((e * d - f * both) / determinant, (f * a - e * both) / determinant);
        self.slopes = (slope.clamp(OF_CPU.1, OF_CPU.2), price.clamp(OF_DRIVES.1, OF_DRIVES.2));
    }

    /// The server's power without both, by a reading.
    pub(super) fn rest_uw(&self, [server, cpu, drives]: [f64; 3]) -> f64 {
        server - self.slopes.0 * cpu - self.slopes.1 * drives
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CPU: User = User { least_uw: 50.0, most_uw: 200.0, demand_uw: 80.0 };
    const DRIVES: User = User { least_uw: 0.0, most_uw: 100.0, demand_uw: 10.0 };

    #[test]
    fn what_is_left_is_for_both_and_want_too() {
        assert_eq!(divide(400.0, [CPU, DRIVES]), [200.0, 100.0]);
        assert_eq!(divide(195.0, [CPU, DRIVES]), [80.0 + 52.5, 10.0 + 52.5]);
        assert_eq!(divide(295.0, [CPU, DRIVES]), [195.0, 100.0]);
        assert_eq!(divide(70.0, [CPU, DRIVES]), [65.0, 5.0]);
        assert_eq!(divide(10.0, [CPU, DRIVES]), [50.0, 0.0]);
        assert_eq!(divide(120.0, [CPU, User::default()]), [120.0, 0.0]);
    }

    proptest! {
        #[test]
        fn the_sum_is_what_is_left(left in 0.0..500.0_f64, all in prop::array::uniform6(0.0..200.0_f64)) {
            let [a, b, c, d, e, f] = all;
            let user = |a: f64, b: f64, demand_uw| User { least_uw: a.min(b), most_uw: a.max(b), demand_uw };
            let users = [user(a, b, c), user(d, e, f)];
            let divided = divide(left, users);
            let [least, most] = [users[0].least_uw + users[1].least_uw, users[0].most_uw + users[1].most_uw];
            prop_assert!((divided[0] + divided[1] - left.clamp(least, most)).abs() < 1e-6, "{divided:?}");
            let is_within = |at: usize| (users[at].least_uw - 1e-6..=users[at].most_uw + 1e-6).contains(&divided[at]);
            prop_assert!(is_within(0) && is_within(1));
        }
    }

    /// Bursts of both, as readings have them: with steps of 1 W.
    #[test]
    fn a_response_is_learnt_from_changes_and_kept() {
        let mut response = Response::default();
        let server = |cpu: f64, drives: f64, noise: u16| 100e6 + 1.5 * cpu + 3.0 * drives + f64::from(noise) * 1e6;
        let of = |cpu: f64, drives: f64, noise: u16| [server(cpu, drives, noise), cpu, drives];
        (0..100).for_each(|second| response.update(of(60e6, 1e6, second % 2)));
        assert!((response.slopes.0 - 2.35).abs() < 0.1 && (response.slopes.1 - 1.0).abs() < 0.1, "{response:?}");
        for second in 0..60 {
            let burst = f64::from(u8::from(second % 11 == 10));
            response.update(of(60e6 + 20e6 * burst, 1e6 + 6e6 * burst, second % 2));
        }
        let rests = [of(60e6, 1e6, 0), of(80e6, 7e6, 0)].map(|reading| response.rest_uw(reading));
        assert!((rests[0] - rests[1]).abs() < 2e6, "a burst is predicted: {response:?} {rests:?}");
    }
}
