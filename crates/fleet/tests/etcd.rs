//! Members of a rack and the faults of etcd, of servers and of readings, with a cluster of real `etcd` processes. In each the servers
//! together stay within the budget.

#[path = "support/etcd.rs"]
#[allow(dead_code, reason = "another test uses the rest")]
mod support;

use pilotlight_fleet::view::{Rack, RackError};
use support::{BUDGET_UW, Cluster, Member, Meter, W, certificates, rack, wait_for};

const RANGE_UW: (u64, u64) = (20 * W, 150 * W);

/// A cluster with a budget.
fn cluster() -> Option<(Cluster, Rack)> {
    let cluster = Cluster::start()?;
    let rack = rack(&cluster);
    Some((cluster, rack))
}

/// Three members, whose floors are reserved, with these rates.
fn members(cluster: &Cluster, rack: &mut Rack, meter: &Meter, rates: [u64; 3]) -> Vec<Member> {
    let names = ["a", "b", "c"];
    names.iter().for_each(|name| rack.reserve(name, RANGE_UW.0).unwrap());
    names.iter().zip(rates).map(|(name, rate)| Member::start(cluster, meter, name, RANGE_UW, rate)).collect()
}

fn shares(members: &[Member]) -> Vec<u64> {
    members.iter().map(|member| member.share_uw() / W).collect()
}

fn wait_for_shares(what: &str, members: &[Member], expected: &[u64]) {
    let mut last = Vec::new();
    wait_for(&format!("{what}: {expected:?}"), || {
        last = shares(members);
        last == expected
    });
}

#[test]
fn a_budget_is_divided_halved_and_restored() {
    let Some((cluster, mut rack)) = cluster() else { return };
    let meter = Meter::new();
    let members = members(&cluster, &mut rack, &meter, [900, 300, 300]);
    wait_for_shares("the first division", &members, &[150, 75, 75]);
    assert!(meter.take_most() <= BUDGET_UW);
    rack.set_budget(BUDGET_UW / 2).unwrap();
    wait_for_shares("half", &members, &[110, 20, 20]);
    wait_for("power follows", || meter.sum() <= BUDGET_UW / 2);
    meter.take_most();
    for (needy, expected) in [(1, [20, 110, 20]), (2, [20, 20, 110])] {
        for (at, member) in members.iter().enumerate() {
            member.needs(|needs| needs.rate = if at == needy { 900 } else { 0 });
        }
        wait_for_shares("another one needs it", &members, &expected);
    }
    assert!(meter.take_most() <= BUDGET_UW / 2, "lowered first, then raised");
    rack.set_budget(BUDGET_UW).unwrap();
    wait_for_shares("all", &members, &[75, 75, 150]);
    assert!(meter.take_most() <= BUDGET_UW);
    let leaders = || members.iter().filter(|member| member.fleet.state().is_leader).count();
    wait_for("one leads", || leaders() == 1);
}

/// Clocks run at other rates and differ by hours.
#[test]
fn without_etcd_shares_hold_until_their_validity_ends_and_then_floors() {
    let Some((cluster, mut rack)) = cluster() else { return };
    let meter = Meter::new();
    let clocks = [(100, 0), (91, 7_200_000_000_000), (110, 3)];
    ["a", "b", "c"].iter().for_each(|name| rack.reserve(name, RANGE_UW.0).unwrap());
    let start = |(name, clock)| Member::start_on(&cluster.etcd, &meter, name, RANGE_UW, 300, clock);
    let members: Vec<Member> = ["a", "b", "c"].into_iter().zip(clocks).map(start).collect();
    wait_for_shares("a division", &members, &[100, 100, 100]);
    cluster.signal(&[0, 1, 2], "-STOP");
    wait_for("validity of some left", || members.iter().any(|member| member.fleet.state().failure.is_some()));
    assert!(members.iter().all(|member| member.share_uw() == 100 * W || member.fleet.state().expiries > 0));
    wait_for_shares("floors", &members, &[20, 20, 20]);
    assert!(members.iter().all(|member| member.fleet.state().expiries > 0));
    cluster.signal(&[0, 1, 2], "-CONT");
    wait_for_shares("etcd is back", &members, &[100, 100, 100]);
    assert!(meter.take_most() <= BUDGET_UW);
}

#[test]
fn one_etcd_of_three_can_fail() {
    let Some((cluster, mut rack)) = cluster() else { return };
    let meter = Meter::new();
    let members = members(&cluster, &mut rack, &meter, [900, 300, 300]);
    wait_for_shares("a division", &members, &[150, 75, 75]);
    cluster.signal(&[0], "-KILL");
    members[0].needs(|needs| needs.rate = 0);
    wait_for_shares("another division", &members, &[20, 140, 140]);
    assert!(meter.take_most() <= BUDGET_UW);
}

