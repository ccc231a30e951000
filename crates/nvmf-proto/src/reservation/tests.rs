//! Every reachable state of three hosts, and every command in each, against rules written down from the specification's tables.
//!
//! The rules share no code with the state: hosts are numbers, and a state is who has which key, the type's number, and the holder.

use std::collections::{BTreeSet, HashMap, VecDeque};

use super::access::{Access, Group};
use super::*;

const HOSTS: usize = 3;
const KEYS: [u64; 3] = [0, 1, 2];

fn host(number: usize) -> Identity {
    Identity { hostid: [number as u8 + 1; 16], hostnqn: format!("nqn.2026-01.test:{number}") }
}

fn key_of(host: &Identity) -> HostKey {
    HostKey { subsystem: 0, hostid: host.hostid, hostnqn: host.hostnqn.clone() }
}

/// A state by the rules.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Rules {
    keys: [Option<u64>; HOSTS],
    /// 0 without a reservation.
    kind: u8,
    /// Of types 1 to 4.
    holder: Option<usize>,
    ptpl: bool,
}

/// What a command has to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Expected {
    notified: BTreeSet<(usize, u8)>,
    aborted: BTreeSet<usize>,
    counts: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    Conflict,
    Field,
}

impl Rules {
    fn is_holder(&self, host: usize) -> bool {
        match self.kind {
            0 => false,
            5 | 6 => self.keys[host].is_some(),
            _ => self.holder == Some(host),
        }
    }

    /// The figure "Command Behavior in the Presence of a Reservation": whether a host may read, and write.
    fn rights(&self, host: usize) -> (bool, bool) {
        if self.is_holder(host) {
            return (true, true);
        }
        match (self.kind, self.keys[host].is_some()) {
            (0, _) => (true, true),
            (1, _) => (true, false),
            (2, _) => (false, false),
            (3 | 5, false) => (true, false),
            (4 | 6, false) => (false, false),
            (_, true) => (true, true),
            (kind, _) => unreachable!("type {kind}"),
        }
    }

    fn others(&self, host: usize) -> Vec<usize> {
        (0..HOSTS).filter(|other| *other != host && self.keys[*other].is_some()).collect()
    }

    fn register(&mut self, host: usize, command: &Register, can_persist: bool) -> Result<Expected, Refused> {
        let mut expected = Expected { counts: true, ..Expected::default() };
        let allowed = command.ignore_key || self.keys[host] == Some(command.key);
        let refused = match command.action {
            RegisterAction::Register => self.keys[host].is_some() && self.keys[host] != Some(command.new_key),
            RegisterAction::Unregister => self.keys[host].is_none() || !allowed,
            RegisterAction::Replace => !allowed,
        };
        if command.persist == Some(true) && !can_persist {
            return Err(Refused::Field);
        }
        if refused {
            return Err(Refused::Conflict);
        }
        if command.action == RegisterAction::Unregister {
            let held = self.is_holder(host);
            self.keys[host] = None;
            let last = self.keys == [None; HOSTS];
            if held && (self.kind < 5 || last) {
                if matches!(self.kind, 3 | 4) {
                    expected.notified = self.others(host).into_iter().map(|other| (other, 2)).collect();
                }
                (self.kind, self.holder) = (0, None);
            }
        } else {
            self.keys[host] = Some(command.new_key);
        }
        self.ptpl = command.persist.unwrap_or(self.ptpl);
        Ok(expected)
    }

    fn acquire(&mut self, host: usize, command: &Acquire) -> Result<Expected, Refused> {
        if self.keys[host] != Some(command.key) {
            return Err(Refused::Conflict);
        }
        let new = command.kind as u8;
        let take = |rules: &mut Self| (rules.kind, rules.holder) = (new, (new < 5).then_some(host));
        if command.action == AcquireAction::Acquire {
            if self.kind == 0 {
                take(self);
            } else if !self.is_holder(host) || self.kind != new {
                return Err(Refused::Conflict);
            }
            return Ok(Expected::default());
        }
        let before = self.clone();
        let prkey = command.preempted;
        let matching: Vec<usize> = (0..HOSTS).filter(|one| self.keys[*one] == Some(prkey)).collect();
        let mut gone: Vec<usize>;
        match self.kind {
            1..=4 if self.holder.is_some_and(|holder| self.keys[holder] == Some(prkey)) => {
                gone = matching;
                gone.retain(|one| *one != host);
                take(self);
            }
            1..=4 if prkey == 0 => return Err(Refused::Field),
            5 | 6 if prkey == 0 => {
                gone = self.others(host);
                take(self);
            }
            _ if matching.is_empty() => return Err(Refused::Conflict),
            _ => gone = matching,
        }
        gone.iter().for_each(|one| self.keys[*one] = None);
        if self.keys == [None; HOSTS] {
            (self.kind, self.holder) = (0, None);
        }
        gone.retain(|one| *one != host);
        let mut notified: BTreeSet<(usize, u8)> = gone.iter().map(|one| (*one, 1)).collect();
        if before.kind != 0 && self.kind != 0 && before.kind != self.kind {
            notified.extend(self.others(host).into_iter().map(|other| (other, 2)));
        }
        let aborts = command.action == AcquireAction::PreemptAndAbort;
        let aborted = if aborts { gone.into_iter().collect() } else { BTreeSet::new() };
        Ok(Expected { notified, aborted, counts: true })
    }

