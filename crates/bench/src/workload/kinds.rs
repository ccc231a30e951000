//! Workloads by the name of their kind.

use toml::{Table, Value};

use super::{Workload, command};
use crate::experiment::read::{self, ReadError};

const KINDS: [&str; 1] = ["command"];

/// Reads `[workload]`: its `kind`, and the keys of that kind.
///
/// # Errors
/// If the kind is not known or its keys are not as they should be.
pub fn read(section: &Table, file: &str) -> Result<Box<dyn Workload>, ReadError> {
    let mut keys = section.clone();
    let Some(Value::String(kind)) = keys.remove("kind") else {
        return Err(ReadError::key(file, "workload.kind", format!("say what makes work: one of {}", KINDS.join(", "))));
    };
    match kind.as_str() {
        "command" => Ok(Box::new(command::Command::new(read::table(keys, file, "workload")?, file)?)),
        other => {
            let meant = read::nearest(other, &KINDS).map(|meant| format!("; did you mean {meant}?"));
            let why = format!("there is no {other:?}: one of {}{}", KINDS.join(", "), meant.unwrap_or_default());
            Err(ReadError::key(file, "workload.kind", why))
        }
    }
}
