//! The source of a replay: a surrogate or a file. Times are of the replay, from 0.

use std::collections::BTreeMap;
use std::path::Path;

use pilotlight_trace::placement::{Candidate, Placement, Plan, assign};
use pilotlight_trace::read::Options;
use pilotlight_trace::transform::{Cut, Scaled, Spread};
use pilotlight_trace::{Family, Format, Generator, Member, Reader, Request};

use super::TraceError;
use crate::simulated::experiment::schema::{MeanRate, SURROGATE, Trace};

/// Time over which requests of a surrogate are counted to distribute its volumes.
const PREVIEW_NS: u64 = 1_000_000_000;
/// Maximum number of windows.
const MAX_WINDOWS: u64 = 1 << 24;

pub(super) type Requests = Box<dyn Iterator<Item = Request>>;

/// A trace to replay.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    trace: Trace,
    seed: u64,
    duration_ns: u64,
    /// The surrogate; `None` for a file.
    member: Option<Member>,
    pub(super) placement: Placement,
    /// Skipped lines of a file.
    pub(super) malformed: u64,
}

impl Origin {
    /// # Errors
    /// If there is no such surrogate or file.
    pub(super) fn new(trace: &Trace, drives: u16, duration_ns: u64, seed: u64) -> Result<Self, TraceError> {
        if !(trace.speed > 0.0 && trace.speed.is_finite()) {
            return Err(TraceError::Speed(trace.speed));
        }
        let member = trace.source.strip_prefix(SURROGATE).map(|name| member(trace, name, seed)).transpose()?;
        let placement = Placement { places: Vec::new(), partition_bytes: 0 };
        let mut origin = Self { trace: trace.clone(), seed, duration_ns, member, placement, malformed: 0 };
        let candidates = match &origin.member {
            Some(member) => candidates(member, seed),
            None => origin.counted()?,
        };
        let plan = Plan {
            volumes: usize::from(trace.volumes),
            ssds: usize::from(drives),
            sets: usize::from(trace.client_sets),
            threads: usize::from(trace.threads_per_client),
            ..Plan::default()
        };
        origin.placement = assign(&candidates, &plan);
        Ok(origin)
    }

    /// Requests per second of a surrogate without bursts; `None` for a file.
    pub(super) fn mean_iops(&self) -> Option<f64> {
        self.member.map(|member| member.mean_iops)
    }

    /// The requests of all volumes.
    pub(super) fn requests(&self) -> Result<Requests, TraceError> {
        Ok(match self.generator() {
            Some(generator) => Box::new(self.cut(generator)),
            None => self.file()?,
        })
    }

    /// A surrogate's generator, in the trace's own time.
    pub(super) fn generator(&self) -> Option<Generator> {
        self.member.map(|member| Generator::new(&member, self.seed, self.end_ns()))
    }

    /// Converts a time of the replay to the trace's own time.
    pub(super) fn own_ns(&self, at_ns: u64) -> u64 {
        self.trace.begin.0 + (at_ns as f64 * self.trace.speed) as u64
    }

    fn end_ns(&self) -> u64 {
        self.own_ns(self.duration_ns)
    }

    /// Converts the trace's own time to that of the replay.
    pub(super) fn cut<I: Iterator<Item = Request>>(&self, requests: I) -> impl Iterator<Item = Request> + use<I> {
        Scaled::new(Cut::new(requests, self.trace.begin.0, self.end_ns()), self.trace.speed)
    }

    fn file(&self) -> Result<Requests, TraceError> {
        let requests = self.reader()?.filter_map(Result::ok);
        Ok(match self.trace.spread.0 {
            0 => Box::new(self.cut(requests)),
            tick_ns => Box::new(self.cut(Spread::new(requests, tick_ns, self.seed))),
        })
    }

    fn reader(&self) -> Result<Reader, TraceError> {
        let source = &self.trace.source;
        let format = self.trace.format.as_ref().map(|name| name.parse::<Format>()).transpose();
        let format = format.map_err(|error| TraceError::Format(source.clone(), error))?;
        let opened = Reader::open(Path::new(source), &Options { format, ..Options::default() });
        opened.map_err(|error| TraceError::Open(source.clone(), error))
    }

