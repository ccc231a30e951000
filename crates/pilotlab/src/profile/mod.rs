//! `pilotlab profile`: the power-performance models of PASS (section 3.2), for this machine or a simulated one.
//!
//! | module | content |
//! |---|---|
//! | `subject` | traits of profiled CPUs and drives |
//! | `live`, `drive`, `simulated` | the CPU of this machine, a drive of it, a simulated machine |
//! | `hold` | the policy that holds a configuration |
//! | `meter` | power |
//! | `grid` | selection of configurations |
//! | `search`, `journal` | measurements, with a journal |
//! | `fit` | the linear models |
//! | `file`, `output` | the profile, the printed summary |

mod args;
mod drive;
mod file;
mod fit;
mod grid;
mod journal;
mod live;
mod meter;
mod output;
mod search;
mod simulated;
mod subject;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use pilotlight_drive::Roots;
use pilotlight_input::cpu_list;
use pilotlight_lab::simulated::machine::{MachineFiles, calibration_of};
use pilotlight_sim::machine::Machine;
use pilotlight_sim::ssd::SsdModel;
use serde::Serialize;

use self::args::{Common, CpuOptions, Part, SsdOptions, WholeArgs};
use self::drive::Drive;
use self::file::{Cpu, Others, ProfileFile, Row, Ssd};
use self::fit::{CpuFit, DriveFit};
use self::grid::Search;
use self::journal::Record;
use self::live::{Live, Options};
use self::meter::{Meter, Scope};
use self::output::Printed;
use self::search::{Progress, Unfinished};
use self::simulated::Simulated;
use self::subject::{Axes, CORE_PPM, CpuSubject, DriveSubject, Measured};
use crate::run::live::{listening, stopped};

pub(crate) use args::ProfileArgs;

/// Minimum bandwidth cap of a drive (PASS, section 5.1).
const FLOOR_BYTES_PER_S: u64 = 10 << 20;
/// Resolution of a simulated machine: energies are whole microjoules.
const SIMULATED_STEP_W: f64 = 1e-3;

/// Runs the command.
///
/// # Errors
/// If something cannot be measured or written; the message has a remedy.
pub(crate) fn run(args: &ProfileArgs) -> anyhow::Result<ExitCode> {
    let done = match &args.part {
        None => whole(&args.whole),
        Some(Part::Cpu(args)) => cpu(&args.common, &args.options, args.sensor.as_deref())
            .and_then(|printed| Ok(printed.print(&args.common)?)),
        Some(Part::Ssd(args)) => drive(&args.common, &args.options, args.sensor.as_deref())
            .map_err(Unfinished::from)
            .and_then(|drive| ssd(&args.common, &args.options, drive))
            .and_then(|printed| Ok(printed.print(&args.common)?)),
    };
    match done {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(Unfinished::Signal(signal)) => Ok(stopped(signal, "the same command continues")),
        Err(Unfinished::Failed(error)) => Err(error),
    }
}

impl From<anyhow::Error> for Unfinished {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

/// Both parts. The drive is opened first: its errors need no measured CPU.
fn whole(args: &WholeArgs) -> Result<(), Unfinished> {
    let drive = drive(&args.common, &args.ssd, args.drive_sensor.as_deref())?;
    let cpu = cpu(&args.common, &args.cpu, args.sensor.as_deref())?;
    let ssd = ssd(&args.common, &args.ssd, drive)?;
    Ok(cpu.and(ssd).print(&args.common)?)
}

/// The conditions of CPU measurements.
#[derive(Serialize)]
struct CpuCircumstances<'a> {
    machine: String,
    cpus: &'a [u32],
    threads: u16,
    each_ns: u64,
    step_uw: u64,
    sensor: String,
    axes: &'a Axes,
}

/// A CPU to profile, with its description.
struct CpuCase {
    subject: Box<dyn CpuSubject>,
    machine: String,
    cpus: Vec<u32>,
    threads: u16,
    sensor: String,
    step_w: f64,
    scope: Scope,
    notes: Vec<String>,
}

fn cpu(common: &Common, args: &CpuOptions, sensor: Option<&str>) -> Result<Printed, Unfinished> {
    let Common { out, each, fresh, json, .. } = common;
    let mut profile = ProfileFile::read(out, &name(out))?;
    let mut case = match &common.simulated {
        Some(machine) => simulated_cpu(common, args, machine)?,
        None => live_cpu(common, args, sensor)?,
    };
    let axes = case.subject.axes().clone();
    let circumstances = CpuCircumstances {
        machine: case.machine.clone(),
        cpus: &case.cpus,
        threads: case.threads,
        each_ns: *each,
        step_uw: args.step,
        sensor: case.sensor.clone(),
        axes: &axes,
    };
    let mut record = Record::open(out, "cpu", &circumstances, *fresh)?;
    let mut progress = Progress::new(Duration::from_nanos(*each), *json);
    let done = search::cpu(&mut *case.subject, args.step, &mut record, &mut progress);
    progress.finish();
    done?;
    let fit = CpuFit::new(&record.all, &axes, case.threads, case.step_w);
    let rows = Search { axes: &axes, step_uw: args.step }.rows(&record.all);
    let base_w =
        if case.scope == Scope::System { fit.power_w.as_ref().map_or(0.0, |line| line.base.value) } else { 0.0 };
    if case.scope == Scope::System {
        profile.others = Others { most_uw: (base_w.max(0.0) * 1e6) as u64 };
    }
    profile.source = format!("pilotlab profile on {}", case.machine);
    profile.cpu = Some(Cpu { notes: case.notes, rows: rows.iter().map(|row| file_row(row, base_w)).collect() });
    profile.write(out)?;
    Ok(output::cpu(out, &profile, &fit, &record.all))
}

