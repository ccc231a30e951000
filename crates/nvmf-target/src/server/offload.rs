//! An OS thread that does for I/O threads what a reactor must not do: wait for the kernel, or compute for long.
//!
//! A command that needs such work is parked. The thread takes requests from a bounded queue ([`crate::offload`]), and sends a message to
//! the I/O thread when one is done. It sleeps in the kernel without requests.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use pilotlight_reactor::{Sender, keep_off};

use super::Shared;
use crate::offload::{Queue, Requests};
use crate::thread::message::Message;

/// The kind of work of such a thread.
pub(super) trait Offload: Send + Sized + 'static {
    /// Name of the thread.
    const NAME: &'static str;

    /// The kind of its queue.
    type Queue: Queue<Request = Self>;

    /// Its queue.
    fn queue(shared: &Shared) -> &Requests<Self::Queue>;

    /// Executes requests until the queue is stopped.
    fn serve(shared: &Shared, threads: &[Sender<Message>]);
}

/// The running thread. Ends when dropped.
pub(super) struct Worker<R: Offload> {
    shared: Arc<Shared>,
    join: Option<JoinHandle<()>>,
    kind: std::marker::PhantomData<fn(R)>,
}

impl<R: Offload> Worker<R> {
    /// Starts the thread, off the CPUs of the reactors where others exist; its messages go to `threads`.
    pub(super) fn start(shared: &Arc<Shared>, threads: Arc<[Sender<Message>]>, cpus: Vec<u32>) -> io::Result<Self> {
        let theirs = Arc::clone(shared);
        let body = move || {
            keep_off(&cpus);
            R::serve(&theirs, &threads);
        };
        let join = std::thread::Builder::new().name(R::NAME.into()).spawn(body)?;
        R::queue(shared).set_thread(join.thread().clone());
        Ok(Self { shared: Arc::clone(shared), join: Some(join), kind: std::marker::PhantomData })
    }
}

impl<R: Offload> Drop for Worker<R> {
    fn drop(&mut self) {
        R::queue(&self.shared).stop();
        if let Some(join) = self.join.take() {
            join.thread().unpark();
            let _ = join.join();
        }
    }
}

/// Executes requests one after the other. `run` returns the I/O thread that waits, and the message for it.
pub(super) fn serve_each<R: Offload>(
    shared: &Shared,
    threads: &[Sender<Message>],
    run: impl Fn(R, &Shared) -> (u16, Message),
) {
    let requests = R::queue(shared);
    while !requests.is_stopped() {
        let Some(request) = requests.take() else {
            std::thread::park();
            continue;
        };
        let (to, message) = run(request, shared);
        if !send(requests, threads, to, message) {
            return;
        }
    }
}

/// Sends a message to an I/O thread; waits while its inbox is full. Returns `false` if the queue has been stopped meanwhile.
pub(super) fn send<Q: Queue>(
    requests: &Requests<Q>,
    threads: &[Sender<Message>],
    to: u16,
    mut message: Message,
) -> bool {
    while let Err(returned) = threads[usize::from(to)].send(message) {
        if requests.is_stopped() {
            return false;
        }
        message = returned;
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}
