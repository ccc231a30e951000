//! Limits: within the target's bounds, and within what the machine has.

use std::ops::RangeInclusive;
use std::time::Duration;

use pilotlight_nvmf_target::config::{Limits, MAX_IO_QUEUES, MAX_QUEUE_DEPTH, ServerConfig};
use pilotlight_storage::{BackendSpec, format_size, parse_size};

use super::Checker;
use crate::config::keys::{self, Draft};
use crate::config::problem::{Origin, Problem, Text};
use crate::config::units::{format_duration, parse_duration};

/// Default buffers of an I/O thread in bytes: 512 requests of 128 KiB in flight.
const BUFFERS_PER_THREAD: u64 = 64 << 20;
/// The minimum: eight requests of 128 KiB, so that one cannot block all others.
const MIN_BUFFERS_PER_THREAD: u64 = 1 << 20;
/// The least memory for queues in bytes: an admin queue and two I/O queues of 1,024 entries.
const MIN_QUEUE_MEMORY: u64 = 1 << 20;
/// The least memory for the queues of one host in bytes.
const MIN_HOST_MEMORY: u64 = 1 << 19;
/// Default of `queue_memory`: one part of this many of `max_memory`.
const QUEUE_MEMORY_ONE_IN: u64 = 8;
/// Upper limit of that default in bytes: about 2,400 queues of 1,024 entries, or 14,000
/// of 128.
const MAX_QUEUE_MEMORY: u64 = 1 << 30;
/// The least `max_memory` in bytes: the buffers of an I/O thread and queues.
const MIN_MEMORY: u64 = MIN_BUFFERS_PER_THREAD + MIN_QUEUE_MEMORY;
/// Range of timeouts.
const TIMEOUTS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(3600);
/// Range of limits of connections and of admin commands per second.
const CONNECTIONS: RangeInclusive<u32> = 1..=1_000_000;

/// Queues that one host can be allowed: an admin queue and an I/O queue are the least to do anything with.
const HOST_QUEUES: RangeInclusive<u32> = 2..=1_000_000;