/// A row of the profile, including the CPU time of the main core. If the whole machine is measured, its constant power is in `others`.
fn file_row((measured, tied_ns): &(Measured, f64), base_w: f64) -> Row {
    let subject::Configuration { cores, quota_ppm, limit_uw } = measured.configuration;
    let power_uw = ((measured.mean_w() - base_w) * 1e6).max(1.0) as u64;
    Row { power_uw, cores, quota_ppm: quota_ppm + CORE_PPM, limit_uw, p99_interval: tied_ns / 1e3 }
}

fn live_cpu(common: &Common, args: &CpuOptions, sensor: Option<&str>) -> anyhow::Result<CpuCase> {
    let cpus = match &args.cpus {
        Some(list) => cpu_list::parse(list).with_context(|| format!("--cpus {list}: give a list such as 0-3,8"))?,
        None => allowed()?,
    };
    anyhow::ensure!(!cpus.is_empty(), "--cpus names no CPU");
    let threads = args.threads.map_or(cpus.len() as u16, std::num::NonZeroU16::get);
    let meter = Meter::of_cpu(sensor, args.seed, &Roots::default())?;
    let (scope, step_w) = (meter.scope, meter.step_w);
    let sensor = meter.modelled.as_ref().map_or(meter.name.clone(), |of| format!("{} ({of})", meter.name));
    let mut notes = vec![match &meter.modelled {
        Some(_) => format!("watts are not measured: {sensor}"),
        None => format!("watts by {sensor}"),
    }];
    let options = Options { cpus: cpus.clone(), threads, each: Duration::from_nanos(common.each) };
    let (subject, missing) = Live::start(&options, meter, listening()?)?;
    notes.extend(limits_of(subject.axes(), scope));
    let of_pass = |what: &str| what.starts_with("power limit") || what.starts_with("CPU quota");
    notes.extend(missing.iter().filter(|one| of_pass(&one.what)).map(|one| format!("{}: {}", one.what, one.why)));
    Ok(CpuCase { subject: Box::new(subject), machine: host(), cpus, threads, sensor, step_w, scope, notes })
}

fn simulated_cpu(common: &Common, args: &CpuOptions, machine: &Path) -> anyhow::Result<CpuCase> {
    let (cores, threads) = (args.cores.get(), args.threads.unwrap_or(args.cores).get());
    let machine = simulated_machine(machine)?;
    let name = format!("the simulated machine {}", machine.name);
    let subject = Simulated::new(machine, Vec::new(), (cores, threads), common.each)?;
    let mut notes = vec!["watts of a simulation".to_owned()];
    notes.extend(limits_of(subject.axes(), Scope::Cpu));
    Ok(CpuCase {
        subject: Box::new(subject),
        machine: name,
        cpus: Vec::new(),
        threads,
        sensor: "the simulation's".to_owned(),
        step_w: SIMULATED_STEP_W,
        scope: Scope::Cpu,
        notes,
    })
}

/// Limits of a profile from modelled power.
fn limits_of(axes: &Axes, scope: Scope) -> Vec<String> {
    let mut notes = Vec::new();
    let mut note = |is: bool, text: &str| notes.extend(is.then(|| text.to_owned()));
    note(axes.cores == 1, "one core: the model cannot vary their number");
    note(axes.quota.is_none(), "no CPU quota: between two numbers of cores the model has no power");
    note(axes.limit.is_none(), "no power limit: the model cannot go below what cores that poll at full speed draw");
    note(
        scope == Scope::Cpu,
        "what neither CPU nor drives draw is not measured and taken to be 0: use domain = cpu, or set others.most_uw",
    );
    note(
        scope == Scope::System,
        "only the whole machine is measured: power other than that of the cores counts as others",
    );
    notes
}

