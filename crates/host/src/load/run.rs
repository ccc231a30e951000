//! Connects, starts the threads, keeps the association alive, collects the results.

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
use crate::load::executor::{Job, Limits};
use crate::load::picker::Picker;
use crate::load::replay::{Commands, Feed, Space, distribute, feeds};
use crate::load::report::Report;
use crate::load::spec::{Layout, LoadSpec};
use crate::load::stats::Stats;
use crate::load::worker::{Counters, Worker};
use crate::queue::Buffers;
use crate::rng::{Rng, mix};
use crate::schedule::{Arrivals, Process};

/// Interval of progress reports in milliseconds.
const PROGRESS_MS: u64 = 250;
/// Time for all threads to be started, in nanoseconds.
const START_DELAY_NS: u64 = 5_000_000;

/// Progress of a run.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Time since the start, ramp included, in nanoseconds.
    pub elapsed_ns: u64,
    /// Successful commands since the end of the ramp.
    pub ios: u64,
    /// Bytes of data moved.
    pub bytes: u64,
    /// Failed commands and bad blocks.
    pub errors: u64,
}

/// Runs `spec` with the target of `options`. `stop` ends it early; `on_progress` is called a few times a second.
///
/// # Errors
/// The run cannot start, or a connection is lost. Failed commands and bad blocks are in the report instead.
pub fn run(
    options: &ConnectOptions,
    spec: &LoadSpec,
    stop: &AtomicBool,
    on_progress: &mut dyn FnMut(Progress),
) -> Result<Report, HostError> {
    run_with(options, spec, None, stop, on_progress)
}

/// Replays a trace with the target of `options`: every command is due at its time. `spec` has the namespace, range,
/// connections, threads, depth, runtime, and in `block_bytes` the most bytes of a command; `commands` gets the space that
/// commands must fit.
///
/// # Errors
/// As [`run`], or a command does not fit.
pub fn replay<'a>(
    options: &ConnectOptions,
    spec: &LoadSpec,
    commands: Box<dyn FnOnce(Space) -> Commands<'a> + 'a>,
    stop: &AtomicBool,
    on_progress: &mut dyn FnMut(Progress),
) -> Result<Report, HostError> {
    if spec.verify || spec.verify_only || spec.open.is_some() || spec.trim_percent > 0 {
        let why = "a trace determines its commands and times: use it without --verify, --rate_iops and --trim-mix";
        return Err(HostError::Unsupported(why.to_owned()));
    }
    run_with(options, spec, Some(commands), stop, on_progress)
}

/// Creates the commands of a trace.
type Maker<'a> = Box<dyn FnOnce(Space) -> Commands<'a> + 'a>;

fn run_with(
    options: &ConnectOptions,
    spec: &LoadSpec,
    trace: Option<Maker<'_>>,
    stop: &AtomicBool,
    on_progress: &mut dyn FnMut(Progress),
) -> Result<Report, HostError> {
    spec.check()?;
    let replay = trace.is_some();
    let recorded = recorded(spec)?;
    let mut controllers =
        (0..spec.hosts).map(|host| Controller::connect(options.for_host(host))).collect::<Result<Vec<_>, _>>()?;
    let ns = controllers[0].namespace(spec.nsid)?;
    let layout = spec.layout(&ns, controllers[0].info())?;
    if let Some(ledger) = &recorded {
        spec.fits(ledger, &ns)?;
    }
    let queues_per_host = spec.jobs.div_ceil(spec.hosts);
    controllers.iter_mut().try_for_each(|controller| controller.set_queue_count(queues_per_host))?;
    let space = Space {
        bytes: layout.regions * u64::from(spec.block_bytes),
        block_bytes: layout.block_size,
        max_bytes: spec.block_bytes,
    };
    let commands = trace.map(|trace| trace(space));
    let (run, durable_blocks) = (mix(spec.seed ^ mix(clock::now_ns())), recorded.as_ref().map(Ledger::settled_blocks));
    let setup = Setup { spec, ns, layout, space, limits: limits(spec, &layout, u64::MAX, replay), run };
    let mut setups = setup.setups(&controllers, recorded)?;
    let start_ns = clock::now_ns() + START_DELAY_NS;
    setups.iter_mut().for_each(|c| c.limits = limits(spec, &layout, start_ns, replay));
    let stats = setup.drive(setups, commands, &mut controllers, options.kato_ms, stop, on_progress)?;
    controllers.into_iter().try_for_each(Controller::shutdown)?;
    Ok(Report::new(spec, &stats, start_ns, replay, durable_blocks))
}

