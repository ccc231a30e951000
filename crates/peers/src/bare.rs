//! The bare peer: client and server with the system calls of host and target, but without NVMe.
//!
//! The rate of a target depends on machine, kernel and neighbours. Its ratio to the rate of the bare peer, measured in the same
//! minute on the same cores, is the part of the possible rate that the target reaches.
//!
//! The server: `epoll_wait(0)`, one receive call, one response for each whole request in it, `sendmsg` in batches of at most
//! [`BareSpec::batch`]. The client: the loop of the load generator, with one `recv` into the scratch buffer and one `sendmsg`.
//! Latency is the time between the clock reads of the batches that sent the request and received the response.
//!
//! Messages have the lengths of NVMe/TCP PDUs without digests. The first byte is the kind; the rest of a header is unused:
//!
//! | message | bytes | corresponds to |
//! |---|---|---|
//! | read request | 72 | command capsule of a read |
//! | write request | 72 and the data | command capsule of a write with in-capsule data |
//! | large write request | 72 | command capsule of a write, without data |
//! | data request | 24 | R2T for all data of the request |
//! | data | 24 and the data | H2CData |
//! | read response | 24 and the data | C2HData with the SUCCESS flag |
//! | write response | 24 | response capsule |

mod client;
mod message;
mod server;

pub use client::drive;
pub use server::serve;

use pilotlight_host::load::report::Latency;

/// Requests that a client sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requests {
    /// Reads and writes in random order; write requests contain the data.
    Mixed {
        /// Reads, in percent.
        read_percent: u8,
    },
    /// Writes whose data the server requests.
    LargeWrites,
}

/// Parameters of a bare peer.
#[derive(Clone, Copy, Debug)]
pub struct BareSpec {
    /// Kinds of requests.
    pub requests: Requests,
    /// Bytes of data per request; at least 1.
    pub block: usize,
    /// Requests in flight; at least 1.
    pub depth: usize,
    /// Most responses per `sendmsg`, up to 64.
    pub batch: usize,
    /// Bytes of the server's memory for data at random offsets, at least `block`. With one block, data stays in the cache and
    /// in-capsule data is not copied; with the size of a namespace, it moves from and to memory as in a target.
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

    /// Writes of `block` bytes whose data the server requests.
    #[must_use]
    pub fn large_writes(block: usize, depth: usize) -> Self {
        Self { requests: Requests::LargeWrites, ..Self::writes(block, depth) }
    }
}

/// Result of a bare client.
#[derive(Clone, Copy, Debug)]
pub struct BareReport {
    /// Responses received.
    pub responses: u64,
    /// From the start to the last response.
    pub elapsed_ns: u64,
    /// Responses a second.
    pub rate_iops: f64,
    /// Latency of requests.
    pub latency: Latency,
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use super::*;

    #[test]
    fn every_request_has_one_response() {
        let large_pool = |spec| BareSpec { pool: 1 << 20, ..spec };
        for spec in [
            large_pool(BareSpec::reads(4096, 8)),
            BareSpec::writes(4096, 8),
            large_pool(BareSpec::mixed(70, 4096, 32)),
            BareSpec::large_writes(131_072, 4),
            large_pool(BareSpec::large_writes(131_072, 16)),
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
            let enough = |report: &BareReport| report.responses > 2 * spec.depth as u64;
            let runtimes_ns = (0..10).map(|doublings| 20_000_000 << doublings);
            let mut reports =
                runtimes_ns.map(|runtime_ns| TcpStream::connect(addr).and_then(|host| drive(&host, spec, runtime_ns)));
            let report = reports.find(|report| report.as_ref().map_or(true, enough));
            stop.store(true, Relaxed);
            server.join().unwrap().unwrap();
            let report = report.expect("responses").unwrap();
            // the histogram rounds up by less than a thousandth
            assert!(report.latency.min_ns > 0 && report.latency.max_ns <= report.elapsed_ns + report.elapsed_ns / 1000);
        });
    }
}
