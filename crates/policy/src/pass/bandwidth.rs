//! The drives' part of a budget: caps on the bandwidth of namespaces and hosts, by priority class (PASS, sections 3.3 and 5.1).
//!
//! **Classes.** The class of a request is the lower priority of its host and its namespace; one without a priority does not count
//! ([`Goals::class`]). The class of a knob is the highest that a request under it can have. Hosts are capped only if one has a priority.
//! **Namespaces and hosts** of a class mostly limit the same requests, so the saving of the class is taken as the larger of both; the saving by
//! hosts of lower classes is subtracted from all namespaces alike.
//! **Order.** All knobs of a class have the same cap, so a user below it is not affected. A class is capped only when all lower ones are at the
//! floor, and lower ones are raised only when no higher one is capped.
//! **Floor.** 10 MiB/s a drive (`floor.rs`), or the minimum of the class ([`Goals::minimums`]) if that is more. A cap of the class below the floor
//! of a namespace or host does not lower that one further.

use pilotlight_plant::{
    Capabilities, Command, Goals, Kind, KnobId, Quantity, ReadingId, Refusal, Sample, Scope, Source,
};

use super::class::highest_class;
use super::floor::floors;
use super::level::{User, level, saved};
use super::ssd_model::{Rate, SsdModel};
use crate::budget::caps::{Caps, Selection};

/// Samples in a mean (PASS 3.3: five intervals).
pub(super) const MANY: usize = 5;
/// Part of the bytes of earlier samples that is forgotten at a sample, for the share of reads.
const WEIGHT: f64 = 0.01;
/// Share of its cap from which a user is limited by it.
const BINDING: f64 = 0.95;

/// A namespace or a host.
#[derive(Clone, Debug)]
struct Item {
    scope: Scope,
    knob: KnobId,
    class: u8,
    /// Its lowest cap for any class, in bytes a second.
    least: f64,
    read: Option<ReadingId>,
    written: Option<ReadingId>,
    /// Both directions, if they are not measured separately.
    both: Option<ReadingId>,
    /// `None` until the first sample under a budget.
    recent: Option<[Rate; MANY]>,
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Bandwidth {
    ssd: SsdModel,
    caps: Caps,
    items: Vec<Item>,
    /// The namespaces and hosts of the plant.
    others: Vec<Scope>,
    /// Each class that has a knob, from low to high, and the cap of its knobs in bytes a second.
    classes: Vec<(u8, Option<f64>)>,
    /// Minimum of each namespace and host of a class.
    minimums: Vec<(u8, u64)>,
    samples: usize,
    /// Bytes a second of the last samples, which fade.
    recent: Rate,
    shows_ns: u64,
    namespaces: usize,
}

impl Bandwidth {
    pub(crate) fn new(ssd: SsdModel) -> Self {
        let (caps, items, classes) = (Caps::default(), Vec::new(), Vec::new());
        let others = Vec::new();
        Self {
            ssd,
            caps,
            items,
            others,
            classes,
            minimums: Vec::new(),
            samples: 0,
            recent: Rate::default(),
            shows_ns: 0,
            namespaces: 1,
        }
    }

    /// The knobs of a plant.
    pub(crate) fn start(&mut self, capabilities: &Capabilities, goals: &Goals) {
        self.caps = Caps::find(Selection::of(Kind::BytesPerS), capabilities);
        self.find_items(capabilities, goals);
        self.classify(goals, &[]);
    }

