//! Reads the allocated bytes of namespaces from their media.
//!
//! Reading may block (`fstat` and `lseek` take locks of the file system). So an Identify command that reports the number is parked until
//! another thread ([`super::offload`]) has read it. If the queue of requests is full, the command reports the last value.

use crossbeam_queue::ArrayQueue;
use pilotlight_nvmf_proto::services::UtilizationRequest;
use pilotlight_reactor::Sender;

use super::Shared;
use super::offload::{Offload, serve_each};
use crate::offload::Requests;
use crate::thread::message::Message;

impl Offload for UtilizationRequest {
    const NAME: &'static str = "utilization";

    type Queue = ArrayQueue<Self>;

    fn queue(shared: &Shared) -> &Requests<Self::Queue> {
        &shared.utilization
    }

    fn serve(shared: &Shared, threads: &[Sender<Message>]) {
        serve_each(shared, threads, run);
    }
}

fn run(request: UtilizationRequest, shared: &Shared) -> (u16, Message) {
    let UtilizationRequest { subsystem, nsid, admin, slot, generation } = request;
    shared.read_utilization(subsystem, nsid);
    (admin.thread, Message::Utilization { admin, slot, generation })
}
