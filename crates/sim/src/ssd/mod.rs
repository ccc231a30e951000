//! A solid-state drive.

/// Parameters.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
pub struct SsdModel {}
