//! A running server and its state, changed by SIGHUP and over the control socket.
//!
//! # The problem
//! SIGHUP applies the configuration, which does not contain the changes made over the control socket. Undoing them because of an unrelated
//! signal would take namespaces from hosts; keeping them without limit would make the file wrong.
//!
//! # The rule
//! A change holds as long as the configuration of its object is the same as at the time of the change. After that the configuration is in
//! force again. A restart applies the configuration only. Each reload logs the changes that hold.
//!
//! # Terms
//! *Running* is the present state; *read* is the configuration that was last read.

mod audit;
mod energy;
mod facts;
mod free_space;
mod goals;
mod hosts;
mod limit;
mod listeners;
mod namespaces;
mod page;
mod paths;
mod priorities;
mod requests;
mod save;
mod subsystems;

use std::io;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use pilotlight_nvmf_target::config::ServerConfig;
use pilotlight_reactor::RuntimeStats;
use tracing::warn;

use super::banner::Listening;
use super::budget::{GoalOverrides, Store};
use super::holder;
use super::mdns::Announcer;
use super::reload::{self, Wanted};
use super::running::Running;
use super::state::State;
use crate::config::{Loaded, Machine, Operation, ServeArgs};
use crate::metrics::ReloadFacts;
use crate::policies::PolicyChoice;
use crate::status::report::PageReport;
use free_space::FreeSpace;
use goals::Watch;

/// A server and its state.
pub(super) struct Admin {
    server: Box<dyn Running>,
    machine: Machine,
    announcer: Announcer,
    started: Instant,
    drain_timeout: Duration,
    store: Store,
    watch: Watch,
    energy: energy::Energy,
    /// The last time the configuration was read again.
    reloaded: Mutex<ReloadFacts>,
    /// When it was started, in seconds since 1970.
    started_s: f64,
    volumes: FreeSpace,
    /// How it was started.
    args: ServeArgs,
    /// The live page, if one is served.
    page: OnceLock<PageReport>,
    /// The limit of the budget that has a deadline.
    limit: limit::Place,
    /// Held while a request is handled, so that each change is logged with its author.
    turn: Mutex<()>,
    state: Mutex<State>,
}

/// How a server was started.
pub(super) struct Started {
    /// With the goals in force at that time, which can be others by now.
    pub(super) operation: Operation,
    /// The goals that were set manually before.
    pub(super) overrides: GoalOverrides,
    /// The active policy.
    pub(super) active_policy: PolicyChoice,
}

impl Admin {
    /// Takes charge of a server that was started from this configuration.
    pub(super) fn new(
        server: Box<dyn Running>,
        loaded: &Loaded,
        Started { operation, overrides, active_policy }: Started,
        machine: &Machine,
        args: &ServeArgs,
    ) -> io::Result<Self> {
        let mut state = State::new(&loaded.config, &loaded.operation);
        state.text_read = loaded.text().map(str::to_owned);
        (state.operation, state.goal_overrides) = (operation, overrides);
        state.candidates = holder::candidates_for(&state.operation, server.as_ref());
        state.active_policy = active_policy;
        Ok(Self {
            announcer: Announcer::new(&loaded.operation.reactors.cores),
            server,
            machine: machine.clone(),
            started: Instant::now(),
            drain_timeout: loaded.config.limits.drain_timeout,
            store: Store::at(loaded.operation.state_file.clone()),
            watch: Watch::default(),
            energy: energy::Energy::default(),
            reloaded: Mutex::new(ReloadFacts { is_good: true, taken_s: facts::unix_s() }),
            started_s: facts::unix_s(),
            volumes: FreeSpace::default(),
            args: args.clone(),
            page: OnceLock::new(),
            limit: limit::Place::new(&loaded.operation)?,
            turn: Mutex::new(()),
            state: Mutex::new(state),
        })
    }

    /// Addresses that the server listens on, without and with TLS.
    pub(super) fn listening(&self) -> Listening {
        let (plain, tls, concat) =
            (self.server.local_addrs(), self.server.tls_addrs(), self.server.concatenation_addrs());
        Listening { plain, tls, concat }
    }

    /// Announces the discovery service where it listens, if that is wanted.
    pub(super) fn announce(&self) {
        let Listening { plain, tls, .. } = self.listening();
        let is_wanted = self.state().operation.mdns;
        self.announcer.follow(is_wanted, if plain.is_empty() { &tls } else { &plain });
    }

    /// Ends the announcement.
    pub(super) fn withdraw(&self) {
        self.announcer.withdraw();
    }

    /// Counters of the reactors.
    pub(super) fn runtime_stats(&self) -> RuntimeStats {
        self.server.runtime_stats()
    }

    /// Applies a configuration.
    pub(super) fn reload(&self, loaded: &Loaded) {
        let Loaded { config, operation, may_shrink, .. } = loaded;
        let mut state = self.state();
        let before = state.goal_overrides.clone();
        let draining = reload::apply(&mut state, Wanted { config, operation, may_shrink }, self.server.as_ref());
        state.text_read = loaded.text().map(str::to_owned);
        state.operation.mdns = operation.mdns;
        if state.goal_overrides != before {
            self.keep(&state); // otherwise they return at a restart with the earlier configuration
        }
        drop(state);
        self.goals_have_changed();
        let undrained: usize = hosts::drained(&draining).map(|ended| ended.undrained).sum();
        if undrained > 0 {
            warn!("{undrained} of the associations that are ended have requests that their backends have not returned");
        }
    }

    /// How long a stop may take. It is the same for the server's life.
    pub(super) fn drain_timeout(&self) -> Duration {
        self.drain_timeout
    }

    /// The server, and the configuration that holds at the end.
    pub(super) fn close(self) -> (Box<dyn Running>, ServerConfig) {
        (self.server, self.state.into_inner().unwrap_or_else(PoisonError::into_inner).config)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