    fn find_items(&mut self, capabilities: &Capabilities, goals: &Goals) {
        let has_named_host = goals.priorities.iter().any(|(of, _)| matches!(of, Scope::Host(_)));
        let source = |scope, quantity| capabilities.find_source(scope, quantity);
        let mut items = Vec::new();
        self.shows_ns = 0;
        for (knob, found) in capabilities.knobs_of(Kind::BytesPerS).filter(|(_, knob)| knob.values.lowest().is_some()) {
            let scope = found.scope;
            if !matches!(scope, Scope::Namespace(_) | Scope::Host(_))
                || (matches!(scope, Scope::Host(_)) && !has_named_host)
            {
                continue;
            }
            let quantities = [Quantity::ReadBytesPerS, Quantity::WrittenBytesPerS, Quantity::BytesPerS];
            let [read, written, both] = quantities.map(|quantity| source(scope, quantity));
            let shows_ns = |(_, source): (ReadingId, &Source)| source.window_ns.saturating_add(source.lag.ns());
            let longest = [read, written, both].into_iter().flatten().map(shows_ns).max();
            self.shows_ns = self.shows_ns.max(longest.unwrap_or(0));
            let id = |found: Option<(ReadingId, &Source)>| found.map(|(id, _)| id);
            let known = self.items.iter().find(|item| item.knob == knob);
            let recent = known.and_then(|item| item.recent);
            let (read, written) = (id(read), id(written));
            let both = id(both).filter(|_| read.is_none() || written.is_none());
            items.push(Item { scope, knob, class: 0, least: 0.0, read, written, both, recent });
        }
        let all: Vec<_> = items.iter().map(|item| item.scope).collect();
        let floors = floors(&self.ssd, &all, capabilities);
        items.iter_mut().zip(floors).for_each(|(item, least)| item.least = least);
        self.namespaces = items.iter().filter(|item| matches!(item.scope, Scope::Namespace(_))).count().max(1);
        self.items = items;
        self.others = capabilities.knobs_of(Kind::BytesPerS).map(|(_, knob)| knob.scope).collect();
    }

    /// Applies priorities. If a class is capped, those below it are at the floor.
    /// `old` are the previous caps.
    fn classify(&mut self, goals: &Goals, old: &[(KnobId, Option<f64>)]) {
        self.minimums.clone_from(&goals.minimums);
        self.items.iter_mut().for_each(|item| item.class = highest_class(item.scope, &self.others, goals));
        let mut classes: Vec<_> = self.items.iter().map(|item| item.class).collect();
        classes.sort_unstable();
        classes.dedup();
        let cap = |class: u8| {
            let of_class = self.items.iter().filter(|item| item.class == class);
            let caps = of_class.filter_map(|item| old.iter().find(|(knob, _)| *knob == item.knob)?.1);
            caps.min_by(f64::total_cmp)
        };
        let mut caps: Vec<_> = classes.iter().map(|&class| (class, cap(class))).collect();
        if let Some(highest) = caps.iter().rposition(|(_, cap)| cap.is_some()) {
            caps[..highest].iter_mut().for_each(|(class, cap)| *cap = Some(self.lowest(*class)));
        }
        for (class, cap) in &mut caps {
            *cap = cap.map(|cap| cap.max(self.lowest(*class)));
        }
        self.classes = caps;
    }

    /// The plant or the priorities have changed.
    pub(crate) fn replace(&mut self, capabilities: &Capabilities, goals: &Goals) {
        let old: Vec<_> = self.items.iter().map(|item| (item.knob, self.cap_of_class(item.class))).collect();
        self.caps.replace_knobs(capabilities);
        self.find_items(capabilities, goals);
        self.classify(goals, &old);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty() || self.caps.is_empty()
    }

    /// The wanted readings: of every namespace and host, since priorities may be set later.
    pub(crate) fn readings(capabilities: &Capabilities) -> Vec<ReadingId> {
        let is_bytes =
            |quantity| matches!(quantity, Quantity::ReadBytesPerS | Quantity::WrittenBytesPerS | Quantity::BytesPerS);
        let is_item = |of| matches!(of, Scope::Namespace(_) | Scope::Host(_));
        let wanted = |source: &Source| is_bytes(source.quantity) && is_item(source.scope);
        let all = (0..).map(ReadingId).zip(&capabilities.sources);
        all.filter(|(_, source)| wanted(source)).map(|(id, _)| id).collect()
    }

