//! The request that writes what was changed to the configuration file.

use serde_json::{Value, json};

use super::answer::Refusal;
use super::request::Fields;

/// As it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SaveRequest {
    /// The file, where the server was started without one; an absolute path.
    pub(crate) to: Option<String>,
    /// Replace a file that has changed since it was read, or that is there already.
    pub(crate) force: bool,
}

impl SaveRequest {
    pub(super) fn to_json(&self) -> Value {
        json!({ "command": "config-save", "to": self.to, "force": self.force })
    }
}

impl Fields {
    pub(super) fn save(&mut self) -> Result<SaveRequest, Refusal> {
        Ok(SaveRequest { to: self.text("to")?, force: self.switch("force")? })
    }
}
