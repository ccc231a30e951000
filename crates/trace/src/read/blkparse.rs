//! Text of `blkparse` in its default format: `8,0 3 1 0.000000000 697 Q W 223490 + 8 [kjournald]`.
//!
//! Source: blkparse(1), "Default output" and "Action identifiers": device as major and minor, CPU, sequence number,
//! seconds with nanoseconds, process, action, RWBS, and for a queued or issued request the first sector, `+` and the number of sectors of
//! 512 bytes. One action of each request is used: `Q` (queued, the default) or `D` (issued to the driver). Other actions, requests
//! without data (flushes), discards and the summary at the end are skipped. The volume is the kernel's device number: major x 2^20 +
//! minor.

use super::fields::{
    LineParser, NS_PER_S, Raw, SECTOR, decimal, is_remark, sectors_u32, split_blanks, times, whole_u32,
};
use crate::request::{Op, Reason};

/// The action of `blkparse` that is a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BlkparseAction {
    /// `Q`: queued.
    #[default]
    Queued,
    /// `D`: issued to the driver.
    Issued,
}

impl BlkparseAction {
    fn letter(self) -> u8 {
        match self {
            Self::Queued => b'Q',
            Self::Issued => b'D',
        }
    }
}

#[derive(Default)]
pub(super) struct Blkparse {
    action: BlkparseAction,
    /// Unit of the times instead of seconds, in nanoseconds.
    unit_ns: Option<u64>,
    /// Whether there are events of other actions with data, and of the one that could be a request too.
    has_others: bool,
    has_alternative: bool,
}

impl Blkparse {
    pub(super) fn new(action: BlkparseAction, unit_ns: Option<u64>) -> Self {
        Self { action, unit_ns, ..Self::default() }
    }
}

impl LineParser for Blkparse {
    fn parse(&mut self, line: &[u8]) -> Result<Option<Raw>, Reason> {
        if is_remark(line) {
            return Ok(None);
        }
        let mut all = [&line[..0]; 10];
        let mut found = 0;
        for (place, word) in all.iter_mut().zip(split_blanks(line)) {
            *place = word;
            found += 1;
        }
        let [device, cpu, _sequence, at, _process, action, rwbs, sector, plus, sectors] = all;
        let Some(comma) = device.iter().position(|&b| b == b',').filter(|_| found >= 6) else {
            return summary(device).ok_or(Reason::Fields { expected: "6 or more", found });
        };
        let (major, minor) = (whole_u32(&device[..comma], "major")?, whole_u32(&device[comma + 1..], "minor")?);
        if major > 0xfff || minor > 0xf_ffff {
            return Err(Reason::TooLarge { field: "device" });
        }
        whole_u32(cpu, "cpu")?;
        let clock_ns = decimal(at, self.unit_ns.unwrap_or(NS_PER_S), "time")?;
        let Some(op) = operation(rwbs).filter(|_| plus == b"+") else { return Ok(None) };
        if action != [self.action.letter()] {
            self.has_others = true;
            self.has_alternative |= matches!(action, b"Q" | b"D");
            return Ok(None);
        }
        let raw = Raw {
            clock_ns,
            volume: (major << 20) | minor,
            op,
            offset: times(sector, SECTOR, "sector")?,
            bytes: sectors_u32(sectors, "sectors")?,
        };
        raw.checked().map(Some)
    }

    fn empty_reason(&self) -> Option<&'static str> {
        match self.action {
            BlkparseAction::Queued if self.has_alternative => {
                Some("it has D events (issued) and no Q event (queued); use --blkparse-action issued")
            }
            BlkparseAction::Issued if self.has_alternative => {
                Some("it has Q events (queued) and no D event (issued); use --blkparse-action queued")
            }
            _ if self.has_others => {
                Some("it has neither Q nor D events; record them with `blktrace -a queue -a issue`")
            }
            _ => None,
        }
    }
}

/// Parses RWBS: reads have `R`, writes `W`; discards (`D`) have no data.
fn operation(rwbs: &[u8]) -> Option<Op> {
    if rwbs.contains(&b'D') {
        return None;
    }
    let reads = rwbs.contains(&b'R').then_some(Op::Read);
    reads.or(rwbs.contains(&b'W').then_some(Op::Write))
}

