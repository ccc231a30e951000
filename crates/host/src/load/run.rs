//! Connects, starts the threads, keeps the association alive meanwhile, gathers what came of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use crate::clock;
use crate::controller::{ConnectOptions, Controller, QueueSpec};
use crate::error::HostError;
use crate::info::NamespaceInfo;
use crate::ledger::{Journal, Ledger, LedgerFile};
use crate::load::due::Due;
use crate::load::picker::Picker;
use crate::load::replay::{Commands, Feed, Space, deal, feeds};
use crate::load::report::Report;
use crate::load::spec::{Layout, LoadSpec};
use crate::load::stats::Stats;
use crate::load::worker::{Counters, Lane, Limits, Worker};
use crate::queue::Buffers;
use crate::rng::{Rng, mix};
use crate::schedule::{Arrivals, Process};

/// How often progress is told, in milliseconds.
const PROGRESS_MS: u64 = 250;
/// Time for all threads to reach the starting line, in nanoseconds.
const LINE_UP_NS: u64 = 5_000_000;

/// How far a run has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Time since the start, ramp included, in nanoseconds.
    pub elapsed_ns: u64,
    /// Commands that ended well (since the end of the ramp).
    pub ios: u64,
    /// Bytes of data moved.
    pub bytes: u64,
    /// Failed commands and bad blocks.
    pub errors: u64,
}

/// Runs `spec` against the target that `options` names. `stop` ends it early; `watch` is told of progress a few times a
/// second.
///
/// # Errors
/// Where the run cannot start, or a connection is lost. Failed commands and bad blocks are in the report instead.
pub fn run(
    options: &ConnectOptions,
    spec: &LoadSpec,
    stop: &AtomicBool,
    watch: &mut dyn FnMut(Progress),
) -> Result<Report, HostError> {
    run_with(options, spec, None, stop, watch)
}

/// Replays a trace against the target that `options` names: every command is due at its time, whatever became of those
/// before. Of `spec` hold the namespace, its part, connections, threads, the most in flight, `block_bytes` as the most
/// bytes of a command, and the time after which to stop; `commands` is told the space that they have to fit.
///
/// # Errors
/// As [`run`]; and where a command does not fit.
pub fn replay<'a>(
    options: &ConnectOptions,
    spec: &LoadSpec,
    commands: Box<dyn FnOnce(Space) -> Commands<'a> + 'a>,
    stop: &AtomicBool,
    watch: &mut dyn FnMut(Progress),
) -> Result<Report, HostError> {
    if spec.verify || spec.verify_only || spec.open.is_some() || spec.trim_percent > 0 {
        let why = "a trace says itself what is sent and when: no verification, rate or trims beside it";
        return Err(HostError::Unsupported(why.to_owned()));
    }
    run_with(options, spec, Some(commands), stop, watch)
}

/// What makes a trace's commands.
type Maker<'a> = Box<dyn FnOnce(Space) -> Commands<'a> + 'a>;

