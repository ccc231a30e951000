//! Many writers with little memory for data: all are served.

mod host_support;

use host_support::{base, load, target_with};
use pilotlight_host::load::LoadSpec;
use pilotlight_nvmf_target::Limits;

/// Far more than 2 MiB is requested at once: R2Ts wait for buffers, buffers wait for data, and data is always received.
#[test]
fn deep_writers_on_many_queues_share_little_memory() {
    let limits = Limits { buffer_memory: 2 << 20, ..Limits::default() };
    let target = target_with(limits, 1, 4096, 4096, |memory| memory);
    for (read_percent, max_r2t) in [(0, 1), (50, 4)] {
        let mut options = target.options();
        options.handshake.max_r2t = max_r2t;
        let deep = LoadSpec { read_percent, block_bytes: 131_072, depth: 16, jobs: 16, ios: Some(60), ..base() };
        let report = load(&options, &deep);
        assert!(report.is_clean(), "{report}");
        assert_eq!(report.total.ios, 16 * 60);
    }
    target.stop();
}
