//! Knobs that form one cap: their values change together, as the same share of each range, or individually.
//!
//! **Period.** A requested period of the CPU quota is set before the first quota, and restored once no quota is left.

use pilotlight_plant::{Capabilities, Command, Kind, Knob, KnobId, Refusal, Scope, Values};

use super::control::Range;
use crate::backoff::Backoff;

/// The knobs of a cap, and their range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Selection {
    pub(crate) kind: Kind,
    /// Whether knobs of hosts are included.
    pub(crate) hosts: bool,
    /// The lowest value of a knob.
    pub(crate) least: u64,
    /// The highest value at which a knob limits anything.
    pub(crate) most: u64,
    /// The period of the CPU quota; `None` for that of the plant.
    pub(crate) period_ns: Option<u64>,
}

impl Selection {
    /// All knobs of a kind, over their whole range.
    pub(crate) fn of(kind: Kind) -> Self {
        Self { kind, hosts: true, least: 0, most: u64::MAX, period_ns: None }
    }

    /// The CPU quota, with a period.
    pub(crate) fn quota(period_ns: Option<u64>) -> Self {
        Self { period_ns, ..Self::of(Kind::QuotaPpm) }
    }
}

/// One knob of a cap.
#[derive(Clone, Debug)]
struct Cap {
    id: KnobId,
    values: Values,
    lowest: u64,
    /// The highest value that may limit something.
    highest: u64,
    /// The initial value: the machine's own setting is never exceeded.
    found: u64,
    effect_ns: u64,
    /// The last commanded value, and the one before.
    value: u64,
    before: u64,
    /// Delay after refusals.
    backoff: Backoff,
    /// The plant refuses it permanently.
    is_lost: bool,
}

/// The knobs of a cap.
#[derive(Clone, Debug, Default)]
pub(crate) struct Caps {
    selection: Option<Selection>,
    caps: Vec<Cap>,
    /// The knob of the requested period.
    period: Option<Cap>,
    /// When the last of the settings takes effect.
    holds_ns: u64,
    /// Raises are not allowed.
    holds_down: bool,
}

impl Caps {
    /// Finds the knobs of a plant.
    pub(crate) fn find(selection: Selection, capabilities: &Capabilities) -> Self {
        let is_wanted = |(_, knob): &(KnobId, &Knob)| selection.hosts || !matches!(knob.scope, Scope::Host(_));
        let caps = capabilities.knobs_of(selection.kind).filter(is_wanted);
        let caps = caps.filter_map(|knob| Cap::of(knob, selection.least, selection.most)).collect();
        let period = selection.period_ns.and_then(|period_ns| {
            let (id, knob) = capabilities.knobs_of(Kind::QuotaPeriodNs).next()?;
            Cap::of((id, knob), 0, u64::MAX).filter(|_| knob.values.nearest(period_ns) == Some(period_ns))
        });
        Self { selection: Some(selection), caps, period, ..Self::default() }
    }

    /// Whether the plant does not support the requested period.
    pub(crate) fn lacks_period(&self) -> bool {
        self.period_ns().is_some() && self.period.is_none()
    }

    fn period_ns(&self) -> Option<u64> {
        self.selection.and_then(|selection| selection.period_ns)
    }

    /// The knobs of the plant have changed: all get the share of their ranges that the old ones had. Knobs that remain keep their
    /// known values and are retried.
    pub(crate) fn replace(&mut self, now_ns: u64, capabilities: &Capabilities, out: &mut Vec<Command>) {
        let (level, before) = (self.level(), self.range());
        self.replace_knobs(capabilities);
        let after = self.range();
        let part = u128::from(after.highest - after.lowest) * u128::from(level.saturating_sub(before.lowest));
        let part = part.checked_div(u128::from(before.highest - before.lowest));
        self.set(now_ns, part.map_or(after.highest, |part| after.lowest + part as u64), out);
    }

    /// The knobs of the plant have changed; nothing is commanded.
    pub(crate) fn replace_knobs(&mut self, capabilities: &Capabilities) {
        let Some(selection) = self.selection else { return };
        let found = Self::find(selection, capabilities);
        let old = std::mem::replace(&mut self.caps, found.caps);
        let old_period = std::mem::replace(&mut self.period, found.period);
        for cap in self.caps.iter_mut().chain(&mut self.period) {
            if let Some(known) = old.iter().chain(&old_period).find(|known| known.id == cap.id) {
                (cap.value, cap.before) = (known.value, known.before);
            }
        }
    }

