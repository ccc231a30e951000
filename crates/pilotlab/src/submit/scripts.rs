//! Batch scripts for Slurm.

use std::fmt::Write as _;

/// Number of times that a task ended by a signal is requeued.
const MAX_RESTARTS: u32 = 3;

/// An experiment as jobs of Slurm. Paths are absolute.
#[derive(Clone, Debug)]
pub(super) struct Job {
    /// Name of the experiment's file, without extension.
    pub(super) name: String,
    /// Path of this program.
    pub(super) program: String,
    /// Arguments of `pilotlab run` without those of the share.
    pub(super) words: Vec<String>,
    /// Number of shares.
    pub(super) tasks: u32,
    /// Folder of shares, logs, scripts and results.
    pub(super) out: String,
    /// Whether it is measured, so that it needs a node of its own and has one task.
    pub(super) live: bool,
}

impl Job {
    /// Options at the head of a script.
    fn head(&self, name: &str, log: &str, more: &[String]) -> String {
        // Slurm replaces patterns that begin with % in paths.
        let out = self.out.replace('%', "%%");
        let own = [format!("--job-name=\"pilotlab-{name}\""), format!("--output=\"{out}/logs/{log}\"")];
        let common = ["--requeue", "--open-mode=append"].map(str::to_owned);
        let options = own.iter().chain(&common).chain(more);
        options.fold("#!/bin/bash\n".to_owned(), |text, option| text + "#SBATCH " + option + "\n")
    }

    /// The script of the array job.
    pub(super) fn shards(&self) -> String {
        let Self { tasks, out, live, .. } = self;
        let more: Vec<String> =
            [format!("--array=1-{tasks}")].into_iter().chain(live.then(|| "--exclusive".to_owned())).collect();
        let mut text = self.head(&self.name, "%A_%a.log", &more);
        let what = if *live { "The task measures on a node of its own" } else { "Each task runs a share" };
        let _ = writeln!(
            text,
            "# Written by `pilotlab submit slurm`. {what}, and continues where it was interrupted.\nset -uo pipefail\n"
        );
        let words: Vec<String> = self.words.iter().map(|word| quoted(word)).collect();
        let own = if *live {
            format!("--out {}", quoted(&format!("{out}/results")))
        } else {
            let folder = quoted(&format!("{out}/shard-"));
            format!(
                "--shard \"$SLURM_ARRAY_TASK_ID/{tasks}\" --out {folder}\"$SLURM_ARRAY_TASK_ID\" \\\n  --workers \
                 \"${{SLURM_CPUS_PER_TASK:-1}}\""
            )
        };
        let _ = writeln!(text, "{} run {} \\\n  {own}\nstatus=$?\n", quoted(&self.program), words.join(" "));
        let _ = write!(
            text,
            "# Slurm requeues what was preempted or lost its node. A task ended by a signal (137: out of memory, kill -9) is\n\
             # requeued here, at most {MAX_RESTARTS} times.\n\
             if ((status > 128 && ${{SLURM_RESTART_COUNT:-0}} < {MAX_RESTARTS})); then\n  \
             scontrol requeue \"${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID\"\nfi\nexit \"$status\"\n"
        );
        text
    }

    /// The script of the job that merges; `None` if there is nothing to merge.
    pub(super) fn merge(&self) -> Option<String> {
        let Self { program, tasks, out, .. } = self;
        let head = self.head(&format!("{}-merge", self.name), "%j-merge.log", &[]);
        let [program, shards, results] =
            [program, &format!("{out}/shard-"), &format!("{out}/results")].map(|p| quoted(p));
        let text = format!(
            "{head}# Written by `pilotlab submit slurm`. Joins the shares.\nset -euo pipefail\n\n\
             exec {program} merge {shards}{{1..{tasks}}} --out {results}\n"
        );
        (!self.live).then_some(text)
    }
}

/// A word for a shell.
pub(super) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_the_shell() {
        for (word, expected) in
            [("/a/b-c.toml", "/a/b-c.toml"), ("a b", "'a b'"), ("", "''"), ("it's $x", r"'it'\''s $x'")]
        {
            assert_eq!(quoted(word), expected);
        }
    }

    #[test]
    fn one_share_of_many_needs_valid_bash() {
        let job = |live| Job {
            name: "e".into(),
            program: "/opt/with space/pilotlab".into(),
            words: vec!["/data/it's.toml".into(), "--smoke".into()],
            tasks: 3,
            out: "/data/50%".into(),
            live,
        };
        let scripts = [Some(job(false).shards()), job(false).merge(), Some(job(true).shards())];
        for script in scripts.into_iter().flatten() {
            let checked = std::process::Command::new("bash").args(["-n", "-c", &script]).output().unwrap();
            assert!(checked.status.success(), "{script}\n{}", String::from_utf8_lossy(&checked.stderr));
            assert!(script.contains("/data/50%%/logs/%"), "{script}");
        }
        assert_eq!(job(true).merge(), None);
        assert!(job(true).shards().contains("#SBATCH --exclusive\n") && !job(false).shards().contains("exclusive"));
    }
}