/// The ledger of an earlier run, with `verify_only`.
fn recorded(spec: &LoadSpec) -> Result<Option<Ledger>, HostError> {
    let path = spec.ledger.as_ref().filter(|_| spec.verify_only);
    path.map(|path| Ledger::read(path)).transpose().map_err(HostError::LedgerUnusable)
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

/// Without a runtime and a number, each byte of the range is moved once.
fn ios_per_connection(spec: &LoadSpec, layout: &Layout) -> u64 {
    match (spec.ios, spec.runtime_ns) {
        (Some(n), _) => n,
        (None, Some(_)) => u64::MAX,
        (None, None) => layout.regions.div_ceil(u64::from(spec.jobs)),
    }
}

/// State of a thread before it starts.
struct ThreadSetup {
    jobs: Vec<Job>,
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
    /// Identifier of the run in its blocks.
    run: u64,
}

impl Setup<'_> {
    /// Opens all connections and distributes them to the threads in turn; `recorded` is the ledger of an earlier run.
    fn setups(&self, controllers: &[Controller], recorded: Option<Ledger>) -> Result<Vec<ThreadSetup>, HostError> {
        let threads = u64::from(self.spec.threads);
        let file = self.ledger_file()?;
        let mut setups: Vec<ThreadSetup> = (0..threads).map(|t| self.thread_setup(t, file.as_ref())).collect();
        if recorded.is_some() {
            setups[0].ledger = recorded; // there is one thread
        }
        for job in 0..u64::from(self.spec.jobs) {
            let thread = job % threads;
            let job = self.job(controllers, job, thread)?;
            setups[thread as usize].jobs.push(job);
        }
        Ok(setups)
    }

    /// A new file for the ledger.
    fn ledger_file(&self) -> Result<Option<Arc<LedgerFile>>, HostError> {
        let Some(path) = self.spec.ledger.as_ref().filter(|_| self.spec.verify) else { return Ok(None) };
        let (first, blocks) = self.layout.blocks();
        let file = LedgerFile::create(path, first, blocks, self.layout.block_size, self.run);
        Ok(Some(Arc::new(file.map_err(HostError::LedgerUnusable)?)))
    }

    fn thread_setup(&self, thread: u64, file: Option<&Arc<LedgerFile>>) -> ThreadSetup {
        let spec = self.spec;
        let (first, blocks) = self.part(thread).blocks();
        let ledger = spec.verify.then(|| Ledger::new(first, blocks, self.layout.block_size, self.run));
        let journal = file.map(|file| Journal::new(Arc::clone(file), first, blocks));
        let cpu = (!spec.cpus.is_empty()).then(|| spec.cpus[thread as usize % spec.cpus.len()]);
        ThreadSetup { jobs: Vec::new(), limits: self.limits, ledger, journal, thread, cpu }
    }

    /// The range of a thread: a part of its own with verification, because each thread has its ledger.
    fn part(&self, thread: u64) -> Layout {
        if self.spec.verify { self.layout.part(thread, u64::from(self.spec.threads)) } else { self.layout }
    }

    fn job(&self, controllers: &[Controller], job: u64, thread: u64) -> Result<Job, HostError> {
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
        Ok(Job::new(connection, picker, &self.limits))
    }

    fn arrivals(&self, thread_setup: &ThreadSetup) -> Option<Arrivals> {
        let open = self.spec.open.as_ref()?;
        let schedule = open.schedule.scaled(thread_setup.jobs.len() as f64 / f64::from(self.spec.jobs));
        let rng = Rng::fork(self.spec.seed, thread_setup.thread | 2 << 32);
        let first_gap = match open.process {
            Process::Linear => (thread_setup.thread + 1) as f64 / f64::from(self.spec.threads),
            Process::Poisson => 1.0,
        };
        Some(Arrivals::new(schedule, open.process, rng, thread_setup.limits.start_ns, first_gap))
    }

    /// The source of requests of a thread; `None` in a closed loop.
    fn due(&self, thread_setup: &ThreadSetup, feed: Option<Feed>) -> Option<Due> {
        let start_ns = thread_setup.limits.start_ns;
        match feed {
            Some(feed) => Some(Due::Trace { feed, start_ns }),
            None => self.arrivals(thread_setup).map(Due::Arrivals),
        }
    }

    /// Runs the threads to their end.
    fn drive(
        &self,
        setups: Vec<ThreadSetup>,
        commands: Option<Commands<'_>>,
        controllers: &mut [Controller],
        kato_ms: u32,
        stop: &AtomicBool,
        on_progress: &mut dyn FnMut(Progress),
    ) -> Result<Stats, HostError> {
        let phases = self.spec.open.as_ref().map_or(0, |o| o.schedule.phases().len());
        let start_ns = setups.first().map_or(0, |c| c.limits.start_ns);
        let counters: Vec<Counters> = setups.iter().map(|_| Counters::default()).collect();
        let halt = AtomicBool::new(false);
        let (done, ended) = channel();
        std::thread::scope(|scope| {
            let (senders, feeds) = feeds(if commands.is_some() { setups.len() } else { 0 });
            let distributor =
                commands.map(|commands| scope.spawn(|| distribute(commands, &self.layout, &self.space, senders)));
            let mut feeds = feeds.into_iter();
            for (thread_setup, counters) in setups.into_iter().zip(&counters) {
                let (done, halt, continue_on_error) = (done.clone(), &halt, self.spec.continue_on_error);
                let due = self.due(&thread_setup, feeds.next());
                scope.spawn(move || {
                    let result = work(thread_setup, due, phases, counters, halt);
                    let faulty = !continue_on_error && !result.0.samples.is_empty();
                    halt.fetch_or(faulty || result.1.is_err(), Relaxed);
                    let _ = done.send(result); // the receiver lives until all threads have ended
                });
            }
            drop(done);
            let mut monitor =
                Monitor { controllers, kato_ms, start_ns, counters: &counters, stop, halt: &halt, on_progress };
            let stats = monitor.collect_results(&ended, phases)?;
            match distributor.map(std::thread::ScopedJoinHandle::join) {
                Some(Ok(Err(error))) => Err(error.into()),
                Some(Err(panic)) => std::panic::resume_unwind(panic),
                _ => Ok(stats),
            }
        })
    }
}

