//! A peer that sends any bytes and reads the responses, for tests with hostile hosts.
//!
//! Blocking, with a timeout on every call. [`RawPeer::shake_hands`] and [`RawPeer::connect_queue`] follow the protocol, to reach
//! the state in which a violation is tested.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use pilotlight_nvme::fabrics::{ConnectCmd, ConnectData};
use pilotlight_nvme::pdu::{CapsuleCmd, CapsuleResp, CommonHeader, Digests, IcResp, PduType, TermReq, data_offset};
use pilotlight_nvme::{Cqe, Sqe};
use socket2::{Domain, Protocol, Socket, Type};
use zerocopy::{FromBytes, IntoBytes};

use pilotlight_host::Handshake;

/// Longest PDU that is read.
const MAX_PDU: usize = 4 << 20;

/// Result of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A whole PDU.
    Pdu(Vec<u8>),
    /// The target closed the connection.
    Closed,
    /// No PDU in time.
    Timeout,
}

impl Reply {
    /// Fatal error status and information, if this is a C2HTermReq.
    #[must_use]
    pub fn termination(&self) -> Option<(u16, u32)> {
        let Self::Pdu(bytes) = self else { return None };
        let (term, _) = TermReq::read_from_prefix(bytes).ok()?;
        (term.ch.pdu_type == PduType::C2HTermReq as u8).then_some((term.fes.get(), term.fei.get()))
    }

    /// The completion, if this is a response capsule.
    #[must_use]
    pub fn completion(&self) -> Option<Cqe> {
        let Self::Pdu(bytes) = self else { return None };
        let (resp, _) = CapsuleResp::read_from_prefix(bytes).ok()?;
        (resp.ch.pdu_type == PduType::CapsuleResp as u8).then_some(resp.cqe)
    }
}

/// A TCP connection to a target.
#[derive(Debug)]
pub struct RawPeer {
    stream: TcpStream,
    /// Digests of [`RawPeer::capsule`], from [`RawPeer::shake_hands`].
    pub digests: Digests,
    /// CPDA: alignment of data to the target, in dwords less one.
    pub cpda: u8,
}

impl RawPeer {
    /// Connects; every later call takes at most `timeout`.
    ///
    /// # Errors
    /// The system's error.
    pub fn connect(addr: SocketAddr, timeout: Duration) -> io::Result<Self> {
        Self::over(TcpStream::connect_timeout(&addr, timeout)?, timeout)
    }

    /// Connects from the local address `from`.
    ///
    /// # Errors
    /// The system's error.
    pub fn connect_from(from: IpAddr, addr: SocketAddr, timeout: Duration) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
        socket.bind(&SocketAddr::new(from, 0).into())?;
        socket.connect_timeout(&addr.into(), timeout)?;
        Self::over(socket.into(), timeout)
    }

    fn over(stream: TcpStream, timeout: Duration) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        Ok(Self { stream, digests: Digests::default(), cpda: 0 })
    }

    /// The socket.
    #[must_use]
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// The system's error; a broken pipe if the target has closed the connection.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Reads the next PDU.
    ///
    /// # Errors
    /// The system's error, or `InvalidData` for an impossible PLEN.
    pub fn read_pdu(&mut self) -> io::Result<Reply> {
        let mut pdu = vec![0; CommonHeader::LEN];
        if let Err(e) = self.stream.read_exact(&mut pdu) {
            return no_pdu(e);
        }
        let plen = u32::from_le_bytes([pdu[4], pdu[5], pdu[6], pdu[7]]) as usize;
        if !(CommonHeader::LEN..=MAX_PDU).contains(&plen) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("PLEN {plen} from the target")));
        }
        pdu.resize(plen, 0);
        match self.stream.read_exact(&mut pdu[CommonHeader::LEN..]) {
            Ok(()) => Ok(Reply::Pdu(pdu)),
            Err(e) => no_pdu(e),
        }
    }

    /// Reads PDUs until the target closes or the timeout; returns PDUs and end.
    ///
    /// # Errors
    /// As [`RawPeer::read_pdu`].
    pub fn read_to_end(&mut self) -> io::Result<(Vec<Vec<u8>>, Reply)> {
        let mut pdus = Vec::new();
        loop {
            match self.read_pdu()? {
                Reply::Pdu(pdu) => pdus.push(pdu),
                end => return Ok((pdus, end)),
            }
        }
    }

    /// Exchanges valid ICReq and ICResp.
    ///
    /// # Errors
    /// The system's error, or `InvalidData` if the response is not an ICResp.
    pub fn shake_hands(&mut self, handshake: &Handshake) -> io::Result<IcResp> {
        self.send(handshake.request().as_bytes())?;
        let reply = self.read_pdu()?;
        let invalid = || io::Error::new(io::ErrorKind::InvalidData, format!("not an ICResp: {reply:?}"));
        let Reply::Pdu(bytes) = &reply else { return Err(invalid()) };
        let resp = IcResp::read_from_bytes(bytes).map_err(|_| invalid())?;
        self.digests = Digests::from_u8(resp.dgst).ok_or_else(invalid)?;
        self.cpda = resp.cpda;
        Ok(resp)
    }

    /// A valid command capsule with in-capsule data and the negotiated digests.
    #[must_use]
    pub fn capsule(&self, sqe: Sqe, data: &[u8]) -> Vec<u8> {
        let pdo = data_offset(PduType::CapsuleCmd, self.digests, self.cpda);
        let header = CapsuleCmd::new(sqe, data.len() as u32, pdo, self.digests);
        framed(header.as_bytes(), if data.is_empty() { 0 } else { pdo }, data, self.digests)
    }

    /// Connects a queue (Base 6.3); returns the completion.
    ///
    /// # Errors
    /// The system's error, or `InvalidData` if the response is not a response capsule.
    pub fn connect_queue(&mut self, command: &ConnectCmd, data: &ConnectData) -> io::Result<Cqe> {
        let capsule = self.capsule(command.encode(), data.as_bytes());
        self.send(&capsule)?;
        let reply = self.read_pdu()?;
        reply
            .completion()
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("not a response: {reply:?}")))
    }
}

/// A PDU of `header`, padding up to `pdo` (0 without data), `data` and `digests`.
#[must_use]
pub fn framed(header: &[u8], pdo: u8, data: &[u8], digests: Digests) -> Vec<u8> {
    let mut pdu = header.to_vec();
    if digests.header {
        pdu.extend_from_slice(&pilotlight_nvme::digest::digest(header));
    }
    if pdo > 0 {
        pdu.resize(usize::from(pdo), 0);
        pdu.extend_from_slice(data);
        if digests.data {
            pdu.extend_from_slice(&pilotlight_nvme::digest::digest(data));
        }
    }
    pdu
}

fn no_pdu(error: io::Error) -> io::Result<Reply> {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Ok(Reply::Closed),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Ok(Reply::Timeout),
        _ => Err(error),
    }
}
