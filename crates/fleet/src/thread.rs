//! The thread of a member: its share in force, its status in etcd, and the leader's work while it leads.
//!
//! One loop owns all state. Requests to etcd are tasks that report to it, so that nothing delays the end of a share's validity.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use etcd_client::{Client, Compare, CompareOp, LeaderKey, PutOptions, Txn, TxnOp};
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::config::{MemberConfig, within};
use crate::documents::{Documents, FORMAT, Key, Status, write};
use crate::leader::{Written, commit, transaction};
use crate::member::{Limit, Share};
use crate::rack::decide;
use crate::session::{Clock, Context, Event};

/// Interval of looks at clock and target.
const TICK: Duration = Duration::from_millis(100);
/// The least time between two statuses that confirm nothing, in nanoseconds.
const STATUS_INTERVAL_NS: u64 = 1_000_000_000;
/// Part by which a figure has to change for a status.
const CHANGE_PERCENT: u64 = 5;
/// Longest wait for power at the end; then the lease ends by itself.
const LONGEST_END: Duration = Duration::from_secs(20);
/// Leases without an answer after which a session begins anew.
const SILENT_LEASES: u64 = 3;

/// A server whose power budget is shared. Called from the member's thread; must not wait.
pub trait Target: Send {
    /// What it needs and does.
    fn report(&mut self) -> Report;
    /// Its power budget is now this. Called at the start, and at each change of power, deadline or floor.
    fn set_limit(&mut self, limit: Limit);
}

/// What a server needs and does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Its power in microwatts, if it is known.
    pub measured_uw: Option<u64>,
    /// The sensor, or that power is modelled and with which profile.
    pub source: String,
    /// The component that limits throughput, if it is known.
    pub bottleneck: Option<String>,
    /// What it delivers of what its hosts ask, by power: microwatts, and bytes per second.
    pub curve: Vec<(u64, u64)>,
    /// Whether power is within the share that was set last.
    pub is_within: bool,
}

/// State of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The budget in force in microwatts.
    pub share_uw: u64,
    /// Whether that is a grant; otherwise it is the floor.
    pub is_granted: bool,
    /// How long it is valid without another answer of etcd, in nanoseconds.
    pub valid_for_ns: u64,
    /// Whether this member leads.
    pub is_leader: bool,
    /// Grants so far.
    pub grants: u64,
    /// How often the validity of a share has ended.
    pub expiries: u64,
    /// Why etcd was not reached, if the last request failed.
    pub failure: Option<String>,
}

/// The running thread. Dropped, it sets the floor, and gives the share back.
pub struct Fleet {
    state: Arc<Mutex<State>>,
    stop: Option<oneshot::Sender<()>>,
    join: Option<JoinHandle<()>>,
}

impl Fleet {
    /// Starts it; `first` runs on the new thread before anything else.
    ///
    /// # Errors
    /// If no thread or descriptor is available.
    pub fn start(
        config: MemberConfig,
        target: Box<dyn Target>,
        first: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        Self::start_with(config, target, first, Arc::new(now_ns))
    }

    /// As [`Fleet::start`], with another clock, in nanoseconds.
    ///
    /// # Errors
    /// As of [`Fleet::start`].
    pub fn start_with(
        config: MemberConfig,
        target: Box<dyn Target>,
        first: impl FnOnce() + Send + 'static,
        clock: Clock,
    ) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let state = Arc::new(Mutex::new(State { share_uw: config.floor_uw, ..State::default() }));
        let (stop, stopped) = oneshot::channel();
        let theirs = Arc::clone(&state);
        let body = move || {
            first();
            runtime.block_on(Loop::new(config, target, clock, theirs).run(stopped));
        };
        let join = std::thread::Builder::new().name("fleet".to_owned()).spawn(body)?;
        Ok(Self { state, stop: Some(stop), join: Some(join) })
    }

    /// Whether the thread has ended, by a fault: the floor is in force.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.join.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Its state.
    #[must_use]
    pub fn state(&self) -> State {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(join) = self.join.take() {
            let _ = join.join();
        }
    }
}

