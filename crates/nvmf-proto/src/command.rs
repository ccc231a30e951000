//! Decodes submission queue entries: namespace, blocks, length and direction of data.
//!
//! Commands that can be refused before data moves are refused here, with the status from the specification (Base 3.3.3,
//! 4.1; NVM 3.2).

use pilotlight_nvme::command::{DsmRange, Sgl, cdw12, fuse, opcode};
use pilotlight_nvme::reservation::{Acquire, Register, Release};
use pilotlight_nvme::{Sqe, Status};
use pilotlight_storage::buffer::MAX_BUFFER;

use crate::operation::Operation;
use crate::reservation::Command;
use crate::reservation::access::Group;
use crate::services::NamespaceTable;
use crate::subsystems::views::ViewId;

/// Maximum ranges of a Dataset Management command that a host is told (DMRL): one byte cannot state the 256 of its format.
pub(crate) const DSM_RANGES: u8 = 255;
/// Maximum blocks of all its ranges together, and so of one, that a host is told (DMSL, DMRSL; NVM 4.1.5.2): 8 GiB of 512 bytes.
/// A host may have a hundred such commands in progress, all of which have to end within its time-out, often 30 s. Larger ones
/// are served: Linux before 5.13 sends them.
pub(crate) const DSM_BLOCKS: u32 = 1 << 24;
/// Maximum bytes of a Write Zeroes or Verify command (WZSL, VSL): 65,536 blocks of 512 bytes.
pub(crate) const MAX_ZEROES: u32 = 32 << 20;

/// Attribute of Dataset Management (NVM 3.3.3): the ranges may be deallocated.
const DEALLOCATE: u32 = 1 << 2;

/// A range of logical blocks of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Index of the namespace in the [`NamespaceTable`].
    pub namespace: u32,
    /// First logical block.
    pub lba: u64,
    /// Number of blocks.
    pub blocks: u32,
}

/// Work of a command.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// Nothing.
    None,
    /// Read.
    Read(Range),
    /// Write; `fua` is Force Unit Access.
    Write {
        /// The blocks.
        range: Range,
        /// Force Unit Access.
        fua: bool,
    },
    /// Compare with the host's data.
    Compare(Range),
    /// The first command of a fused operation, whose second has not arrived.
    FirstHalf(Sqe),
    /// The Compare of a fused operation; its Write is in another slot.
    FusedCompare {
        /// That slot.
        write: u16,
    },
    /// The Write of a fused operation, which executes both; its Compare is in another slot.
    FusedWrite {
        /// The blocks of both.
        range: Range,
        /// Force Unit Access.
        fua: bool,
        /// That slot.
        compare: u16,
    },
    /// Verify: read without transfer; `done` blocks have been read.
    Verify {
        /// The blocks.
        range: Range,
        /// Blocks read so far.
        done: u32,
    },
    /// Flush of one namespace.
    Flush {
        /// Index of the namespace.
        namespace: u32,
    },
    /// Flush of every namespace of the subsystem (NSID FFFFFFFFh), in spite of failures.
    FlushAll {
        /// Index of the next namespace.
        next: u32,
        /// The first failure; Successful Completion if none.
        failed: Status,
    },
    /// Write Zeroes.
    Zero {
        /// The blocks.
        range: Range,
        /// Force Unit Access.
        fua: bool,
        /// The space may be freed.
        deallocate: bool,
        /// Blocks done so far.
        done: u32,
    },
    /// Dataset Management: deallocates `ranges` ranges.
    Deallocate {
        /// Index of the namespace.
        namespace: u32,
        /// Number of ranges.
        ranges: u32,
        /// Ranges done.
        done: u32,
        /// Blocks done of the next range.
        offset: u32,
    },
    /// A reservation command.
    Reservation(Sqe),
    /// A command on the reservation of a namespace that another thread executes.
    AwaitReservation,
    /// A command of the admin queue for the controller.
    Admin(Sqe),
    /// Identify that needs the allocated bytes of a namespace.
    Utilization(Sqe),
    /// An admin command that waits for its host's rate.
    AwaitRate(Sqe),
    /// An admin command within its host's rate.
    Counted(Sqe),
    /// Authentication Send or Receive.
    Authenticate(Sqe),
    /// Authentication Send whose message is being checked.
    AwaitAuthentication,
    /// Abort waiting for another queue.
    AwaitAbort,
    /// An Async Event Request.
    AwaitEvent,
}

