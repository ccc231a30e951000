//! Decisions against members that live, die, lie and have clocks of other rates, and leaders that write late.

use proptest::prelude::*;

use super::*;
use crate::documents::Change;
use crate::member::Share;

/// Time of a lease in nanoseconds.
const LEASE_NS: u64 = 16_000;
/// Within it a member looks at its clock, and power falls to the floor.
const TICK_NS: u64 = LEASE_NS / 16;
const FULL_UW: u64 = 100_000;
const FLOORS_UW: [u64; 4] = [10_000, 20_000, 30_000, 10_000];

/// A server and its share.
struct Remote {
    name: String,
    floor_uw: u64,
    share: Share,
    /// What it draws at most.
    drawn_uw: u64,
    is_running: bool,
    /// At the last look at its clock.
    is_granted: bool,
    /// Rate of its clock in percent, and its offset.
    clock: (u64, u64),
    /// Request to keep the lease on its way: by its clock.
    sent_ns: Option<u64>,
}

impl Remote {
    fn now_ns(&self, now_ns: u64) -> u64 {
        now_ns * self.clock.0 / 100 + self.clock.1
    }

    /// Takes what is in force; power rises at once and falls later.
    fn change(&mut self, now_ns: u64) {
        if let Some(power_uw) = self.share.change(self.now_ns(now_ns)).filter(|_| self.is_running) {
            self.drawn_uw = self.drawn_uw.max(power_uw);
        }
    }

    fn settle(&mut self) {
        self.drawn_uw = if self.is_running { self.share.in_force_uw() } else { 0 };
    }
}

/// A leader that has decided and not yet written.
struct Late {
    sequence: i64,
    writes: Vec<Write>,
}

struct World {
    now_ns: u64,
    documents: Documents,
    remotes: Vec<Remote>,
    /// Of each session, when etcd last received a request to keep it.
    leases: Vec<u64>,
    late: Vec<Late>,
    /// The most that all bounds may be together.
    ceiling_uw: u64,
}

#[derive(Clone, Debug)]
enum Step {
    Advance(u64),
    Start(usize),
    Kill(usize),
    Send(usize),
    Receive(usize),
    See(usize),
    Settle(usize),
    Publish(usize, u64, u64),
    Lead,
    Decide,
    WriteLate,
    Budget(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let who = || 0..4_usize;
    prop_oneof![
        3 => (1..TICK_NS * 8).prop_map(Step::Advance),
        2 => who().prop_map(Step::Start),
        1 => who().prop_map(Step::Kill),
        3 => who().prop_map(Step::Send),
        3 => who().prop_map(Step::Receive),
        4 => who().prop_map(Step::See),
        3 => who().prop_map(Step::Settle),
        4 => (who(), 0..200_000_u64, 0..100_u64).prop_map(|(at, measured, rate)| Step::Publish(at, measured, rate)),
        4 => Just(Step::Lead),
        1 => Just(Step::Decide),
        1 => Just(Step::WriteLate),
        1 => (50_000..300_000_u64).prop_map(Step::Budget),
    ]
}

impl World {
    fn new() -> Self {
        let remote = |(at, floor_uw): (usize, u64)| Remote {
            name: format!("server-{at}"),
            floor_uw,
            share: Share::new(floor_uw, LEASE_NS),
            drawn_uw: 0,
            is_running: false,
            is_granted: false,
            clock: [(100, 0), (90, 7), (110, 1_000_000), (95, 3)][at],
            sent_ns: None,
        };
        let remotes = FLOORS_UW.into_iter().enumerate().map(remote).collect();
        let documents = Documents { budget_uw: Some(200_000), ..Documents::default() };
        Self { now_ns: 0, documents, remotes, leases: vec![0], late: Vec::new(), ceiling_uw: 200_000 }
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Advance(ns) => self.advance(ns),
            Step::Start(at) => self.start(at),
            Step::Kill(at) => {
                let remote = &mut self.remotes[at];
                remote.is_running = false;
                remote.settle();
            }
            Step::Send(at) => {
                let remote = &mut self.remotes[at];
                remote.sent_ns = Some(remote.now_ns(self.now_ns));
            }
            Step::Receive(at) => self.receive(at),
            Step::See(at) => self.see(at),
            Step::Settle(at) => self.remotes[at].settle(),
            Step::Publish(at, measured_uw, rate) => self.publish(at, measured_uw, rate),
            Step::Lead => {
                let decision = decide(&self.documents);
                self.write(self.documents.sequence, &decision.writes);
            }
            Step::Decide => {
                let writes = decide(&self.documents).writes;
                self.late.push(Late { sequence: self.documents.sequence, writes });
            }
            Step::WriteLate => {
                if let Some(Late { sequence, writes }) = self.late.pop() {
                    self.write(sequence, &writes);
                }
            }
            Step::Budget(budget_uw) => {
                self.documents.budget_uw = Some(budget_uw);
                self.documents.sequence += 1; // a condition of each write
                self.ceiling_uw = budget_uw.max(self.documents.bounds_uw());
            }
        }
        self.ceiling_uw = self.ceiling_uw.min(self.documents.bounds_uw()).max(self.documents.budget_uw.unwrap());
    }

