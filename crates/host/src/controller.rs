//! An association with a controller: admin queue, properties, Identify data and I/O queues.

use std::net::SocketAddr;
use std::sync::Arc;

use pilotlight_auth::tls::RetainedPsk;
use pilotlight_auth::{Concatenation, Config};
use pilotlight_nvme::Sqe;
use pilotlight_nvme::command::opcode::admin;
use pilotlight_nvme::fabrics::{
    CNTLID_DYNAMIC, ConnectCmd, ConnectData, DISCOVERY_NQN, PropertyCmd, authreq, cc, csts, property,
};
use pilotlight_nvme::feature::fid;
use pilotlight_nvme::log::lid;
use pilotlight_tls::ClientConfig;
use zerocopy::IntoBytes;

use crate::authenticate::{MESSAGE_BYTES, authenticate};
use crate::clock;
use crate::connection::{Connection, Handshake, Sizes};
use crate::error::HostError;
use crate::info::{ControllerInfo, DiscoveryEntry, NamespaceInfo, u64_at};
use crate::link::TlsOptions;
use crate::queue::Buffers;
#[cfg(feature = "testing")]
use crate::socket_limits::SocketLimits;

/// Entries of the admin queue, as in Linux.
const ADMIN_ENTRIES: u16 = 32;
/// Most bytes of an admin command's data; discovery logs are read in pieces.
const ADMIN_MAX_IO: u32 = 8192;

/// Address, identity and parameters of an association.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// Address of the target.
    pub addr: SocketAddr,
    /// NQN of the subsystem.
    pub subnqn: String,
    /// NQN of the host; may be empty.
    pub hostnqn: String,
    /// The host's identifier, a UUID.
    pub hostid: [u8; 16],
    /// Parameters of ICReq, on every queue.
    pub handshake: Handshake,
    /// Entries of the admin queue, at least 2; one is unused.
    pub admin_entries: u16,
    /// Keep-alive timeout in milliseconds; 0 for none. The caller calls [`Controller::keep_alive`] in time.
    pub kato_ms: u32,
    /// Request that SQ flow control is disabled (CATTR bit 2), so that reads may end without a response capsule.
    pub disable_sq_flow: bool,
    /// Timeout of every wait, in milliseconds.
    pub timeout_ms: u64,
    /// Limits of the sockets of I/O queues.
    #[cfg(feature = "testing")]
    pub socket_limits: SocketLimits,
    /// Secrets and policy, for a target that requires authentication. The NQNs above take the place of those in it. With
    /// [`Concatenation::New`](pilotlight_auth::Concatenation) in the policy, and without a key below, authentication generates the key.
    pub authentication: Option<Arc<Config>>,
    /// The key, for a target that requires TLS.
    pub tls: Option<TlsOptions>,
}

impl ConnectOptions {
    /// Defaults: no digests, no keep-alive, SQ flow control disabled, 10 s timeout.
    #[must_use]
    pub fn new(addr: SocketAddr, subnqn: &str) -> Self {
        Self {
            addr,
            subnqn: subnqn.to_owned(),
            hostnqn: "nqn.2026-01.io.pilotlight:load".to_owned(),
            hostid: *b"pilotlight-load!",
            handshake: Handshake::default(),
            admin_entries: ADMIN_ENTRIES,
            kato_ms: 0,
            disable_sq_flow: true,
            timeout_ms: 10_000,
            #[cfg(feature = "testing")]
            socket_limits: SocketLimits::default(),
            authentication: None,
            tls: None,
        }
    }
}

impl ConnectOptions {
    /// What the host offers in a TLS handshake; `None` without TLS.
    ///
    /// # Errors
    /// The key is unusable.
    pub fn tls_config(&self) -> Result<Option<ClientConfig>, HostError> {
        self.tls.as_ref().map(|tls| tls.config(&self.hostnqn, &self.subnqn)).transpose()
    }

    /// `config` with the NQNs of these options.
    fn authentication_config(&self, config: &Config) -> Config {
        Config { hostnqn: self.hostnqn.clone(), subnqn: self.subnqn.clone(), ..config.clone() }
    }

