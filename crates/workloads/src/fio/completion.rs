//! Mechanisms of completion as fio is told of them: an engine, `hipri`, and one request at a time.

use std::path::Path;

use super::super::knob::{Knob, Named};
use super::super::{Point, Problem, Value, problem, program};
use super::Options;
use crate::Mechanism;
use crate::mechanism::{Api, Kind};

const KEY: &str = "workload.mechanism";

/// A mechanism as it stands in an experiment.
pub(super) fn read(value: &Value) -> Result<Mechanism, Problem> {
    Mechanism::read(&value.to_string()).map_err(|why| problem(KEY, why))
}

/// That of a point, where mechanisms are asked for.
pub(super) fn at(point: &Point) -> Result<Option<Mechanism>, Problem> {
    point.get("mechanism").map(read).transpose()
}

/// What cannot stand beside a mechanism.
pub(super) fn check(options: &Options) -> Result<(), Problem> {
    let Some(mechanisms) = &options.mechanism else { return Ok(()) };
    mechanisms.values().iter().try_for_each(|value| read(value).map(drop))?;
    if options.ioengine.is_some() {
        return Err(problem("workload.ioengine", "a mechanism chooses its engine: leave one of the two out"));
    }
    if options.iodepth.values() != [Value::Integer(1)] {
        let why = "with mechanisms each job has one request in flight: leave it out, and vary numjobs";
        return Err(problem("workload.iodepth", why));
    }
    if options.options.contains_key("hipri") {
        return Err(problem("workload.options.hipri", "a mechanism says whether to poll: leave one of the two out"));
    }
    let direct = |knob: &Knob| knob.values().iter().all(|v| matches!(v, Value::Switch(true) | Value::Integer(1)));
    if !options.options.get("direct").is_some_and(direct) {
        return Err(problem("workload.options.direct", "only what bypasses the page cache is polled: set it to true"));
    }
    Ok(())
}

/// The engine with its options, as far as it needs no asking.
pub(super) fn engine(mechanism: Mechanism) -> Named {
    let options = if mechanism.polls() { vec![("hipri".to_owned(), "1".to_owned())] } else { Vec::new() };
    Named { name: mechanism.engine().to_owned(), options }
}

/// The engine with its options; fio is asked how io_uring's hybrid polling is called.
///
/// # Errors
/// This fio does not have it.
pub(super) fn asked(fio: &Path, mechanism: Mechanism) -> Result<Named, Problem> {
    let mut engine = engine(mechanism);
    if (mechanism.api, matches!(mechanism.kind, Kind::Hybrid(_))) == (Api::Uring, true) {
        let said =
            program::ask(fio, &["--enghelp=io_uring"], super::HELP).map_err(|missing| problem(KEY, missing.why))?;
        let option = hybrid_option(&said).ok_or_else(|| problem(KEY, without(mechanism)))?;
        engine.options.push((option.to_owned(), "1".to_owned()));
    }
    Ok(engine)
}

fn without(mechanism: Mechanism) -> String {
    format!(
        "{mechanism}: this fio has no option for it (IORING_SETUP_HYBRID_IOPOLL, Linux 6.13). kind = \"read\" has it, and all others too: what is \
         to be compared must run through one tool"
    )
}

/// The first option of the engine whose name speaks of hybrid polling.
fn hybrid_option(help: &str) -> Option<&str> {
    help.lines().filter_map(|line| line.split_whitespace().next()).find(|word| word.contains("hybrid"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_is_looked_for_where_options_are_named() {
        let help = "hipri                   : Use polled IO completions\nnowait                  : not hybrid\n";
        assert_eq!(hybrid_option(help), None);
        assert_eq!(hybrid_option(&format!("{help}hybrid_iopoll   : Hybrid polling\n")), Some("hybrid_iopoll"));
    }

    #[test]
    fn an_fio_without_the_option_says_what_has_it() {
        let without = asked(Path::new("/bin/echo"), Mechanism::read("uring hybrid").unwrap()).unwrap_err();
        assert_eq!(without.at, KEY);
        assert!(without.why.contains("kind = \"read\""), "{without}");
        assert!(asked(Path::new("/bin/echo"), Mechanism::read("uring classic").unwrap()).is_ok());
    }
}