impl Checker<'_> {
    /// All limits.
    pub(super) fn limits(&mut self, written: &keys::Limits, io_threads: u32) -> Limits {
        let default = Limits::default();
        let max_memory = self.max_memory(written.max_memory.as_ref());
        let buffer_memory = self.buffer_memory(written.buffer_memory.as_ref(), max_memory, io_threads);
        let left = max_memory.saturating_sub(buffer_memory).max(MIN_QUEUE_MEMORY);
        let queues = written.max_io_queues.as_ref();
        let depth = written.max_queue_depth.as_ref();
        let queue_memory = self.queue_memory(written.queue_memory.as_ref(), max_memory, left);
        let host_memory = MIN_HOST_MEMORY.min(queue_memory)..=queue_memory;
        let (pending, of_address) = (written.max_pending.as_ref(), written.max_address_pending.as_ref());
        Limits {
            max_memory,
            buffer_memory,
            queue_memory,
            max_host_memory: self.size(
                written.max_host_memory.as_ref(),
                &host_memory,
                queue_memory / 4 * 3,
                "for the queues of one host",
                "queue_memory",
            ),
            admin_rate: self.number(written.admin_rate.as_ref(), CONNECTIONS, default.admin_rate, "admin commands"),
            max_pending: self.number(pending, CONNECTIONS, default.max_pending, "connections"),
            max_address_pending: self.number(of_address, CONNECTIONS, default.max_address_pending, "connections"),
            max_connections: self.number(
                written.max_connections.as_ref(),
                CONNECTIONS,
                default.max_connections,
                "connections",
            ),
            max_host_queues: self.number(
                written.max_host_queues.as_ref(),
                HOST_QUEUES,
                default.max_host_queues,
                "queues of one host",
            ),
            max_io_queues: self.number(queues, 1..=MAX_IO_QUEUES, default.max_io_queues, "I/O queues"),
            max_queue_depth: self.number(depth, 2..=MAX_QUEUE_DEPTH, default.max_queue_depth, "entries in a queue"),
            icreq_timeout: self.timeout(written.icreq_timeout.as_ref(), default.icreq_timeout),
            drain_timeout: self.timeout(written.drain_timeout.as_ref(), default.drain_timeout),
        }
    }

    /// The memory limit, by default three quarters of the memory of the machine, or of its container.
    fn max_memory(&mut self, written: Option<&Text>) -> u64 {
        let mebibytes = |bytes: u64| bytes & !((1 << 20) - 1);
        if self.machine.memory.is_none() && written.is_none() {
            let help = "mount /proc, or set `max_memory` in [limits] (--max-memory)";
            let what = "the memory of this machine is not known: /proc/meminfo cannot be read";
            self.problem(Problem::error(&Origin::Default, what).help(help));
        }
        let most = self.machine.memory.unwrap_or(u64::MAX);
        let default = mebibytes(most / 4 * 3).max(MIN_MEMORY);
        let range = MIN_MEMORY..=mebibytes(most).max(MIN_MEMORY);
        self.size(written, &range, default, "of memory", "the memory of this machine or container")
    }

    /// The part of the memory that holds data on the way.
    fn buffer_memory(&mut self, written: Option<&Text>, max_memory: u64, io_threads: u32) -> u64 {
        let least = MIN_BUFFERS_PER_THREAD * u64::from(io_threads);
        let most = max_memory.saturating_sub(MIN_QUEUE_MEMORY);
        if least > most {
            let at = written.map_or(Origin::Default, |text| text.at.clone());
            let what = format!(
                "{io_threads} I/O threads need at least {} of buffers and {} for queues, and max_memory is {}",
                format_size(least),
                format_size(MIN_QUEUE_MEMORY),
                format_size(max_memory)
            );
            self.problem(Problem::error(&at, what).help("raise max_memory, or use fewer I/O threads"));
            return least;
        }
        let default = (BUFFERS_PER_THREAD * u64::from(io_threads)).min(max_memory / 2).max(least);
        self.size(written, &(least..=most), default, "of buffers", "max_memory less the minimum for queues")
    }

    /// Memory for the state of queues; `left` is the memory that buffers do not use.
    fn queue_memory(&mut self, written: Option<&Text>, max_memory: u64, left: u64) -> u64 {
        let mebibytes = (max_memory / QUEUE_MEMORY_ONE_IN) & !((1 << 20) - 1);
        let default = mebibytes.clamp(MIN_QUEUE_MEMORY, MAX_QUEUE_MEMORY).min(left);
        let range = MIN_QUEUE_MEMORY..=left;
        self.size(written, &range, default, "for queues", "max_memory less buffer_memory")
    }

    /// A size within `range`; `what` is the unit, `most` explains the upper bound.
    fn size(
        &mut self,
        written: Option<&Text>,
        range: &RangeInclusive<u64>,
        default: u64,
        what: &str,
        most: &str,
    ) -> u64 {
        let Some(text) = written else { return default };
        match parse_size(&text.value) {
            Ok(bytes) if range.contains(&bytes) => bytes,
            Ok(_) => {
                let help = format!("use {} to {} ({most})", format_size(*range.start()), format_size(*range.end()));
                self.problem(Problem::error(&text.at, format!("{} {what}", text.value)).help(help));
                default
            }
            Err(wrong) => {
                self.error(&text.at, wrong);
                default
            }
        }
    }

    fn timeout(&mut self, written: Option<&Text>, default: Duration) -> Duration {
        let Some(text) = written else { return default };
        match parse_duration(&text.value) {
            Ok(duration) if TIMEOUTS.contains(&duration) => duration,
            Ok(_) => {
                let help =
                    format!("use {} to {}", format_duration(*TIMEOUTS.start()), format_duration(*TIMEOUTS.end()));
                self.problem(Problem::error(&text.at, format!("a timeout of {}", text.value)).help(help));
                default
            }
            Err(wrong) => {
                self.error(&text.at, wrong);
                default
            }
        }
    }

    /// Notes namespaces in memory that cannot all be filled.
    pub(super) fn note_overcommitment(&mut self, draft: &Draft, config: &ServerConfig) {
        let at = draft.limits.max_memory.as_ref().map_or(Origin::Default, |text| text.at.clone());
        if let Some(problem) = overcommitment(config, &at) {
            self.problem(problem);
        }
    }
}

/// The problem that namespaces in memory cannot all be filled; an error if they take their memory at once.
pub(in crate::config) fn overcommitment(config: &ServerConfig, at: &Origin) -> Option<Problem> {
    let namespaces = config.subsystems.iter().flat_map(|subsystem| &subsystem.namespaces);
    let sum =
        |size: fn(&BackendSpec) -> u64| namespaces.clone().map(|ns| size(&ns.backend)).fold(0, u64::saturating_add);
    let (promised, preallocated) = (sum(BackendSpec::memory), sum(BackendSpec::preallocated_memory));
    let there = config.limits.namespace_memory();
    if promised <= there {
        return None;
    }
    let fails = preallocated > there;
    let what = format!(
        "namespaces in memory {}add up to {}, and there is room for {} (max_memory {} less {} of buffers and {} for queues)",
        if fails { "with hugepages " } else { "" },
        format_size(if fails { preallocated } else { promised }),
        format_size(there),
        format_size(config.limits.max_memory),
        format_size(config.limits.buffer_memory),
        format_size(config.limits.queue_memory)
    );
    if fails {
        let help = "make them smaller, raise max_memory, or omit ',hugepages': then only written blocks take memory";
        return Some(Problem::error(at, what).help(help));
    }
    let help = "writes beyond that will fail with Capacity Exceeded; only written blocks take memory";
    Some(Problem::warning(at, what).help(help))
}