    /// Records a sample; missing values repeat the last one, and the first value fills the history.
    pub(crate) fn record(&mut self, sample: &Sample<'_>) {
        let value = |id: Option<ReadingId>| {
            let reading = sample.readings.iter().find(|reading| Some(reading.id) == id)?;
            Some(reading.value? as f64)
        };
        let last = (self.samples + MANY - 1) % MANY;
        for item in &mut self.items {
            // Both directions together count as reads, which save less power per byte.
            let (read, written) = (value(item.read).or(value(item.both)), value(item.written));
            if item.recent.is_none() && read.is_none() && written.is_none() {
                continue;
            }
            let first = Rate { read: read.unwrap_or(0.0), written: written.unwrap_or(0.0) };
            let recent = item.recent.get_or_insert([first; MANY]);
            let before = recent[last];
            let rate = Rate { read: read.unwrap_or(before.read), written: written.unwrap_or(before.written) };
            recent[self.samples % MANY] = rate;
        }
        self.samples += 1;
        let all = self.namespaces(&self.last_rates()).fold(Rate::default(), |sum, (_, rate)| Rate {
            read: sum.read + rate.read,
            written: sum.written + rate.written,
        });
        self.recent.read += all.read - self.recent.read * WEIGHT;
        self.recent.written += all.written - self.recent.written * WEIGHT;
    }

    /// Rate of each item in the last sample.
    pub(crate) fn last_rates(&self) -> Vec<Rate> {
        let last = (self.samples + MANY - 1) % MANY;
        self.items.iter().map(|item| item.recent.map_or(Rate::default(), |recent| recent[last])).collect()
    }

    /// The share of reads in the bytes of the last samples: none before the first request, as a written byte needs more power.
    fn reads(&self) -> f64 {
        if self.recent.bytes() > 0.0 { self.recent.read / self.recent.bytes() } else { 0.0 }
    }

    /// Sets the number of drives of the model; [`Bandwidth::replace`] follows.
    pub(crate) fn set_drives(&mut self, drives: u32) {
        self.ssd.drives = drives;
    }

    /// Power of a byte a second at the present share of reads, in microwatts.
    pub(crate) fn price(&self) -> f64 {
        self.ssd.slope(Rate { read: self.reads(), written: 1.0 - self.reads() })
    }

    /// The highest rate of each item, at the present share of reads.
    fn full_rates(&self) -> Vec<Rate> {
        let reads = self.reads();
        let SsdModel { most, drives, .. } = self.ssd;
        let all = f64::from(drives) / self.namespaces as f64 / (reads / most.read + (1.0 - reads) / most.written);
        // A host may use any namespace, so only caps of namespaces are certain to save power.
        let share = |item: &Item| if matches!(item.scope, Scope::Host(_)) { 0.0 } else { all };
        let rate = |item: &Item| Rate { read: share(item) * reads, written: share(item) * (1.0 - reads) };
        self.items.iter().map(rate).collect()
    }

    /// Power of the drives beyond idle with every cap at its lowest, and without caps, at the present share of reads.
    pub(crate) fn range_uw(&self) -> (f64, f64) {
        let rates = self.full_rates();
        let most_uw = self.power_uw(&rates);
        (most_uw - self.available_uw(&rates), most_uw)
    }

    /// Sets caps so that the drives draw at most this beyond idle, at the present share of reads.
    pub(crate) fn allow(&mut self, most_uw: f64) {
        self.lift();
        let rates = self.full_rates();
        let all_uw = self.power_uw(&rates);
        if most_uw < all_uw {
            self.cut(all_uw - most_uw, &rates);
        }
    }

    /// Whether bandwidth is known, if it is measured.
    pub(super) fn is_known(&self) -> bool {
        let is_measured = |item: &Item| item.read.or(item.both).is_some();
        self.items.iter().any(|item| item.recent.is_some()) || !self.items.iter().any(is_measured)
    }

    /// Forgets samples of an earlier budget.
    pub(crate) fn forget(&mut self) {
        self.items.iter_mut().for_each(|item| item.recent = None);
    }

    /// Time from a change until a sample shows only its effect, in nanoseconds: a window and its lag.
    pub(super) fn shows_ns(&self) -> u64 {
        self.shows_ns
    }

    /// Mean rate of each item over the last samples.
    pub(super) fn rates(&self) -> Vec<Rate> {
        let mean = |item: &Item| {
            let recent = item.recent.unwrap_or_default();
            let sum = recent.iter().fold(Rate::default(), |sum, rate| Rate {
                read: sum.read + rate.read,
                written: sum.written + rate.written,
            });
            Rate { read: sum.read / MANY as f64, written: sum.written / MANY as f64 }
        };
        self.items.iter().map(mean).collect()
    }

