//! Events of one run of a simulated experiment, for `experiments/live/burst_trace.py`: the records of [`pilotlight_sim::trace`] of the first
//! repeat of a policy at the first point, from one time to another, on standard output. States of cores are written from the start on.
//!
//! `cargo run --release -p pilotlight-lab --example events -- FILE POLICY FROM_NS TO_NS [KEY=VALUE...] > events`

use std::error::Error;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use pilotlight_lab::simulated::experiment::{self, Request};
use pilotlight_lab::simulated::sweep::Sweep;
use pilotlight_lab::simulated::variant::{self, Choice};
use pilotlight_sim::trace::{Record, RecordKind};

const USAGE: &str = "arguments: FILE POLICY FROM_NS TO_NS [KEY=VALUE...]";

/// Passes on the records of a time; the recorder writes one record at a time.
struct Selection<W> {
    out: W,
    from_ns: u64,
    to_ns: u64,
}

impl<W: Write> Write for Selection<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let record = bytes.try_into().ok().and_then(Record::decode);
        let record = record.ok_or_else(|| io::Error::other("the simulator wrote something other than one record"))?;
        let is_wanted = record.at_ns >= self.from_ns || record.kind == RecordKind::Core;
        if is_wanted && record.at_ns <= self.to_ns {
            self.out.write_all(bytes)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, policy, from_ns, to_ns, set @ ..] = &arguments[..] else { return Err(USAGE.into()) };
    let set = set.iter().map(|set| set.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned())));
    let set = set.collect::<Option<_>>().ok_or(USAGE)?;
    let bench = experiment::load(Path::new(file), &Request { set, ..Request::default() })?;
    let variants = variant::variants(&bench.machine.calibration, &Choice::default())?;
    let sweep = Sweep::new(&bench, &variants);
    let (job, ..) =
        sweep.list().find(|(_, key, _)| key.policy == *policy).ok_or("the experiment has no such policy")?;
    let out = BufWriter::new(io::stdout());
    let selection = Mutex::new(Selection { out, from_ns: from_ns.parse()?, to_ns: to_ns.parse()? });
    sweep.recompute(job, &|scenario, policy, _| {
        let mut selection = selection.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(pilotlight_sim::run_traced(scenario, policy, &mut *selection)?)
    })?;
    selection.into_inner().map_err(|_| "a run failed")?.flush()?;
    Ok(())
}