    /// The options of host `number` of a run; hosts other than 0 have their own NQN and identifier.
    pub(crate) fn for_host(&self, number: u16) -> Self {
        let mut this = self.clone();
        if number > 0 {
            this.hostnqn = format!("{}-{number}", self.hostnqn);
            let low = u16::from_be_bytes([self.hostid[14], self.hostid[15]]) ^ number;
            this.hostid[14..].copy_from_slice(&low.to_be_bytes());
        }
        this
    }
}

/// Parameters of an I/O queue.
#[derive(Clone, Copy, Debug)]
pub struct QueueSpec {
    /// Queue identifier, from 1.
    pub qid: u16,
    /// Most commands in flight; the queue has one entry more.
    pub depth: u16,
    /// Most bytes of data per command.
    pub max_io: u32,
    /// Whether each command has a buffer of its own.
    pub buffers: Buffers,
}

/// A controller with its admin queue.
#[derive(Debug)]
pub struct Controller {
    options: ConnectOptions,
    admin: Connection,
    cntlid: u16,
    cap: u64,
    info: ControllerInfo,
}

impl Controller {
    /// Connects the admin queue, enables the controller and identifies it.
    ///
    /// # Errors
    /// The first failed step.
    pub fn connect(options: ConnectOptions) -> Result<Self, HostError> {
        let mut this = Self::attach(options)?;
        this.enable()?;
        this.identify_controller()?;
        Ok(this)
    }

    /// Connects the admin queue and reads CAP. [`Controller::enable`] and [`Controller::identify_controller`] come next.
    ///
    /// # Errors
    /// The first failed step.
    pub fn attach(options: ConnectOptions) -> Result<Self, HostError> {
        let entries = options.admin_entries;
        let sizes = Sizes {
            depth: entries - 1,
            max_io: ADMIN_MAX_IO,
            buffers: Buffers::PerCommand,
            timeout_ms: options.timeout_ms,
        };
        let open = |options: &ConnectOptions| {
            let tls = options.tls_config()?;
            let mut admin = Connection::open(options.addr, tls.as_ref(), &options.handshake, &sizes)?;
            let connected = connect_queue(&mut admin, options, 0, entries, options.kato_ms, CNTLID_DYNAMIC)?;
            Ok::<_, HostError>((admin, connected))
        };
        let (mut admin, (mut cntlid, psk)) = open(&options)?;
        let mut options = options;
        let wants_key = |config: &Arc<Config>| config.policy.concatenation == Concatenation::New;
        if psk.is_none() && options.tls.is_none() && options.authentication.as_ref().is_some_and(wants_key) {
            let why = "the target requires no authentication here, so that no key of TLS is generated: connect to an address of concat_listen";
            return Err(HostError::Unsupported(why.to_owned())); // rather than go on without TLS
        }
        if let Some(psk) = psk.filter(|_| options.tls.is_none()) {
            drop(admin); // it was for authentication
            options.tls = Some(TlsOptions::generated(psk));
            (admin, (cntlid, _)) = open(&options)?;
        }
        let cap = get_property(&mut admin, property::CAP, true)?;
        Ok(Self { options, admin, cntlid, cap, info: ControllerInfo::decode(&[0; 4096]) })
    }

    /// Authenticates the admin queue again so that its TLS key is replaced: queues that open from now on have the new one.
    ///
    /// # Errors
    /// The target refuses it, or the options have no secret.
    #[cfg(feature = "testing")]
    pub fn replace_tls_key(&mut self) -> Result<(), HostError> {
        let config = self.options.authentication.as_ref().ok_or(HostError::AuthenticationRequired)?;
        let policy = pilotlight_auth::Policy { concatenation: Concatenation::Replace, ..config.policy.clone() };
        let config = Arc::new(Config { policy, ..self.options.authentication_config(config) });
        let psk = authenticate(&mut self.admin, &config, 0)?;
        self.options.tls = psk.map(TlsOptions::generated);
        Ok(())
    }

    /// Reads Identify Controller.
    ///
    /// # Errors
    /// The target's refusal.
    pub fn identify_controller(&mut self) -> Result<&ControllerInfo, HostError> {
        self.info = ControllerInfo::decode(&*self.identify(1, 0)?);
        Ok(&self.info)
    }

