//! The rack as an operator sees and sets it.

use std::time::{Duration, Instant};

use etcd_client::{Client, Compare, CompareOp, Txn, TxnOp};

use crate::config::{Etcd, EtcdError, within};
use crate::documents::{Budget, Documents, FORMAT, Key, Member, write};
use crate::session::read_all;

/// Time limit of an operation.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Pause before a request is repeated.
const PAUSE: Duration = Duration::from_millis(100);
/// gRPC: the server is not reached at present.
const UNAVAILABLE: i32 = 14;

/// Access of an operator to a rack.
pub struct Rack {
    runtime: tokio::runtime::Runtime,
    client: Client,
    rack: String,
}

/// Why a rack cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum RackError {
    /// There is no runtime.
    #[error("cannot start a runtime")]
    Runtime(#[from] std::io::Error),
    /// etcd failed.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// A server that is to be forgotten runs.
    #[error("{0} is running: stop it before its floor is given to others")]
    Running(String),
    /// There is no such server.
    #[error("{0} is not known in this rack")]
    Unknown(String),
    /// The server is known already.
    #[error("{0} is known already: its floor follows its own configuration")]
    Known(String),
}

impl Rack {
    /// Connects.
    ///
    /// # Errors
    /// If etcd cannot be reached.
    pub fn connect(etcd: &Etcd, rack: &str) -> Result<Self, RackError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let client = runtime.block_on(etcd.connect(TIMEOUT))?;
        Ok(Self { runtime, client, rack: rack.to_owned() })
    }

    /// All of it.
    ///
    /// # Errors
    /// If etcd fails.
    pub fn read(&mut self) -> Result<Documents, RackError> {
        let rack = self.rack.clone();
        self.request(|mut client| {
            let rack = rack.clone();
            async move { read_all(&mut client, &rack).await }
        })
    }

    /// Sets the budget in microwatts.
    ///
    /// # Errors
    /// If etcd fails.
    pub fn set_budget(&mut self, power_uw: u64) -> Result<(), RackError> {
        let key = Key::Budget.path(&self.rack);
        let value = write(&Budget { format: FORMAT, power_uw });
        self.request(|mut client| {
            let (key, value) = (key.clone(), value.clone());
            async move { client.put(key, value, None).await }
        })?;
        Ok(())
    }

    /// Reserves the floor of a server before its first start, in microwatts.
    ///
    /// # Errors
    /// If etcd fails, or the server is known.
    pub fn reserve(&mut self, name: &str, floor_uw: u64) -> Result<(), RackError> {
        let key = Key::Member(name.to_owned()).path(&self.rack);
        let put = TxnOp::put(key.as_str(), write(&Member { format: FORMAT, floor_uw }), None);
        let sequence = TxnOp::put(Key::Sequence.path(&self.rack), "", None);
        let new =
            Txn::new().when([Compare::create_revision(key.as_str(), CompareOp::Equal, 0)]).and_then([put, sequence]);
        if self.commit(&new)? { Ok(()) } else { Err(RackError::Known(name.to_owned())) }
    }

    /// Forgets a server that is off for good: its floor is free.
    ///
    /// # Errors
    /// If etcd fails, the server runs, or is not known.
    pub fn forget(&mut self, name: &str) -> Result<(), RackError> {
        if !self.read()?.members.contains_key(name) {
            return Err(RackError::Unknown(name.to_owned()));
        }
        let path = |key: Key| key.path(&self.rack);
        let is_off = Compare::create_revision(path(Key::Status(name.to_owned())), CompareOp::Equal, 0);
        let delete =
            [Key::Member(name.to_owned()), Key::Grant(name.to_owned())].map(|key| TxnOp::delete(path(key), None));
        // with the counter of writes, so that a leader's write that still has it is refused
        let mut operations = vec![TxnOp::put(path(Key::Sequence), "", None)];
        operations.extend(delete);
        let transaction = Txn::new().when([is_off]).and_then(operations);
        if self.commit(&transaction)? { Ok(()) } else { Err(RackError::Running(name.to_owned())) }
    }

    fn commit(&mut self, transaction: &Txn) -> Result<bool, RackError> {
        let done = self.request(|mut client| {
            let transaction = transaction.clone();
            async move { client.txn(transaction).await }
        })?;
        Ok(done.succeeded())
    }

    /// Repeats a request while a member of etcd is not reached: others may be.
    fn request<T, F: Future<Output = Result<T, etcd_client::Error>>>(
        &mut self,
        request: impl Fn(Client) -> F,
    ) -> Result<T, RackError> {
        let end = Instant::now() + TIMEOUT;
        let is_unavailable = |error: &EtcdError| match error {
            EtcdError::Client(etcd_client::Error::GRpcStatus(status)) => status.code() as i32 == UNAVAILABLE,
            EtcdError::Client(_) | EtcdError::Timeout(_) => false,
        };
        self.runtime.block_on(async {
            loop {
                match within(TIMEOUT, request(self.client.clone())).await {
                    Err(error) if is_unavailable(&error) && Instant::now() < end => tokio::time::sleep(PAUSE).await,
                    done => return Ok(done?),
                }
            }
        })
    }
}
