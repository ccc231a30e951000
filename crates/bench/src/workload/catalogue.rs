//! The workloads that have an adapter, by the name of their kind.

use serde::de::DeserializeOwned;
use toml::Table;

use super::{Problem, Workload, db_bench, fio, load, pgbench};
use crate::experiment::read::{self, ReadError};

/// Their names, as `kind` has them.
pub const KINDS: [&str; 4] = ["fio", "db-bench", "pgbench", "load"];

/// Reads the keys of a workload, without `kind`; `None` if there is no such kind.
pub fn read(kind: &str, keys: Table, file: &str) -> Option<Result<Box<dyn Workload>, ReadError>> {
    Some(match kind {
        "fio" => open(keys, file, fio::Fio::new),
        "db-bench" => open(keys, file, db_bench::DbBench::new),
        "pgbench" => open(keys, file, pgbench::Pgbench::new),
        "load" => open(keys, file, load::Load::new),
        _ => return None,
    })
}

fn open<O: DeserializeOwned, W: Workload + 'static>(
    keys: Table,
    file: &str,
    new: fn(O) -> Result<W, Problem>,
) -> Result<Box<dyn Workload>, ReadError> {
    let workload = new(read::table(keys, file, "workload")?);
    Ok(Box::new(workload.map_err(|problem| ReadError::key(file, &problem.at, problem.why))?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::kinds;

    fn read(text: &str) -> Result<Box<dyn Workload>, ReadError> {
        kinds::read(&text.parse().unwrap(), "e.toml")
    }

    #[test]
    fn every_kind_is_read_and_refuses_keys_that_it_does_not_know() {
        for kind in KINDS {
            let needed = match kind {
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
    fn what_is_wrong_is_named_with_its_key() {
        let refused = |text| read(text).map(drop).unwrap_err().to_string();
        let mix = refused("kind = 'fio'\nrw = 'randrw 70/40'");
        assert!(mix.starts_with("e.toml: workload.rw: "), "{mix}");
        let kind = refused("kind = 'fioo'");
        assert!(kind.contains("did you mean fio?") && kind.contains("pgbench"), "{kind}");
    }
}