fn run_with(
    options: &ConnectOptions,
    spec: &LoadSpec,
    trace: Option<Maker<'_>>,
    stop: &AtomicBool,
    watch: &mut dyn FnMut(Progress),
) -> Result<Report, HostError> {
    spec.check().map_err(|e| HostError::Unsupported(e.to_string()))?;
    let replay = trace.is_some();
    let recorded = recorded(spec)?;
    let mut controllers =
        (0..spec.hosts).map(|host| Controller::connect(options.for_host(host))).collect::<Result<Vec<_>, _>>()?;
    let ns = controllers[0].namespace(spec.nsid)?;
    let layout = spec.layout(&ns, controllers[0].info()).map_err(|e| HostError::Unsupported(e.to_string()))?;
    if let Some(ledger) = &recorded {
        spec.fits(ledger, &ns).map_err(|e| HostError::Unsupported(e.to_string()))?;
    }
    let queues_per_host = spec.jobs.div_ceil(spec.hosts);
    controllers.iter_mut().try_for_each(|controller| controller.set_queue_count(queues_per_host))?;
    let space = Space {
        bytes: layout.regions * u64::from(spec.block_bytes),
        block_bytes: layout.block_size,
        most_bytes: spec.block_bytes,
    };
    let commands = trace.map(|trace| trace(space));
    let (run, durable_blocks) = (mix(spec.seed ^ mix(clock::now_ns())), recorded.as_ref().map(Ledger::settled_blocks));
    let setup = Setup { spec, ns, layout, space, limits: limits(spec, &layout, u64::MAX, replay), run };
    let mut crews = setup.crews(&controllers, recorded)?;
    let start_ns = clock::now_ns() + LINE_UP_NS;
    crews.iter_mut().for_each(|c| c.limits = limits(spec, &layout, start_ns, replay));
    let stats = setup.drive(crews, commands, &mut controllers, options.kato_ms, stop, watch)?;
    controllers.into_iter().try_for_each(Controller::shutdown)?;
    Ok(Report::new(spec, &stats, start_ns + spec.ramp_ns, replay, durable_blocks))
}

/// What an earlier run recorded, if that is what is to be checked.
fn recorded(spec: &LoadSpec) -> Result<Option<Ledger>, HostError> {
    let path = spec.ledger.as_ref().filter(|_| spec.verify_only);
    path.map(|path| Ledger::read(path)).transpose().map_err(|e| HostError::Unsupported(e.to_string()))
}

fn limits(spec: &LoadSpec, layout: &Layout, start_ns: u64, replay: bool) -> Limits {
    let ramp_end_ns = start_ns.saturating_add(spec.ramp_ns);
    Limits {
        nsid: spec.nsid,
        block_size: layout.block_size,
        blocks_per_io: layout.blocks_per_io,
        fua: spec.fua,
        flush_every: spec.flush_every,
        continue_on_error: spec.continue_on_error,
        start_ns,
        ramp_end_ns,
        end_ns: spec.runtime_ns.map_or(u64::MAX, |ns| ramp_end_ns.saturating_add(ns)),
        ios: if replay { spec.ios.unwrap_or(u64::MAX) } else { ios_per_connection(spec, layout) },
        verify_only: spec.verify_only,
        timeout_ms: spec.timeout_ms,
        yield_when_idle: spec.yield_when_idle,
    }
}

/// Without a time and a number, each byte of the range is moved once.
fn ios_per_connection(spec: &LoadSpec, layout: &Layout) -> u64 {
    match (spec.ios, spec.runtime_ns) {
        (Some(n), _) => n,
        (None, Some(_)) => u64::MAX,
        (None, None) => layout.regions.div_ceil(u64::from(spec.jobs)),
    }
}

/// What one thread starts with.
struct Crew {
    lanes: Vec<Lane>,
    limits: Limits,
    ledger: Option<Ledger>,
    journal: Option<Journal>,
    thread: u64,
    cpu: Option<usize>,
}

struct Setup<'a> {
    spec: &'a LoadSpec,
    ns: NamespaceInfo,
    layout: Layout,
    space: Space,
    limits: Limits,
    /// Marks this run's blocks.
    run: u64,
}

