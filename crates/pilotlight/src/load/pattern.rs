//! `pilotlight load --pattern`: published workloads by name.
//!
//! `rand_r` to `rand_rw` are vdbench's patterns in PACER, Table II. The paper does not state the number of connections or of commands in
//! flight; its three clients ran 300 threads each.
//!
//! `unet3d` and `bert` are the data loading of MLPerf Storage v0.5 as in its benchmark DLIO, one connection for each accelerator, at the
//! rate at which the emulated accelerator (V100) consumes samples. Sources:
//!
//! - sizes, samples in a batch, reader threads and time of a batch: `storage-conf/workload/unet3d.yaml` and `bert.yaml` of
//!   github.com/mlcommons/storage (v0.5), the same in `dlio_benchmark/configs/workload/unet3d_v100.yaml` and `bert_v100.yaml` of
//!   github.com/argonne-lcf/dlio_benchmark. For `unet3d` 146,600,628 bytes as in the latter (glennklockwood.com/garden/MLPerf-Storage names
//!   the same mean for later versions); commit 12c976c of the former has 234,560,851;
//! - order: files shuffled by seed (`file_shuffle`), each read whole from its beginning: one `.npz` file is one sample
//!   (`reader/npz_reader.py`); a TFRecord file is read with a buffer of `transfer_size` (`reader/tf_reader.py`).
//!
//! Assumed: files of one size (UNET3D's have a standard deviation of 68,341,808 bytes); commands of 128 KiB, the default readahead of Linux
//! and the size into which a Linux host splits BERT's reads of 256 KiB for a target with a maximum of 128 KiB; evenly spread commands
//! instead of a prefetch queue; no cache in the host, no checkpoints, and samples without the framing of TFRecord.

use clap::ValueEnum;

use super::Rw;

/// A workload by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Pattern {
    /// Uniform random reads of 8 KiB (vdbench, PACER Table II)
    #[value(name = "rand_r")]
    RandR,
    /// Uniform random writes of 8 KiB
    #[value(name = "rand_w")]
    RandW,
    /// Sequential reads of 128 KiB
    #[value(name = "seq_r")]
    SeqR,
    /// Sequential writes of 128 KiB
    #[value(name = "seq_w")]
    SeqW,
    /// Random reads and writes of 8 KiB, 70:30
    #[value(name = "rand_rw")]
    RandRw,
    /// MLPerf Storage, 3D-UNET: 4 files of 147 MB at a time per connection, 431 MB/s
    #[value(name = "unet3d")]
    Unet3d,
    /// MLPerf Storage, BERT: files of 784 MB, 124 kB/s per connection
    #[value(name = "bert")]
    Bert,
}

/// Options of a pattern; an option of the command line has precedence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Work {
    pub(super) rw: Rw,
    pub(super) read_percent: u8,
    pub(super) block_bytes: u64,
    pub(super) training: Option<Training>,
}

/// The read pattern of an accelerator in training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Training {
    pub(super) file_bytes: u64,
    /// Files that are read concurrently.
    pub(super) reader_threads: u16,
    /// Bytes per second.
    pub(super) bytes_per_s: f64,
}

const UNET3D: Training =
    Training { file_bytes: 146_600_628, reader_threads: 4, bytes_per_s: 4.0 * 146_600_628.0 / 1.3604 };
const BERT: Training = Training { file_bytes: 313_532 * 2_500, reader_threads: 1, bytes_per_s: 48.0 * 2_500.0 / 0.968 };

impl Pattern {
    pub(super) fn work(self) -> Work {
        let of = |rw, read_percent, kib: u64| Work { rw, read_percent, block_bytes: kib << 10, training: None };
        match self {
            Self::RandR => of(Rw::Randread, 100, 8),
            Self::RandW => of(Rw::Randwrite, 0, 8),
            Self::SeqR => of(Rw::Read, 100, 128),
            Self::SeqW => of(Rw::Write, 0, 128),
            Self::RandRw => of(Rw::Randrw, 70, 8),
            Self::Unet3d => Work { training: Some(UNET3D), ..of(Rw::Read, 100, 128) },
            Self::Bert => Work { training: Some(BERT), ..of(Rw::Read, 100, 128) },
        }
    }
}