    /// Time passes; members look at their clocks, and etcd ends leases.
    fn advance(&mut self, ns: u64) {
        let end_ns = self.now_ns + ns;
        while self.now_ns < end_ns {
            self.now_ns = (self.now_ns + TICK_NS).min(end_ns);
            for remote in &mut self.remotes {
                let was_granted = remote.is_granted;
                remote.change(self.now_ns);
                remote.is_granted = remote.share.is_granted(remote.now_ns(self.now_ns));
                if was_granted && !remote.is_granted {
                    remote.settle();
                }
            }
            let leases = &self.leases;
            self.documents.statuses.retain(|_, status| self.now_ns < leases[status.session as usize] + LEASE_NS);
        }
    }

    /// A process starts, or begins another session after its lease has ended.
    fn start(&mut self, at: usize) {
        let now_ns = self.now_ns;
        let lives = self.lives(self.remotes[at].share.session());
        let remote = &mut self.remotes[at];
        if remote.is_running && lives {
            return;
        }
        (remote.is_running, remote.sent_ns) = (true, None);
        remote.share = Share::new(remote.floor_uw, LEASE_NS);
        remote.share.begin(self.leases.len() as i64);
        remote.share.renew(remote.now_ns(now_ns));
        remote.settle();
        self.leases.push(now_ns); // that of a killed process lives on, and its status
    }

    /// Whether a lease has not ended.
    fn lives(&self, session: i64) -> bool {
        session != 0 && self.now_ns < self.leases[session as usize] + LEASE_NS
    }

    /// etcd receives a request to keep the lease, if that lives, and the member the answer.
    fn receive(&mut self, at: usize) {
        let session = self.remotes[at].share.session();
        let lives = self.lives(session);
        let remote = &mut self.remotes[at];
        let Some(sent_ns) = remote.sent_ns.take().filter(|_| remote.is_running && lives) else { return };
        self.leases[session as usize] = self.now_ns;
        remote.share.renew(sent_ns);
    }

    fn see(&mut self, at: usize) {
        let remote = &mut self.remotes[at];
        remote.share.set_grant(self.documents.grants.get(&remote.name).copied());
        remote.share.set_reserved(self.documents.members.get(&remote.name).copied());
        remote.change(self.now_ns);
        remote.is_granted = remote.share.is_granted(remote.now_ns(self.now_ns));
        remote.share.note_within(remote.drawn_uw <= remote.share.in_force_uw(), remote.now_ns(self.now_ns));
    }

