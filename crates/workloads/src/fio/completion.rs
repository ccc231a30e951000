//! Completion mechanisms as options of fio: an engine, `hipri`, and one outstanding request.

use std::path::Path;

use super::super::knob::{Knob, Named};
use super::super::{Point, Problem, Value, problem, program};
use super::Options;
use crate::Mechanism;
use crate::mechanism::{Api, Kind};

const KEY: &str = "workload.mechanism";

/// Parses a mechanism of an experiment.
pub(super) fn read(value: &Value) -> Result<Mechanism, Problem> {
    Mechanism::read(&value.to_string()).map_err(|why| problem(KEY, why.to_string()))
}

/// The mechanism of a point, if the experiment sets mechanisms.
pub(super) fn at(point: &Point) -> Result<Option<Mechanism>, Problem> {
    point.get("mechanism").map(read).transpose()
}

/// Refuses keys that conflict with a mechanism.
pub(super) fn check(options: &Options) -> Result<(), Problem> {
    let Some(mechanisms) = &options.mechanism else { return Ok(()) };
    mechanisms.values().iter().try_for_each(|value| read(value).map(drop))?;
    if options.ioengine.is_some() {
        return Err(problem(
            "workload.ioengine",
            "conflicts with mechanism, which selects the engine; omit one of the two",
        ));
    }
    if options.iodepth.values() != [Value::Integer(1)] {
        let why = "with mechanism each job has one outstanding request; omit it and vary numjobs";
        return Err(problem("workload.iodepth", why));
    }
    if options.options.contains_key("hipri") {
        return Err(problem(
            "workload.options.hipri",
            "conflicts with mechanism, which enables polling; omit one of the two",
        ));
    }
    let direct = |knob: &Knob| knob.values().iter().all(|v| matches!(v, Value::Switch(true) | Value::Integer(1)));
    if !options.options.get("direct").is_some_and(direct) {
        return Err(problem("workload.options.direct", "polling needs direct I/O; set it to true"));
    }
    Ok(())
}

/// The engine with its options, except for options whose name depends on the version of fio.
pub(super) fn engine(mechanism: Mechanism) -> Named {
    let options = if mechanism.polls() { vec![("hipri".to_owned(), "1".to_owned())] } else { Vec::new() };
    Named { name: mechanism.engine().to_owned(), options }
}

/// The engine with its options; the name of io_uring's hybrid polling comes from `fio --enghelp`.
///
/// # Errors
/// This fio does not support it.
pub(super) fn engine_of_fio(fio: &Path, mechanism: Mechanism) -> Result<Named, Problem> {
    let mut engine = engine(mechanism);
    if (mechanism.api, matches!(mechanism.kind, Kind::Hybrid(_))) == (Api::Uring, true) {
        let output =
            program::output(fio, &["--enghelp=io_uring"], super::HELP).map_err(|missing| problem(KEY, missing.why))?;
        let option = hybrid_option(&output).ok_or_else(|| problem(KEY, unsupported(mechanism)))?;
        engine.options.push((option.to_owned(), "1".to_owned()));
    }
    Ok(engine)
}

fn unsupported(mechanism: Mechanism) -> String {
    format!(
        "{mechanism}: this fio has no option for it (IORING_SETUP_HYBRID_IOPOLL, Linux 6.13). Use kind = \"read\", which supports all \
         mechanisms; mechanisms are comparable only within one tool"
    )
}

/// The first option of the engine whose name contains `hybrid`.
fn hybrid_option(help: &str) -> Option<&str> {
    help.lines().filter_map(|line| line.split_whitespace().next()).find(|word| word.contains("hybrid"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_is_found_among_the_names() {
        let help = "hipri                   : Use polled IO completions\nnowait                  : not hybrid\n";
        assert_eq!(hybrid_option(help), None);
        assert_eq!(hybrid_option(&format!("{help}hybrid_iopoll   : Hybrid polling\n")), Some("hybrid_iopoll"));
    }

    #[test]
    fn the_error_for_an_fio_without_the_option_names_the_alternative() {
        let without = engine_of_fio(Path::new("/bin/echo"), Mechanism::read("uring hybrid").unwrap()).unwrap_err();
        assert_eq!(without.at, KEY);
        assert!(without.why.contains("kind = \"read\""), "{without}");
        assert!(engine_of_fio(Path::new("/bin/echo"), Mechanism::read("uring classic").unwrap()).is_ok());
    }
}