impl Setup<'_> {
    /// Opens all connections and deals them to the threads in turn; with `recorded` they check an earlier run's blocks.
    fn crews(&self, controllers: &[Controller], recorded: Option<Ledger>) -> Result<Vec<Crew>, HostError> {
        let threads = u64::from(self.spec.threads);
        let file = self.ledger_file()?;
        let mut crews: Vec<Crew> = (0..threads).map(|t| self.crew(t, file.as_ref())).collect();
        if recorded.is_some() {
            crews[0].ledger = recorded; // there is one thread
        }
        for job in 0..u64::from(self.spec.jobs) {
            let thread = job % threads;
            let lane = self.lane(controllers, job, thread)?;
            crews[thread as usize].lanes.push(lane);
        }
        Ok(crews)
    }

    /// The file of a ledger that is written.
    fn ledger_file(&self) -> Result<Option<Arc<LedgerFile>>, HostError> {
        let Some(path) = self.spec.ledger.as_ref().filter(|_| self.spec.verify) else { return Ok(None) };
        let (first, blocks) = self.layout.blocks();
        let file = LedgerFile::create(path, first, blocks, self.layout.block_size, self.run);
        Ok(Some(Arc::new(file.map_err(|e| HostError::Unsupported(e.to_string()))?)))
    }

    fn crew(&self, thread: u64, file: Option<&Arc<LedgerFile>>) -> Crew {
        let spec = self.spec;
        let (first, blocks) = self.part(thread).blocks();
        let ledger = spec.verify.then(|| Ledger::new(first, blocks, self.layout.block_size, self.run));
        let journal = file.map(|file| Journal::new(Arc::clone(file), first, blocks));
        let cpu = (!spec.cpus.is_empty()).then(|| spec.cpus[thread as usize % spec.cpus.len()]);
        Crew { lanes: Vec::new(), limits: self.limits, ledger, journal, thread, cpu }
    }

    /// The range that a thread works on: its own if blocks are verified, for the book is the thread's.
    fn part(&self, thread: u64) -> Layout {
        if self.spec.verify { self.layout.part(thread, u64::from(self.spec.threads)) } else { self.layout }
    }

    fn lane(&self, controllers: &[Controller], job: u64, thread: u64) -> Result<Lane, HostError> {
        let spec = self.spec;
        let hosts = controllers.len() as u64;
        let (controller, qid) = (&controllers[(job % hosts) as usize], (job / hosts) as u16 + 1);
        let own = spec.needs_buffers();
        let buffers = if own { Buffers::PerCommand } else { Buffers::Shared };
        let queue = QueueSpec { qid, depth: spec.depth, max_io: spec.block_bytes, buffers };
        let mut connection = controller.open_queue(&queue)?;
        let mut rng = Rng::fork(spec.seed, job | 1 << 32);
        connection.queue().fill_arena(|word| *word = rng.next_u64().to_le_bytes());
        let picker = Picker::new(spec, &self.part(thread), controller.info(), &self.ns, job);
        Ok(Lane::new(connection, picker, &self.limits))
    }

    fn arrivals(&self, crew: &Crew) -> Option<Arrivals> {
        let open = self.spec.open.as_ref()?;
        let schedule = open.schedule.scaled(crew.lanes.len() as f64 / f64::from(self.spec.jobs));
        let rng = Rng::fork(self.spec.seed, crew.thread | 2 << 32);
        let first_gap = match open.process {
            Process::Linear => (crew.thread + 1) as f64 / f64::from(self.spec.threads),
            Process::Poisson => 1.0,
        };
        Some(Arrivals::new(schedule, open.process, rng, crew.limits.start_ns, first_gap))
    }

    /// What is due for a crew: a trace's commands, arrivals, or nothing where the loop is closed.
    fn due(&self, crew: &Crew, feed: Option<Feed>) -> Option<Due> {
        let start_ns = crew.limits.start_ns;
        match feed {
            Some(feed) => Some(Due::Trace { feed, start_ns }),
            None => self.arrivals(crew).map(Due::Arrivals),
        }
    }

    /// Runs the crews, each on a thread, to their end.
    fn drive(
        &self,
        crews: Vec<Crew>,
        commands: Option<Commands<'_>>,
        controllers: &mut [Controller],
        kato_ms: u32,
        stop: &AtomicBool,
        watch: &mut dyn FnMut(Progress),
    ) -> Result<Stats, HostError> {
        let phases = self.spec.open.as_ref().map_or(0, |o| o.schedule.phases().len());
        let start_ns = crews.first().map_or(0, |c| c.limits.start_ns);
        let counters: Vec<Counters> = crews.iter().map(|_| Counters::default()).collect();
        let halt = AtomicBool::new(false);
        let (done, ended) = channel();
        std::thread::scope(|scope| {
            let (senders, feeds) = feeds(if commands.is_some() { crews.len() } else { 0 });
            let dealing = commands.map(|commands| scope.spawn(|| deal(commands, &self.layout, &self.space, senders)));
            let mut feeds = feeds.into_iter();
            for (crew, counters) in crews.into_iter().zip(&counters) {
                let (done, halt, go_on) = (done.clone(), &halt, self.spec.continue_on_error);
                let due = self.due(&crew, feeds.next());
                scope.spawn(move || {
                    let result = work(crew, due, phases, counters, halt);
                    let faulty = !go_on && !result.0.samples.is_empty();
                    halt.fetch_or(faulty || result.1.is_err(), Relaxed);
                    let _ = done.send(result); // the receiver lives until all have been heard
                });
            }
            drop(done);
            let mut watcher = Watcher { controllers, kato_ms, start_ns, counters: &counters, stop, halt: &halt, watch };
            let stats = watcher.gather(&ended, phases)?;
            match dealing.map(std::thread::ScopedJoinHandle::join) {
                Some(Ok(Err(why))) => Err(HostError::Unsupported(why)),
                Some(Err(panic)) => std::panic::resume_unwind(panic),
                _ => Ok(stats),
            }
        })
    }
}