    /// Whether no knob can be set.
    pub(crate) fn is_empty(&self) -> bool {
        self.usable().next().is_none()
    }

    fn usable(&self) -> impl Iterator<Item = &Cap> {
        self.caps.iter().filter(|cap| !cap.is_lost)
    }

    /// The sum of the values.
    pub(crate) fn level(&self) -> u64 {
        self.usable().map(|cap| cap.value.min(cap.highest)).sum()
    }

    /// The range of the sum.
    pub(crate) fn range(&self) -> Range {
        let step = |cap: &Cap| match cap.values {
            Values::Range { step, .. } => step.max(1),
            Values::List(_) => cap.values.up(cap.lowest).saturating_sub(cap.lowest).max(1),
        };
        Range {
            lowest: self.usable().map(|cap| cap.lowest).sum(),
            highest: self.usable().map(|cap| cap.highest).sum(),
            step: self.usable().map(step).sum(),
        }
    }

    /// Sets all knobs so that their sum is `level`, or just below it; whether anything is commanded.
    pub(crate) fn set(&mut self, now_ns: u64, level: u64, out: &mut Vec<Command>) -> bool {
        let range = self.range();
        let all = range.highest.saturating_sub(range.lowest).max(1);
        let part = level.clamp(range.lowest, range.highest.max(range.lowest)) - range.lowest;
        let value = |cap: &Cap| {
            let more = u128::from(cap.highest - cap.lowest) * u128::from(part) / u128::from(all);
            cap.lowest + more as u64
        };
        self.set_all(now_ns, value, out)
    }

    /// Sets each knob to its own value, or just below it; `None` restores it. Whether anything is commanded.
    pub(crate) fn set_each(
        &mut self,
        now_ns: u64,
        value: impl Fn(KnobId) -> Option<u64>,
        out: &mut Vec<Command>,
    ) -> bool {
        self.set_all(now_ns, |cap| value(cap.id).map_or(cap.found, |value| value.max(cap.lowest)), out)
    }

    fn set_all(&mut self, now_ns: u64, wanted: impl Fn(&Cap) -> u64, out: &mut Vec<Command>) -> bool {
        let (before, mut effect_ns) = (out.len(), 0);
        let period_ns = self.period_ns().unwrap_or(0);
        for cap in self.caps.iter_mut().filter(|cap| !cap.is_lost && cap.backoff.is_over(now_ns)) {
            let value = cap.at_most(wanted(cap));
            if value == cap.value || (self.holds_down && value > cap.value) {
                continue;
            }
            cap.before = std::mem::replace(&mut cap.value, value);
            effect_ns += cap.effect_ns.max(period_ns); // settings are applied one after the other
            out.push(Command::Set { knob: cap.id, value });
        }
        self.set_period(now_ns, before, out);
        if out.len() > before {
            self.holds_ns = now_ns.saturating_add(effect_ns);
        }
        out.len() > before
    }

    /// Inserts the period before the commands from `begin` on if a cap is set; else restores it.
    fn set_period(&mut self, now_ns: u64, begin: usize, out: &mut Vec<Command>) {
        let is_capped = self.caps.iter().any(|cap| !cap.is_lost && cap.value != cap.found);
        let period_ns = self.period_ns();
        let Some(period) = self.period.as_mut().filter(|period| !period.is_lost && period.backoff.is_over(now_ns))
        else {
            return;
        };
        let value = period_ns.filter(|_| is_capped).unwrap_or(period.found);
        if value == period.value {
            return;
        }
        period.before = std::mem::replace(&mut period.value, value);
        let at = if is_capped { begin } else { out.len() };
        out.insert(at, Command::Set { knob: period.id, value });
    }

    /// Sets whether knobs may be raised.
    pub(crate) fn allow_raises(&mut self, may_raise: bool) {
        self.holds_down = !may_raise;
    }

    /// Restores the initial values.
    pub(crate) fn lift(&mut self, now_ns: u64, out: &mut Vec<Command>) -> bool {
        self.set(now_ns, self.range().highest, out)
    }

