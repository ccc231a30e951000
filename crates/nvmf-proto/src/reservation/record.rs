//! A state as text, in which it outlives the server.
//!
//! One line for each part: the version, the generation, the reservation with type and holder, and each registrant with key, host identifier and
//! NQN. Unknown lines are errors: a state that is not understood must not be replaced by another.

use std::fmt::Write as _;

use pilotlight_nvme::reservation::Type;
use uuid::Uuid;

use super::{Held, Identity, MAX_REGISTRANTS, Registrant, State};

const VERSION: &str = "reservations 1";

/// A record that is not a state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct InvalidRecord {
    line: usize,
    what: &'static str,
}

/// An NQN without control characters: a host may send any, and a line break would begin another line.
fn escaped(nqn: &str) -> String {
    let mut text = String::new();
    for character in nqn.chars() {
        if character.is_ascii_control() || character == '%' {
            let _ = write!(text, "%{:02x}", u32::from(character));
        } else {
            text.push(character);
        }
    }
    text
}

fn unescaped(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut nqn = parts.next()?.to_owned();
    for part in parts {
        let code = u8::from_str_radix(part.get(..2)?, 16).ok().filter(u8::is_ascii)?;
        nqn.push(char::from(code));
        nqn.push_str(&part[2..]);
    }
    Some(nqn)
}

impl State {
    /// As text.
    #[must_use]
    pub fn to_record(&self) -> String {
        let mut text = format!("{VERSION}\ngeneration {}\n", self.generation);
        if let Some(held) = self.held {
            let _ = writeln!(text, "held {} {}", held.kind as u8, Uuid::from_bytes(held.holder));
        }
        for Registrant { host, key } in &self.registrants {
            let _ =
                writeln!(text, "registrant {key:016x} {} {}", Uuid::from_bytes(host.hostid), escaped(&host.hostnqn));
        }
        text
    }

    /// From text; the state is one that outlives the server.
    ///
    /// # Errors
    /// The first line that is not part of a state.
    pub fn from_record(text: &str) -> Result<Self, InvalidRecord> {
        let mut state = Self { persists: true, ..Self::default() };
        let mut lines = text.lines().enumerate().map(|(at, line)| (at + 1, line));
        if lines.next().map(|(_, line)| line) != Some(VERSION) {
            return Err(InvalidRecord { line: 1, what: "not a record of this version" });
        }
        let mut last = 1;
        for (line, text) in lines {
            state.read(text).map_err(|what| InvalidRecord { line, what })?;
            last = line;
        }
        let is_holder = |held: Held| {
            held.kind.is_of_all_registrants() || state.registrants.iter().any(|one| one.host.hostid == held.holder)
        };
        if state.held.is_some_and(|held| state.registrants.is_empty() || !is_holder(held)) {
            return Err(InvalidRecord { line: last, what: "the holder is not a registrant" });
        }
        Ok(state)
    }

    fn read(&mut self, line: &str) -> Result<(), &'static str> {
        let (name, rest) = line.split_once(' ').ok_or("no value")?;
        let hostid = |text: &str| Uuid::try_parse(text).map(Uuid::into_bytes).map_err(|_| "invalid host identifier");
        match name {
            "generation" => self.generation = rest.parse().map_err(|_| "invalid generation")?,
            "held" => {
                let (kind, holder) = rest.split_once(' ').ok_or("no holder")?;
                let kind = kind.parse().ok().and_then(Type::decode).ok_or("invalid type")?;
                self.held = Some(Held { kind, holder: hostid(holder)? });
            }
            "registrant" => {
                let (key, rest) = rest.split_once(' ').ok_or("no host identifier")?;
                let (id, hostnqn) = rest.split_once(' ').ok_or("no host NQN")?;
                let key = u64::from_str_radix(key, 16).map_err(|_| "invalid key")?;
                let host = Identity { hostid: hostid(id)?, hostnqn: unescaped(hostnqn).ok_or("invalid host NQN")? };
                if self.registrants.iter().any(|one| one.host.hostid == host.hostid) {
                    return Err("a host identifier is registered twice");
                }
                if self.registrants.len() >= MAX_REGISTRANTS {
                    return Err("too many registrants");
                }
                self.registrants.push(Registrant { host, key });
            }
            _ => return Err("unknown line"),
        }
        Ok(())
    }
}
