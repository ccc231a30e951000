//! Readings of power, bytes and latencies of a simulated machine.
//!
//! Sensors measure consecutive windows on a time grid. A window's values are available after its end plus the sensors' lag; they are exact, from the
//! meter and from the commands of drives and responses to hosts. Nothing is collected if the policy wants no readings.

use std::collections::{BTreeMap, VecDeque};

use pilotlight_plant::{Quantity, Reading, ReadingId, Scope, Source, Stat, Window};

use super::background::come_bytes;
use super::drives::OwnDrives;
use super::member::{DrivesTook, Member};
use super::meter::Total;
use super::request::Submission;
use crate::histogram::Histogram;
use crate::scenario::{self, Background, Scenario};
use crate::sensor::{Sensor, SensorReading};
use crate::ssd::Span;

/// The readings that a policy wants, and their values.
pub(crate) struct Sensors {
    wanted: Vec<(ReadingId, Source)>,
    config: scenario::Sensors,
    power: Member,
    ceilings_uw: Vec<Option<u64>>,
    /// Energy in the open window of drives with their own power figures.
    own: Option<OwnDrives>,
    hosts: usize,
    /// Classes of background work, and bytes completed of each before the open window.
    background: Vec<(Background, u64)>,
    /// The server's power meter, if it is less exact than the other sensors.
    meter: Option<Sensor>,
    /// Waits of requests in progress for a bandwidth cap, by slot, in nanoseconds.
    waited_ns: BTreeMap<u32, u64>,
    /// Totals of the open window.
    spent: Total,
    /// Events of the open window and of later ones.
    windows: VecDeque<WindowTotals>,
    /// End of the open window.
    end_ns: u64,
    /// Values by wanted source, for the last available window and later ones.
    measured: VecDeque<Measured>,
    readings: Vec<Reading>,
}

/// Femtojoules per microjoule.
const FJ_IN_UJ: u128 = 1_000_000_000;

struct Measured {
    ended_ns: u64,
    values: Vec<Option<u64>>,
}

#[derive(Clone, Default)]
struct WindowTotals {
    /// Bytes read and written by each drive, and by each host.
    moved: Vec<(u64, u64)>,
    hosts: Vec<(u64, u64)>,
    latency: Histogram,
    /// Background work by class, in bytes.
    background: Vec<u64>,
    /// Bytes that drives read and wrote for it.
    own: Vec<(u64, u64)>,
}

impl Sensors {
    /// Sensors for the wanted readings; `None` if there are none and none may be wanted later.
    pub(crate) fn new(wanted: &[ReadingId], sources: &[Source], scenario: &Scenario, later: bool) -> Option<Self> {
        let wanted = known(wanted, sources);
        let config = scenario.sensors.clone();
        (later || !wanted.is_empty()).then(|| Self {
            readings: Vec::with_capacity(wanted.len()),
            wanted,
            power: Member::new(&scenario.machine.power, scenario),
            meter: config.meter.map(|model| Sensor::new(model, scenario.seed, 0)),
            hosts: scenario.workload.connections.len(),
            background: scenario.workload.background.iter().map(|&class| (class, 0)).collect(),
            waited_ns: BTreeMap::new(),
            own: OwnDrives::new(scenario, config.window_ns),
            ceilings_uw: scenario.drives.iter().map(|drive| drive.power.map(|power| power.most_load_uw)).collect(),
            spent: Total::new(1),
            windows: VecDeque::new(),
            end_ns: config.window_ns,
            measured: VecDeque::new(),
            config,
        })
    }

    /// Replaces the wanted readings; new ones have no earlier values.
    pub(crate) fn want(&mut self, wanted: &[ReadingId], sources: &[Source]) {
        let wanted = known(wanted, sources);
        if wanted != self.wanted {
            self.wanted = wanted;
            self.measured.clear();
        }
    }

    /// End of the open window.
    pub(crate) fn end_ns(&self) -> u64 {
        self.end_ns
    }

    /// Adds the meter's totals.
    pub(crate) fn spend(&mut self, total: &Total) {
        self.spent.add(total, 1);
    }