/// The clock of deadlines, `CLOCK_BOOTTIME`, in nanoseconds: it runs during a suspension too.
#[must_use]
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// What other tasks than those of a session report.
enum Done {
    /// A session can begin: the connection, the lease, and when it was requested.
    Begun(Box<Client>, i64, u64),
    /// A status is written; `false`: the key is that of another session.
    Published(Box<Status>, bool),
    /// A status is not written.
    NotPublished(crate::config::EtcdError),
    /// The leader's write has ended.
    Written(Written),
}

struct Loop {
    config: MemberConfig,
    target: Box<dyn Target>,
    clock: Clock,
    state: Arc<Mutex<State>>,
    share: Share,
    events: (UnboundedSender<Event>, UnboundedReceiver<Event>),
    /// Tasks of the session, and its connection.
    tasks: JoinSet<()>,
    context: Option<Context>,
    others: JoinSet<Done>,
    documents: Option<Documents>,
    published: Option<Status>,
    published_ns: u64,
    is_publishing: bool,
    leader: Option<LeaderKey>,
    is_writing: bool,
    /// Revision of the leader's last write.
    written: i64,
    /// Revision of documents that need no write.
    settled: i64,
    /// Whether the status belongs to another session of this name.
    is_taken: bool,
    /// What the server was told last.
    limit: Option<Limit>,
}

/// However the thread ends.
impl Drop for Loop {
    fn drop(&mut self) {
        self.set_floor();
    }
}

impl Loop {
    fn new(config: MemberConfig, target: Box<dyn Target>, clock: Clock, state: Arc<Mutex<State>>) -> Self {
        let mut share = Share::new(config.floor_uw, config.lease.as_nanos() as u64);
        share.set_reserved(config.reserved_uw);
        Self {
            config,
            target,
            clock,
            state,
            share,
            events: unbounded_channel(),
            tasks: JoinSet::new(),
            context: None,
            others: JoinSet::new(),
            documents: None,
            published: None,
            published_ns: 0,
            is_publishing: false,
            leader: None,
            is_writing: false,
            written: 0,
            settled: 0,
            is_taken: false,
            limit: None,
        }
    }

