//! What others see of power: averages over at least a second, as finer readings are a side channel (CVE-2020-8694).
//!
//! Policies and the watch over the budget use each reading. Metrics, the page and `status` show these averages and energies only.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pilotlight_plant::{ReadingId, Source, Window};
use pilotlight_reactor::ReadingBoard;

/// The shortest time that a published value is of.
const LEAST_NS: u64 = 1_000_000_000;

/// Published power and energy.
pub(super) struct Published {
    pub(super) board: ReadingBoard,
    /// Energy of each source since the start.
    pub(super) spent: Vec<Spent>,
}

/// Energy of a source.
#[derive(Debug, Default)]
pub(super) struct Spent {
    /// In microjoules.
    pub(super) energy_uj: AtomicU64,
    /// When it was last read and known ([`pilotlight_reactor::clock`]); 0: never.
    pub(super) read_ns: AtomicU64,
}

/// Readings of a source that are not published yet.
#[derive(Clone, Copy, Default)]
struct Pending {
    energy_uj: u64,
    /// Time that this energy is of.
    covered_ns: u64,
}

/// Publishes readings.
pub(super) struct Publisher {
    published: Arc<Published>,
    pending: Vec<Pending>,
    /// When it last published.
    last_ns: u64,
}

impl Published {
    pub(super) fn new(sources: Vec<Source>) -> Self {
        let spent = sources.iter().map(|_| Spent::default()).collect();
        let coarse = |source: Source| Source { window_ns: source.window_ns.max(LEAST_NS), ..source };
        Self { board: ReadingBoard::new(sources.into_iter().map(coarse).collect()), spent }
    }
}

impl Publisher {
    pub(super) fn new(published: Arc<Published>, now_ns: u64) -> Self {
        Self { pending: vec![Pending::default(); published.spent.len()], published, last_ns: now_ns }
    }

    /// Adds the power of a source, which was known for this time.
    pub(super) fn add(&mut self, source: usize, uw: u64, elapsed_ns: u64) {
        if let Some(pending) = self.pending.get_mut(source) {
            pending.energy_uj += (u128::from(uw) * u128::from(elapsed_ns) / 1_000_000_000) as u64;
            pending.covered_ns += elapsed_ns;
        }
    }

    /// Publishes what was added, if the last time was a second ago.
    pub(super) fn publish(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.last_ns) < LEAST_NS {
            return;
        }
        self.last_ns = now_ns;
        for ((id, pending), spent) in (0..).map(ReadingId).zip(&mut self.pending).zip(&self.published.spent) {
            let Pending { energy_uj, covered_ns } = std::mem::take(pending);
            let power_uw = (u128::from(energy_uj) * 1_000_000_000).checked_div(u128::from(covered_ns));
            self.published.board.put(id, Window { ended_ns: now_ns, value: power_uw.map(|uw| uw as u64) });
            if power_uw.is_some() {
                spent.energy_uj.fetch_add(energy_uj, Relaxed);
                spent.read_ns.store(now_ns, Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use pilotlight_plant::{Cost, Quantity, Scope};
    use pilotlight_reactor::Readings as _;

    use super::*;

    #[test]
    fn nothing_finer_than_a_second_is_published() {
        const MS: u64 = 1_000_000;
        const W: u64 = 1_000_000;
        let source = |window_ms: u64| Source {
            scope: Scope::Server,
            quantity: Quantity::PowerUw,
            window_ns: window_ms * MS,
            lag: Cost::Assumed(0),
        };
        let published = Arc::new(Published::new(vec![source(500), source(3_000)]));
        let windows: Vec<u64> = published.board.sources().iter().map(|source| source.window_ns).collect();
        assert_eq!(windows, [1_000 * MS, 3_000 * MS]);
        let mut publisher = Publisher::new(Arc::clone(&published), 0);
        let mut shown = |ms: u64, uw: [Option<u64>; 2]| {
            for (source, uw) in uw.into_iter().enumerate() {
                uw.into_iter().for_each(|uw| publisher.add(source, uw, 500 * MS));
            }
            publisher.publish(ms * MS);
            let power = [0, 1].map(|id| published.board.last(ReadingId(id)).and_then(|window| window.value));
            (power, published.spent.iter().map(|spent| spent.energy_uj.load(Relaxed) / W).collect::<Vec<_>>())
        };
        assert_eq!(shown(500, [Some(100 * W), Some(10 * W)]), ([None, None], vec![0, 0]));
        let first = ([Some(200 * W), Some(10 * W)], vec![200, 5]);
        assert_eq!(shown(1_000, [Some(300 * W), None]), first, "the average, and of the time when it was known");
        assert_eq!(shown(1_500, [Some(900 * W), None]), first, "still the last second");
        assert_eq!(shown(2_100, [Some(100 * W), None]), ([Some(500 * W), None], vec![700, 5]));
    }
}