    pub(crate) fn submitted(&mut self, submission: &Submission, drive: u16, host: u32) {
        let totals = self.at(submission.at_ns);
        for (read, written) in [&mut totals.moved[usize::from(drive)], &mut totals.hosts[host as usize]] {
            *if submission.write { written } else { read } += u64::from(submission.bytes);
        }
    }

    /// Records background work completed at `at_ns`.
    pub(crate) fn did_background(&mut self, at_ns: u64, class: u16, bytes: u64) {
        self.at(at_ns).background[usize::from(class)] += bytes;
    }

    /// Records a drive's data transfer for background work.
    pub(crate) fn moved(&mut self, at_ns: u64, drive: u16, bytes: u32, write: bool) {
        let (read, written) = &mut self.at(at_ns).own[usize::from(drive)];
        *if write { written } else { read } += u64::from(bytes);
    }

    /// Records a drive's autonomous activity in the open window.
    pub(crate) fn span(&mut self, drive: usize, span: &Span, moving_uw: u64) {
        if let Some(own) = &mut self.own {
            own.span(drive, span, moving_uw);
        }
    }

    /// Records a command's wait for a cap; the longest wait of a request counts.
    pub(crate) fn waited(&mut self, job: u32, waited_ns: u64) {
        let longest_ns = self.waited_ns.entry(job).or_default();
        *longest_ns = waited_ns.max(*longest_ns);
    }

    /// Records a latency without the wait for caps, as the server reports it.
    pub(crate) fn answered(&mut self, at_ns: u64, job: u32, latency_ns: u64) {
        let waited_ns = if self.waited_ns.is_empty() { None } else { self.waited_ns.remove(&job) };
        self.at(at_ns).latency.record(latency_ns.saturating_sub(waited_ns.unwrap_or(0)));
    }

    /// Totals of the window that contains `at_ns`, which is open or later.
    fn at(&mut self, at_ns: u64) -> &mut WindowTotals {
        let open = self.end_ns / self.config.window_ns - 1;
        let later = (at_ns / self.config.window_ns).saturating_sub(open) as usize;
        let empty = || WindowTotals {
            moved: vec![(0, 0); self.ceilings_uw.len()],
            hosts: vec![(0, 0); self.hosts],
            latency: Histogram::default(),
            background: vec![0; self.background.len()],
            own: if self.background.is_empty() { Vec::new() } else { vec![(0, 0); self.ceilings_uw.len()] },
        };
        while self.windows.len() <= later {
            self.windows.push_back(empty());
        }
        &mut self.windows[later]
    }

    /// Closes the open window; its totals are complete.
    pub(crate) fn close(&mut self) {
        let ended_ns = self.end_ns;
        self.at(ended_ns - 1); // creates a window without events
        let Some(totals) = self.windows.pop_front() else { return };
        let values = self.values(&totals);
        self.spent = Total::new(1);
        self.end_ns += self.config.window_ns;
        if !self.config.silent.iter().any(|&(from_ns, until_ns)| (from_ns..until_ns).contains(&ended_ns)) {
            self.measured.push_back(Measured { ended_ns, values });
        }
    }

