//! Parallel tasks with ordered results.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Runs tasks on a number of threads. Tasks not started in time are skipped and have no result.
pub fn each<T: Send>(
    workers: NonZeroUsize,
    count: usize,
    until: Option<Instant>,
    task: impl Fn(usize) -> T + Sync,
) -> Vec<Option<T>> {
    let next = AtomicUsize::new(0);
    let done: Vec<Mutex<Option<T>>> = (0..count).map(|_| Mutex::new(None)).collect();
    let work = || {
        while until.is_none_or(|until| Instant::now() < until) {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(place) = done.get(at) else { return };
            let result = task(at);
            *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        }
    };
    std::thread::scope(|scope| (0..workers.get().min(count)).for_each(|_| drop(scope.spawn(work))));
    done.into_iter().map(|place| place.into_inner().unwrap_or_else(PoisonError::into_inner)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_and_in_time() {
        let workers = NonZeroUsize::new(3).unwrap();
        let squares = each(workers, 20, None, |at| at * at);
        assert_eq!(squares, (0..20).map(|at| Some(at * at)).collect::<Vec<_>>());
        assert_eq!(each(workers, 2, Some(Instant::now()), |at| at), [None, None]);
    }
}