impl Work {
    /// The operation of an I/O command on one namespace.
    #[inline]
    #[must_use]
    pub fn operation(&self) -> Option<Operation> {
        match self {
            Self::Read(_) => Some(Operation::Read),
            Self::Write { .. } | Self::FusedWrite { .. } => Some(Operation::Write),
            Self::Compare(_) | Self::FusedCompare { .. } => Some(Operation::Compare),
            Self::Verify { .. } => Some(Operation::Verify),
            Self::Flush { .. } => Some(Operation::Flush),
            Self::Zero { .. } => Some(Operation::WriteZeroes),
            Self::Deallocate { .. } => Some(Operation::Deallocate),
            _ => None,
        }
    }

    /// The group of an I/O command on one namespace, for reservations.
    #[inline]
    #[must_use]
    pub fn group(&self) -> Option<Group> {
        match self {
            Self::Read(_) | Self::Compare(_) | Self::Verify { .. } => Some(Group::Read),
            Self::Write { .. }
            | Self::FusedWrite { .. }
            | Self::Flush { .. }
            | Self::Zero { .. }
            | Self::Deallocate { .. } => Some(Group::Write),
            _ => None,
        }
    }

    /// Index of the namespace of an I/O command, and its first LBA, if any.
    #[inline]
    #[must_use]
    pub fn target(&self) -> Option<(u32, Option<u64>)> {
        match self {
            Self::Read(range)
            | Self::Compare(range)
            | Self::Write { range, .. }
            | Self::FusedWrite { range, .. }
            | Self::Verify { range, .. }
            | Self::Zero { range, .. } => Some((range.namespace, Some(range.lba))),
            Self::Flush { namespace, .. } | Self::Deallocate { namespace, .. } => Some((*namespace, None)),
            _ => None,
        }
    }
}

/// The operation of an I/O command by its opcode.
#[inline]
#[must_use]
pub(crate) fn operation_of(sqe: &Sqe) -> Option<Operation> {
    use opcode::io::{COMPARE, DATASET_MANAGEMENT, FLUSH, READ, VERIFY, WRITE, WRITE_ZEROES};
    match sqe.opcode {
        READ => Some(Operation::Read),
        WRITE => Some(Operation::Write),
        FLUSH => Some(Operation::Flush),
        COMPARE => Some(Operation::Compare),
        VERIFY => Some(Operation::Verify),
        WRITE_ZEROES => Some(Operation::WriteZeroes),
        DATASET_MANAGEMENT => Some(Operation::Deallocate),
        _ => None,
    }
}

/// Direction of a command's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// No data.
    None,
    /// Controller to host.
    ToHost,
    /// Host to controller.
    FromHost,
}

/// A decoded command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// The work.
    pub work: Work,
    /// Bytes of data.
    pub len: u32,
    /// Their direction.
    pub direction: Direction,
}

