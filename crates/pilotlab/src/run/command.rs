//! Arguments of `pilotlab run` that determine the results, as text: for the manifest of a share and for batch scripts.

use std::path::Path;

use anyhow::Context as _;
use clap::{Args as _, Command, FromArgMatches as _};

use super::RunArgs;

/// The arguments that determine the results of a simulated experiment, with an absolute path of the file.
pub(super) fn of_results(args: &RunArgs) -> anyhow::Result<Vec<String>> {
    let mut words = args.simulated.replay.arguments();
    if words.is_empty() {
        let file = args.file().context("name an experiment")?;
        let absolute = file.canonicalize().with_context(|| format!("cannot read {}", file.display()))?;
        words.push(utf8(&absolute)?);
    }
    let mut add = |option: &str, value: String| words.extend([option.to_owned(), value]);
    args.set.iter().for_each(|(key, value)| add("--set", format!("{key}={value}")));
    args.repeats.iter().for_each(|count| add("--repeats", count.to_string()));
    let simulated = &args.simulated;
    simulated.at.iter().for_each(|(name, value)| add("--at", format!("{name}={value}")));
    simulated.oracle.iter().for_each(|most| words.push(format!("--oracle={most}")));
    words.extend(simulated.variants.arguments());
    let flags = [("--smoke", simulated.smoke), ("--parquet", args.output.parquet)];
    words.extend(flags.into_iter().filter(|(_, set)| *set).map(|(name, _)| name.to_owned()));
    Ok(words)
}

/// A path in a script or manifest.
pub(crate) fn utf8(path: &Path) -> anyhow::Result<String> {
    let text = path.to_str().filter(|text| !text.contains(['\n', '\r']));
    Ok(text.with_context(|| format!("{path:?}: rename it: paths must be UTF-8 without line breaks"))?.to_owned())
}

/// Parses arguments of `pilotlab run`.
pub(crate) fn parse(words: &[String]) -> anyhow::Result<RunArgs> {
    let command = RunArgs::augment_args(Command::new("run"));
    let matches = command.try_get_matches_from(std::iter::once("run").chain(words.iter().map(String::as_str)))?;
    Ok(RunArgs::from_arg_matches(&matches)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_equal_after_a_round_trip() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("e.toml");
        std::fs::write(&file, "").unwrap();
        let file = file.canonicalize().unwrap().to_str().unwrap().to_owned();
        let given = format!(
            "{file} --set a.b=-1 --set c=x=y --repeats 3 --at rate=10 --oracle=2000000 --family --perturb=20 --lhs=5 --leave-out --smoke \
             --parquet"
        );
        let words: Vec<String> = given.split_whitespace().map(str::to_owned).collect();
        let args = parse(&words).unwrap();
        assert_eq!(of_results(&args).unwrap(), words);
        let replay = "--replay surrogate:alibaba --policy sandman --format msr --sizes /x --spread 1000us --dependent 0us --speed 2.5 --windows 9";
        let replay: Vec<String> = replay.split_whitespace().map(str::to_owned).collect();
        assert_eq!(of_results(&parse(&replay).unwrap()).unwrap(), replay);
        let more: Vec<String> = words.iter().cloned().chain(["--workers".into(), "2".into()]).collect();
        assert_eq!(of_results(&parse(&more).unwrap()).unwrap(), words, "workers do not determine results");
    }
}
