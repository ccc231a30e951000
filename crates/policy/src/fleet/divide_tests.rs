//! The division against an exhaustive search, its properties, and two simple rules.

use proptest::prelude::*;

use super::super::curve::Point;
use super::*;

fn server(priority: u8, points: &[(u64, u64)]) -> Server {
    let points: Vec<Point> = points.iter().map(|&(power_uw, rate)| Point { power_uw, rate }).collect();
    Server { priority, curve: Curve::new(&points).expect("rising powers") }
}

/// A server of random floor and pieces of at most `width` each.
fn any_server(width: u64) -> impl Strategy<Value = Server> {
    let pieces = prop::collection::vec((1..=width, 0..=20_u64), 0..4);
    (0..3_u8, 0..=width, 0..=9_u64, pieces).prop_map(|(priority, floor_uw, rate, pieces)| {
        let mut points = vec![(floor_uw, rate)];
        for (width_uw, gain) in pieces {
            let &(power_uw, rate) = points.last().expect("the floor");
            points.push((power_uw + width_uw, rate + gain));
        }
        server(priority, &points)
    })
}

/// What each priority gets, the highest first.
fn delivered(servers: &[Server], shares_uw: &[u64]) -> [f64; 3] {
    [2, 1, 0].map(|priority| {
        let of_priority = servers.iter().zip(shares_uw).filter(|(server, _)| server.priority == priority);
        of_priority.map(|(server, &uw)| server.curve.rate(uw)).sum()
    })
}

/// The best of all divisions of whole units of `step` microwatts.
fn best(servers: &[Server], shares_uw: &mut Vec<u64>, rest_uw: u64, step: u64) -> [f64; 3] {
    let Some(server) = servers.get(shares_uw.len()) else { return delivered(servers, shares_uw) };
    let mut found = [-1.0; 3];
    let mut uw = server.curve.floor_uw();
    while uw <= server.curve.full_uw() {
        let others_uw: u64 = servers[shares_uw.len() + 1..].iter().map(|server| server.curve.floor_uw()).sum();
        if uw + others_uw > rest_uw {
            break;
        }
        shares_uw.push(uw);
        let one = best(servers, shares_uw, rest_uw - uw, step);
        shares_uw.pop();
        if one > found {
            found = one;
        }
        uw += step;
    }
    found
}

/// In units of 1,000 uW, so that rounding down is small beside the differences.
fn scaled(servers: &[Server]) -> Vec<Server> {
    let points = |server: &Server| -> Vec<(u64, u64)> {
        let mut from = (server.curve.floor_uw() * 1000, server.curve.rate(server.curve.floor_uw()) as u64);
        let mut points = vec![from];
        for segment in server.curve.segments() {
            from = (from.0 + segment.width_uw * 1000, from.1 + segment.gain);
            points.push(from);
        }
        points
    };
    servers.iter().map(|one| self::server(one.priority, &points(one))).collect()
}

proptest! {
    #[test]
    fn no_division_delivers_more(
        servers in prop::collection::vec(any_server(4), 1..=3),
        more in 0..20_u64,
    ) {
        let servers = scaled(&servers);
        let floors_uw: u64 = servers.iter().map(|server| server.curve.floor_uw()).sum();
        let budget_uw = floors_uw + more * 1000;
        let division = divide(&servers, budget_uw);
        let (ours, theirs) = (delivered(&servers, &division.shares_uw), best(&servers, &mut Vec::new(), budget_uw, 1000));
        for (ours, theirs) in ours.into_iter().zip(theirs) {
            // between whole units the division may deliver more to the first, and then less to the next
            prop_assert!(ours >= theirs - 0.1, "{ours} {theirs} {servers:?} {division:?}");
            if ours > theirs + 0.1 {
                break;
            }
        }
    }

    #[test]
    fn shares_keep_the_budget_the_floors_and_full_power(
        servers in prop::collection::vec(any_server(1_000_000), 0..40),
        budget_uw in 0..60_000_000_u64,
        more_uw in 0..1_000_000_u64,
    ) {
        let division = divide(&servers, budget_uw);
        let sum = |pick: &dyn Fn(&Server) -> u64| servers.iter().map(pick).sum::<u64>();
        let (floors_uw, full_uw) = (sum(&|server| server.curve.floor_uw()), sum(&|server| server.curve.full_uw()));
        let given_uw: u64 = division.shares_uw.iter().sum();
        prop_assert_eq!(division.missing_uw, floors_uw.saturating_sub(budget_uw));
        prop_assert!(given_uw <= budget_uw.max(floors_uw));
        prop_assert!(given_uw + servers.len() as u64 >= budget_uw.clamp(floors_uw, full_uw.max(floors_uw)));
        let larger = divide(&servers, budget_uw + more_uw);
        for (at, server) in servers.iter().enumerate() {
            prop_assert!((server.curve.floor_uw()..=server.curve.full_uw()).contains(&division.shares_uw[at]));
            prop_assert!(larger.shares_uw[at] >= division.shares_uw[at], "a larger budget lowers no share");
        }
    }
}

#[test]
fn priority_comes_before_value_and_value_before_size() {
    let servers = [
        server(0, &[(50, 0), (250, 1000)]), // most for a watt
        server(0, &[(50, 0), (450, 1000)]),
        server(1, &[(50, 0), (250, 100)]),
    ];
    let shares = |budget_uw| divide(&servers, budget_uw).shares_uw;
    assert_eq!(shares(150), [50, 50, 50]);
    assert_eq!(shares(300), [50, 50, 200]);
    assert_eq!(shares(450), [150, 50, 250]);
    assert_eq!(shares(650), [250, 150, 250]);
    assert_eq!(shares(2000), [250, 450, 250]);
    assert_eq!(divide(&servers, 100), Division { shares_uw: vec![50, 50, 50], missing_uw: 50 });
}

#[test]
fn what_delivers_nothing_now_is_room_for_bursts() {
    let servers = [server(0, &[(50, 0), (100, 10), (300, 10)]), server(0, &[(50, 0), (150, 10)])];
    assert_eq!(divide(&servers, 350).shares_uw, [200, 150]);
}