    async fn run(mut self, mut stop: oneshot::Receiver<()>) {
        self.keep_share();
        self.begin();
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                _ = &mut stop => break,
                _ = ticks.tick() => self.tick(),
                Some(event) = self.events.1.recv() => self.on_event(event),
                Some(done) = self.others.join_next() => match done {
                    Ok(done) => self.on_done(done),
                    Err(error) => panic!("a request to etcd: {error}"), // the floor is in force, and the lease ends
                },
            }
            self.keep_share();
        }
        self.end().await;
    }

    /// Sets the floor, and gives the share back once power is within the floor; otherwise it returns when the lease ends.
    async fn end(mut self) {
        let end = tokio::time::Instant::now() + (self.config.lease / 4).min(LONGEST_END);
        self.set_floor();
        let mut is_within = !self.share.is_granted((self.clock)());
        while !is_within && tokio::time::Instant::now() < end {
            tokio::time::sleep(TICK).await;
            let report = self.target.report();
            if report.measured_uw.is_none() {
                break; // it is not known
            }
            is_within = report.is_within;
        }
        self.tasks.abort_all();
        if let Some(mut context) = self.context.take().filter(|_| is_within) {
            let _ = within(context.patience(), context.client.lease_revoke(context.lease)).await; // else it ends by itself
        }
    }

    fn set_floor(&mut self) {
        let floor_uw = self.share.floor_uw();
        self.target.set_limit(Limit { power_uw: floor_uw, until_ns: None, then_uw: floor_uw });
    }

    /// Connects, and requests a lease, until both succeed.
    fn begin(&mut self) {
        self.tasks = JoinSet::new(); // ends those of the session before
        (self.context, self.leader, self.published, self.documents) = (None, None, None, None);
        (self.written, self.settled, self.is_taken) = (0, 0, false);
        self.share.begin(0);
        let (etcd, lease_time, clock) = (self.config.etcd.clone(), self.config.lease, Arc::clone(&self.clock));
        let events = self.events.0.clone();
        self.others.spawn(async move {
            let patience = lease_time / 8;
            loop {
                let request = async {
                    let mut client = etcd.connect(patience).await?;
                    let sent_ns = clock();
                    let lease = within(patience, client.lease_grant(lease_time.as_secs() as i64, None)).await?;
                    Ok((client, lease.id(), sent_ns))
                };
                match request.await {
                    Ok((client, lease, sent_ns)) => return Done::Begun(Box::new(client), lease, sent_ns),
                    Err(error) => _ = events.send(Event::Failed(error)),
                }
                tokio::time::sleep(patience).await;
            }
        });
    }

    fn on_done(&mut self, done: Done) {
        match done {
            Done::Begun(client, lease, sent_ns) => self.begun(*client, lease, sent_ns),
            Done::Published(status, is_ours) => self.on_published(*status, is_ours),
            Done::NotPublished(error) => {
                self.is_publishing = false;
                self.on_event(Event::Failed(error));
            }
            Done::Written(written) => {
                self.is_writing = false;
                if let Written::At(revision) = written {
                    self.written = revision;
                }
            }
        }
    }

    fn begun(&mut self, client: Client, lease: i64, sent_ns: u64) {
        let context = Context {
            client,
            rack: self.config.rack.clone(),
            name: self.config.name.clone(),
            lease,
            lease_time: self.config.lease,
            clock: Arc::clone(&self.clock),
            events: self.events.0.clone(),
        };
        self.share.begin(lease);
        self.share.renew(sent_ns);
        self.tasks.spawn(context.clone().keep());
        self.tasks.spawn(context.clone().follow());
        self.tasks.spawn(context.clone().campaign());
        self.context = Some(context);
        info!(rack = %self.config.rack, "connected to etcd");
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Kept { sent_ns } => {
                self.share.renew(sent_ns);
                if !self.is_taken {
                    self.note_failure(None);
                }
            }
            Event::Ended => {
                warn!("etcd has ended the lease of this server: its share is given back");
                self.begin();
            }
            Event::All(documents) => self.documents = Some(*documents),
            Event::Changed(changes) => {
                if let Some(documents) = &mut self.documents {
                    changes.iter().for_each(|change| documents.apply(change));
                }
            }
            Event::Elected(key) => {
                info!(rack = %self.config.rack, "this server divides the budget of the rack");
                self.leader = Some(key);
            }
            Event::Failed(error) => self.note_failure(Some(error.to_string())),
        }
        self.take_documents();
    }

    fn note_failure(&self, failure: Option<String>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(why) = failure.as_ref().filter(|_| state.failure.is_none()) {
            warn!("no share of the rack: {why}");
        }
        state.failure = failure;
    }

    /// Takes what the documents say of this member.
    fn take_documents(&mut self) {
        let Some(documents) = &self.documents else { return };
        self.share.set_grant(documents.grants.get(&self.config.name).copied());
        self.share.set_reserved(documents.members.get(&self.config.name).copied());
        let is_ours = |key: &LeaderKey| {
            let prefix = crate::documents::prefix(&self.config.rack);
            let path = key.key_str().ok().and_then(|path| path.strip_prefix(&prefix)).unwrap_or_default();
            documents.candidates.get(path).is_some_and(|(created, _)| *created == key.rev())
                || documents.revision < key.rev()
        };
        if self.leader.take_if(|key| !is_ours(key)).is_some()
            && let Some(context) = &self.context
        {
            self.tasks.spawn(context.clone().campaign());
        }
    }

    /// Sets the budget in force, if it has changed.
    fn keep_share(&mut self) {
        let now_ns = (self.clock)();
        let was_granted = self.state.lock().unwrap_or_else(PoisonError::into_inner).is_granted;
        self.share.change(now_ns);
        let limit = self.share.limit(now_ns);
        if self.limit.replace(limit) != Some(limit) {
            self.target.set_limit(limit);
        }
        let is_granted = self.share.is_granted(now_ns);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if was_granted && !is_granted {
            state.expiries += 1;
            warn!("the share of this server is no longer valid: its floor is in force");
        }
        state.grants += u64::from(state.share_uw != self.share.in_force_uw() && is_granted);
        (state.share_uw, state.is_granted) = (self.share.in_force_uw(), is_granted);
        (state.valid_for_ns, state.is_leader) = (self.share.valid_for_ns(now_ns), self.leader.is_some());
    }

    fn tick(&mut self) {
        let silent_ns = (self.clock)().saturating_sub(self.share.valid_until_ns());
        if self.context.is_some() && silent_ns > SILENT_LEASES * self.config.lease.as_nanos() as u64 {
            warn!("etcd has not answered for long: connecting again");
            self.begin();
        }
        let report = self.target.report();
        self.share.note_within(report.is_within, (self.clock)());
        self.publish(report);
        self.lead();
    }

    /// Writes the status, if it has changed.
    fn publish(&mut self, report: Report) {
        let now_ns = (self.clock)();
        let Some(context) = self.context.as_ref().filter(|_| !self.is_publishing) else { return };
        let status = Status {
            format: FORMAT,
            session: self.share.session(),
            floor_uw: self.config.floor_uw,
            full_uw: self.config.full_uw,
            measured_uw: report.measured_uw,
            source: report.source,
            priority: self.config.priority,
            bottleneck: report.bottleneck,
            curve: report.curve,
            applied: self.share.confirmed(),
            in_force_uw: self.share.in_force_uw(),
        };
        let is_due = now_ns.saturating_sub(self.published_ns) >= STATUS_INTERVAL_NS;
        let is_news = match &self.published {
            None => is_due,
            Some(before) => {
                (before.applied, before.in_force_uw) != (status.applied, status.in_force_uw)
                    || is_due && differs(before, &status)
            }
        };
        if is_news {
            (self.is_publishing, self.published_ns) = (true, now_ns);
            self.others.spawn(put_status(context.clone(), status));
        }
    }

    fn on_published(&mut self, status: Status, is_ours: bool) {
        self.is_publishing = false;
        if status.session != self.share.session() {
            return;
        }
        self.is_taken = !is_ours;
        if is_ours {
            self.published = Some(status);
        } else {
            let name = &self.config.name;
            let why = format!(
                "the lease of an earlier start of {name} has not ended, or another server of the rack is named {name}"
            );
            self.note_failure(Some(why));
        }
    }

    /// Writes what the rack needs, if this member leads.
    fn lead(&mut self) {
        let (Some(leader), Some(documents), Some(context)) = (&self.leader, &self.documents, &self.context) else {
            return;
        };
        if self.is_writing || documents.revision < self.written || documents.revision == self.settled {
            return;
        }
        let decision = decide(documents);
        if decision.writes.is_empty() {
            self.settled = documents.revision;
            return;
        }
        let transaction = transaction(&self.config.rack, leader, documents, &decision.writes);
        let (client, patience) = (context.client.clone(), context.patience());
        self.is_writing = true;
        self.others.spawn(async move { Done::Written(commit(client, transaction, patience).await) });
    }
}

