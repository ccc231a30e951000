//! Policy `hold` of experiments: a fixed number of cores and values of knobs. The server does not have it.

use pilotlight_input::quantity::{self, POWERS};
use pilotlight_plant::{
    Capabilities, Command, CompletionMode, CoreId, CoreState, Kind, KnobId, NEVER, Next, Policy, Sample, Scope,
    SleepGoal, Start, ThreadId, Unsupported, Values, Wants,
};

/// Its name.
pub const NAME: &str = "hold";
/// Its settings.
pub const KEYS: [&str; 6] = ["cores", "quota", "limit", "frequency", "others", "drives"];
/// Number of settings in the first version, which all fingerprints contain.
pub const FIRST_KEYS: usize = 3;

/// Interval of checks that the other cores sleep.
const INTERVAL_NS: u64 = 10_000_000;

/// A setting of the policy is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages document the variants")]
pub enum HoldError {
    #[error("policy {NAME} has no setting {0:?}, but {keys}", keys = KEYS.join(", "))]
    Unknown(String),
    #[error("policy {NAME}: {0} = {1:?} is not allowed")]
    NotAllowed(String, String),
    #[error("policy {NAME}: this machine has no {0}")]
    NoKnob(String),
    #[error("policy {NAME}: {key} is from {lowest} to {highest} (millionths of a CPU, microwatts)")]
    Range { key: String, lowest: u64, highest: u64 },
}

/// The main core and the first workers poll, I/O threads are distributed evenly over them, and all other cores are in their deepest sleep
/// state, as under `pass`, or offline.
#[derive(Clone, Debug)]
pub struct Hold {
    cores: u16,
    knobs: Vec<(KnobId, u64)>,
    /// Whether the other cores are offline.
    others_off: bool,
    /// Cores to put to sleep.
    left: Vec<CoreId>,
}

impl Hold {
    /// A number of cores with values of knobs.
    #[must_use]
    pub fn new(cores: u16, knobs: Vec<(KnobId, u64)>) -> Self {
        Self { cores, knobs, others_off: false, left: Vec::new() }
    }

    /// From the settings of an experiment: `cores`, `quota` (CPU time of all workers in per cent of one CPU), `limit` (of the packages),
    /// `frequency` (of every core, in per cent of the highest), `others` (`asleep` or `off`), `drives` (the number of the power state of each;
    /// of drives with idle states the number of the deepest allowed one, from 1 on).
    ///
    /// # Errors
    /// If a setting is unknown or invalid, or the plant has no such knob.
    pub fn read(settings: &[(&str, &str)], capabilities: &Capabilities) -> Result<Self, HoldError> {
        let (mut cores, mut knobs, mut others_off) = (u16::MAX, Vec::new(), false);
        for &(key, value) in settings {
            let wrong = || HoldError::NotAllowed(key.to_owned(), value.to_owned());
            let (kind, value) = match key {
                "cores" => {
                    cores = value.parse().ok().filter(|&cores| cores > 0).ok_or_else(wrong)?;
                    continue;
                }
                "others" => {
                    others_off = match value {
                        "asleep" => false,
                        "off" if capabilities.knobs_of(Kind::Online).next().is_some() => true,
                        _ => return Err(wrong()),
                    };
                    continue;
                }
                "frequency" => {
                    let ppm = ppm(value).filter(|&ppm| ppm <= 1_000_000).ok_or_else(wrong)?;
                    let all = capabilities.knobs_of(Kind::FrequencyKhz);
                    let of_highest = |highest: u64| highest * ppm / 1_000_000;
                    let before = knobs.len();
                    knobs.extend(all.filter_map(|(id, knob)| Some((id, of_highest(knob.values.highest()?)))));
                    if knobs.len() == before {
                        return Err(wrong());
                    }
                    continue;
                }
                "drives" => {
                    let state = value.parse().map_err(|_| wrong())?;
                    let before = knobs.len();
                    let power_states = capabilities.knobs_of(Kind::PowerState);
                    knobs.extend(
                        power_states
                            .filter(|(_, knob)| knob.values.highest() >= Some(state))
                            .map(|(id, _)| (id, state)),
                    );
                    let wake_limits = capabilities.knobs_of(Kind::WakeLimitNs);
                    knobs.extend(wake_limits.filter_map(|(id, knob)| Some((id, nth(&knob.values, state)?))));
                    if knobs.len() == before {
                        return Err(wrong());
                    }
                    continue;
                }
                "quota" => (Kind::QuotaPpm, ppm(value).ok_or_else(wrong)?),
                "limit" => (Kind::LimitUw, quantity::parse(value, POWERS).map_err(|_| wrong())?),
                _ => return Err(HoldError::Unknown(key.to_owned())),
            };
            let knob = capabilities.knobs_of(kind).next();
            let (id, knob) = knob.ok_or_else(|| HoldError::NoKnob(key.to_owned()))?;
            let lowest = knob.values.lowest().unwrap_or(value);
            let highest = knob.values.highest().unwrap_or(value);
            if !(lowest..=highest).contains(&value) {
                return Err(HoldError::Range { key: key.to_owned(), lowest, highest });
            }
            knobs.push((id, value));
        }
        Ok(Self { others_off, ..Self::new(cores, knobs) })
    }
}