    fn release(&mut self, host: usize, command: &Release) -> Result<Expected, Refused> {
        if self.keys[host] != Some(command.key) {
            return Err(Refused::Conflict);
        }
        let mut expected = Expected::default();
        if command.action == ReleaseAction::Clear {
            expected.notified = self.others(host).into_iter().map(|other| (other, 3)).collect();
            expected.counts = true;
            *self = Self { keys: [None; HOSTS], kind: 0, holder: None, ptpl: self.ptpl };
        } else if self.is_holder(host) {
            if command.kind.map_or(0, |kind| kind as u8) != self.kind {
                return Err(Refused::Field);
            }
            if self.kind > 2 {
                expected.notified = self.others(host).into_iter().map(|other| (other, 2)).collect();
            }
            (self.kind, self.holder) = (0, None);
        }
        Ok(expected)
    }

    fn execute(&mut self, host: usize, command: &Command, can_persist: bool) -> Result<Expected, Refused> {
        match command {
            Command::Register(register) => self.register(host, register, can_persist),
            Command::Acquire(acquire) => self.acquire(host, acquire),
            Command::Release(release) => self.release(host, release),
            Command::Report | Command::Persist(_) => unreachable!("not part of the model"),
        }
    }
}

/// Every command of a host.
fn commands() -> Vec<Command> {
    let mut all = Vec::new();
    for action in [RegisterAction::Register, RegisterAction::Unregister, RegisterAction::Replace] {
        for (ignore_key, persist) in [false, true]
            .into_iter()
            .flat_map(|ignore| [None, Some(false), Some(true)].map(|persist| (ignore, persist)))
        {
            for (key, new_key) in KEYS.into_iter().flat_map(|key| KEYS.map(|new| (key, new))) {
                all.push(Command::Register(Register { action, ignore_key, persist, key, new_key }));
            }
        }
    }
    for action in [AcquireAction::Acquire, AcquireAction::Preempt, AcquireAction::PreemptAndAbort] {
        for kind in Type::ALL {
            for (key, preempted) in KEYS.into_iter().flat_map(|key| KEYS.map(|other| (key, other))) {
                all.push(Command::Acquire(Acquire { action, kind, key, preempted }));
            }
        }
    }
    for key in KEYS {
        all.push(Command::Release(Release { action: ReleaseAction::Clear, kind: None, key }));
        for kind in Type::ALL.map(Some) {
            all.push(Command::Release(Release { action: ReleaseAction::Release, kind, key }));
        }
    }
    all
}

/// Compares a state with the rules, by what hosts can observe.
fn assert_same(state: &State, rules: &Rules) {
    let numbers: HashMap<[u8; 16], usize> = (0..HOSTS).map(|number| (host(number).hostid, number)).collect();
    let report = state.report(|_| Vec::new());
    assert_eq!((report[4], report[9]), (rules.kind, u8::from(rules.ptpl)));
    let mut keys = [None; HOSTS];
    for entry in report[64..].chunks_exact(64) {
        let number = numbers[&<[u8; 16]>::try_from(&entry[16..32]).expect("an identifier")];
        keys[number] = entry[8..16].first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        assert_eq!(entry[2] == 1, rules.is_holder(number), "holder of {rules:?}");
    }
    assert_eq!(keys, rules.keys);
    let access = Access::from_state(state);
    for number in 0..HOSTS {
        let has = |group: Group| access.restricted() & group as u8 == 0 || access.admits(&key_of(&host(number)));
        assert_eq!((has(Group::Read), has(Group::Write)), rules.rights(number), "host {number} of {rules:?}");
    }
}

/// Executes a command on both.
fn step(state: &State, rules: &Rules, number: usize, command: &Command, can_persist: bool) -> (State, Rules) {
    let (mut state, mut rules) = (state.clone(), rules.clone());
    let (before, generation) = (state.clone(), state.generation);
    let numbers: HashMap<Identity, usize> = (0..HOSTS).map(|number| (host(number), number)).collect();
    match (state.execute(&host(number), command, can_persist), rules.clone().execute(number, command, can_persist)) {
        (Err(status), Err(refused)) => {
            let expected = if refused == Refused::Conflict { CONFLICT } else { INVALID_FIELD };
            assert_eq!((status, &state), (expected, &before), "host {number}, {command:?} in {rules:?}");
        }
        (Ok(effects), Ok(expected)) => {
            let notified = effects.notify.iter().map(|(host, kind)| (numbers[host], *kind as u8)).collect();
            let aborted = effects.abort.iter().map(|host| numbers[host]).collect();
            let counts = state.generation != generation;
            let actual = Expected { notified, aborted, counts };
            assert_eq!(actual, expected, "host {number}, {command:?} in {rules:?}");
            assert_eq!(effects.notify.len(), expected.notified.len(), "a notification twice");
            let _ = rules.execute(number, command, can_persist);
        }
        (actual, expected) => panic!("{actual:?} instead of {expected:?}: host {number}, {command:?} in {rules:?}"),
    }
    assert_same(&state, &rules);
    (state, rules)
}

