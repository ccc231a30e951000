//! The bare peer: client and server with the same system calls as host and target, but no NVMe.
//!
//! The problem: a figure in I/Os a second says as much about the machine, its kernel and its neighbours as about the
//! code. The ratio to a peer that does nothing but the system calls, measured in the same minute on the same cores, says
//! how much of what is possible the code reaches.
//!
//! The server: `epoll_wait(0)`, one receive call, one message back for each whole message in it, sent with `sendmsg` in
//! batches of at most [`BareSpec::batch`]. The client: the loop of the load generator, one `recv` into the scratch buffer,
//! freed slots filled again, one `sendmsg`; latency from the clock read of the batch that a request was sent in to that of
//! the batch that its answer came in.
//!
//! Messages have the lengths of NVMe/TCP's PDUs without digests. The first byte is the type, the rest of a header has no
//! meaning:
//!
//! | message | bytes | stands for |
//! |---|---|---|
//! | read request | 72 | a read's command capsule |
//! | write request | 72 and the data | a write's command capsule with in-capsule data |
//! | large write request | 72 | a write's command capsule, data not included |
//! | ask | 24 | R2T for all data of the request |
//! | data | 24 and the data | H2CData |
//! | read answer | 24 and the data | C2HData with the SUCCESS flag |
//! | write answer | 24 | the response capsule |

mod client;
mod message;
mod server;

pub use client::drive;
pub use server::serve;

use crate::load::report::Latency;

/// Which requests a client sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requests {
    /// Reads and writes in random order, the data of writes in the request.
    Mixed {
        /// Reads, in percent.
        read_percent: u8,
    },
    /// Writes whose data the server asks for, one ask a request.
    LargeWrites,
}

/// What requests and answers look like.
#[derive(Clone, Copy, Debug)]
pub struct BareSpec {
    /// Which requests.
    pub requests: Requests,
    /// Bytes of data per request; at least 1.
    pub block: usize,
    /// Requests in flight; at least 1.
    pub depth: usize,
    /// Most answers per `sendmsg`, up to 64.
    pub batch: usize,
    /// Memory in bytes that data is sent from and received into at random places; less than `block` counts as `block`.
    /// Small: data comes from the cache and in-capsule data stays where it was received, which is less than any target can
    /// do. As large as a namespace: data comes from memory and goes to memory, as in a target.
    pub pool: usize,
}

impl BareSpec {
    /// Reads of `block` bytes.
    #[must_use]
    pub fn reads(block: usize, depth: usize) -> Self {
        Self::mixed(100, block, depth)
    }

    /// Writes of `block` bytes, data in the request.
    #[must_use]
    pub fn writes(block: usize, depth: usize) -> Self {
        Self::mixed(0, block, depth)
    }

    /// Reads and writes of `block` bytes, `read_percent` of them reads.
    #[must_use]
    pub fn mixed(read_percent: u8, block: usize, depth: usize) -> Self {
        Self { requests: Requests::Mixed { read_percent }, block, depth, batch: 32, pool: block }
    }

    /// Writes of `block` bytes that the server asks for.
    #[must_use]
    pub fn large_writes(block: usize, depth: usize) -> Self {
        Self { requests: Requests::LargeWrites, ..Self::writes(block, depth) }
    }
}

/// What a bare client measured.
#[derive(Clone, Copy, Debug)]
pub struct BareReport {
    /// Answers received.
    pub answers: u64,
    /// From the start to the last answer.
    pub elapsed_ns: u64,
    /// Answers a second.
    pub rate_iops: f64,
    /// How long answers took.
    pub latency: Latency,
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use super::*;

    #[test]
    fn every_request_is_answered_once() {
        let cold = |spec| BareSpec { pool: 1 << 20, ..spec };
        for spec in [
            cold(BareSpec::reads(4096, 8)),
            BareSpec::writes(4096, 8),
            cold(BareSpec::mixed(70, 4096, 32)),
            BareSpec::large_writes(131_072, 4),
            cold(BareSpec::large_writes(131_072, 16)),
        ] {
            exchange(&spec);
        }
    }

    fn exchange(spec: &BareSpec) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let server = scope.spawn(|| serve(&listener, spec, &stop));
            // latencies are counted from the second batch on
            let enough = |report: &BareReport| report.answers > 2 * spec.depth as u64;
            let runtimes_ns = (0..10).map(|doublings| 20_000_000 << doublings);
            let mut reports =
                runtimes_ns.map(|runtime_ns| TcpStream::connect(addr).and_then(|host| drive(&host, spec, runtime_ns)));
            let report = reports.find(|report| report.as_ref().map_or(true, enough));
            stop.store(true, Relaxed);
            server.join().unwrap().unwrap();
            let report = report.expect("answers come").unwrap();
            // the histogram rounds up by less than a thousandth
            assert!(report.latency.min_ns > 0 && report.latency.max_ns <= report.elapsed_ns + report.elapsed_ns / 1000);
        });
    }
}