/// Decodes a command that arrived on an I/O queue of a host with this view.
///
/// # Errors
/// The status to complete it with.
pub(crate) fn decode_io(sqe: &Sqe, view: ViewId, namespaces: &impl NamespaceTable) -> Result<Plan, Status> {
    use opcode::io::{COMPARE, DATASET_MANAGEMENT, FLUSH, READ, VERIFY, WRITE, WRITE_ZEROES};
    if !matches!(sqe.opcode, FLUSH | WRITE | READ | COMPARE | WRITE_ZEROES | DATASET_MANAGEMENT | VERIFY) {
        return decode_reservation(sqe, view, namespaces);
    }
    if sqe.fuse() != fuse::NONE {
        return Err(Status::INVALID_FIELD.dnr()); // no command of its own: `queue_pair/fused.rs`
    }
    let nsid = sqe.nsid.get();
    if sqe.opcode == FLUSH && nsid == u32::MAX {
        return Ok(Plan::without_data(Work::FlushAll { next: 0, failed: Status::SUCCESS }));
    }
    let namespace = namespaces.index_of(view, nsid).ok_or(Status::INVALID_NAMESPACE.dnr())?;
    let deallocates = sqe.opcode == DATASET_MANAGEMENT && sqe.cdw11() & DEALLOCATE != 0;
    if (deallocates || matches!(sqe.opcode, WRITE | WRITE_ZEROES)) && namespaces.geometry(namespace).is_read_only {
        return Err(Status::WRITE_PROTECTED.dnr());
    }
    match sqe.opcode {
        FLUSH => Ok(Plan::without_data(Work::Flush { namespace })),
        DATASET_MANAGEMENT => decode_dsm(sqe, namespace),
        _ => decode_block_io(sqe, namespace, namespaces),
    }
}

/// A reservation command. Its fields are checked when its data has arrived.
#[cold]
fn decode_reservation(sqe: &Sqe, view: ViewId, namespaces: &impl NamespaceTable) -> Result<Plan, Status> {
    use opcode::io::{RESERVATION_ACQUIRE, RESERVATION_REGISTER, RESERVATION_RELEASE, RESERVATION_REPORT};
    let (len, direction) = match sqe.opcode {
        RESERVATION_REGISTER => (Register::LEN, Direction::FromHost),
        RESERVATION_ACQUIRE => (Acquire::LEN, Direction::FromHost),
        // Linux before 6.13 sends as much as for the others.
        RESERVATION_RELEASE if sqe.sgl.length.get() == Acquire::LEN => (Acquire::LEN, Direction::FromHost),
        RESERVATION_RELEASE => (Release::LEN, Direction::FromHost),
        RESERVATION_REPORT => (Command::report_len(sqe)?, Direction::ToHost),
        _ => return Err(Status::INVALID_OPCODE.dnr()),
    };
    if sqe.fuse() != fuse::NONE {
        return Err(Status::INVALID_FIELD.dnr());
    }
    namespaces.index_of(view, sqe.nsid.get()).ok_or(Status::INVALID_NAMESPACE.dnr())?;
    Ok(Plan { work: Work::Reservation(*sqe), len, direction })
}

fn decode_dsm(sqe: &Sqe, namespace: u32) -> Result<Plan, Status> {
    const MAX_RANGES: u32 = 256;
    const ENTRY: u32 = size_of::<DsmRange>() as u32;
    let ranges = (sqe.cdw10() & 0xff) + 1;
    // Linux always sends a whole page.
    let len = sqe.sgl.length.get();
    // Transports move data in units of four bytes.
    if !(ranges * ENTRY..=MAX_RANGES * ENTRY).contains(&len) || !len.is_multiple_of(4) {
        return Err(Status::SGL_LENGTH_INVALID.dnr());
    }
    let ranges = if sqe.cdw11() & DEALLOCATE != 0 { ranges } else { 0 }; // hints without deallocation have no effect
    let work = Work::Deallocate { namespace, ranges, done: 0, offset: 0 };
    Ok(Plan { work, len, direction: Direction::FromHost })
}

