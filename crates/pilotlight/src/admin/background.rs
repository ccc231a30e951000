//! The request that pauses background work, or resumes it.

use serde_json::{Value, json};

use super::answer::Refusal;
use pilotlight_nvmf_target::background::control::Class;

/// As it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BackgroundRequest {
    /// `scrub` or `trim`.
    pub(crate) class: String,
    /// `pause` or `resume`.
    pub(crate) state: String,
}

impl BackgroundRequest {
    pub(super) fn to_json(&self) -> Value {
        json!({ "command": "set-background", "class": self.class, "state": self.state })
    }

    /// The class, and whether it is to be paused.
    ///
    /// # Errors
    /// If a word is another one.
    pub(crate) fn read(&self) -> Result<(Class, bool), Refusal> {
        let class = match self.class.as_str() {
            "scrub" => Class::Scrub,
            "trim" => Class::Trim,
            other => {
                return Err(
                    Refusal::of("class", format!("there is no background work `{other}`")).help("scrub or trim")
                );
            }
        };
        match self.state.as_str() {
            "pause" => Ok((class, true)),
            "resume" => Ok((class, false)),
            other => Err(Refusal::of("state", format!("`{other}` is neither pause nor resume"))),
        }
    }
}