    /// How it is connected; with the generated key of TLS, if there is one.
    #[must_use]
    pub fn options(&self) -> &ConnectOptions {
        &self.options
    }

    /// The controller identifier that the target chose.
    #[must_use]
    pub fn cntlid(&self) -> u16 {
        self.cntlid
    }

    /// Controller Capabilities (Base 3.1.3.1).
    #[must_use]
    pub fn cap(&self) -> u64 {
        self.cap
    }

    /// Largest queue in entries (CAP.MQES).
    #[must_use]
    pub fn max_entries(&self) -> u32 {
        (self.cap as u32 & 0xffff) + 1
    }

    /// Identify Controller.
    #[must_use]
    pub fn info(&self) -> &ControllerInfo {
        &self.info
    }

    /// The admin queue, for commands that have no method here.
    pub fn admin(&mut self) -> &mut Connection {
        &mut self.admin
    }

    /// Sets CC.EN and waits for CSTS.RDY.
    ///
    /// # Errors
    /// The target does not become ready in time, or reports a fatal status.
    pub fn enable(&mut self) -> Result<(), HostError> {
        self.set_property(property::CC, cc::EN | cc::IOSQES_IOCQES)?;
        self.await_csts("CSTS.RDY after CC.EN", |csts| csts & csts::RDY != 0)
    }

    /// Clears CC.EN (a controller reset, Base 3.7.2) and waits for CSTS.RDY to clear; I/O queues are gone afterwards.
    ///
    /// # Errors
    /// The target does not respond in time.
    pub fn disable(&mut self) -> Result<(), HostError> {
        self.set_property(property::CC, cc::IOSQES_IOCQES)?;
        self.await_csts("CSTS.RDY to clear", |csts| csts & csts::RDY == 0)
    }

    /// Reads a property of 4 (or, `wide`, 8) bytes.
    ///
    /// # Errors
    /// The target's refusal.
    pub fn property(&mut self, offset: u32, wide: bool) -> Result<u64, HostError> {
        get_property(&mut self.admin, offset, wide)
    }

    /// Sets a property of 4 bytes.
    ///
    /// # Errors
    /// The target's refusal.
    pub fn set_property(&mut self, offset: u32, value: u32) -> Result<(), HostError> {
        self.admin.execute("Property Set", PropertyCmd::set(offset, value), &[], &mut []).map(drop)
    }

    fn await_csts(&mut self, what: &'static str, met: impl Fn(u32) -> bool) -> Result<(), HostError> {
        let deadline_ns = clock::now_ns() + self.options.timeout_ms * 1_000_000;
        loop {
            let csts = self.property(property::CSTS, false)? as u32;
            if met(csts) {
                return Ok(());
            }
            if csts & csts::CFS != 0 {
                return Err(HostError::ControllerFatal);
            }
            if clock::now_ns() > deadline_ns {
                return Err(HostError::Timeout { what, after_ms: self.options.timeout_ms });
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    /// Identify with the given CNS and namespace.
    ///
    /// # Errors
    /// The target's refusal.
    pub fn identify(&mut self, cns: u8, nsid: u32) -> Result<Box<[u8; 4096]>, HostError> {
        let mut data = Box::new([0u8; 4096]);
        let sqe = Sqe::new(admin::IDENTIFY, nsid).with_cdw(10, u32::from(cns));
        self.admin.execute("Identify", sqe, &[], &mut data[..])?;
        Ok(data)
    }

    /// Identify Namespace.
    ///
    /// # Errors
    /// The namespace does not exist or its format is unsupported.
    pub fn namespace(&mut self, nsid: u32) -> Result<NamespaceInfo, HostError> {
        let data = self.identify(0, nsid)?;
        NamespaceInfo::decode(nsid, &data).ok_or_else(|| {
            let active = self.active_namespaces().unwrap_or_default();
            HostError::Unsupported(format!(
                "namespace {nsid} does not exist or has metadata; active namespaces: {active:?}"
            ))
        })
    }

    /// The identifiers of the active namespaces (the first 1,024).
    ///
    /// # Errors
    /// The target's refusal.
    pub fn active_namespaces(&mut self) -> Result<Vec<u32>, HostError> {
        let data = self.identify(2, 0)?;
        let ids = data.chunks_exact(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]]));
        Ok(ids.take_while(|&id| id != 0).collect())
    }

