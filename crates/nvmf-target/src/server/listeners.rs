//! The listening addresses of a running server, which can change.
//!
//! # The algorithm
//! New addresses are opened first, so that a failure changes nothing. Then the directory (`directory.rs`) gets the new endpoints: I/O threads
//! refuse every Connect on another, and hosts are notified of the discovery log. Then the acceptor changes, and associations that began on a
//! removed address are ended. An address that can only be opened when another with its port is closed, as `0.0.0.0` after `[::]`, is opened
//! last; if that fails, the removed ones are opened again.

use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, PoisonError};

use pilotlight_nvmf_proto::ids::PortId;

use super::machine_addresses::MachineAddresses;
use super::{Changes, Draining, ServerError};
use crate::config::Security;
use crate::server::distributor::Distributor;
use crate::server::handshakes::HandshakeThread;
use crate::server::listener::{Acceptor, Address, Listener, endpoints};

/// The listeners and their threads.
pub(super) struct Listeners {
    acceptor: Acceptor,
    distributor: Arc<Distributor>,
    /// CPUs of reactors.
    cpus: Vec<u32>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    open: Vec<Arc<Listener>>,
    /// Identity of the next listener.
    next: PortId,
    /// Runs if there is, or was, a listener with TLS.
    tls: Option<HandshakeThread>,
    /// Runs if there is, or was, a wildcard.
    machine: Option<MachineAddresses>,
}

impl Listeners {
    /// Accepts connections on `open`.
    ///
    /// # Errors
    /// If no thread or descriptor is available.
    pub(super) fn start(
        open: Vec<Arc<Listener>>,
        (distributor, cpus): (Arc<Distributor>, Vec<u32>),
        changes: &Arc<Changes>,
    ) -> io::Result<Self> {
        let next = PortId(open.len() as u16 + 1);
        let acceptor = Acceptor::start(Arc::clone(&distributor))?;
        let listeners = Self { acceptor, distributor, cpus, state: Mutex::default() };
        let mut state = State { next, ..State::default() };
        listeners.start_threads(&mut state, &open, changes)?;
        listeners.acceptor.set(open.clone());
        state.open = open;
        *listeners.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
        Ok(listeners)
    }

    /// As [`super::Server::set_listeners`].
    ///
    /// # Errors
    /// As there.
    pub(super) fn change(&self, changes: &Arc<Changes>, wanted: &[Address]) -> Result<Draining, ServerError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let before = state.open.clone();
        let (mut open, removed): (Vec<_>, Vec<_>) =
            before.iter().cloned().partition(|listener| wanted.contains(&listener.configured));
        let is_new = |address: &&Address| before.iter().all(|listener| listener.configured != **address);
        let mut waiting = Vec::new();
        for &address in wanted.iter().filter(is_new) {
            match state.open(address) {
                Ok(listener) => open.push(listener),
                Err(error) if error.kind() == ErrorKind::AddrInUse && !removed.is_empty() => waiting.push(address),
                Err(source) => return Err(ServerError::Listen { address: address.address, source }),
            }
        }
        let (ids, removed): (Vec<PortId>, Vec<Address>) =
            removed.into_iter().map(|listener| (listener.id, listener.configured)).unzip();
        drop(before); // the acceptor and `state` have the last ones of what is closed
        self.replace(&mut state, open, wanted, changes)?;
        let ended = changes.end_associations(|association| ids.contains(&association.origin.port));
        if waiting.is_empty() {
            return Ok(ended);
        }
        let opened: Result<Vec<_>, _> =
            waiting.iter().map(|&address| state.open(address).map_err(|source| (address.address, source))).collect();
        let (opened, failed) = match opened {
            Ok(opened) => (opened, None),
            Err(failed) => (removed.iter().filter_map(|&address| state.open(address).ok()).collect(), Some(failed)),
        };
        let open = state.open.iter().cloned().chain(opened).collect();
        self.replace(&mut state, open, wanted, changes)?;
        failed.map_or(Ok(ended), |(address, source)| Err(ServerError::Listen { address, source }))
    }

    /// Publishes and uses these listeners, in the order of the configuration.
    fn replace(
        &self,
        state: &mut State,
        mut open: Vec<Arc<Listener>>,
        order: &[Address],
        changes: &Arc<Changes>,
    ) -> io::Result<()> {
        open.sort_by_key(|listener| order.iter().position(|address| *address == listener.configured));
        let endpoints = endpoints(&open)?;
        self.start_threads(state, &open, changes)?;
        changes.set_endpoints(endpoints);
        self.acceptor.set(open.clone());
        state.open = open;
        Ok(())
    }

    /// Starts the threads that these listeners need.
    fn start_threads(&self, state: &mut State, open: &[Arc<Listener>], changes: &Arc<Changes>) -> io::Result<()> {
        let is_encrypted = |listener: &Arc<Listener>| listener.configured.security != Security::Plain;
        if state.tls.is_none() && open.iter().any(is_encrypted) {
            let thread = HandshakeThread::start(Arc::clone(&self.distributor), self.cpus.clone())?;
            let _ = self.acceptor.handshakes.set(thread.handshakes()); // not set before
            state.tls = Some(thread);
        }
        let is_wildcard = |listener: &Arc<Listener>| listener.configured.address.ip().is_unspecified();
        if state.machine.is_none() && open.iter().any(is_wildcard) {
            state.machine = MachineAddresses::start(Arc::clone(changes));
        }
        Ok(())
    }

    /// Stops accepting and closes the listeners.
    pub(super) fn stop(&mut self) {
        self.acceptor.stop();
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        state.open.clear();
        state.machine = None; // it waits for I/O threads, which still run
    }
}

impl State {
    /// Opens a listener.
    fn open(&mut self, address: Address) -> io::Result<Arc<Listener>> {
        let listener = Listener::open(address, self.next)?;
        self.next = PortId(self.next.0.wrapping_add(1).max(1));
        Ok(Arc::new(listener))
    }
}
