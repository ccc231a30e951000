//! Namespaces that would shrink at a reload: data beyond the new end is lost, so the configuration has to allow it
//! (`shrink = true` in the namespace), as `pilotlight namespace resize` requires `--shrink`.

use pilotlight_nvmf_target::config::NamespaceConfig;
use pilotlight_storage::format_size;

use super::super::state::State;

/// A namespace that would become smaller.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Shrink {
    /// Its size in bytes.
    from: u64,
    /// Its size afterwards, in bytes.
    to: u64,
    /// Whether its file or device has become smaller already.
    in_file: bool,
}

impl Shrink {
    /// The shrinkage from a resize of the namespace to `blocks` blocks, or for `None` to the size of its file or device.
    pub(super) fn find(state: &State, nqn: &str, namespace: &NamespaceConfig, blocks: Option<u64>) -> Option<Self> {
        let block_size = u64::from(namespace.block_size);
        let in_backend = || Some(crate::config::file_size(&namespace.backend)? / block_size);
        let (from, to) = (state.blocks(nqn, namespace.nsid), blocks.or_else(in_backend)?);
        (to < from).then_some(Self { from: from * block_size, to: to * block_size, in_file: blocks.is_none() })
    }

    /// The message if it is allowed.
    pub(super) fn notice(&self, nqn: &str, nsid: u32) -> String {
        let (from, to) = (format_size(self.from), format_size(self.to));
        format!(
            "namespace {nsid} of {nqn} shrinks from {from} to {to}, as the configuration allows: the data beyond its new end are lost"
        )
    }

    /// The message if it is not allowed.
    pub(super) fn refusal(&self, nqn: &str, nsid: u32) -> String {
        let (from, to) = (format_size(self.from), format_size(self.to));
        if self.in_file {
            return format!(
                "namespace {nsid} of {nqn} keeps its {from}, but its file or device has shrunk to {to}: requests beyond \
                 that fail. Make it as large as it was, or set `shrink = true` for this namespace and send SIGHUP again"
            );
        }
        format!(
            "namespace {nsid} of {nqn} keeps its {from}: {to} is smaller, and the data beyond the new end would be lost. To \
             shrink it, set `shrink = true` for this namespace and send SIGHUP again"
        )
    }
}
