"""The files that an experiment reads, and what cannot be divided among nodes.

`pilotlab` reads the experiment, the files that it includes, and from the closest parent folder with `profiles/calibration` (its *home*):
`profiles/` and `papers/claims.toml`. These are sent to the nodes. Traces are not: they can have any size.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import RefusedError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CALIBRATION = "profiles/calibration"
SURROGATE = "surrogate:"
# Options of `pilotlab run` that `run` sets, or that are for other kinds of experiments.
RESERVED = frozenset(("--all", "--dry-run", "--fresh", "--json", "--out", "--replay", "--resume", "--shard", "--simulated", "--workers"))


@dataclass(frozen=True)
class Inputs:
    """What an experiment reads."""

    path: Path
    """The experiment on this machine, without symbolic links."""
    file: str
    """Its path in `files`."""
    files: Mapping[str, bytes]
    """Contents by path relative to the home."""

    @property
    def hash(self) -> str:
        """SHA-256 of paths and contents."""
        hasher = hashlib.sha256()
        for name in sorted(self.files):
            hasher.update(f"{name}\0{len(self.files[name])}\0".encode())
            hasher.update(self.files[name])
        return hasher.hexdigest()


def load(experiment: str | os.PathLike[str], arguments: Sequence[str] = ()) -> Inputs:
    """Reads the files of an experiment; refuses experiments that are not divided."""
    path = _file(Path(experiment))
    home = _home(path)
    files: dict[str, bytes] = {}
    table = _merged(path, home, files, ())
    _check_kind(table, path)
    _check_traces(table, arguments, path)
    _check_arguments(arguments)
    others = [home / "papers" / "claims.toml", *sorted((home / "profiles").rglob("*.toml"))]
    for other in others:
        if other.is_file():
            files[other.relative_to(home).as_posix()] = other.read_bytes()
    return Inputs(path, path.relative_to(home).as_posix(), files)


def _file(path: Path) -> Path:
    """`experiments/x` is `experiments/x.toml`, as for `pilotlab run`."""
    longer = path.with_name(path.name + ".toml")
    if not path.exists() and longer.is_file():
        path = longer
    if not path.is_file():
        raise RefusedError(f"cannot read {path}: name the file of an experiment")
    return path.resolve()


def _home(path: Path) -> Path:
    for folder in path.parents:
        if (folder / CALIBRATION).is_dir():
            return folder
    raise RefusedError(f"{path}: no parent folder has {CALIBRATION}: put the experiment into a copy of the repository")


def _merged(path: Path, home: Path, files: dict[str, bytes], within: tuple[Path, ...]) -> dict[str, Any]:
    """The keys of a file over those of the files that it includes; adds their contents to `files`."""
    if path in within:
        raise RefusedError(f"{path} includes itself, perhaps by way of others: remove the include")
    try:
        name = path.relative_to(home).as_posix()
        files[name] = path.read_bytes()
        own = tomllib.loads(files[name].decode())
    except ValueError as error:
        if path.is_relative_to(home):
            raise RefusedError(f"{path}: {error}") from error
        raise RefusedError(f"{path} is outside of {home}, which is sent to the nodes: move it there") from error
    except OSError as error:
        raise RefusedError(f"cannot read {path}: {error.strerror}") from error
    table: dict[str, Any] = {}
    for other in own.pop("include", []):
        included = Path(os.path.normpath(path.parent / other))
        _merge(table, _merged(included, home, files, (*within, path)))
    _merge(table, own)
    return table


def _merge(base: dict[str, Any], over: Mapping[str, Any]) -> None:
    for key, value in over.items():
        if isinstance(base.get(key), dict) and isinstance(value, dict):
            _merge(base[key], value)
        else:
            base[key] = value


def _check_kind(table: Mapping[str, Any], path: Path) -> None:
    if isinstance(table.get("workload"), dict):
        raise RefusedError(
            f"{path} runs a tool on one machine, and results of different nodes must not be mixed: "
            f"use `pilotlab submit slurm {path}`, or `pilotlab run`"
        )
    if "pass" in table:
        raise RefusedError(f"{path} is a list of experiments: run each of them")
    if "policy" not in table:
        raise RefusedError(f"{path} is not an experiment: it has no [[policy]]")


def _check_traces(table: Mapping[str, Any], arguments: Sequence[str], path: Path) -> None:
    trace = dict(table.get("trace", {}))
    for key, value in _settings(arguments):
        if key.startswith("trace."):
            trace[key.removeprefix("trace.")] = value
    for key in ("source", "sizes"):
        name = str(trace.get(key, SURROGATE))
        if not name.startswith(SURROGATE) and not os.path.isabs(name):
            raise RefusedError(
                f"{path}: trace.{key} {name}: traces are not sent to the nodes: "
                f"write an absolute path that all nodes can read, or set it: --set trace.{key}=/PATH"
            )


def _settings(arguments: Sequence[str]) -> Iterable[tuple[str, str]]:
    """Keys and values of `--set`."""
    for before, word in zip(["", *arguments], arguments, strict=False):
        if before == "--set" or word.startswith("--set="):
            key, _, value = word.removeprefix("--set=").partition("=")
            yield key.strip(), value.strip().strip("\"'")


def _check_arguments(arguments: Sequence[str]) -> None:
    for word in arguments:
        option = word.split("=", 1)[0]
        if option in RESERVED:
            raise RefusedError(f"{option}: omit it: pilotlab_ray sets this option of `pilotlab run`, or does not support it")