    /// Reads `into.len()` bytes (a multiple of 4) of log page `lid` from `offset`.
    ///
    /// # Errors
    /// The target's refusal.
    pub fn log_page(&mut self, lid: u8, nsid: u32, offset: u64, into: &mut [u8]) -> Result<(), HostError> {
        let dwords = (into.len() / 4) as u32 - 1;
        let sqe = Sqe::new(admin::GET_LOG_PAGE, nsid)
            .with_cdw(10, u32::from(lid) | dwords << 16)
            .with_cdw(11, dwords >> 16)
            .with_cdw(12, offset as u32)
            .with_cdw(13, (offset >> 32) as u32);
        self.admin.execute("Get Log Page", sqe, &[], into).map(drop)
    }

    /// Sets feature `fid` to `value` (command dword 11); returns dword 0 of the completion.
    ///
    /// # Errors
    /// The target's refusal.
    pub fn set_feature(&mut self, fid: u32, nsid: u32, value: u32) -> Result<u32, HostError> {
        let sqe = Sqe::new(admin::SET_FEATURES, nsid).with_cdw(10, fid).with_cdw(11, value);
        Ok(self.admin.execute("Set Features", sqe, &[], &mut [])? as u32)
    }

    /// The current value of feature `fid`.
    ///
    /// # Errors
    /// The target's refusal.
    pub fn feature(&mut self, fid: u32, nsid: u32) -> Result<u32, HostError> {
        let sqe = Sqe::new(admin::GET_FEATURES, nsid).with_cdw(10, fid);
        Ok(self.admin.execute("Get Features", sqe, &[], &mut [])? as u32)
    }

    /// Sends a Keep Alive and waits for its completion.
    ///
    /// # Errors
    /// As [`Connection::execute`].
    pub fn keep_alive(&mut self) -> Result<(), HostError> {
        self.admin.execute("Keep Alive", Sqe::new(admin::KEEP_ALIVE, 0), &[], &mut []).map(drop)
    }

    /// Requests `count` I/O queues, before the first is opened.
    ///
    /// # Errors
    /// The target allows fewer.
    pub fn set_queue_count(&mut self, count: u16) -> Result<(), HostError> {
        let n = u32::from(count.max(1)) - 1;
        let granted = self.set_feature(u32::from(fid::NUMBER_OF_QUEUES), 0, n << 16 | n)?;
        let queues = (granted & 0xffff).min(granted >> 16) + 1;
        if queues < u32::from(count) {
            let text = format!("the target allows {queues} I/O queues of the {count} requested; use fewer connections");
            return Err(HostError::Unsupported(text));
        }
        Ok(())
    }

    /// Opens an I/O queue.
    ///
    /// # Errors
    /// Depth or size exceed the controller's limits, or the target refuses.
    pub fn open_queue(&self, spec: &QueueSpec) -> Result<Connection, HostError> {
        self.check_limits(spec)?;
        let timeout_ms = self.options.timeout_ms;
        // Each command has a buffer until the queue is authenticated: its messages must be read.
        let sizes = Sizes { depth: spec.depth, max_io: MESSAGE_BYTES as u32, buffers: Buffers::PerCommand, timeout_ms };
        let mut connection = self.open(&sizes, spec.qid)?;
        connect_queue(&mut connection, &self.options, spec.qid, spec.depth + 1, 0, self.cntlid)?;
        connection.queue().set_buffers(spec.max_io.max(1024), spec.buffers);
        let in_capsule = self.info.in_capsule;
        connection.queue().amend(|terms| terms.in_capsule = in_capsule);
        Ok(connection)
    }

    #[cfg(not(feature = "testing"))]
    fn open(&self, sizes: &Sizes, _qid: u16) -> Result<Connection, HostError> {
        let ConnectOptions { addr, handshake, .. } = &self.options;
        Connection::open(*addr, self.options.tls_config()?.as_ref(), handshake, sizes)
    }