    /// When the last of the settings takes effect.
    pub(crate) fn holds_ns(&self) -> u64 {
        self.holds_ns
    }

    /// When a knob without its initial value can be set next; `None` if there is none.
    pub(crate) fn lifts_ns(&self) -> Option<u64> {
        let period = self.period.iter().filter(|period| !period.is_lost);
        self.usable().chain(period).filter(|cap| cap.value != cap.found).map(|cap| cap.backoff.until_ns()).min()
    }

    /// Records a refusal and starts a backoff; whether the knob is one of these.
    pub(crate) fn on_refused(&mut self, now_ns: u64, (knob, value): (KnobId, u64), refusal: Refusal) -> bool {
        let mut own = self.caps.iter_mut().chain(&mut self.period);
        let Some(cap) = own.find(|cap| cap.id == knob) else { return false };
        if cap.value == value {
            cap.value = cap.before;
        }
        cap.is_lost |= refusal != Refusal::Failed;
        cap.backoff.on_refused(now_ns, refusal);
        true
    }
}

impl Cap {
    /// A knob, whose values from `first` to `second` limit something; `None` if it has no values.
    fn of((id, knob): (KnobId, &Knob), first: u64, second: u64) -> Option<Self> {
        let (least, most) = (knob.values.lowest()?, knob.values.highest()?);
        let found = knob.initial.min(most).max(least);
        let lowest = first.clamp(least, found);
        Some(Self {
            id,
            values: knob.values.clone(),
            lowest,
            highest: found.min(second).max(lowest),
            found,
            effect_ns: knob.caller.ns().saturating_add(knob.effect.ns()),
            value: found,
            before: found,
            backoff: Backoff::default(),
            is_lost: false,
        })
    }

    /// The highest allowed value that is not above `value`.
    fn at_most(&self, value: u64) -> u64 {
        if value >= self.highest {
            return self.found;
        }
        match self.values {
            Values::Range { min, step, .. } => min + value.saturating_sub(min) / step.max(1) * step.max(1),
            Values::List(ref values) => values.iter().copied().rfind(|&one| one <= value).unwrap_or(self.lowest),
        }
    }
}

#[cfg(test)]
mod tests {
    use pilotlight_plant::Cost;

    use super::*;

    /// Two packages, initially 100 to 200 W and 50 to 250 W; the second allows up to 300 W.
    fn capabilities() -> Capabilities {
        let knob = |package, min, max, found| Knob {
            scope: Scope::Package(package),
            kind: Kind::LimitUw,
            values: Values::Range { min, max, step: 10 },
            initial: found,
            caller: Cost::Measured(1),
            effect: Cost::Measured(6),
        };
        Capabilities { knobs: vec![knob(0, 100, 200, 200), knob(1, 50, 300, 250)], ..Capabilities::default() }
    }

    fn caps() -> Caps {
        Caps::find(Selection::of(Kind::LimitUw), &capabilities())
    }

    fn set(knob: u16, value: u64) -> Command {
        Command::Set { knob: KnobId(knob), value }
    }

    #[test]
    fn knobs_change_together_up_to_their_initial_values() {
        let (mut caps, mut out) = (caps(), Vec::new());
        assert_eq!((caps.level(), caps.range()), (450, Range { lowest: 150, highest: 450, step: 20 }));
        assert!(caps.set(1_000, 300, &mut out));
        assert_eq!((&out[..], caps.level(), caps.holds_ns()), (&[set(0, 150), set(1, 150)][..], 300, 1_014));
        out.clear();
        assert!(caps.set(2_000, 329, &mut out), "never above the level");
        assert_eq!((&out[..], caps.level()), (&[set(1, 160)][..], 310));
        out.clear();
        assert!(!caps.set(3_000, 329, &mut out), "only changes are commanded");
        assert_eq!(caps.lifts_ns(), Some(0));
        caps.lift(4_000, &mut out);
        assert_eq!((&out[..], caps.lifts_ns()), (&[set(0, 200), set(1, 250)][..], None));
    }