    /// Power of the drives beyond idle, with these rates, in microwatts.
    pub(crate) fn power_uw(&self, rates: &[Rate]) -> f64 {
        self.namespaces(rates).map(|(_, rate)| self.ssd.power_uw(rate)).sum()
    }

    fn namespaces(&self, rates: &[Rate]) -> impl Iterator<Item = (&Item, Rate)> {
        self.items.iter().zip(rates.iter().copied()).filter(|(item, _)| matches!(item.scope, Scope::Namespace(_)))
    }

    /// Power that caps could save, in microwatts.
    pub(super) fn available_uw(&self, rates: &[Rate]) -> f64 {
        let above = |item: &Item, rate: Rate| (rate.bytes() - self.floor(item)).max(0.0) * self.ssd.slope(rate);
        if self.is_empty() { 0.0 } else { self.namespaces(rates).map(|(item, rate)| above(item, rate)).sum() }
    }

    /// Most power that all drives draw beyond idle, in microwatts.
    pub(super) fn most_uw(&self) -> f64 {
        let SsdModel { most, read_slope, written_slope, drives, .. } = self.ssd;
        (most.read * read_slope).max(most.written * written_slope) * f64::from(drives)
    }

    /// Power of all drives without requests, in microwatts.
    pub(crate) fn idle_uw(&self) -> f64 {
        self.ssd.idle_uw * f64::from(self.ssd.drives)
    }

    /// The lowest cap of a namespace or a host.
    fn floor(&self, item: &Item) -> f64 {
        let minimum = self.minimums.iter().find(|(named, _)| *named == item.class);
        item.least.max(minimum.map_or(0, |&(_, bytes_per_s)| bytes_per_s) as f64)
    }

    /// The cap of a class at which all its items are at their floors.
    fn lowest(&self, class: u8) -> f64 {
        let of_class = self.items.iter().filter(|item| item.class == class);
        of_class.map(|item| self.floor(item)).fold(f64::INFINITY, f64::min)
    }

    fn cap_of_class(&self, class: u8) -> Option<f64> {
        self.classes.iter().find(|(known, _)| *known == class)?.1
    }

    fn cap_of(&self, item: &Item) -> Option<f64> {
        self.cap_of_class(item.class).map(|cap| cap.max(self.floor(item)))
    }

    pub(crate) fn is_capped(&self) -> bool {
        self.classes.iter().any(|(_, cap)| cap.is_some())
    }

    /// Whether a cap limits something at present.
    pub(crate) fn is_binding(&self) -> bool {
        let rates = self.rates();
        self.classes.iter().any(|(class, cap)| cap.is_some_and(|cap| self.bound(*class, cap, &rates).next().is_some()))
    }

    /// Slope of each item that this cap of its class limits.
    fn bound(&self, class: u8, cap: f64, rates: &[Rate]) -> impl Iterator<Item = f64> {
        let least = move |item: &Item| cap.max(self.floor(item)) * BINDING;
        let is_bound = move |(item, rate): &(&Item, &Rate)| item.class == class && rate.bytes() >= least(item);
        self.items.iter().zip(rates).filter(is_bound).map(|(_, rate)| self.ssd.slope(*rate))
    }

    /// Lowers caps to save this power at these rates, the lowest class first; returns the power saved.
    pub(super) fn cut(&mut self, wanted_uw: f64, rates: &[Rate]) -> f64 {
        let all_uw = self.power_uw(rates);
        let (mut left_uw, mut by_hosts_uw) = (wanted_uw, 0.0);
        for at in 0..self.classes.len() {
            if left_uw <= 0.0 {
                break;
            }
            let (class, cap) = self.classes[at];
            let users = |hosts: bool, part: f64| -> Vec<User> {
                let of_class = move |item: &Item| item.class == class && matches!(item.scope, Scope::Host(_)) == hosts;
                let users = self.items.iter().zip(rates).filter(|(item, _)| of_class(item));
                let used =
                    |item: &Item, rate: &Rate| (rate.bytes() * part).min(self.cap_of(item).unwrap_or(f64::INFINITY));
                let user = |(item, rate): (&Item, &Rate)| User {
                    bytes_per_s: used(item, rate),
                    slope: self.ssd.slope(*rate),
                    floor: self.floor(item),
                };
                users.map(user).collect()
            };
            let part = if all_uw > 0.0 { (1.0 - by_hosts_uw / all_uw).max(0.0) } else { 1.0 };
            let (hosts, namespaces) = (users(true, 1.0), users(false, part));
            let levels = [&hosts, &namespaces].map(|users| level(users, self.lowest(class), left_uw));
            let next = levels[0].max(levels[1]);
            let of_hosts_uw = saved(&hosts, next);
            by_hosts_uw += of_hosts_uw;
            left_uw -= of_hosts_uw.max(saved(&namespaces, next));
            self.classes[at].1 = Some(cap.map_or(next, |cap| cap.min(next)));
        }
        wanted_uw - left_uw.max(0.0)
    }