    fn publish(&mut self, at: usize, measured_uw: u64, rate: u64) {
        let remote = &self.remotes[at];
        let is_other = |status: &Status| status.session != remote.share.session();
        let lives = self.lives(remote.share.session());
        if !remote.is_running || !lives || self.documents.statuses.get(&remote.name).is_some_and(is_other) {
            return;
        }
        let status = Status {
            format: FORMAT,
            session: remote.share.session(),
            floor_uw: remote.floor_uw,
            full_uw: FULL_UW,
            measured_uw: Some(measured_uw),
            source: String::new(),
            priority: 0,
            bottleneck: None,
            curve: vec![(remote.floor_uw, 0), (FULL_UW, rate)],
            applied: remote.share.confirmed(),
            in_force_uw: remote.share.in_force_uw(),
        };
        self.documents.statuses.insert(remote.name.clone(), status);
    }

    /// A write of a leader, refused if something was written since.
    fn write(&mut self, sequence: i64, writes: &[Write]) {
        if sequence != self.documents.sequence {
            return;
        }
        self.documents.sequence += 1;
        for write in writes {
            match write {
                Write::Member(name, member) => _ = self.documents.members.insert(name.clone(), member.floor_uw),
                Write::Grant(name, grant) => _ = self.documents.grants.insert(name.clone(), *grant),
            }
        }
    }

    /// What known servers draw at most. Others are at their floors, for which the operator answers.
    fn drawn_uw(&self) -> u64 {
        let known = self.remotes.iter().filter(|remote| self.documents.members.contains_key(&remote.name));
        known.map(|remote| remote.drawn_uw).sum()
    }