    fn values(&mut self, totals: &WindowTotals) -> Vec<Option<u64>> {
        let window_ns = self.config.window_ns;
        let a_second = |all: u64| (u128::from(all) * 1_000_000_000 / u128::from(window_ns)) as u64;
        for ((_, done), bytes) in self.background.iter_mut().zip(&totals.background) {
            *done += bytes;
        }
        let of_drives: Vec<(u64, u64)> = if totals.own.is_empty() {
            totals.moved.clone()
        } else {
            let both = totals.moved.iter().zip(&totals.own);
            both.map(|((read, written), own)| (read + own.0, written + own.1)).collect()
        };
        let own_uj = self.own.as_mut().map(|own| own.take_each(&of_drives));
        let all_uj = own_uj.as_ref().map(|each| each.iter().sum());
        let drives = DrivesTook { moved: &of_drives, ceilings_uw: &self.ceilings_uw, own_uj: all_uj };
        let energy = self.power.stretch(&self.spent.epochs[0], window_ns, &drives);
        if let Some(meter) = &mut self.meter {
            meter.record_energy(self.end_ns, u128::from(energy.system_uj()) * FJ_IN_UJ);
        }
        let drive_uw = |drive: usize| {
            if let Some(uj) = own_uj.as_ref().and_then(|each| each.get(drive)) {
                return a_second(*uj);
            }
            let idle_uw = self.power.drives_idle_uw() / self.ceilings_uw.len().max(1) as u64;
            idle_uw + a_second(self.power.load_uj(of_drives[drive], self.ceilings_uw[drive], window_ns))
        };
        let latency = |value: u64| (totals.latency.count() > 0).then_some(value);
        let moved = |of| match of {
            Scope::Device(drive) => of_drives.get(usize::from(drive)).copied(),
            Scope::Namespace(drive) => totals.moved.get(drive as usize).copied(),
            Scope::Host(host) => totals.hosts.get(host as usize).copied(),
            _ => None,
        };
        let value = |source: &Source| match (source.scope, source.quantity) {
            (Scope::Package(_), Quantity::PowerUw) => Some(a_second(energy.cpu_uj)),
            (Scope::Server, Quantity::PowerUw) => Some(a_second(energy.system_uj())),
            (Scope::Device(drive), Quantity::PowerUw) => Some(drive_uw(drive.into())),
            (Scope::Background(class), Quantity::BacklogBytes) => {
                let (class, done) = self.background.get(usize::from(class))?;
                Some(come_bytes(class, self.end_ns).saturating_sub(*done))
            }
            (of, Quantity::BytesPerS) => moved(of).map(|(read, written)| a_second(read + written)),
            (of, Quantity::ReadBytesPerS) => moved(of).map(|(read, _)| a_second(read)),
            (of, Quantity::WrittenBytesPerS) => moved(of).map(|(_, written)| a_second(written)),
            (_, Quantity::LatencyNs(Stat::Mean)) => totals.latency.sum().checked_div(totals.latency.count()),
            (_, Quantity::LatencyNs(Stat::P50)) => latency(totals.latency.quantile(0.5)),
            (_, Quantity::LatencyNs(Stat::P99)) => latency(totals.latency.quantile(0.99)),
            _ => None,
        };
        self.wanted.iter().map(|(_, source)| value(source)).collect()
    }

    /// Readings available at `now_ns`, in the wanted order.
    pub(crate) fn read(&mut self, now_ns: u64) -> &[Reading] {
        let is_known = |measured: &&Measured| measured.ended_ns + self.config.lag_ns <= now_ns;
        while self.measured.get(1).filter(is_known).is_some() {
            self.measured.pop_front();
        }
        let last = self.measured.front().filter(is_known);
        self.readings.clear();
        let metered = self.metered(now_ns);
        for (index, (id, source)) in self.wanted.iter().enumerate() {
            let by_meter =
                self.meter.is_some() && (source.scope, source.quantity) == (Scope::Server, Quantity::PowerUw);
            let window = last.map(|last| Window { ended_ns: last.ended_ns, value: last.values[index] });
            self.readings.push(source.reading(*id, if by_meter { metered } else { window }, now_ns));
        }
        &self.readings
    }

    /// Reading of the server's power meter at `now_ns`.
    pub(crate) fn metered(&self, now_ns: u64) -> Option<Window> {
        let SensorReading { power_uw, age_ns } = self.meter.as_ref()?.read(now_ns)?;
        let ended_ns = now_ns - age_ns;
        let fails = self.config.silent.iter().any(|&(from_ns, until_ns)| (from_ns..until_ns).contains(&ended_ns));
        Some(Window { ended_ns, value: Some(power_uw).filter(|_| !fails) })
    }
}

fn known(wanted: &[ReadingId], sources: &[Source]) -> Vec<(ReadingId, Source)> {
    wanted.iter().filter_map(|&id| Some((id, *sources.get(id.index())?))).collect()
}