    /// Raises caps to allow this additional power, the highest class first; returns the power allowed. A cap that limits nothing is lifted.
    pub(super) fn raise(&mut self, wanted_uw: f64, rates: &[Rate]) -> f64 {
        let mut left_uw = wanted_uw;
        let top = self.ssd.most.read.max(self.ssd.most.written) * f64::from(self.ssd.drives);
        for at in (0..self.classes.len()).rev() {
            let (class, Some(cap)) = self.classes[at] else { continue };
            let slope: f64 = self.bound(class, cap, rates).sum();
            let next = if slope > 0.0 { cap + left_uw / slope } else { f64::INFINITY };
            if next < top {
                self.classes[at].1 = Some(next);
                return wanted_uw;
            }
            self.classes[at].1 = None;
            left_uw -= (top - cap) * slope;
            if left_uw <= 0.0 {
                return wanted_uw;
            }
        }
        wanted_uw - left_uw
    }

    /// Lowers caps so that the drives draw at most this beyond idle under any load; raises none.
    pub(super) fn limit(&mut self, most_uw: f64) {
        let drive = f64::from(self.ssd.drives);
        // A host may use any namespace, so only caps of namespaces are certain to save power.
        let each = |item: &Item| {
            let share = if matches!(item.scope, Scope::Host(_)) { 0.0 } else { drive / self.namespaces as f64 };
            let written = self.ssd.most.written * share;
            Rate { read: 0.0, written: written.min(self.cap_of(item).unwrap_or(f64::INFINITY)) }
        };
        let rates: Vec<_> = self.items.iter().map(each).collect();
        let all_uw = self.power_uw(&rates);
        if most_uw < all_uw {
            self.cut(all_uw - most_uw, &rates);
        }
    }

    /// Sets whether caps may be raised.
    pub(crate) fn allow_raises(&mut self, may_raise: bool) {
        self.caps.allow_raises(may_raise);
    }

    pub(crate) fn lift(&mut self) {
        self.classes.iter_mut().for_each(|(_, cap)| *cap = None);
    }

    /// Commands changed caps; whether there are any.
    pub(crate) fn apply(&mut self, now_ns: u64, out: &mut Vec<Command>) -> bool {
        let values: Vec<_> = self.items.iter().map(|item| (item.knob, self.cap_of(item))).collect();
        let value = |knob: KnobId| Some(values.iter().find(|(known, _)| *known == knob)?.1? as u64);
        self.caps.set_each(now_ns, value, out)
    }

    pub(crate) fn holds_ns(&self) -> u64 {
        self.caps.holds_ns()
    }

    pub(crate) fn lifts_ns(&self) -> Option<u64> {
        self.caps.lifts_ns()
    }

    pub(crate) fn on_refused(&mut self, now_ns: u64, set: (KnobId, u64), refusal: Refusal) -> bool {
        self.caps.on_refused(now_ns, set, refusal)
    }

    /// The caps by class, for display.
    pub(crate) fn text(&self) -> String {
        let capped = self.classes.iter().filter_map(|(class, cap)| Some((class, (*cap)?)));
        let one = |(class, cap): (&u8, f64)| format!("class {class}: {:.1} MiB/s", cap / f64::from(1 << 20));
        let all: Vec<_> = capped.map(one).collect();
        if all.is_empty() { "none".to_owned() } else { all.join(", ") }
    }
}

#[cfg(test)]
mod tests;
