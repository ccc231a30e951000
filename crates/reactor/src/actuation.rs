//! Sets knobs of the machine on a separate thread.
//!
//! Setting a file of the kernel takes micro- to milliseconds, and the first setting of each waits for the journal's medium. The main core
//! changes knobs between two rounds and must not wait.
//!
//! The main core writes values of knobs (`setpoints.rs`); the thread sets them with a [`Machine`]. Refusals go through the main core's ring to
//! the policy.
//!
//! **Properties.** Of several values for a knob, only the last is set. A knob that the policy no longer sets is restored; at the end of the
//! [`Actuation`] all are. After a refusal the thread pauses, so that there are at most a hundred settings a second.

use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use pilotlight_plant::{Cost, Knob, KnobId, Refusal};

use crate::affinity::keep_off;
use crate::knobs::{Knobs, Refusals};
use crate::probe;
use crate::setpoints::{Setpoints, Worker, setpoints};

/// Time between two tries to report a refusal to a main core whose ring is full.
const AGAIN: Duration = Duration::from_millis(1);
/// Tries after which the main core is taken as stopped.
const TRIES: u32 = 1_000;

/// Time between a refusal and the next setting, so that retries do not keep the kernel busy.
const PAUSE: Duration = Duration::from_millis(10);
/// Cost of waking another thread if it could not be measured (design section 6).
const CALLER: Cost = Cost::Assumed(14_000);

/// Sets the knobs of a machine; may block.
pub trait Machine: Send {
    /// All knobs, by [`KnobId`].
    fn knobs(&self) -> Vec<Knob>;

    /// The OS threads (`gettid`) of the worker reactors. Called once, before the first setting.
    fn set_workers(&mut self, _workers: &[u32]) {}

    /// The server that sets them was killed: limits that are to stay then are not restored at the end.
    fn note_killed(&mut self) {}

    /// Sets a knob to one of its values, or restores it. Logs refusals.
    ///
    /// # Errors
    /// If the machine refuses.
    fn set(&mut self, knob: KnobId, value: Option<u64>) -> Result<(), Refusal>;
}

/// A thread that sets knobs.
pub struct Actuation {
    knobs: Vec<Knob>,
    /// Until the end.
    setpoints: Option<Setpoints>,
    thread: Option<JoinHandle<()>>,
    reactors: Arc<OnceLock<Reactors>>,
}

/// The reactors, for the thread.
struct Reactors {
    refusals: Refusals,
    workers: Vec<u32>,
}

impl Actuation {
    /// Starts the thread, on other CPUs than `reactors` if possible. A setting costs the main core at most a wake-up of the thread,
    /// and takes effect after it.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start(machine: Box<dyn Machine>, reactors: &[Option<u32>]) -> io::Result<Self> {
        let wake_up = probe::wake_up(None, None);
        let knob = |knob: Knob| Knob {
            caller: wake_up.map_or(CALLER, |cost| Cost::Measured(cost.waker_ns)),
            effect: knob.effect.plus(wake_up.map_or(0, |cost| cost.wake_ns)),
            ..knob
        };
        let knobs: Vec<Knob> = machine.knobs().into_iter().map(knob).collect();
        let cpus: Vec<u32> = reactors.iter().flatten().copied().collect();
        let (setpoints, worker) = setpoints(knobs.len());
        let reactors = Arc::new(OnceLock::new());
        let connected = Arc::clone(&reactors);
        let thread = std::thread::Builder::new().name("actuation".into());
        let thread = thread.spawn(move || {
            keep_off(&cpus);
            carry_out(worker, machine, &connected);
        })?;
        Ok(Self { knobs, setpoints: Some(setpoints), thread: Some(thread), reactors })
    }
}

fn carry_out(mut worker: Worker, mut machine: Box<dyn Machine>, reactors: &OnceLock<Reactors>) {
    let mut connected = None;
    while let Some((knob, value)) = worker.next() {
        if connected.is_none() {
            connected = reactors.get().inspect(|reactors| machine.set_workers(&reactors.workers));
        }
        let knob = KnobId(knob as u16);
        if let (Err(refusal), Some(value)) = (machine.set(knob, value), value) {
            report(connected, knob, value, refusal);
            std::thread::sleep(PAUSE);
        }
    }
}

fn report(reactors: Option<&Reactors>, knob: KnobId, value: u64, refusal: Refusal) {
    let Some(reactors) = reactors else { return };
    for _ in 0..TRIES {
        if reactors.refusals.report(knob, value, refusal) {
            return;
        }
        std::thread::sleep(AGAIN);
    }
}

impl Knobs for Actuation {
    fn knobs(&self) -> Vec<Knob> {
        self.knobs.clone()
    }

    fn connect(&self, refusals: Refusals, workers: &[u32]) {
        // once for each runtime, and an actuation has one
        let _ = self.reactors.set(Reactors { refusals, workers: workers.to_vec() });
    }

    fn set(&self, knob: KnobId, value: u64) -> Result<(), Refusal> {
        if let Some(setpoints) = &self.setpoints {
            setpoints.set(knob.index(), Some(value));
        }
        Ok(())
    }

    fn restore(&self) {
        if let Some(setpoints) = &self.setpoints {
            setpoints.put_all_back();
        }
    }
}

impl Drop for Actuation {
    fn drop(&mut self) {
        self.setpoints = None; // all is restored, and the thread ends
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Actuation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Actuation").field("knobs", &self.knobs).finish_non_exhaustive()
    }
}
