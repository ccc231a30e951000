//! The addresses of this machine, which the discovery log lists for a wildcard listener.
//!
//! A thread waits in the kernel for messages of changed addresses (rtnetlink(7)) and publishes the new list. Where a sandbox has no netlink
//! sockets (systemd's `RestrictAddressFamilies`), a wildcard lists the address alone that a host has connected to.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

use pilotlight_nvmf_proto::subsystems::discovery::Endpoint;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socket_with};

use super::Changes;

/// Messages about addresses of IPv4 and IPv6 (`RTMGRP_IPV4_IFADDR`, `RTMGRP_IPV6_IFADDR`).
const ADDRESS_GROUPS: u32 = 0x10 | 0x100;

/// The thread that publishes changed addresses. Ends when dropped.
pub(super) struct MachineAddresses {
    stop: Arc<OwnedFd>,
    join: Option<JoinHandle<()>>,
}

impl MachineAddresses {
    /// Starts it; `None` if the system refuses that.
    pub(super) fn start(changes: Arc<Changes>) -> Option<Self> {
        let start = || {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
            rustix::net::bind(&socket, &SocketAddrNetlink::new(0, ADDRESS_GROUPS))?;
            let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
            let stopped = Arc::clone(&stop);
            let run = move || run(&changes, &socket, &stopped);
            let join = std::thread::Builder::new().name("addresses".into()).spawn(run)?;
            Ok(Self { stop, join: Some(join) })
        };
        let failed = |error: &io::Error| {
            tracing::warn!(%error, "a changed address of this machine will not be in the discovery log: list addresses in server.listen instead of a wildcard");
        };
        start().inspect_err(failed).ok()
    }
}

impl Drop for MachineAddresses {
    fn drop(&mut self) {
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        if let Some(join) = self.join.take() {
            let _ = join.join();
        }
    }
}

fn run(changes: &Changes, socket: &OwnedFd, stop: &OwnedFd) {
    let mut published = Vec::new();
    loop {
        let machine = read();
        if machine != published {
            changes.set_machine_addresses(machine.clone());
            published = machine;
        }
        let mut fds = [PollFd::new(socket, PollFlags::IN), PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN)];
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
        if !fds[1].revents().is_empty() {
            return;
        }
        // The messages are not read: too many of them are lost anyhow, and the list has all.
        let mut message = [0u8; 8192];
        while !matches!(recv(socket, &mut message[..], RecvFlags::empty()), Err(Errno::AGAIN)) {}
    }
}

/// The addresses if any of these endpoints is a wildcard.
pub(crate) fn read_for(endpoints: &[Endpoint]) -> Vec<IpAddr> {
    let has_wildcard = endpoints.iter().any(|endpoint| endpoint.address.ip().is_unspecified());
    if has_wildcard { read() } else { Vec::new() }
}

/// The addresses by which other machines reach this one: neither loopback nor link-local ones, whose zone only this machine knows
/// (RFC 4007), nor those of interfaces that are down.
fn read() -> Vec<IpAddr> {
    let interfaces = if_addrs::get_if_addrs().unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot read the addresses of this machine: the discovery log has the one that a host has connected to");
        Vec::new()
    });
    let up = interfaces.iter().filter(|interface| interface.is_oper_up() && !interface.is_loopback());
    let mut addresses: Vec<IpAddr> = up.filter(|interface| !interface.is_link_local()).map(|one| one.ip()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}