    #[cfg(feature = "testing")]
    fn open(&self, sizes: &Sizes, qid: u16) -> Result<Connection, HostError> {
        let ConnectOptions { addr, handshake, socket_limits, .. } = &self.options;
        let tls = self.options.tls_config()?;
        if *socket_limits == SocketLimits::default() {
            return Connection::open(*addr, tls.as_ref(), handshake, sizes);
        }
        let seed = u64::from(self.cntlid) << 16 | u64::from(qid);
        Connection::open_limited(*addr, tls.as_ref(), (socket_limits, seed), handshake, sizes)
    }

    fn check_limits(&self, spec: &QueueSpec) -> Result<(), HostError> {
        let deepest = self.max_entries() - 1;
        if spec.depth == 0 || u32::from(spec.depth) > deepest {
            let text = format!("queue depth {} is invalid: the controller allows 1 to {deepest}", spec.depth);
            return Err(HostError::Unsupported(text));
        }
        match self.info.max_transfer {
            Some(max_len) if spec.max_io > max_len => {
                Err(HostError::Unsupported(format!("{} bytes a command: the controller allows {max_len}", spec.max_io)))
            }
            _ => Ok(()),
        }
    }

    /// Normal shutdown (CC.SHN = 1): waits for CSTS.SHST, then closes the admin queue.
    ///
    /// # Errors
    /// The target does not finish in time.
    pub fn shutdown(mut self) -> Result<(), HostError> {
        self.set_property(property::CC, cc::EN | cc::IOSQES_IOCQES | 1 << 14)?;
        self.await_csts("CSTS.SHST complete", |csts| csts & 0xc == csts::SHST_COMPLETE)
    }
}

/// Reads the discovery log at `options.addr`; `options.subnqn` is ignored.
///
/// # Errors
/// There is no discovery service, or it violates the protocol.
pub fn discover(options: &ConnectOptions) -> Result<Vec<DiscoveryEntry>, HostError> {
    let mut controller = Controller::connect(ConnectOptions { subnqn: DISCOVERY_NQN.to_owned(), ..options.clone() })?;
    let mut header = [0u8; 1024];
    controller.log_page(lid::DISCOVERY, 0, 0, &mut header)?;
    let count = u64_at(&header, 8);
    let mut entries = Vec::new();
    for i in 0..count {
        let mut entry = [0u8; 1024];
        controller.log_page(lid::DISCOVERY, 0, 1024 * (i + 1), &mut entry)?;
        entries.push(DiscoveryEntry::decode(&entry));
    }
    Ok(entries)
}

fn get_property(admin: &mut Connection, offset: u32, wide: bool) -> Result<u64, HostError> {
    let value = admin.execute("Property Get", PropertyCmd::get(offset, wide), &[], &mut [])?;
    Ok(if wide { value } else { value & 0xffff_ffff })
}

/// Sends Connect on a new connection; returns the controller identifier (Base 6.3), and the key of TLS that authentication has generated.
fn connect_queue(
    connection: &mut Connection,
    options: &ConnectOptions,
    qid: u16,
    entries: u16,
    kato_ms: u32,
    cntlid: u16,
) -> Result<(u16, Option<RetainedPsk>), HostError> {
    let cattr = if options.disable_sq_flow { ConnectCmd::DISABLE_SQ_FLOW } else { 0 };
    let command = ConnectCmd { recfmt: 0, qid, sqsize: entries - 1, cattr, kato_ms };
    let data = ConnectData::new(options.hostid, cntlid, &options.subnqn, &options.hostnqn);
    let cid = connection.submit(command.encode(), data.as_bytes(), 0)?;
    let completed = connection.wait(cid, "Connect", &mut [])?;
    if !completed.status.is_success() {
        return Err(HostError::Status { what: "Connect", status: completed.status });
    }
    // SQHD FFFFh: flow control is disabled
    let off = options.disable_sq_flow && completed.sqhd == Some(0xffff);
    connection.queue().amend(|terms| terms.success_flag = off);
    let mut psk = None;
    if completed.result as u32 & authreq::ATR != 0 {
        let config = options.authentication.as_ref().ok_or(HostError::AuthenticationRequired)?;
        psk = authenticate(connection, &Arc::new(options.authentication_config(config)), qid)?;
    }
    Ok((completed.result as u16, psk))
}