fn work(
    crew: Crew,
    due: Option<Due>,
    phases: usize,
    counters: &Counters,
    halt: &AtomicBool,
) -> (Stats, Result<(), HostError>) {
    if let Some(cpu) = crew.cpu
        && let Err(e) = clock::pin_to_cpu(cpu)
    {
        return (Stats::new(phases), Err(HostError::io(format!("cannot pin to CPU {cpu}"), e)));
    }
    Worker::new(crew.lanes, crew.limits, (crew.ledger, crew.journal), due, phases, (counters, halt)).run()
}

/// The main thread's part while the others work.
struct Watcher<'a> {
    controllers: &'a mut [Controller],
    kato_ms: u32,
    start_ns: u64,
    counters: &'a [Counters],
    stop: &'a AtomicBool,
    halt: &'a AtomicBool,
    watch: &'a mut dyn FnMut(Progress),
}

impl Watcher<'_> {
    fn gather(&mut self, ended: &Receiver<(Stats, Result<(), HostError>)>, phases: usize) -> Result<Stats, HostError> {
        let mut stats = Stats::new(phases);
        let mut outcome = Ok(());
        let mut alive_ns = clock::now_ns();
        loop {
            match ended.recv_timeout(Duration::from_millis(PROGRESS_MS)) {
                Ok((part, result)) => {
                    stats.merge(&part);
                    outcome = outcome.and(result);
                }
                Err(RecvTimeoutError::Disconnected) => return outcome.map(|()| stats),
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.halt.fetch_or(self.stop.load(Relaxed), Relaxed);
            let now_ns = clock::now_ns();
            let progress = self.progress(now_ns);
            (self.watch)(progress);
            // a third of the timeout, so that one that is late still comes in time
            if self.kato_ms > 0 && now_ns - alive_ns >= u64::from(self.kato_ms) * 1_000_000 / 3 {
                alive_ns = now_ns;
                if let Err(e) = self.controllers.iter_mut().try_for_each(Controller::keep_alive) {
                    self.halt.store(true, Relaxed);
                    outcome = outcome.and(Err(e));
                    self.kato_ms = 0;
                }
            }
        }
    }

    fn progress(&self, now_ns: u64) -> Progress {
        let mut p = Progress { elapsed_ns: now_ns.saturating_sub(self.start_ns), ios: 0, bytes: 0, errors: 0 };
        for c in self.counters {
            p.ios += c.ios.load(Relaxed);
            p.bytes += c.bytes.load(Relaxed);
            p.errors += c.errors.load(Relaxed);
        }
        p
    }
}