fn ssd(common: &Common, args: &SsdOptions, drive: OpenDrive) -> Result<Printed, Unfinished> {
    let Common { out, each, fresh, json, .. } = common;
    let mut profile = ProfileFile::read(out, &name(out))?;
    let OpenDrive { mut subject, of, step_w } = drive;
    let circumstances = (&of, each, args.jobs, subject.drives());
    let mut record = Record::open(out, "ssd", &circumstances, *fresh)?;
    let mut progress = Progress::new(Duration::from_nanos(*each), *json);
    let writes = args.write || common.simulated.is_some();
    let done = search::drives(&mut *subject, writes, &mut record, &mut progress);
    progress.finish();
    done?;
    if let Some(specification) = &args.spec {
        specification.fill(&mut record.all);
    }
    let fit = DriveFit::new(&record.all, subject.drives(), step_w);
    let fit = fit.context("bandwidths do not differ: nothing can be fitted; give --each more time")?;
    let mut notes = vec![of];
    notes.extend(args.spec.map(|_| "watts are those of the specification; bandwidth is measured".to_owned()));
    notes.extend(
        (!writes).then(|| "nothing was written (--write): a byte written is taken to cost what one read does".into()),
    );
    profile.ssd = Some(section(&fit, args.drives.get().into(), notes)?);
    profile.write(out)?;
    Ok(output::ssd(out, &profile, &fit, &record.all))
}

/// A drive to profile.
struct OpenDrive {
    subject: Box<dyn DriveSubject>,
    /// Description and method.
    of: String,
    /// Resolution of its power.
    step_w: f64,
}

fn drive(common: &Common, args: &SsdOptions, sensor: Option<&str>) -> anyhow::Result<OpenDrive> {
    let each = common.each;
    if let (Some(machine), Some(model)) = (&common.simulated, &args.model) {
        let model = SsdModel::parse(&read(model)?)?;
        let machine = simulated_machine(machine)?;
        let of = format!("the simulated drive {} of {}", model.name, machine.name);
        let simulated = Simulated::new(machine, vec![model], (1, 1), each)?;
        return Ok(OpenDrive { subject: Box::new(simulated), of, step_w: SIMULATED_STEP_W });
    }
    let path = args.path.as_deref().context("name a block device or a file, or --simulated and --model")?;
    let meter = sensor.map(|name| Meter::of_drive(name, &Roots::default())).transpose()?;
    anyhow::ensure!(
        meter.is_some() || args.spec.is_some(),
        "nothing says what {} draws: name a sensor at the drive (see `pilotlab sensors`), or give its specification \
         (--spec idle=5W,read=12W,write=15W)",
        path.display()
    );
    let step_w = meter.as_ref().map_or(SIMULATED_STEP_W, |meter| meter.step_w);
    let by = meter.as_ref().map_or("its specification".to_owned(), |meter| meter.name.clone());
    let of = format!("{} on {}, watts by {by}", path.display(), host());
    let drive =
        Drive::open(path, args.jobs.get().into(), meter, Duration::from_nanos(each), (args.write, listening()?))?;
    Ok(OpenDrive { subject: Box::new(drive), of, step_w })
}

/// The fit for the profile; slopes must be above 0.
fn section(fit: &DriveFit, drives: u32, notes: Vec<String>) -> anyhow::Result<Ssd> {
    let written = fit.written_w_per_gb_s.unwrap_or(fit.read_w_per_gb_s);
    let most_written = if fit.most_written > 0.0 { fit.most_written } else { fit.most_read };
    let uw = |slope: pilotlight_stats::Estimate, most: f64| (slope.value * most / 1e9 * 1e6).round();
    let (read_uw, written_uw) = (uw(fit.read_w_per_gb_s, fit.most_read), uw(written, most_written));
    anyhow::ensure!(
        read_uw >= 1.0 && written_uw >= 1.0,
        "its power does not rise with its bandwidth: by this sensor there is nothing to save; give --each more time, or --spec"
    );
    Ok(Ssd {
        notes,
        drives,
        idle_uw: (fit.idle_w.value.max(0.0) * 1e6).round() as u64,
        read_uw: read_uw as u64,
        read_bytes_per_s: fit.most_read as u64,
        written_uw: written_uw as u64,
        written_bytes_per_s: most_written as u64,
        floor_bytes_per_s: FLOOR_BYTES_PER_S,
    })
}

fn simulated_machine(profile: &Path) -> anyhow::Result<Machine> {
    let text = read(profile)?;
    let file = calibration_of(&text)?;
    let calibration = profile.ancestors().skip(1).map(|folder| folder.join(&file)).find(|path| path.exists());
    let calibration = calibration.with_context(|| format!("no folder above {} holds {file}", profile.display()))?;
    Ok(MachineFiles::parse(&text, &read(&calibration)?)?.machine(&[])?)
}

fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Default name of a new profile.
fn name(out: &Path) -> String {
    out.file_stem().map_or_else(|| "profile".to_owned(), |stem| stem.to_string_lossy().into_owned())
}

/// CPUs available to this process.
fn allowed() -> anyhow::Result<Vec<u32>> {
    let set = rustix::thread::sched_getaffinity(None).context("cannot read the CPU affinity")?;
    Ok((0..rustix::thread::CpuSet::MAX_CPU as u32).filter(|&cpu| set.is_set(cpu as usize)).collect())
}

/// Name of this machine's CPU.
fn host() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let model = model.map_or("an unknown CPU", |(_, model)| model.trim());
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{} ({model})", name.trim())
}