/// Whether a status has changed by more than noise.
fn differs(before: &Status, now: &Status) -> bool {
    let is_other = |a: u64, b: u64| a.abs_diff(b) > a.max(b) / 100 * CHANGE_PERCENT;
    let power = (before.measured_uw.unwrap_or(0), now.measured_uw.unwrap_or(0));
    before.curve.len() != now.curve.len()
        || before.curve.iter().zip(&now.curve).any(|(a, b)| is_other(a.0, b.0) || is_other(a.1, b.1))
        || is_other(power.0, power.1)
        || (&before.source, &before.bottleneck) != (&now.source, &now.bottleneck)
}

/// Writes a status under the session's lease: over one of the same session, or where there is none.
async fn put_status(context: Context, status: Status) -> Done {
    let key = Key::Status(context.name.clone()).path(&context.rack);
    let value = write(&status);
    let put = || TxnOp::put(key.as_str(), value.clone(), Some(PutOptions::new().with_lease(context.lease)));
    let over = Txn::new().when([Compare::lease(key.as_str(), CompareOp::Equal, context.lease)]).and_then([put()]);
    let new = Txn::new().when([Compare::create_revision(key.as_str(), CompareOp::Equal, 0)]).and_then([put()]);
    let transaction = over.or_else([TxnOp::txn(new)]);
    let mut client = context.client.clone();
    match within(context.patience(), client.txn(transaction)).await {
        Ok(response) => {
            let is_new = response.op_responses().into_iter().any(|one| match one {
                etcd_client::TxnOpResponse::Txn(inner) => inner.succeeded(),
                _ => false,
            });
            Done::Published(Box::new(status), response.succeeded() || is_new)
        }
        Err(error) => Done::NotPublished(error),
    }
}
