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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use etcd_client::LeaseRevokeResponse;

    use super::*;
    use crate::documents::{FORMAT, GrantDocument};
    use crate::session::read_all;
    use crate::support;

    const TIMEOUT: Duration = Duration::from_secs(60);

    struct Candidate {
        client: Client,
        lease: i64,
        key: LeaderKey,
    }

    impl Candidate {
        async fn elect(mut client: Client) -> Self {
            let lease = client.lease_grant(600, None).await.unwrap().id();
            let key = client.campaign("/pilotlight/r/leader", "x", lease).await.unwrap().take_leader().unwrap();
            Self { client, lease, key }
        }

        /// As a leader that stops for a while just before it writes.
        async fn decided(&mut self, power_uw: u64) -> Txn {
            let documents = read_all(&mut self.client, "r").await.unwrap();
            let grant = GrantDocument { format: FORMAT, number: 1, power_uw, bound_uw: power_uw, session: 0 };
            transaction("r", &self.key, &documents, &[Write::Grant("a".to_owned(), grant)])
        }

        async fn write(&self, decided: Txn) -> Written {
            commit(self.client.clone(), decided, TIMEOUT).await
        }

        async fn end(&mut self) -> LeaseRevokeResponse {
            self.client.lease_revoke(self.lease).await.unwrap()
        }
    }

    #[test]
    fn a_leader_that_was_paused_writes_nothing() {
        let Some(cluster) = support::Cluster::start() else { return };
        drop(support::rack(&cluster)); // it answers
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = cluster.etcd.connect(TIMEOUT).await.unwrap();
            let mut first = Candidate::elect(client.clone()).await;
            let early = first.decided(1).await;
            let second = first.decided(2).await;
            assert!(matches!(first.write(early).await, Written::At(_)));
            assert_eq!(first.write(second).await, Written::Refused, "something was written since");
            let paused = first.decided(3).await;
            first.end().await;
            let mut other = Candidate::elect(client).await;
            assert_eq!(first.write(paused).await, Written::Refused, "another one leads");
            let before_budget = other.decided(4).await;
            other.client.put("/pilotlight/r/budget", r#"{"format":1,"power_uw":5}"#, None).await.unwrap();
            assert_eq!(other.write(before_budget).await, Written::Refused, "the budget was changed since");
            let decided = other.decided(6).await;
            assert!(matches!(other.write(decided).await, Written::At(_)));
            assert_eq!(read_all(&mut other.client, "r").await.unwrap().grants["a"].power_uw, 6);
        });
    }
}
