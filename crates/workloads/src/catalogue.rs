//! The kinds of workload, as `kind` under `[workload]` selects them.

use serde::de::DeserializeOwned;
use toml::{Table, Value};

use super::{Problem, Workload, client, command, db_bench, fio, load, pgbench, read as reader, sysbench};
use pilotlight_input::file::{self as read, ReadError};

/// Values of `kind`.
pub const KINDS: [&str; 8] = ["command", "client", "fio", "read", "db-bench", "pgbench", "load", "sysbench"];

/// Reads `[workload]`: its `kind`, and the keys of that kind.
///
/// # Errors
/// The kind is unknown or a key is invalid; the key is named.
pub fn read(section: &Table, file: &str) -> Result<Box<dyn Workload>, ReadError> {
    let mut keys = section.clone();
    let Some(Value::String(kind)) = keys.remove("kind") else {
        let why = format!("missing; set it to one of {}", KINDS.join(", "));
        return Err(ReadError::key(file, "workload.kind", why));
    };
    match kind.as_str() {
        "command" => open(keys, file, command::Command::new),
        "client" => open(keys, file, client::Client::new),
        "fio" => open(keys, file, fio::Fio::new),
        "read" => open(keys, file, reader::Read::new),
        "db-bench" => open(keys, file, db_bench::DbBench::new),
        "pgbench" => open(keys, file, pgbench::Pgbench::new),
        "load" => open(keys, file, load::Load::new),
        "sysbench" => open(keys, file, sysbench::Sysbench::new),
        other => {
            let nearest = read::nearest(other, &KINDS).map(|kind| format!("; did you mean {kind}?"));
            let why = format!("unknown kind {other:?}; known: {}{}", KINDS.join(", "), nearest.unwrap_or_default());
            Err(ReadError::key(file, "workload.kind", why))
        }
    }
}

fn open<O: DeserializeOwned, W: Workload + 'static>(
    keys: Table,
    file: &str,
    new: fn(O) -> Result<W, Problem>,
) -> Result<Box<dyn Workload>, ReadError> {
    let workload = new(read::section(keys, file, "workload")?);
    Ok(Box::new(workload.map_err(|problem| ReadError::key(file, &problem.at, problem.why))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Box<dyn Workload>, ReadError> {
        super::read(&text.parse().unwrap(), "e.toml")
    }

    #[test]
    fn every_kind_is_parsed_and_refuses_unknown_keys() {
        for kind in KINDS {
            let needed = match kind {
                "command" => "argv = ['true']\n",
                "client" => "mixes = { a = {} }\n",
                "db-bench" => "benchmark = 'readrandom'\n",
                "load" => "target = '127.0.0.1:4420'\n",
                _ => "",
            };
            let keys = format!("kind = '{kind}'\n{needed}");
            assert_eq!(read(&keys).map(|workload| workload.name().to_owned()), Ok(kind.to_owned()));
            let refused = read(&format!("{keys}no_such_key = 1")).map(drop).unwrap_err().to_string();
            assert!(refused.starts_with("e.toml: workload.no_such_key: unknown field"), "{refused}");
        }
    }

    #[test]
    fn errors_name_the_key() {
        let refused = |text| read(text).map(drop).unwrap_err().to_string();
        let mix = refused("kind = 'fio'\nrw = 'randrw 70/40'");
        assert!(mix.starts_with("e.toml: workload.rw: "), "{mix}");
        let inner = refused("kind = 'load'\n[serve]\npolicy = 'static'\nlisten = 5");
        assert!(inner.starts_with("e.toml: workload.serve.listen: "), "{inner}");
        let kind = refused("kind = 'fioo'");
        assert!(kind.contains("did you mean fio?") && kind.contains("pgbench"), "{kind}");
        assert!(refused("rw = 'read'").starts_with("e.toml: workload.kind: missing; set it to one of"));
    }
}
