//! Why a request over the control socket was refused.

use std::fmt::Display;

use serde::{Deserialize, Serialize};

/// Why a request was refused. Nothing has been changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Refusal {
    /// The invalid field of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) field: Option<String>,
    pub(crate) message: String,
    /// What the user can do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) help: Vec<String>,
}

impl Refusal {
    pub(crate) fn new(message: impl Display) -> Self {
        Self { field: None, message: message.to_string(), help: Vec::new() }
    }

    /// A refusal because of a field.
    pub(crate) fn for_field(field: &str, message: impl Display) -> Self {
        Self { field: Some(field.to_owned()), ..Self::new(message) }
    }

    /// Adds what the user can do.
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help.push(help.into());
        self
    }
}
