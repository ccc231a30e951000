//! Limits the idle states that drives enter autonomously, by their wake-up time.
//!
//! Operational power states are not used: their cost is unknown.

use pilotlight_plant::{Capabilities, Command, Kind, Knob, KnobId, Refusal, Values};

use crate::backoff::Backoff;

/// The drives whose idle states can be limited.
#[derive(Debug, Default)]
pub(crate) struct Drives(Vec<Drive>);

#[derive(Debug)]
struct Drive {
    knob: KnobId,
    limits: Values,
    /// The limit in force in nanoseconds; `None` if not known.
    limit_ns: Option<u64>,
    /// The limit at the start.
    initial_ns: u64,
    backoff: Backoff,
}

impl Drives {
    /// Finds the drives of a plant; limits commanded before stay in force.
    pub(crate) fn find(&mut self, capabilities: &Capabilities) {
        let before = std::mem::take(&mut self.0);
        let drive = |(id, knob): (KnobId, &Knob)| {
            let known = before.iter().find(|drive| drive.knob == id);
            let (limit_ns, backoff) =
                known.map_or((Some(knob.initial), Backoff::default()), |known| (known.limit_ns, known.backoff));
            let initial_ns = known.map_or(knob.initial, |known| known.initial_ns);
            Drive { knob: id, limits: knob.values.clone(), limit_ns, initial_ns, backoff }
        };
        self.0 = capabilities.knobs_of(Kind::WakeLimitNs).map(drive).collect();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sets the highest limit of each drive that is not above `most_ns`.
    pub(crate) fn limit(&mut self, now_ns: u64, most_ns: u64, out: &mut Vec<Command>) {
        self.limit_each(now_ns, |_| most_ns, out);
    }

    /// As [`Self::limit`], but no limit is lower than at the start, and none is raised that takes more than four fifths of `most_ns`, so that an
    /// estimate that varies does not change it each time.
    pub(crate) fn allow(&mut self, now_ns: u64, most_ns: u64, out: &mut Vec<Command>) {
        let spare_ns = most_ns - most_ns / 5;
        self.limit_each(
            now_ns,
            |drive| {
                match drive.limit_ns {
                    Some(limit_ns) if limit_ns <= most_ns => spare_ns.max(limit_ns),
                    _ => most_ns,
                }
                .max(drive.initial_ns)
            },
            out,
        );
    }

    fn limit_each(&mut self, now_ns: u64, most_ns: impl Fn(&Drive) -> u64, out: &mut Vec<Command>) {
        for drive in &mut self.0 {
            let most_ns = most_ns(drive);
            let limit_ns = drive.limits.down(most_ns.saturating_add(1));
            if limit_ns <= most_ns && drive.limit_ns != Some(limit_ns) && drive.backoff.is_over(now_ns) {
                drive.limit_ns = Some(limit_ns);
                out.push(Command::Set { knob: drive.knob, value: limit_ns });
            }
        }
    }

    /// By how much the limits exceed those of the start, at most.
    pub(crate) fn added_ns(&self) -> u64 {
        let added = |drive: &Drive| drive.limit_ns.map(|limit_ns| limit_ns.saturating_sub(drive.initial_ns));
        self.0.iter().filter_map(added).max().unwrap_or(0)
    }

    /// Starts a backoff; whether the knob is one of these.
    pub(crate) fn on_refused(&mut self, now_ns: u64, knob: KnobId, refusal: Refusal) -> bool {
        let Some(drive) = self.0.iter_mut().find(|drive| drive.knob == knob) else { return false };
        drive.limit_ns = None;
        drive.backoff.on_refused(now_ns, refusal);
        true
    }
}

#[cfg(test)]
mod tests {
    use pilotlight_plant::{Cost, Scope};

    use super::*;

    #[test]
    fn each_limit_is_the_highest_one_allowed() {
        let values = Values::List(vec![0, 1_000, 200_000]);
        let (caller, effect) = (Cost::Measured(0), Cost::Measured(0));
        let knob = Knob { scope: Scope::Device(0), kind: Kind::WakeLimitNs, values, initial: 200_000, caller, effect };
        let mut drives = Drives::default();
        drives.find(&Capabilities { knobs: vec![knob], ..Capabilities::default() });
        let mut set = |most_ns| {
            let mut out = Vec::new();
            drives.limit(0, most_ns, &mut out);
            out.first().map(|command| match command {
                Command::Set { value, .. } => *value,
                other => panic!("{other:?}"),
            })
        };
        let limits = [u64::MAX, 199_999, 1_500, 999, 0, 1_000, 200_000].map(&mut set);
        assert_eq!(limits, [None, Some(1_000), None, Some(0), None, Some(1_000), Some(200_000)]);
        drives.on_refused(0, KnobId(0), Refusal::Failed);
        let mut out = Vec::new();
        drives.limit(0, 0, &mut out);
        assert!(out.is_empty(), "during the backoff");
        drives.limit(10_000_000_000, 0, &mut out);
        assert_eq!(out, [Command::Set { knob: KnobId(0), value: 0 }]);
    }
}