fn decode_block_io(sqe: &Sqe, namespace: u32, namespaces: &impl NamespaceTable) -> Result<Plan, Status> {
    use opcode::io::{COMPARE, READ, VERIFY, WRITE, WRITE_ZEROES};
    let geometry = namespaces.geometry(namespace);
    let flags = sqe.cdw12();
    let range = Range { namespace, lba: sqe.slba(), blocks: (flags & 0xffff) + 1 };
    if flags & cdw12::PRINFO != 0 {
        return Err(Status::INVALID_FIELD.dnr()); // no namespace has protection information
    }
    let end = range.lba.checked_add(u64::from(range.blocks));
    if end.is_none_or(|end| end > geometry.blocks) {
        return Err(Status::LBA_OUT_OF_RANGE.dnr());
    }
    let len = range.blocks * geometry.block_size;
    if matches!(sqe.opcode, READ | WRITE | COMPARE) && len as usize > MAX_BUFFER {
        return Err(Status::INVALID_FIELD.dnr()); // over MDTS
    }
    if matches!(sqe.opcode, VERIFY | WRITE_ZEROES) && len > MAX_ZEROES {
        return Err(Status::INVALID_FIELD.dnr()); // over VSL, WZSL
    }
    let fua = flags & cdw12::FUA != 0;
    Ok(match sqe.opcode {
        READ => Plan { work: Work::Read(range), len, direction: Direction::ToHost },
        WRITE => Plan { work: Work::Write { range, fua }, len, direction: Direction::FromHost },
        COMPARE => Plan { work: Work::Compare(range), len, direction: Direction::FromHost },
        VERIFY => Plan::without_data(Work::Verify { range, done: 0 }),
        WRITE_ZEROES => Plan::without_data(Work::Zero { range, fua, deallocate: flags & cdw12::DEAC != 0, done: 0 }),
        _ => return Err(Status::INVALID_OPCODE.dnr()),
    })
}

impl Plan {
    /// A plan without data.
    #[inline]
    #[must_use]
    pub(crate) const fn without_data(work: Work) -> Self {
        Self { work, len: 0, direction: Direction::None }
    }
}

/// Location of a command's data, by its SGL descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DataLocation {
    /// No data moves.
    None,
    /// In the capsule.
    InCapsule,
    /// Moved by the transport.
    Transport,
}

/// Checks a command's PSDT and SGL descriptor against its data; `in_capsule` bytes came with the capsule.
///
/// # Errors
/// The status to complete it with.
#[inline]
pub(crate) fn check_sgl(sqe: &Sqe, plan: &Plan, in_capsule: usize) -> Result<DataLocation, Status> {
    const PSDT_SGL: u8 = 1;
    if plan.direction == Direction::None || plan.len == 0 {
        return Ok(DataLocation::None);
    }
    if sqe.psdt() != PSDT_SGL {
        return Err(Status::INVALID_FIELD.dnr());
    }
    let length = sqe.sgl.length.get();
    match (plan.direction, sqe.sgl.identifier) {
        (Direction::ToHost, Sgl::TRANSPORT) if length >= plan.len => Ok(DataLocation::Transport),
        (Direction::FromHost, Sgl::TRANSPORT) if length == plan.len => Ok(DataLocation::Transport),
        (Direction::FromHost, Sgl::IN_CAPSULE) => {
            if sqe.sgl.address.get() != 0 {
                return Err(Status::SGL_OFFSET_INVALID.dnr()); // ICDOFF is 0
            }
            if length != plan.len || in_capsule != plan.len as usize {
                return Err(Status::SGL_LENGTH_INVALID.dnr());
            }
            Ok(DataLocation::InCapsule)
        }
        (_, Sgl::TRANSPORT) => Err(Status::SGL_LENGTH_INVALID.dnr()),
        _ => Err(Status::SGL_TYPE_INVALID.dnr()),
    }
}

#[cfg(test)]
mod tests {
    use pilotlight_storage::lease::Lease;
    use pilotlight_storage::{Channel, Geometry};

    use std::sync::Arc;

    use super::*;
    use crate::payload::{LoanId, Loans};
    use crate::reservation::published::Reservation;
    use crate::subsystems::failures::Failures;
    use crate::subsystems::listing::NamespaceList;