/// All states that hosts can reach.
fn explore(can_persist: bool) -> usize {
    let start = Rules { keys: [None; HOSTS], kind: 0, holder: None, ptpl: false };
    let mut known: HashMap<Rules, State> = HashMap::from([(start.clone(), State::default())]);
    let mut next = VecDeque::from([start]);
    let commands = commands();
    while let Some(rules) = next.pop_front() {
        let state = known[&rules].clone();
        if state.persists {
            assert_eq!(State::from_record(&state.to_record()), Ok(state.clone()));
        }
        for (number, command) in (0..HOSTS).flat_map(|number| commands.iter().map(move |command| (number, command))) {
            let (state, rules) = step(&state, &rules, number, command, can_persist);
            if !known.contains_key(&rules) {
                known.insert(rules.clone(), state);
                next.push_back(rules);
            }
        }
    }
    known.len()
}

#[test]
fn every_command_in_every_state_follows_the_rules() {
    // 4 keys or none for each host; without a reservation 64, with one of types 1 to 4 of a registrant 4 * 3 * 3 * 16, of types 5 and 6 2 * 63
    let states = 64 + 4 * 3 * 3 * 16 + 2 * 63;
    assert_eq!(explore(true), 2 * states);
    assert_eq!(explore(false), states);
}

/// The host identifier of another host, under another NQN, has no rights, and changes nothing.
#[test]
fn a_host_identifier_belongs_to_the_nqn_that_registered_it() {
    let mut state = State::default();
    let register =
        |new_key| Register { action: RegisterAction::Register, ignore_key: true, persist: None, key: 0, new_key };
    state.execute(&host(0), &Command::Register(register(1)), false).expect("registered");
    let acquire =
        Acquire { action: AcquireAction::Acquire, kind: Type::WriteExclusiveRegistrants, key: 1, preempted: 1 };
    state.execute(&host(0), &Command::Acquire(acquire), false).expect("acquired");
    let thief = Identity { hostnqn: "nqn.2026-01.test:thief".to_owned(), ..host(0) };
    let before = state.clone();
    for command in commands() {
        assert_eq!(state.execute(&thief, &command, false), Err(CONFLICT), "{command:?}");
    }
    assert_eq!(state, before);
    assert!(
        !Access::from_state(&state).admits(&key_of(&thief)) && Access::from_state(&state).admits(&key_of(&host(0)))
    );
}

#[test]
fn registrants_are_bounded() {
    let register = Register { action: RegisterAction::Register, ignore_key: false, persist: None, key: 0, new_key: 1 };
    let mut state = State::default();
    for number in 0..=MAX_REGISTRANTS {
        let mut host = host(0);
        host.hostid[..2].copy_from_slice(&(number as u16).to_le_bytes());
        let registered = state.execute(&host, &Command::Register(register), false);
        assert_eq!(registered.is_ok(), number < MAX_REGISTRANTS);
    }
}

/// A host may send any NQN.
#[test]
fn a_record_keeps_any_name() {
    let register =
        Register { action: RegisterAction::Register, ignore_key: false, persist: Some(true), key: 0, new_key: 9 };
    for hostnqn in ["", "a b", "a\nregistrant 1", "%41\r\n", "\u{2028}é\0%"] {
        let mut state = State::default();
        let host = Identity { hostid: [7; 16], hostnqn: hostnqn.to_owned() };
        state.execute(&host, &Command::Register(register), true).expect("registered");
        assert_eq!(State::from_record(&state.to_record()), Ok(state), "{hostnqn:?}");
    }
}

#[test]
fn an_invalid_record_names_its_line() {
    for (text, expected) in [
        ("", "line 1: not a record of this version"),
        ("reservations 2", "line 1: not a record of this version"),
        ("reservations 1\ngeneration x", "line 2: invalid generation"),
        ("reservations 1\ngeneration 1\nheld 7 00", "line 3: invalid type"),
        ("reservations 1\nheld 1 01010101-0101-0101-0101-010101010101", "line 2: the holder is not a registrant"),
        ("reservations 1\nregistrant 1 00 a", "line 2: invalid host identifier"),
        ("reservations 1\nother 1", "line 2: unknown line"),
    ] {
        let error = State::from_record(text).expect_err("invalid");
        assert_eq!(error.to_string(), expected, "{text}");
    }
}
