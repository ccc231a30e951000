//! Tasks of a session: keeping its lease, following the rack's documents, standing for election. They report to the member's loop.
//!
//! A failed request is repeated: the validity of the share, not an error, decides what holds meanwhile.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Client, GetOptions, LeaderKey, WatchOptions};
use tokio::sync::mpsc::UnboundedSender;

use crate::config::{EtcdError, within};
use crate::documents::{Change, Documents, Key, prefix};

/// The reading of a clock in nanoseconds that runs during a suspension too.
pub(crate) type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// What a task reports.
#[derive(Debug)]
pub(crate) enum Event {
    /// The lease was kept by the request sent at this time.
    Kept { sent_ns: u64 },
    /// etcd has ended the lease.
    Ended,
    /// All documents, after the start or a gap.
    All(Box<Documents>),
    /// Some of them have changed: all changes of a transaction together, because half of one would be decided on.
    Changed(Vec<Change>),
    /// This member leads.
    Elected(LeaderKey),
    /// A request failed, and is repeated.
    Failed(EtcdError),
}

/// What tasks need.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) rack: String,
    pub(crate) name: String,
    pub(crate) lease: i64,
    pub(crate) lease_time: Duration,
    pub(crate) clock: Clock,
    pub(crate) events: UnboundedSender<Event>,
}

impl Context {
    /// Time limit of a request, and of a pause before it is repeated.
    pub(crate) fn patience(&self) -> Duration {
        self.lease_time / 8
    }

    fn report(&self, event: Event) {
        let _ = self.events.send(event); // the loop has ended
    }

    async fn pause(&self, error: EtcdError) {
        self.report(Event::Failed(error));
        tokio::time::sleep(self.patience()).await;
    }

    /// Keeps the lease until etcd has ended it.
    pub(crate) async fn keep(mut self) {
        loop {
            match self.keep_by_one_stream().await {
                Ok(()) => return self.report(Event::Ended),
                Err(error) => self.pause(error).await,
            }
        }
    }

    /// Returns once etcd has ended the lease.
    async fn keep_by_one_stream(&mut self) -> Result<(), EtcdError> {
        let opened = within(self.patience(), self.client.lease_keep_alive(self.lease)).await;
        let (mut keeper, mut stream) = match opened {
            Err(EtcdError::Client(etcd_client::Error::LeaseKeepAliveError(why))) if why.contains("not found") => {
                return Ok(());
            }
            opened => opened?,
        };
        loop {
            let sent_ns = (self.clock)();
            within(self.patience(), keeper.keep_alive()).await?;
            match within(self.patience(), stream.message()).await? {
                Some(kept) if kept.ttl() <= 0 => return Ok(()),
                Some(kept) => {
                    let term = kept.header().map(etcd_client::ResponseHeader::raft_term);
                    if term.is_some() && term == self.present_term().await? {
                        self.report(Event::Kept { sent_ns });
                    }
                }
                None => return Err(EtcdError::Timeout(self.patience())),
            }
            tokio::time::sleep(self.patience()).await;
        }
    }

    /// The term of etcd's present leader. One that is no longer leader, and does not know that yet, can answer requests to keep a lease (before
    /// etcd 3.4.25 and 3.5.8), but no linearizable read.
    async fn present_term(&mut self) -> Result<Option<u64>, EtcdError> {
        let key = Key::Status(self.name.clone()).path(&self.rack);
        let read = within(self.patience(), self.client.get(key, Some(GetOptions::new().with_count_only()))).await?;
        Ok(read.header().map(etcd_client::ResponseHeader::raft_term))
    }

    /// Follows the documents.
    pub(crate) async fn follow(mut self) {
        loop {
            if let Err(error) = self.follow_one_stream().await {
                self.pause(error).await;
            }
        }
    }

    async fn follow_one_stream(&mut self) -> Result<(), EtcdError> {
        let prefix = prefix(&self.rack);
        let documents = within(self.patience(), read_all(&mut self.client, &self.rack)).await?;
        let options = WatchOptions::new().with_prefix().with_start_revision(documents.revision + 1);
        self.report(Event::All(Box::new(documents)));
        let mut stream = within(self.patience(), self.client.watch(prefix.as_str(), Some(options))).await?;
        while let Some(response) = stream.message().await? {
            if response.canceled() {
                break;
            }
            let changed = response.events().iter().filter_map(|event| {
                let kv = event.kv()?;
                let value = (event.event_type() == etcd_client::EventType::Put).then(|| kv.value().to_vec());
                Some(change(kv, &prefix, value))
            });
            self.report(Event::Changed(changed.collect()));
        }
        Err(EtcdError::Timeout(self.patience()))
    }

    /// Stands for election until elected.
    pub(crate) async fn campaign(mut self) {
        let path = Key::Leader.path(&self.rack);
        loop {
            match self.client.campaign(path.as_str(), self.name.as_str(), self.lease).await {
                Ok(mut elected) => match elected.take_leader() {
                    Some(key) => return self.report(Event::Elected(key)),
                    None => self.pause(EtcdError::Timeout(self.patience())).await,
                },
                Err(error) => self.pause(error.into()).await,
            }
        }
    }
}

/// All documents of a rack, at one revision.
pub(crate) async fn read_all(client: &mut Client, rack: &str) -> Result<Documents, etcd_client::Error> {
    let prefix = prefix(rack);
    let read = client.get(prefix.as_str(), Some(GetOptions::new().with_prefix())).await?;
    let mut documents = Documents::default();
    for kv in read.kvs() {
        documents.apply(&change(kv, &prefix, Some(kv.value().to_vec())));
    }
    documents.revision = read.header().map_or(documents.revision, etcd_client::ResponseHeader::revision);
    Ok(documents)
}

fn change(kv: &etcd_client::KeyValue, prefix: &str, value: Option<Vec<u8>>) -> Change {
    let path = String::from_utf8_lossy(kv.key()).strip_prefix(prefix).unwrap_or_default().to_owned();
    Change { path, value, revisions: (kv.create_revision(), kv.mod_revision()) }
}

#[cfg(test)]
mod tests {
    use etcd_client::{Txn, TxnOp};
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;
    use crate::support;

    /// Half of one would be decided on.
    #[test]
    fn all_changes_of_a_transaction_are_one_event() {
        let Some(cluster) = support::Cluster::start() else { return };
        drop(support::rack(&cluster)); // it answers
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut client = cluster.etcd.connect(Duration::from_secs(60)).await.unwrap();
            let (events, mut reported) = unbounded_channel();
            let context = Context {
                client: client.clone(),
                rack: "r".to_owned(),
                name: "a".to_owned(),
                lease: 0,
                lease_time: Duration::from_secs(480),
                clock: Arc::new(|| 0),
                events,
            };
            let following = tokio::spawn(context.follow());
            assert!(matches!(reported.recv().await, Some(Event::All(_))));
            for _ in 0..20 {
                let put = |at| TxnOp::put(format!("/pilotlight/r/grants/{at}"), "{}", None);
                client.txn(Txn::new().and_then((0..100).map(put).collect::<Vec<_>>())).await.unwrap();
                let mut seen = 0;
                while seen == 0 {
                    let Some(Event::Changed(changes)) = reported.recv().await else { panic!("a change") };
                    seen = changes.len();
                }
                assert_eq!(seen % 100, 0, "whole transactions");
            }
            following.abort();
        });
    }
}