/// Its floor stays reserved, until an operator gives it to others.
#[test]
fn the_share_of_a_server_that_dies_returns_when_its_lease_ends() {
    let Some((cluster, mut rack)) = cluster() else { return };
    let meter = Meter::new();
    let mut members = members(&cluster, &mut rack, &meter, [900, 300, 300]);
    wait_for_shares("a division", &members, &[150, 75, 75]);
    wait_for("a server that runs is not forgotten", || matches!(rack.forget("a"), Err(RackError::Running(_))));
    members[0].needs(|needs| needs.panics = true);
    wait_for_shares("the others have it", &members[1..], &[140, 140]);
    assert!(meter.take_most() <= BUDGET_UW);
    // it starts again
    members[0] = Member::start(&cluster, &meter, "a", RANGE_UW, 900);
    wait_for_shares("as before", &members, &[150, 75, 75]);
    drop(members.remove(0));
    wait_for_shares("a stopped server gives its share back at once", &members, &[140, 140]);
    rack.forget("a").unwrap();
    wait_for_shares("its floor is free", &members, &[150, 150]);
    assert!(matches!(rack.forget("a"), Err(RackError::Unknown(_))));
    assert!(matches!(rack.reserve("b", 1), Err(RackError::Known(_))));
}

#[test]
fn a_reading_that_lies_costs_others_its_own_full_power_at_most() {
    let Some((cluster, mut rack)) = cluster() else { return };
    let meter = Meter::new();
    let members = members(&cluster, &mut rack, &meter, [0, 300, 300]);
    wait_for_shares("a division", &members, &[20, 140, 140]);
    members[0].needs(|needs| needs.measured_uw = Some(u64::MAX));
    wait_for_shares("it is believed up to its full power", &members, &[20, 75, 75]);
    members[0].needs(|needs| needs.measured_uw = Some(0));
    wait_for_shares("a low one gives it nothing", &members, &[20, 140, 140]);
    assert!(meter.take_most() <= BUDGET_UW);
}

#[test]
fn two_servers_of_one_name_are_one_member() {
    let Some((cluster, mut rack)) = cluster() else { return };
    let meter = Meter::new();
    let first = Member::start(&cluster, &meter, "a", RANGE_UW, 300);
    wait_for("it has its share", || first.share_uw() == RANGE_UW.1);
    let second = Member::start(&cluster, &meter, "a", RANGE_UW, 300);
    let reason = || second.fleet.state().failure.unwrap_or_default();
    wait_for("the second says why it has none", || reason().contains("named a"));
    assert_eq!(second.share_uw(), RANGE_UW.0);
    assert!(rack.read().unwrap().statuses.len() <= 1);
}

#[test]
fn etcd_with_tls_and_certificates() {
    let Some(folder) = certificates() else { return };
    let Some(cluster) = Cluster::start_with(Some(folder.path())) else { return };
    let mut rack = rack(&cluster);
    let meter = Meter::new();
    let members = members(&cluster, &mut rack, &meter, [300, 300, 300]);
    wait_for_shares("a division", &members, &[100, 100, 100]);
    let stranger = pilotlight_fleet::Tls { identity: None, ..cluster.etcd.tls.clone() };
    let stranger = pilotlight_fleet::Etcd { tls: stranger, ..cluster.etcd.clone() };
    assert!(Rack::connect(&stranger, "r").and_then(|mut rack| rack.read()).is_err(), "without a certificate");
}

#[test]
fn one_leader_serves_three_hundred_servers() {
    let Some((cluster, mut rack)) = cluster() else { return };
    rack.set_budget(300 * RANGE_UW.1).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut client = etcd_client::Client::connect(&cluster.etcd.endpoints, None).await.unwrap();
        for at in 1..300 {
            let status = format!(
                r#"{{"format":1,"session":{at},"floor_uw":{},"full_uw":{},"measured_uw":0,"source":"","priority":0,"curve":[[{},0],[{},900]],"applied":0,"in_force_uw":0}}"#,
                RANGE_UW.0, RANGE_UW.1, RANGE_UW.0, RANGE_UW.1
            );
            client.put(format!("/pilotlight/r/status/server-{at}"), status, None).await.unwrap();
        }
    });
    let meter = Meter::new();
    let leader = Member::start(&cluster, &meter, "server-0", RANGE_UW, 900);
    wait_for("its share", || leader.share_uw() == RANGE_UW.1);
    let mut granted = 0;
    wait_for("all have grants", || {
        let grants = rack.read().unwrap().grants;
        granted = grants.values().filter(|grant| grant.power_uw == RANGE_UW.1).count();
        granted == 300
    });
    let bounds: u64 = rack.read().unwrap().grants.values().map(|grant| grant.bound_uw).sum();
    assert!(bounds <= 300 * RANGE_UW.1);
}

#[test]
fn etcd_with_users() {
    let Some((cluster, _)) = cluster() else { return };
    if cluster.enable_users().is_none() {
        return;
    }
    let with = |user: Option<(&str, &str)>| {
        let user = user.map(|(name, password)| (name.to_owned(), password.to_owned()));
        pilotlight_fleet::Etcd { user, ..cluster.etcd.clone() }
    };
    for wrong in [None, Some(("root", "wrong"))] {
        assert!(Rack::connect(&with(wrong), "r").and_then(|mut rack| rack.read()).is_err(), "{wrong:?}");
    }
    let right = with(Some(("root", "hidden")));
    let meter = Meter::new();
    let member = Member::start_on(&right, &meter, "a", RANGE_UW, 900, (100, 0));
    wait_for("its share", || member.share_uw() == RANGE_UW.1);
}
