//! In-band authentication of a queue after its Connect (Base 8.3.4, DH-HMAC-CHAP).

use std::sync::Arc;

use pilotlight_auth::tls::RetainedPsk;
use pilotlight_auth::{Config, Initiator, Status, Step, kernel_random};
use pilotlight_nvme::fabrics::{AuthenticationCmd, fctype};

use crate::connection::Connection;
use crate::error::HostError;

/// Space for a message.
pub(crate) const MESSAGE_BYTES: usize = 4096;

/// Authenticates the queue; `t_id` is unique among the queues of the controller. Returns the key that it has generated, if the policy
/// requests one.
pub(crate) fn authenticate(
    connection: &mut Connection,
    config: &Arc<Config>,
    t_id: u16,
) -> Result<Option<RetainedPsk>, HostError> {
    let mut initiator = Initiator::new(Arc::clone(config));
    let mut message = initiator.start(t_id);
    loop {
        send(connection, &message)?;
        match initiator.status() {
            Status::Authenticated(_) => return Ok(initiator.take_psk()),
            Status::Failed { failure, .. } => return Err(HostError::Authentication(failure)),
            Status::Idle | Status::InProgress => {}
        }
        let mut step = initiator.on_receive(&receive(connection)?);
        while let Step::Compute(work) = step {
            step = initiator.on_done(work.run(&mut kernel_random));
        }
        message = match (step, initiator.status()) {
            (Step::Send(message), _) => message,
            (_, Status::Authenticated(_)) => return Ok(initiator.take_psk()),
            (_, Status::Failed { failure, .. }) => return Err(HostError::Authentication(failure)),
            _ => return Err(HostError::Authentication(pilotlight_auth::Failure::IncorrectMessage)),
        };
    }
}

fn send(connection: &mut Connection, message: &[u8]) -> Result<(), HostError> {
    let sqe = AuthenticationCmd::encode(fctype::AUTHENTICATION_SEND, message.len() as u32);
    connection.execute("Authentication Send", sqe, message, &mut []).map(drop)
}

fn receive(connection: &mut Connection) -> Result<Vec<u8>, HostError> {
    let mut message = vec![0; MESSAGE_BYTES];
    let sqe = AuthenticationCmd::encode(fctype::AUTHENTICATION_RECEIVE, MESSAGE_BYTES as u32);
    connection.execute("Authentication Receive", sqe, &[], &mut message)?;
    Ok(message)
}