    /// The load of each volume of a file, with known sizes.
    fn counted(&mut self) -> Result<Vec<Candidate>, TraceError> {
        let sizes = self.trace.sizes.as_deref().map(sizes).transpose()?.unwrap_or_default();
        let mut volumes: BTreeMap<u32, Candidate> = BTreeMap::new();
        let mut reader = self.reader()?;
        for request in reader.by_ref() {
            let Ok(request) = request else {
                self.malformed += 1;
                continue;
            };
            let new = Candidate { volume: request.volume, size_bytes: 0, traffic: 0 };
            let volume = volumes.entry(request.volume).or_insert(new);
            volume.traffic += 1;
            volume.size_bytes = volume.size_bytes.max(request.offset.saturating_add(u64::from(request.bytes)));
        }
        if let Some(error) = reader.no_request() {
            return Err(TraceError::NoRequest(error));
        }
        let sized = |volume: Candidate| Candidate {
            size_bytes: sizes.get(&volume.volume).copied().unwrap_or(volume.size_bytes),
            ..volume
        };
        Ok(volumes.into_values().map(sized).collect())
    }

    /// Requests of replayed volumes in each window: counted in a file, expected of a surrogate.
    pub(super) fn loads(&self, window_ns: u64) -> Result<Vec<u64>, TraceError> {
        if self.duration_ns / window_ns >= MAX_WINDOWS {
            return Err(TraceError::Windows(MAX_WINDOWS));
        }
        if let Some(member) = &self.member {
            let own_ns = (window_ns as f64 * self.trace.speed) as u64;
            let all = Generator::expected_loads(member, self.seed, self.end_ns(), own_ns);
            let first = (self.trace.begin.0 / own_ns.max(1)) as usize;
            return Ok(all.get(first..).unwrap_or_default().iter().map(|load| load.round() as u64).collect());
        }
        let mut loads: Vec<u64> = Vec::new();
        for request in self.requests()?.filter(|request| self.placement.find(request.volume).is_some()) {
            let window = (request.at_ns / window_ns) as usize;
            loads.resize(loads.len().max(window + 1), 0);
            loads[window] += 1;
        }
        Ok(loads)
    }
}

fn member(trace: &Trace, name: &str, seed: u64) -> Result<Member, TraceError> {
    let family = match name {
        "alibaba" => Family::alibaba(),
        "tencent" => Family::tencent(),
        _ => return Err(TraceError::NoSurrogate(name.to_owned())),
    };
    if trace.volumes == 0 {
        return Err(TraceError::NoVolume);
    }
    let member = family.member(seed);
    let mean_iops = match trace.mean_iops {
        None => member.mean_iops,
        Some(MeanRate::Fixed(mean)) => mean,
        Some(MeanRate::Drawn([low, high])) if low > 0.0 && low <= high => Family::rate(seed, (low, high)),
        Some(MeanRate::Drawn(range)) => return Err(TraceError::MeanRate(range)),
    };
    Ok(Member { mean_iops, volumes: u32::from(trace.volumes), ..member })
}

fn candidates(member: &Member, seed: u64) -> Vec<Candidate> {
    let mut traffic = vec![0_u64; member.volumes as usize];
    Generator::new(member, seed, PREVIEW_NS).for_each(|request| traffic[request.volume as usize] += 1);
    let candidate = |(volume, traffic): (u32, u64)| Candidate { volume, size_bytes: member.volume_bytes, traffic };
    (0..).zip(traffic).map(candidate).collect()
}

/// Sizes by volume from CSV of `device_id,capacity`, capacity in bytes, with or without a heading (README of
/// <https://github.com/alibaba/block-traces>, schema of `device_size.csv`).
fn sizes(path: &str) -> Result<BTreeMap<u32, u64>, TraceError> {
    let failed = |error: csv::Error| TraceError::Sizes(path.to_owned(), error);
    let mut reader = csv::ReaderBuilder::new();
    reader.has_headers(false).comment(Some(b'#')).trim(csv::Trim::All).flexible(true);
    let mut sizes = BTreeMap::new();
    for (number, row) in reader.from_path(path).map_err(failed)?.into_records().enumerate() {
        let row = row.map_err(failed)?;
        let is_heading = number == 0 && row[0].starts_with("device_id");
        if is_heading || row.iter().all(str::is_empty) {
            continue;
        }
        let pair = row.deserialize::<(u32, u64)>(None).ok().filter(|_| row.len() == 2);
        let (volume, size) = pair.ok_or_else(|| {
            let (line, fields) = (row.position().map_or(0, csv::Position::line), row.iter().collect::<Vec<_>>());
            TraceError::Size { path: path.to_owned(), line, fields: fields.join(",") }
        })?;
        sizes.insert(volume, size);
    }
    Ok(sizes)
}