/// A value by its number from 0 on.
fn nth(values: &Values, number: u64) -> Option<u64> {
    match values {
        Values::List(values) => values.get(usize::try_from(number).ok()?).copied(),
        Values::Range { .. } => None,
    }
}

/// Converts per cent to millionths.
fn ppm(value: &str) -> Option<u64> {
    let percent: f64 = value.strip_suffix('%')?.parse().ok()?;
    Some((percent * 1e4) as u64)
}

impl Policy for Hold {
    fn name(&self) -> &'static str {
        "hold"
    }

    fn wants(&self) -> Wants {
        Wants { interval_ns: Some(INTERVAL_NS), ..Wants::default() }
    }

    fn start(&mut self, start: &Start<'_>, out: &mut Vec<Command>) -> Result<Next, Unsupported> {
        let main = std::iter::once(start.topology.main());
        let mut polling: Vec<CoreId> = main.chain(start.topology.workers()).collect();
        self.left = polling.split_off(usize::from(self.cores.max(1)).min(polling.len()));
        let asleep = |core: &&CoreId| start.cores[core.index()].state != CoreState::Awake;
        out.extend(polling.iter().filter(asleep).map(|&core| Command::Wake { core }));
        for (at, &home) in start.homes.iter().enumerate() {
            let (thread, to) = (ThreadId(at as u16), polling[at % polling.len()]);
            out.push(Command::Completions { thread, mode: CompletionMode::Poll });
            if home != to {
                out.push(Command::Move { thread, to });
            }
        }
        out.extend(self.knobs.iter().map(|&(knob, value)| Command::Set { knob, value }));
        if self.others_off {
            let switch = |&core: &CoreId| Some(start.capabilities.find_knob(Scope::Core(core), Kind::Online)?.0);
            out.extend(
                self.left.drain(..).filter_map(|core| switch(&core)).map(|knob| Command::Set { knob, value: 0 }),
            );
        }
        out.extend(self.left.iter().map(|&core| Command::Sleep { core, goal: SleepGoal::DEEPEST }));
        Ok(Next::at(0))
    }

    /// Repeats the command for a core that refused to sleep because of a pending move.
    fn on_interval(&mut self, sample: &Sample<'_>, out: &mut Vec<Command>) -> Next {
        let is_awake = |core: &&CoreId| sample.cores[core.index()].state == CoreState::Awake;
        let before = out.len();
        let again = self.left.iter().filter(is_awake);
        out.extend(again.map(|&core| Command::Sleep { core, goal: SleepGoal::DEEPEST }));
        Next::at(if out.len() > before { 0 } else { NEVER })
    }
}

#[cfg(test)]
mod tests {
    use pilotlight_plant::{Cost, Knob, Values};

    use super::*;

    #[test]
    fn settings_become_knobs_and_errors_name_the_setting() {
        let knob = |kind, max| Knob {
            scope: Scope::Server,
            kind,
            values: Values::Range { min: 10, max, step: 1 },
            initial: max,
            caller: Cost::Measured(0),
            effect: Cost::Measured(0),
        };
        let knobs = vec![knob(Kind::LimitUw, 200_000_000), knob(Kind::QuotaPpm, 7_000_000)];
        let capabilities = Capabilities { knobs, ..Capabilities::default() };
        let read = |settings: &[(&str, &str)]| Hold::read(settings, &capabilities);
        let hold = read(&[("cores", "3"), ("quota", "12.5%"), ("limit", "110W")]).unwrap();
        assert_eq!((hold.cores, hold.knobs), (3, vec![(KnobId(1), 125_000), (KnobId(0), 110_000_000)]));
        for (key, value, part) in [("core", "3", "cores"), ("cores", "0", "not allowed"), ("quota", "900%", "7000000")]
        {
            let message = read(&[(key, value)]).unwrap_err().to_string();
            assert!(message.contains(part), "{message}");
        }
        let missing = Hold::read(&[("limit", "90W")], &Capabilities::default()).unwrap_err();
        assert_eq!(missing, HoldError::NoKnob("limit".to_owned()));
    }
}