    /// Hints without deallocation change nothing.
    #[test]
    fn a_read_only_namespace_refuses_changes() {
        use opcode::io::{COMPARE, DATASET_MANAGEMENT, FLUSH, READ, VERIFY, WRITE, WRITE_ZEROES};
        for is_read_only in [false, true] {
            let namespaces = namespaces_of(4096, is_read_only);
            for (opcode, cdw11, changes) in [
                (WRITE, 0, true),
                (WRITE_ZEROES, 0, true),
                (DATASET_MANAGEMENT, DEALLOCATE, true),
                (DATASET_MANAGEMENT, 1, false),
                (READ, 0, false),
                (COMPARE, 0, false),
                (VERIFY, 0, false),
                (FLUSH, 0, false),
            ] {
                let mut sqe = Sqe::block_io(opcode, 1, 0, 1);
                if opcode == DATASET_MANAGEMENT {
                    (sqe.cdw[0], sqe.cdw[1]) = (0.into(), cdw11.into());
                    sqe.sgl.length = 16.into();
                }
                let result = decode_io(&sqe, ViewId::whole(0), &namespaces).map(drop);
                let expected = if changes && is_read_only { Err(Status::WRITE_PROTECTED.dnr()) } else { Ok(()) };
                assert_eq!(result, expected, "{opcode:#x} {cdw11}");
            }
        }
    }

    /// Namespace 1 alone; nothing is submitted to it.
    struct One(Geometry);

    impl NamespaceTable for One {
        fn index_of(&self, _view: ViewId, nsid: u32) -> Option<u32> {
            (nsid == 1).then_some(0)
        }

        fn next_of(&self, _view: ViewId, from: u32) -> Option<u32> {
            (from == 0).then_some(0)
        }

        fn geometry(&self, _index: u32) -> Geometry {
            self.0
        }

        fn channel(&mut self, _index: u32) -> Option<&mut dyn Channel> {
            None
        }

        fn lease(&self, _index: u32) -> Option<&Lease> {
            None
        }

        fn borrow(&mut self, _index: u32, _lba: u64, _blocks: u32) -> Option<LoanId> {
            None
        }

        fn loans(&self) -> &Loans {
            unreachable!("decoding lends nothing")
        }

        fn failures(&self, _index: u32) -> Option<&Failures> {
            None
        }

        fn note_reference(&mut self, _index: u32) {}

        fn list(&self) -> &NamespaceList {
            unreachable!("decoding lists nothing")
        }

        fn is_restricted(&self, _index: u32, _group: Group) -> bool {
            false
        }

        fn reservation(&self, _index: u32) -> Option<&Arc<Reservation>> {
            None
        }
    }

    fn namespaces(block_size: u32) -> One {
        namespaces_of(block_size, false)
    }

    fn namespaces_of(block_size: u32, is_read_only: bool) -> One {
        One(Geometry {
            block_size,
            blocks: 1 << 20,
            volatile_write_cache: false,
            deallocated_reads_zero: true,
            is_read_only,
        })
    }

    /// WZSL, VSL and MDTS are exact.
    #[test]
    fn commands_over_the_stated_limits_are_refused() {
        use opcode::io::{COMPARE, READ, VERIFY, WRITE, WRITE_ZEROES};
        let large = namespaces(4096);
        for (opcode, most) in [(READ, 32), (WRITE, 32), (COMPARE, 32), (WRITE_ZEROES, 8192), (VERIFY, 8192)] {
            assert!(decode_io(&Sqe::block_io(opcode, 1, 0, most), ViewId::whole(0), &large).is_ok());
            let refused = decode_io(&Sqe::block_io(opcode, 1, 0, most + 1), ViewId::whole(0), &large)
                .expect_err("over the limit");
            assert_eq!(refused, Status::INVALID_FIELD.dnr());
        }
        let longest = Sqe::block_io(WRITE_ZEROES, 1, 0, 65_536);
        assert!(decode_io(&longest, ViewId::whole(0), &namespaces(512)).is_ok(), "the maximum of a command");
    }
}