/// Lines of the summary: `CPU0 (sda):`, `Total (sda):`, ` Reads Queued: ...`, `Throughput ...`, `Events ...`, `Skips: ...`.
fn summary(first: &[u8]) -> Option<Option<Raw>> {
    const FIRST_WORDS: [&[u8]; 12] = [
        b"Total",
        b"Reads",
        b"Writes",
        b"Read",
        b"Write",
        b"IO",
        b"Throughput",
        b"Events",
        b"Skips:",
        b"Input",
        b"PC",
        b"Allocation",
    ];
    (FIRST_WORDS.contains(&first) || first.starts_with(b"CPU")).then_some(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of blkparse(1), a flush and a discard, and the summary.
    const TEXT: &str = "\
  8,0    3        1     0.000000000   697  G   W 223490 + 8 [kjournald]
  8,0    3        2     0.000001829   697  P   R [kjournald]
  8,0    3        3     0.000002197   697  Q   W 223490 + 8 [kjournald]
  8,0    3        4     0.000005533   697  M   W 223498 + 8 [kjournald]
  8,0    3       11     0.000016520   697  D   W 223490 + 56 [kjournald]
  8,0    1        2     0.000020000     0  C   R 16 + 8 [0]
259,3    1        3     1.500000000   697  Q  RA 16 + 8 [fio]
  8,0    1        4     1.600000000   697  Q FWS [fio]
  8,0    1        5     1.700000000   697  Q   D 0 + 4096 [fstrim]
CPU3 (8,0):
 Reads Queued:           0,        0KiB\t Writes Queued:           7,      128KiB
Total (8,0):
Throughput (R/W): 0KiB/s / 575KiB/s
Events (8,0): 18 entries
Skips: 0 forward (0 -   0.0%)";

    fn all(action: BlkparseAction) -> Vec<Raw> {
        let mut parser = Blkparse::new(action, None);
        TEXT.lines().filter_map(|line| parser.parse(line.as_bytes()).unwrap()).collect()
    }

    #[test]
    fn one_action_of_each_request_is_used() {
        let queued = all(BlkparseAction::Queued);
        let [queued, other] = queued[..] else { panic!("{queued:?}") };
        let volume = 8 << 20;
        assert_eq!(queued, Raw { clock_ns: 2197, volume, op: Op::Write, offset: 223_490 * 512, bytes: 4096 });
        assert_eq!((other.clock_ns, other.volume, other.op), (1_500_000_000, (259 << 20) | 3, Op::Read));
        assert_eq!(all(BlkparseAction::Issued).iter().map(|raw| raw.bytes).collect::<Vec<_>>(), [56 * 512]);
    }

    #[test]
    fn lines_that_are_not_events_are_malformed() {
        for line in ["garbage", "8,0 3 1 0.0 697", "8,0 3 1 now 697 Q W 1 + 8", "8,x 3 1 0.0 697 Q W 1 + 8"] {
            assert!(Blkparse::default().parse(line.as_bytes()).is_err(), "{line}");
        }
    }

    #[test]
    fn events_that_are_not_used_are_named() {
        let event = |action: &str| format!("8,0 1 1 0.0 697 {action} W 8 + 8 [fio]\n");
        for (text, action, expected) in [
            (event("D") + &event("C"), BlkparseAction::Queued, Some("--blkparse-action issued")),
            (event("Q"), BlkparseAction::Issued, Some("--blkparse-action queued")),
            (event("C"), BlkparseAction::Queued, Some("blktrace -a queue")),
            ("8,0 1 1 0.0 697 P N [fio]\n".into(), BlkparseAction::Queued, None),
        ] {
            let mut parser = Blkparse::new(action, None);
            assert!(text.lines().all(|line| parser.parse(line.as_bytes()) == Ok(None)), "{text}");
            let instead = parser.empty_reason();
            assert_eq!(instead.is_some(), expected.is_some(), "{text}");
            assert!(instead.unwrap_or_default().contains(expected.unwrap_or_default()), "{text}: {instead:?}");
        }
    }
}
