//! Grants against servers that apply them late, confirm them late, or never.

use proptest::prelude::*;

use super::*;

/// A server as the leader cannot see it: what it applies, and messages on their way to it and back.
#[derive(Clone, Debug)]
struct Remote {
    applied_uw: u64,
    to: Vec<Grant>,
    back: Vec<u64>,
}

#[derive(Clone, Debug)]
enum Step {
    Shares([u64; 4]),
    Publish,
    Apply(usize),
    Confirm(usize),
    Lose(usize),
    Expire(usize),
    /// Another leader takes over.
    Resume,
}

const FLOOR_UW: u64 = 10;
const BUDGET_UW: u64 = 200;

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        prop::array::uniform4(0..100_u64).prop_map(Step::Shares),
        Just(Step::Publish),
        (0..4_usize).prop_map(Step::Apply),
        (0..4_usize).prop_map(Step::Confirm),
        (0..4_usize).prop_map(Step::Lose),
        (0..4_usize).prop_map(Step::Expire),
        Just(Step::Resume),
    ]
}

fn rack() -> (Grants<usize>, Vec<Remote>) {
    let mut grants = Grants::new(BUDGET_UW);
    (0..4).for_each(|server| grants.join(server, FLOOR_UW).expect("room"));
    (grants, vec![Remote { applied_uw: FLOOR_UW, to: Vec::new(), back: Vec::new() }; 4])
}

/// Shares as a division makes them: within the budget.
fn set_shares(grants: &mut Grants<usize>, wanted: [u64; 4]) {
    let mut rest_uw = BUDGET_UW - 4 * FLOOR_UW;
    for (server, uw) in wanted.into_iter().enumerate() {
        let more_uw = uw.min(rest_uw);
        rest_uw -= more_uw;
        grants.set_share(&server, FLOOR_UW + more_uw);
    }
}

fn take(grants: &mut Grants<usize>, remotes: &mut [Remote], step: &Step) {
    match *step {
        Step::Shares(wanted) => set_shares(grants, wanted),
        Step::Publish => grants.publish().into_iter().for_each(|(server, grant)| remotes[server].to.push(grant)),
        Step::Apply(at) => {
            let remote = &mut remotes[at];
            if !remote.to.is_empty() {
                let grant = remote.to.remove(0);
                remote.applied_uw = grant.power_uw;
                remote.back.push(grant.number);
            }
        }
        Step::Confirm(at) => {
            if !remotes[at].back.is_empty() {
                let number = remotes[at].back.remove(0);
                grants.confirm(&at, number);
            }
        }
        Step::Resume => {
            let known: Vec<_> = (0..4).map(|at| (at, grants.known(&at).expect("joined"))).collect();
            *grants = Grants::resume(BUDGET_UW, known);
        }
        Step::Lose(at) => remotes[at].back.clear(),
        Step::Expire(at) => {
            remotes[at] = Remote { applied_uw: FLOOR_UW, to: Vec::new(), back: Vec::new() };
            grants.expire(&at);
        }
    }
}

proptest! {
    #[test]
    fn servers_never_exceed_the_budget_together(steps in prop::collection::vec(step(), 1..200)) {
        let (mut grants, mut remotes) = rack();
        for step in steps {
            take(&mut grants, &mut remotes, &step);
            let applied_uw: u64 = remotes.iter().map(|remote| remote.applied_uw).sum();
            prop_assert!(applied_uw <= grants.bound_uw() && grants.bound_uw() <= BUDGET_UW, "after {step:?}");
        }
    }

    #[test]
    fn shares_are_reached_once_all_confirm(
        steps in prop::collection::vec(step(), 0..50),
        wanted in prop::array::uniform4(0..100_u64),
    ) {
        let (mut grants, mut remotes) = rack();
        steps.iter().for_each(|step| take(&mut grants, &mut remotes, step));
        // what was lost is expired
        (0..4).for_each(|at| take(&mut grants, &mut remotes, &Step::Expire(at)));
        set_shares(&mut grants, wanted);
        for _ in 0..3 {
            take(&mut grants, &mut remotes, &Step::Publish);
            for at in 0..4 {
                take(&mut grants, &mut remotes, &Step::Apply(at));
                take(&mut grants, &mut remotes, &Step::Confirm(at));
            }
        }
        prop_assert!(grants.is_settled());
    }
}

#[test]
fn a_raise_waits_for_the_confirmation_of_what_is_lowered() {
    let mut grants = Grants::new(100);
    grants.join("a", 20).unwrap();
    grants.join("b", 20).unwrap();
    let publish = |grants: &mut Grants<&'static str>| match grants.publish()[..] {
        [] => None,
        [(server, Grant { number, power_uw })] => Some((server, power_uw, number)),
        _ => panic!("one at a time"),
    };
    grants.set_share(&"a", 80);
    let Some(("a", 80, first)) = publish(&mut grants) else { panic!("there is room") };
    grants.confirm(&"a", first);
    grants.set_share(&"a", 30);
    grants.set_share(&"b", 70);
    let Some(("a", 30, second)) = publish(&mut grants) else { panic!("b waits") };
    assert_eq!(publish(&mut grants), None, "still");
    grants.confirm(&"a", first);
    assert_eq!(publish(&mut grants), None);
    grants.confirm(&"a", second);
    assert!(matches!(publish(&mut grants), Some(("b", 70, _))));
    assert_eq!(grants.join("c", 20), Err(JoinError::NoRoom { missing_uw: 20 }));
}

#[test]
fn a_higher_floor_needs_room() {
    let mut grants = Grants::new(100);
    grants.join("a", 20).unwrap();
    grants.join("b", 70).unwrap();
    assert_eq!(grants.set_floor(&"a", 31), Err(JoinError::NoRoom { missing_uw: 1 }));
    assert_eq!(grants.set_floor(&"a", 30), Ok(()));
    assert_eq!((grants.bound_uw(), grants.set_floor(&"b", 10)), (100, Ok(())));
    grants.expire(&"b");
    assert_eq!(grants.bound_uw(), 40, "a lower floor after its restart");
}

#[test]
fn absurd_figures_do_not_overflow() {
    let mut grants = Grants::new(100);
    assert!(grants.join("a", u64::MAX).is_err());
    grants.join("b", 10).unwrap();
    assert!(grants.set_floor(&"b", u64::MAX).is_err());
}
