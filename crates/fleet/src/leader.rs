//! The leader's writes: transactions that count only if their author still leads, and neither a leader has written nor the budget was changed since
//! what they were computed from.

use etcd_client::{Client, Compare, CompareOp, LeaderKey, Txn, TxnOp};

use crate::documents::{Documents, Key, write};
use crate::rack::Write;

/// The transaction for `writes`, which were computed from `documents`.
pub(crate) fn transaction(rack: &str, leader: &LeaderKey, documents: &Documents, writes: &[Write]) -> Txn {
    let sequence = Key::Sequence.path(rack);
    let conditions = [
        Compare::create_revision(leader.key(), CompareOp::Equal, leader.rev()),
        Compare::mod_revision(sequence.as_str(), CompareOp::Equal, documents.sequence),
        Compare::mod_revision(Key::Budget.path(rack), CompareOp::Equal, documents.budget_revision),
    ];
    let put = |write: &Write| match write {
        Write::Member(name, member) => (Key::Member(name.clone()), self::write(member)),
        Write::Grant(name, grant) => (Key::Grant(name.clone()), self::write(grant)),
    };
    let mut puts = vec![TxnOp::put(sequence, "", None)];
    puts.extend(writes.iter().map(put).map(|(key, value)| TxnOp::put(key.path(rack), value, None)));
    Txn::new().when(conditions).and_then(puts)
}

/// How a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// At this revision.
    At(i64),
    /// Not: another leader, or documents that were old.
    Refused,
    /// It is not known whether it was.
    Unknown,
}

/// Writes.
pub(crate) async fn commit(mut client: Client, transaction: Txn, patience: std::time::Duration) -> Written {
    match crate::config::within(patience, client.txn(transaction)).await {
        Ok(response) if response.succeeded() => Written::At(response.header().map_or(0, |header| header.revision())),
        Ok(_) => Written::Refused,
        Err(_) => Written::Unknown,
    }
}