    #[test]
    fn a_refused_knob_is_retried_with_exponential_backoff() {
        let mut caps = caps();
        let (mut now_ns, mut tries) = (0, Vec::new());
        while now_ns < 200_000_000_000 {
            let mut out = Vec::new();
            caps.set(now_ns, 300, &mut out);
            for command in out {
                let Command::Set { knob: KnobId(1), value } = command else { continue };
                tries.push(now_ns / 1_000_000_000);
                assert!(caps.on_refused(now_ns, (KnobId(1), value), Refusal::Failed));
            }
            now_ns += 1_000_000_000;
        }
        assert_eq!(tries, [0, 10, 30, 70, 150]);
        assert_eq!(caps.level(), 150 + 250, "it has its initial value");
    }

    #[test]
    fn an_unsupported_knob_is_not_retried_until_the_plant_changes() {
        let (mut caps, mut out) = (caps(), Vec::new());
        caps.set(0, 150, &mut out);
        caps.on_refused(0, (KnobId(0), 100), Refusal::Unsupported);
        assert_eq!((caps.level(), caps.range().highest), (50, 250));
        out.clear();
        caps.lift(u64::MAX, &mut out);
        assert_eq!(out, [set(1, 250)]);
        caps.replace(0, &capabilities(), &mut out);
        assert_eq!(caps.range().highest, 450);
    }

    #[test]
    fn a_new_knob_gets_the_share_of_the_others() {
        let both = capabilities();
        let first = Capabilities { knobs: both.knobs[..1].to_vec(), ..Capabilities::default() };
        let (mut caps, mut out) = (Caps::find(Selection::of(Kind::LimitUw), &first), Vec::new());
        caps.set(0, 150, &mut out);
        caps.replace(1, &both, &mut out);
        assert_eq!(out, [set(0, 150), set(1, 150)]);
    }

    /// A quota of four cores in periods of 100 ms or 1 s.
    fn quota(period_ms: u64) -> Caps {
        let knob = |kind, values, found| Knob {
            scope: Scope::Server,
            kind,
            values,
            initial: found,
            caller: Cost::Measured(0),
            effect: Cost::Measured(100_000_000),
        };
        let range = Values::Range { min: 10_000, max: 4_000_000, step: 1_000 };
        let periods = Values::List(vec![100_000_000, 1_000_000_000]);
        let knobs = vec![knob(Kind::QuotaPpm, range, 4_000_000), knob(Kind::QuotaPeriodNs, periods, 100_000_000)];
        let capabilities = Capabilities { knobs, ..Capabilities::default() };
        Caps::find(Selection::quota(Some(period_ms * 1_000_000)), &capabilities)
    }

    #[test]
    fn the_period_is_set_before_the_first_quota_and_restored_after_the_last() {
        let (mut caps, mut out) = (quota(1_000), Vec::new());
        caps.lift(0, &mut out);
        assert!(out.is_empty(), "nothing is set without a quota");
        caps.set(0, 2_000_000, &mut out);
        caps.set(1, 1_000_000, &mut out);
        let period_ns = 1_000_000_000;
        assert_eq!(out, [set(1, period_ns), set(0, 2_000_000), set(0, 1_000_000)]);
        assert_eq!(caps.holds_ns(), 1 + period_ns, "the rest of the previous period passes first");
        out.clear();
        assert!(caps.on_refused(2, (KnobId(0), 1_000_000), Refusal::Failed));
        caps.lift(3, &mut out);
        assert!(out.is_empty(), "quota and period are in backoff");
        caps.lift(20_000_000_000, &mut out);
        assert_eq!((&out[..], caps.lifts_ns()), (&[set(0, 4_000_000), set(1, 100_000_000)][..], None));
    }

    #[test]
    fn an_unsupported_period_is_reported() {
        assert!(quota(500).lacks_period() && !quota(100).lacks_period());
        let missing = Caps::find(Selection::quota(Some(100_000_000)), &capabilities());
        assert!(missing.lacks_period());
        assert!(!caps().lacks_period(), "no period is requested");
    }

    #[test]
    fn a_refusal_of_a_superseded_setting_changes_no_value() {
        let (mut caps, mut out) = (caps(), Vec::new());
        caps.set(0, 300, &mut out);
        caps.set(1, 150, &mut out);
        caps.on_refused(2, (KnobId(0), 150), Refusal::Failed);
        assert_eq!(caps.level(), 150);
    }
}
