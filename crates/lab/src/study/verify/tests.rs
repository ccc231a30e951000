//! Verdicts by counts and settings.

use super::*;

fn evidence(requested: &str, io_poll: bool, delay: i64) -> Completion {
    Completion {
        requested: requested.into(),
        settings: Vec::new(),
        io_poll: Some(io_poll),
        io_poll_delay: Some(delay),
        interrupts: Ok(vec!["nvme0q".into()]),
        interrupts_count: Some(0),
        ramp_ns: 0,
    }
}

fn counted(interrupts: f64, switches: f64) -> Counted {
    Counted { interrupts: Some(interrupts), switches: Some(switches), waits: None }
}

fn verdict(completion: &Completion, interrupts: f64, switches: f64) -> Verdict {
    Verdict::verify(&[(completion, counted(interrupts, switches))]).unwrap()
}

/// Requested mechanism, `io_poll`, `io_poll_delay`, interrupts and switches per I/O; verified mechanism.
#[test]
fn every_mechanism_is_identified_by_its_counts() {
    for (requested, poll, delay, interrupts, switches, actual) in [
        ("interrupt", true, -1, 1.0, 1.0, Some("interrupt")),
        ("interrupt", false, -1, 0.2, 1.0, Some("interrupt")), // an interrupt can complete several requests
        ("interrupt", true, -1, 0.0, 1.0, None),
        ("classic", true, -1, 0.0, 0.01, Some("classic")),
        ("classic", true, -1, 0.0, 0.9, None), // it slept without a wake-up: counts are incomplete
        ("classic", true, -1, 1.0, 1.0, Some("interrupt")),
        ("classic", true, -1, 0.2, 1.0, Some("interrupt")),
        ("classic", true, -1, 0.2, 0.1, None),
        ("classic", false, -1, 0.0, 0.0, None),
        ("classic", true, 0, 0.0, 1.0, Some("hybrid")), // the delay could not be reset to -1
        ("hybrid", true, 0, 0.0, 1.0, Some("hybrid")),
        ("hybrid", true, 0, 0.0, 0.01, Some("classic")),
        ("hybrid", true, -1, 0.0, 1.0, None),
        ("hybrid", true, -1, 1.0, 1.0, Some("interrupt")),
        ("hybrid", true, 0, 0.2, 1.0, None),
        ("hybrid", true, -1, 0.2, 1.0, Some("interrupt")), // this kernel ignores the delay
        ("hybrid", false, 0, 0.2, 1.0, Some("interrupt")),
        ("hybrid 4us", true, 4, 0.0, 1.0, Some("hybrid 4us")),
        ("hybrid 4us", true, 0, 0.0, 1.0, Some("hybrid")),
        ("uring interrupt", true, -1, 1.0, 1.0, Some("uring interrupt")),
        ("uring classic", true, -1, 0.01, 0.0, Some("uring classic")),
        ("uring classic", true, -1, 0.0, 1.0, None),
        ("uring classic", false, -1, 1.0, 0.0, Some("uring interrupt")), // 5.10 and 6.1 spin until the interrupt
        ("uring hybrid", true, -1, 0.0, 1.0, Some("uring hybrid")),
        ("uring hybrid", true, -1, 0.0, 0.0, Some("uring classic")),
    ] {
        let verdict = verdict(&evidence(requested, poll, delay), interrupts, switches);
        assert_eq!(
            verdict.actual.as_deref(),
            actual,
            "{requested} {poll} {delay} {interrupts} {switches}: {}",
            verdict.why
        );
        assert_eq!(verdict.is_as_requested(), actual == Some(requested));
    }
}

/// Counts on Linux 7.3 and 6.16 with reads of 20 ms: polling threads were preempted every other read without waiting; four threads on two CPUs
/// that slept first had two switches per read, one of them voluntary.
#[test]
fn preemption_is_not_sleep() {
    let of = |requested, switches, waits| {
        let counted = Counted { waits: Some(waits), ..counted(0.0, switches) };
        Verdict::verify(&[(&evidence(requested, true, -1), counted)]).unwrap()
    };
    assert_eq!(of("uring classic", 0.9, 0.0).actual.as_deref(), Some("uring classic"));
    assert_eq!(of("uring hybrid", 2.14, 0.99).actual.as_deref(), Some("uring hybrid"));
    assert_eq!(of("uring hybrid", 0.9, 0.0).actual.as_deref(), Some("uring classic"));
    assert!(of("uring hybrid", 0.9, 0.0).why.contains("too short for a context switch"));
    assert_eq!(of("uring classic", 1.0, 1.0).actual, None);
    let text = of("uring hybrid", 2.14, 0.99).why;
    assert!(text.contains("2.14 context switches per I/O, 0.99 of them voluntary"), "{text}");
}

#[test]
fn the_label_has_the_actual_mechanism_and_the_evidence_the_reason() {
    let mut completion = evidence("hybrid", true, -1);
    let why_not = Some("0 was written but -1 is read back: this kernel ignores the setting".to_owned());
    completion.settings = vec![AppliedSetting { key: "io_poll_delay".into(), wanted: 0, why_not }];
    let hybrid = verdict(&completion, 1.0, 1.02);
    assert_eq!(hybrid.label(), "hybrid (ran interrupt)");
    let expected = "requested hybrid, actual interrupt: 1.00 interrupts and 1.02 context switches per I/O; io_poll_delay: 0 was written";
    assert!(hybrid.why.starts_with(expected) && hybrid.why.contains("only for io_uring"), "{}", hybrid.why);
    let without = verdict(&evidence("classic", false, -1), 1.0, 1.0);
    assert!(without.why.contains("nvme.poll_queues=N"), "{}", without.why);
    let ignored = verdict(&evidence("hybrid", true, 0), 1.0, 1.0);
    assert!(ignored.why.contains("without effect"), "{}", ignored.why);
}

#[test]
fn missing_or_differing_counts_are_inconclusive() {
    let completion = evidence("classic", true, -1);
    let nothing = Verdict::verify(&[(&completion, Counted { interrupts: None, ..counted(0.0, 1.0) })]).unwrap();
    assert_eq!((nothing.actual.as_deref(), nothing.label().as_str()), (None, "classic (not verified)"));
    assert!(nothing.why.contains("sensor = \"kernel\""), "{}", nothing.why);
    let both = Verdict::verify(&[(&completion, counted(0.0, 0.0)), (&completion, counted(1.0, 1.0))]).unwrap();
    assert!(both.actual.is_none() && both.why.contains("the repeats differ"), "{}", both.why);
    assert_eq!((both.interrupts_per_io, both.switches_per_io), (Some(0.5), Some(0.5)));
    assert_eq!(Verdict::verify(&[]), None);
}