    /// All run with news of each other, until nothing changes.
    fn come_to_rest(&mut self) {
        self.documents.budget_uw = Some(300_000);
        self.advance(2 * LEASE_NS);
        (0..4).for_each(|at| self.start(at));
        for _ in 0..20 {
            for at in 0..4 {
                for step in [Step::Send(at), Step::Receive(at), Step::See(at), Step::Settle(at), Step::See(at)] {
                    self.take(&step);
                }
                self.publish(at, self.remotes[at].drawn_uw, 50);
            }
            self.take(&Step::Lead);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]
    #[test]
    fn members_never_exceed_the_budget_together(steps in prop::collection::vec(step(), 1..250)) {
        let mut world = World::new();
        for step in steps {
            world.take(&step);
            let (drawn_uw, bounds_uw) = (world.drawn_uw(), world.documents.bounds_uw());
            prop_assert!(drawn_uw <= bounds_uw, "{drawn_uw} {bounds_uw} after {step:?}");
            prop_assert!(bounds_uw <= world.ceiling_uw, "{bounds_uw} {} after {step:?}", world.ceiling_uw);
        }
    }

    #[test]
    fn once_nothing_changes_all_have_their_shares(steps in prop::collection::vec(step(), 0..100)) {
        let mut world = World::new();
        steps.iter().for_each(|step| world.take(step));
        world.come_to_rest();
        let decision = decide(&world.documents);
        prop_assert_eq!(&decision.writes, &[]);
        let in_force: Vec<u64> = world.remotes.iter().map(|remote| remote.share.in_force_uw()).collect();
        let shares: Vec<u64> = world.remotes.iter().map(|remote| decision.shares_uw[&remote.name]).collect();
        prop_assert_eq!(in_force, shares);
    }
}

fn status(session: i64, floor_uw: u64) -> Status {
    Status {
        format: FORMAT,
        session,
        floor_uw,
        full_uw: FULL_UW,
        measured_uw: Some(0),
        source: String::new(),
        priority: 0,
        bottleneck: None,
        curve: vec![(floor_uw, 0), (FULL_UW, 10)],
        applied: 0,
        in_force_uw: floor_uw,
    }
}

fn has_problem(documents: &Documents, text: &str) -> bool {
    decide(documents).problems.iter().any(|(_, problem)| problem.contains(text))
}

#[test]
fn without_a_budget_or_with_documents_that_cannot_be_read_nothing_is_granted() {
    let mut documents = Documents::default();
    documents.statuses.insert("a".into(), status(1, 10_000));
    assert_eq!(decide(&documents).writes, []);
    assert!(has_problem(&documents, "no budget is set"));
    documents.budget_uw = Some(200_000);
    assert_eq!(decide(&documents).writes.len(), 2, "a member and its grant");
    let grant = Change { path: "grants/b".into(), value: Some(b"{}".to_vec()), revisions: (1, 1) };
    documents.apply(&grant);
    assert_eq!(decide(&documents).writes, []);
    assert!(has_problem(&documents, "grants/b cannot be read"));
}

/// It runs, and nobody knows with what.
#[test]
fn a_member_whose_status_cannot_be_read_keeps_its_grant() {
    let mut documents = Documents { budget_uw: Some(100_000), ..Documents::default() };
    documents.members.extend([("a".to_owned(), 10_000), ("b".to_owned(), 10_000)]);
    let grant = GrantDocument { format: FORMAT, number: 5, power_uw: 90_000, bound_uw: 90_000, session: 1 };
    documents.grants.insert("a".into(), grant);
    documents.statuses.insert("b".into(), status(2, 10_000));
    let newer = br#"{"format":2,"session":1}"#;
    documents.apply(&Change { path: "status/a".into(), value: Some(newer.to_vec()), revisions: (1, 1) });
    let decision = decide(&documents);
    assert!(decision.problems.iter().any(|(_, problem)| problem.contains("format 2")), "{decision:?}");
    let raises = |write: &Write| matches!(write, Write::Grant(name, grant) if name == "a" || grant.power_uw > 10_000);
    assert!(!decision.writes.iter().any(raises), "{decision:?}");
}

#[test]
fn absurd_statuses_leave_the_floor() {
    let mut documents = Documents { budget_uw: Some(200_000), ..Documents::default() };
    documents.members.insert("a".into(), 10_000);
    let good = status(1, 10_000);
    for absurd in [
        Status { full_uw: 1, ..good.clone() },
        Status { floor_uw: 0, ..good.clone() },
        Status { measured_uw: None, ..good.clone() },
        Status { full_uw: u64::MAX, floor_uw: u64::MAX, ..good.clone() },
        Status { curve: vec![(50_000, 1), (20_000, 2)], ..good.clone() },
    ] {
        documents.statuses.insert("a".into(), absurd.clone());
        assert!(has_problem(&documents, "stays at its floor"), "{absurd:?}");
        assert_eq!(decide(&documents).shares_uw["a"], 10_000);
    }
    let lying = Status { measured_uw: Some(u64::MAX), ..good };
    documents.statuses.insert("a".into(), lying);
    assert!(has_problem(&documents, "more than it was granted"));
}

#[test]
fn three_hundred_members_are_written_in_parts() {
    let mut world = World::new();
    world.documents.budget_uw = Some(300 * 50_000);
    for at in 0..300 {
        world.documents.statuses.insert(format!("server-{at}"), status(at, 10_000));
    }
    let mut most = 0;
    while let writes @ [_, ..] = &decide(&world.documents).writes[..] {
        most = most.max(writes.len());
        world.write(world.documents.sequence, writes);
    }
    assert_eq!((most, world.documents.grants.len()), (MOST_WRITES, 300));
    assert!(world.documents.bounds_uw() <= 300 * 50_000);
}

/// A status ends with its session.
#[test]
fn the_share_of_a_session_that_has_ended_is_free_except_the_floor() {
    let mut documents = Documents { budget_uw: Some(100_000), ..Documents::default() };
    for name in ["a", "b"] {
        documents.members.insert(name.into(), 10_000);
    }
    documents.statuses.insert("b".into(), status(2, 10_000));
    let grant = GrantDocument { format: FORMAT, number: 5, power_uw: 90_000, bound_uw: 90_000, session: 1 };
    documents.grants.insert("a".into(), grant);
    let writes = decide(&documents).writes;
    let of = |name: &str| {
        writes.iter().find_map(|write| match write {
            Write::Grant(of, grant) if of == name => Some((grant.power_uw, grant.bound_uw, grant.session)),
            _ => None,
        })
    };
    assert_eq!((of("a"), of("b")), (Some((10_000, 10_000, 0)), Some((90_000, 90_000, 2))));
}
