//! Workloads by the name of their kind.

use toml::{Table, Value};

use super::{Workload, catalogue, command};
use crate::experiment::read::{self, ReadError};

fn kinds() -> Vec<&'static str> {
    std::iter::once("command").chain(catalogue::KINDS).collect()
}

/// Reads `[workload]`: its `kind`, and the keys of that kind.
///
/// # Errors
/// If the kind is not known or its keys are not as they should be.
pub fn read(section: &Table, file: &str) -> Result<Box<dyn Workload>, ReadError> {
    let mut keys = section.clone();
    let Some(Value::String(kind)) = keys.remove("kind") else {
        let why = format!("say what makes work: one of {}", kinds().join(", "));
        return Err(ReadError::key(file, "workload.kind", why));
    };
    if kind == "command" {
        let command = command::Command::new(read::table(keys, file, "workload")?);
        return Ok(Box::new(command.map_err(|problem| ReadError::key(file, &problem.at, problem.why))?));
    }
    catalogue::read(&kind, keys, file).unwrap_or_else(|| Err(unknown(&kind, file)))
}

fn unknown(kind: &str, file: &str) -> ReadError {
    let meant = read::nearest(kind, &kinds()).map(|meant| format!("; did you mean {meant}?"));
    let why = format!("there is no {kind:?}: one of {}{}", kinds().join(", "), meant.unwrap_or_default());
    ReadError::key(file, "workload.kind", why)
}
