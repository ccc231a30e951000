//! Kinds of work.

use serde::Serialize;

/// A kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Small random requests: I/Os per joule.
    Iops,
    /// Large sequential requests: bytes per joule.
    Throughput,
    /// Operations of an application per joule.
    Application,
}
