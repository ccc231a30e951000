//! Reservations of a namespace by one host, and what another one is answered.

use pilotlight_host::{Buffers, ConnectOptions, Connection, Controller, HostError, QueueSpec};
use pilotlight_nvme::command::opcode::io;
use pilotlight_nvme::{Sqe, Status};

use super::BLOCK;

const KEY: u64 = 0x5eed;
/// RTYPE: Write Exclusive.
const WRITE_EXCLUSIVE: u32 = 1;

fn queue(options: &ConnectOptions) -> Result<(Controller, Connection), HostError> {
    let controller = Controller::connect(options.clone())?;
    let queue = controller.open_queue(&QueueSpec { qid: 1, depth: 1, max_io: BLOCK, buffers: Buffers::PerCommand })?;
    Ok((controller, queue))
}

/// Registers the host and acquires a Write Exclusive reservation, which outlives the connection.
pub(crate) fn reserve(options: &ConnectOptions, nsid: u32) -> Result<(), HostError> {
    let (_controller, mut queue) = queue(options)?;
    let keys = |first: u64, second: u64| [first.to_le_bytes(), second.to_le_bytes()].concat();
    let register = Sqe::new(io::RESERVATION_REGISTER, nsid);
    queue.execute("Reservation Register", register, &keys(0, KEY), &mut [])?;
    let acquire = Sqe::new(io::RESERVATION_ACQUIRE, nsid).with_cdw(10, WRITE_EXCLUSIVE << 8);
    queue.execute("Reservation Acquire", acquire, &keys(KEY, 0), &mut [])?;
    Ok(())
}

/// The status of a write.
pub(crate) fn write(options: &ConnectOptions, nsid: u32) -> Result<Status, HostError> {
    let (_controller, mut queue) = queue(options)?;
    let cid = queue.submit(Sqe::block_io(io::WRITE, nsid, 0, 1), &[0xee; BLOCK as usize], 0)?;
    Ok(queue.wait(cid, "the write", &mut [])?.status)
}
