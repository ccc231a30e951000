"""Divides an experiment into shares, has them computed, merges them, and reads the results.

The folder of results, which a repeated call continues:

| path | content |
|---|---|
| `plan.json` | what determines the shares |
| `shares.jsonl` | host and duration of each finished share |
| `shard-K` | results of share K, complete |
| `results` | merged results |
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pilotlab import read_table

from . import inputs as experiments
from . import worker
from .errors import PilotlabError, RefusedError, ShareError
from .progress import Progress

if TYPE_CHECKING:
    from .cluster import Cluster

    Connect = Callable[[], AbstractContextManager[Cluster]]

# Shares per CPU, so that CPUs that finish early get another one, and little is lost with a node.
SHARES_PER_CPU = 4
MAX_SHARES = 10_000
PLAN = "plan.json"
LOG = "shares.jsonl"


@dataclass(frozen=True)
class Plan:
    """What determines the shares."""

    experiment: str
    """Its path."""
    arguments: list[str]
    inputs: str
    """SHA-256 of its files."""
    program: str
    """SHA-256."""
    shares: int


def run(
    experiment: str | os.PathLike[str],
    *,
    out: str | os.PathLike[str],
    arguments: Sequence[str] = (),
    program: str | os.PathLike[str] | None = None,
    shares: int | None = None,
    address: str | None = None,
    retries: int = 3,
    progress: bool | None = None,
) -> pa.Table:
    """Computes a simulated experiment on a Ray cluster and returns its runs as a table (`read`).

    The results in `out`/results have the bytes of one `pilotlab run`. The same call continues an interrupted one.

    ```python
    table = pilotlab_ray.run("papers/sandman/fig3.toml", out="fig3", arguments=["--set", "seed=3"])
    ```

    Args:
        experiment: its file.
        out: folder for shares and results.
        arguments: further arguments of `pilotlab run`, such as ["--smoke"].
        program: `pilotlab`, which is sent to the nodes. Default: the one in PATH.
        shares: number of tasks, each with one CPU. Default: four per CPU of the cluster, at most one per run.
        address: the cluster, such as "auto" or "ray://HOST:10001". Default: the one that this process is connected to, else that of
            RAY_ADDRESS, else a local one that ends with the call.
        retries: how often a share is retried that was lost with its worker or node, or whose program was ended by a signal.
        progress: whether progress is written to standard error. Default: on a terminal and in a notebook.

    Raises:
        RefusedError: an argument, the experiment or the folder was refused; nothing was run.
        ShareError: a share failed or was lost; finished shares are kept.
        PilotlabError: the shares cannot be merged.
    """
    from .cluster import connected  # Ray takes a second to import

    job = Job(experiment, out, arguments, program, shares, retries)
    return job.run(lambda: connected(address), progress)[0]


class Job:
    """An experiment to compute, with checked arguments."""

    def __init__(
        self,
        experiment: str | os.PathLike[str],
        out: str | os.PathLike[str],
        arguments: Sequence[str] = (),
        program: str | os.PathLike[str] | None = None,
        shares: int | None = None,
        retries: int = 3,
    ) -> None:
        if shares is not None and not 1 <= shares <= MAX_SHARES:
            raise RefusedError(f"shares {shares}: expected 1 to {MAX_SHARES}")
        if retries < 0:
            raise RefusedError(f"retries {retries}: expected at least 0")
        self._inputs = experiments.load(experiment, arguments)
        self._out = Path(out).absolute()
        self._arguments = list(arguments)
        self._program = _program(program)
        self._binary = self._program.read_bytes()
        self._shares = shares
        self._retries = retries
        self.name, self._most = self._describe()

    def run(self, connect: Connect, progress: bool | None) -> tuple[pa.Table, str]:
        """The table, and the summary that `pilotlab merge` printed."""
        self._check_folder()
        self._out.mkdir(parents=True, exist_ok=True)
        with worker.locked(self._out / ".lock", self._busy):
            with connect() as cluster:
                plan = self._plan(cluster.cpus())
                self._compute(cluster, plan, progress)
            summary = self._merge(plan)
        return read_table(self._out / "results" / self.name), summary

    def _busy(self) -> RefusedError:
        return RefusedError(f"another process writes to {self._out}: wait for its end, or specify another folder")

    def _describe(self) -> tuple[str, int]:
        """Name of the experiment and the maximum number of shares, from a check by the program."""
        words = [str(self._program), "run", str(self._inputs.path), *self._arguments, "--dry-run", "--json"]
        checked = _execute(words)
        if checked.returncode != 0:
            raise RefusedError(checked.stderr.removeprefix("error: ").strip() or f"{' '.join(words)}: exit code {checked.returncode}")
        try:
            description = json.loads(checked.stdout)
            # A sampled replay is divided by its windows.
            most = MAX_SHARES if description["sampled_replays"] else max(1, description["runs"])
            return str(description["experiment"]), min(most, MAX_SHARES)
        except (ValueError, TypeError, KeyError) as error:
            raise RefusedError(f"{self._program} has another version than this package: build both from one commit") from error

    def _earlier(self) -> Plan | None:
        try:
            return Plan(**json.loads((self._out / PLAN).read_text()))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError) as error:
            raise RefusedError(f"{self._out / PLAN} is not of this version: specify another folder") from error

    def _plan_of(self, shares: int) -> Plan:
        program = hashlib.sha256(self._binary).hexdigest()
        return Plan(str(self._inputs.path), self._arguments, self._inputs.hash, program, shares)

    def _check_folder(self) -> None:
        """Refuses a folder of another plan."""
        earlier = self._earlier()
        if earlier is None:
            if self._out.exists() and any(path.name != ".lock" for path in self._out.iterdir()):
                raise RefusedError(f"{self._out} has other files: specify another folder")
            return
        own = self._plan_of(self._shares or earlier.shares)
        differences = [key for key, value in asdict(own).items() if value != asdict(earlier)[key]]
        if differences:
            raise RefusedError(f"{self._out} has shares that differ in: {', '.join(differences)}: specify another folder, or remove it")

    def _plan(self, cpus: int) -> Plan:
        """The plan, which is stored."""
        earlier = self._earlier()
        if earlier is not None:
            return earlier
        plan = self._plan_of(min(self._shares or SHARES_PER_CPU * cpus, self._most))
        partial = self._out / f".{PLAN}"
        partial.write_text(json.dumps(asdict(plan), indent=2) + "\n")
        partial.rename(self._out / PLAN)
        return plan

    def _folder(self, share: int) -> Path:
        return self._out / f"shard-{share}"

    def _compute(self, cluster: Cluster, plan: Plan, show: bool | None) -> None:
        missing = [share for share in range(1, plan.shares + 1) if not self._folder(share).exists()]
        if not missing:
            return
        work: worker.Work = {
            "program": plan.program,
            "file": self._inputs.file,
            "path": plan.experiment,
            "arguments": plan.arguments,
            "shares": plan.shares,
        }
        progress = Progress(self.name, plan.shares - len(missing), plan.shares, show)
        try:
            outcomes = cluster.compute(work, missing, self._binary, self._inputs.files, self._retries)
            with closing(outcomes):
                for share, outcome in outcomes:
                    self._store(share, plan, outcome)
                    progress.add()
        finally:
            progress.close()

    def _store(self, share: int, plan: Plan, outcome: worker.Outcome) -> None:
        """Stores a share; its folder exists only if it is complete."""
        if outcome["code"] != 0:
            raise ShareError(
                f"share {share}/{plan.shares} failed on {outcome['host']} with exit code {outcome['code']}:\n{outcome['stderr']}\n"
                "It is not retried. Correct the cause and repeat the call, which computes what is missing",
                share=share,
                code=outcome["code"],
                stderr=outcome["stderr"],
            )
        partial = self._out / f".shard-{share}"
        shutil.rmtree(partial, ignore_errors=True)
        worker.write_files(partial, outcome["files"])
        partial.rename(self._folder(share))
        line = {"share": share, "host": outcome["host"], "node": outcome["node"], "seconds": outcome["seconds"]}
        with (self._out / LOG).open("a") as log:
            log.write(json.dumps(line) + "\n")

    def _merge(self, plan: Plan) -> str:
        """Merges all shares; returns the summary."""
        folders = [str(self._folder(share)) for share in range(1, plan.shares + 1)]
        merged = _execute([str(self._program), "merge", *folders, "--out", str(self._out / "results")])
        if merged.returncode != 0:
            raise PilotlabError(f"the shares in {self._out} cannot be merged: {merged.stderr.removeprefix('error: ').strip()}")
        return merged.stdout


def _program(program: str | os.PathLike[str] | None) -> Path:
    found = shutil.which("pilotlab" if program is None else program)
    if found is None:
        name = "pilotlab is not in PATH" if program is None else f"{os.fspath(program)} is not a program"
        raise RefusedError(f"{name}: build it (cargo build --release -p pilotlab), and specify program=target/release/pilotlab")
    return Path(found).resolve()


def _execute(words: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