fn work(
    thread_setup: ThreadSetup,
    due: Option<Due>,
    phases: usize,
    counters: &Counters,
    halt: &AtomicBool,
) -> (Stats, Result<(), HostError>) {
    if let Some(cpu) = thread_setup.cpu
        && let Err(e) = clock::pin_to_cpu(cpu)
    {
        return (Stats::new(phases), Err(HostError::io(format!("cannot pin to CPU {cpu}"), e)));
    }
    Worker::new(
        thread_setup.jobs,
        thread_setup.limits,
        (thread_setup.ledger, thread_setup.journal),
        due,
        phases,
        (counters, halt),
    )
    .run()
}

/// Runs on the main thread: reports progress, sends keep-alives, collects the results.
struct Monitor<'a> {
    controllers: &'a mut [Controller],
    kato_ms: u32,
    start_ns: u64,
    counters: &'a [Counters],
    stop: &'a AtomicBool,
    halt: &'a AtomicBool,
    on_progress: &'a mut dyn FnMut(Progress),
}

impl Monitor<'_> {
    fn collect_results(
        &mut self,
        ended: &Receiver<(Stats, Result<(), HostError>)>,
        phases: usize,
    ) -> Result<Stats, HostError> {
        let mut stats = Stats::new(phases);
        let mut outcome = Ok(());
        let mut last_keep_alive_ns = clock::now_ns();
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
            (self.on_progress)(progress);
            // a third of the timeout, so that a late one is still in time
            if self.kato_ms > 0 && now_ns - last_keep_alive_ns >= u64::from(self.kato_ms) * 1_000_000 / 3 {
                last_keep_alive_ns = now_ns;
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
