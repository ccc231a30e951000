//! Unit tests of caps.

use proptest::prelude::*;

use super::*;

const SECOND: u64 = 1_000_000_000;

fn submission(at_ns: u64, number: u32, bytes: u32) -> Submission {
    Submission { at_ns, core: 0, number, job: number, part: 0, write: false, bytes }
}

/// Runs commands (time, host, bytes) to one namespace through caps; returns the admitted ones in order.
fn run(caps: &mut Caps, commands: &[(u64, usize, u32)]) -> Vec<(u64, usize, u32, u64)> {
    let mut out = Vec::new();
    let mut note = |admitted: Option<Admitted>| {
        if let Some(Admitted { submission, waited_ns }) = admitted {
            let (_, host, bytes) = commands[submission.number as usize];
            assert_eq!(submission.bytes, bytes);
            out.push((submission.at_ns, host, bytes, waited_ns));
        }
    };
    for (number, &(at_ns, host, bytes)) in (0..).zip(commands) {
        while caps.next_ns() <= at_ns {
            note(caps.advance());
        }
        note(caps.enter(submission(at_ns, number, bytes), CommandOwner { host, namespace: 0 }));
    }
    while caps.next_ns() != u64::MAX {
        note(caps.advance());
    }
    out
}

fn capped(scope: Scope, bytes_per_s: u64) -> Caps {
    let mut caps = Caps::new(1, 4);
    caps.order(0, scope, Some(bytes_per_s));
    caps
}

proptest! {
    /// No command is lost, commands of a host stay in order, none is early, and no second exceeds 1.02 times the cap plus one command.
    #[test]
    fn no_second_exceeds_the_cap(
        gaps in prop::collection::vec((0..30_000_000_u64, 0..4_usize, 1..131_072_u32), 1..300), of_host in any::<bool>(),
    ) {
        let bytes_per_s = 2_000_000;
        let mut at_ns = 0;
        let commands: Vec<_> = gaps.iter().map(|&(gap_ns, host, bytes)| {
            at_ns += gap_ns;
            (at_ns, host, bytes)
        }).collect();
        let mut caps = capped(if of_host { Scope::Host(2) } else { Scope::Namespace(0) }, bytes_per_s);
        let out = run(&mut caps, &commands);
        prop_assert_eq!(out.len(), commands.len());
        let mine = |host: usize| !of_host || host == 2;
        for host in 0..4 {
            let came: Vec<_> = commands.iter().filter(|command| command.1 == host).collect();
            let went: Vec<_> = out.iter().filter(|command| command.1 == host).collect();
            for (came, went) in came.iter().zip(&went) {
                prop_assert_eq!((came.2, came.0 + went.3), (went.2, went.0));
                prop_assert!(mine(host) || went.3 == 0, "not capped");
            }
        }
        prop_assert!(out.is_sorted_by_key(|command| command.0));
        for (first, command) in out.iter().enumerate().filter(|(_, command)| mine(command.1)) {
            let second = out[first..].iter().take_while(|other| other.0 <= command.0 + SECOND);
            let bytes: u64 = second.filter(|other| mine(other.1)).map(|other| u64::from(other.2)).sum();
            prop_assert!(bytes <= bytes_per_s * 102 / 100 + 131_072, "{} bytes from {} ns on", bytes, command.0);
        }
    }
}

#[test]
fn continuous_load_gets_the_full_cap() {
    let commands: Vec<_> = (0..3_000).map(|number| (SECOND + number * 10, 0, 4_096)).collect();
    let out = run(&mut capped(Scope::Namespace(0), 4_096_000), &commands);
    let last_ns = out.last().unwrap().0;
    assert!(last_ns.abs_diff(4 * SECOND) < 20_000_000, "3,000 commands at 1,000 a second took {last_ns} ns");
    assert_eq!(
        out.iter().filter(|command| command.3 == 0).count(),
        9,
        "8 ms are admitted at once, and the one that spends them"
    );
}

/// A host with large queued commands and one with small ones get equal bandwidth.
#[test]
fn hosts_share_a_namespace_equally_in_bytes() {
    let commands: Vec<_> = (0..4_000).map(|at| if at < 400 { (at, 0, 65_536) } else { (at, 1, 4_096) }).collect();
    let out = run(&mut capped(Scope::Namespace(0), 10_000_000), &commands);
    let bytes = |host: usize| -> u64 {
        let until_ns = SECOND;
        out.iter().filter(|one| one.1 == host && one.0 < until_ns).map(|one| u64::from(one.2)).sum()
    };
    assert!(bytes(0).abs_diff(bytes(1)) < 200_000, "{} and {}", bytes(0), bytes(1));
}

#[test]
fn raising_and_removing_a_cap_takes_effect() {
    let commands: Vec<_> = (0..100).map(|number| (number * 10, 0, 1_000_000)).collect();
    let mut caps = capped(Scope::Namespace(0), 1_000_000);
    caps.order(2 * SECOND, Scope::Namespace(0), Some(10_000_000));
    caps.order(4 * SECOND, Scope::Namespace(0), None);
    let out = run(&mut caps, &commands);
    let until = |ns: u64| out.iter().filter(|command| command.0 < ns).count();
    assert_eq!((until(SECOND / 2), until(2 * SECOND)), (1, 2));
    assert!(until(4 * SECOND).abs_diff(22) <= 1, "{}", until(4 * SECOND));
    assert_eq!(out[99].0, 4 * SECOND);
    assert!(!caps.is_active());
}

#[test]
fn the_lower_of_two_caps_applies() {
    let commands: Vec<_> = (0..100).map(|number| (number * 10, 1, 100_000)).collect();
    let last_ns = |host: u64, namespace: u64| {
        let mut caps = capped(Scope::Namespace(0), namespace);
        caps.order(0, Scope::Host(1), Some(host));
        run(&mut caps, &commands)[99].0
    };
    for (host, namespace) in [(1_000_000, 5_000_000), (5_000_000, 1_000_000)] {
        assert!(last_ns(host, namespace).abs_diff(10 * SECOND) < SECOND / 5, "{}", last_ns(host, namespace));
    }
}
