"""Results of `pilotlab` as a table: one row per run."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from .errors import RefusedError

if TYPE_CHECKING:
    import pandas as pd

PACKED, PLAIN = "values.csv.zst", "values.csv"
SCHEMA = "2"
HEADER = "experiment,point,variant,policy,replication,seed,metric,unit,value"
KEYS = ("variant", "policy", "replication", "seed")
# A simulated run without this metric was interrupted.
SATURATED = "saturated"
# Start of the frame with the comment lines, which decompressors skip; its length follows, then the compressed lines.
SKIPPED = struct.pack("<I", 0x184D2A50)

Key = tuple[str, str, str, int, int]
Column = tuple[pa.Field, Sequence[str | float | None]]


def read(folder: str | os.PathLike[str]) -> pd.DataFrame | pa.Table:
    """Reads the results of an experiment, simulated or measured, as a `pandas` data frame; as `read_table` without `pandas`.

    Columns are those of `read_table`; `attrs` has the table's metadata and, as `units`, the unit of each metric.

    ```python
    frame = pilotlab.read("papers/sandman/results/fig3")
    frame.groupby(["rate", "policy"]).cpu_power_w.mean()
    ```

    Raises:
        RefusedError: as `read_table`.
    """
    table = read_table(folder)
    try:
        import pandas  # noqa: F401
    except ImportError:
        return table
    frame = table.to_pandas()
    frame.attrs = {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}
    frame.attrs["units"] = {field.name: field.metadata[b"unit"].decode() for field in table.schema if field.metadata}
    return frame


def read_table(folder: str | os.PathLike[str]) -> pa.Table:
    """Reads the results of an experiment, simulated or measured, as a `pyarrow` table with a row per run.

    Columns: the parameters; `variant` (of the machine), `policy`, `replication`, `seed`; the metrics. Names of metrics end with the unit,
    which is also in the metadata of the column, with the title. The metadata of the table has experiment, profile or host, and their hash.

    ```python
    table = pilotlab.read_table("papers/sandman/results/fig3")
    table.group_by(["rate", "policy"]).aggregate([("cpu_power_w", "mean")])
    ```

    Args:
        folder: the folder of an experiment, or one above it.

    Raises:
        RefusedError: the folder has no results, those of several experiments, or those of another version.
    """
    place = _place(Path(folder))
    about, runs, units = _runs(place)
    simulated = "profile" in about
    complete = {key: values for key, values in runs.items() if SATURATED in values or not simulated}
    columns = _parameters([key[0] for key in complete])
    for at, name in enumerate(KEYS, 1):
        kind = pa.string() if name in ("variant", "policy") else pa.uint64()
        columns.append((pa.field(name, kind), [key[at] for key in complete]))
    titles = _titles(place)
    for metric, unit in units.items():
        values = [one.get(metric) for one in complete.values()]
        if metric == SATURATED:
            columns.append((pa.field(metric, pa.bool_()), [None if value is None else value == 1 for value in values]))
            continue
        metadata = {"unit": unit} | ({"title": titles[metric]} if metric in titles else {})
        columns.append((pa.field(metric, pa.float64(), metadata=metadata), values))
    schema = pa.schema([field for field, _ in columns], metadata=about)
    return pa.table([pa.array(values, field.type) for field, values in columns], schema=schema)


def _place(folder: Path) -> Path:
    """The folder with the values."""
    places = sorted({file.parent for name in (PACKED, PLAIN) for file in folder.rglob(name)})
    # Results of shares and of the merge, as written by `run`.
    merged = [place for place in places if place.is_relative_to(folder / "results")]
    places = merged or places
    if not places:
        raise RefusedError(f"{folder} has no {PACKED}: name a results folder of `pilotlab run`")
    if len(places) > 1:
        names = ", ".join(str(place) for place in places[:5])
        raise RefusedError(f"{folder} has {len(places)} experiments: name the folder of one: {names}")
    return places[0]


def _lines(place: Path) -> Iterator[str]:
    """Lines of the compressed file, then of the plain file, to which a running experiment appends."""
    for name, compression in ((PACKED, "zstd"), (PLAIN, None)):
        path = place / name
        if path.is_file():
            if compression:
                yield from _comments(path.read_bytes())
            with pa.input_stream(path, compression=compression) as stream:
                text = stream.read().decode()
            # The last line can be incomplete.
            yield from text[: text.rfind("\n") + 1].splitlines()


def _comments(packed: bytes) -> list[str]:
    """Comment lines at the end of a compressed file; earlier files have them between the rows."""
    at = packed.rfind(SKIPPED)
    skipped = packed[at + 8 :] if at >= 0 else b""
    if not skipped or struct.pack("<I", len(skipped)) != packed[at + 4 : at + 8]:
        return []
    with pa.input_stream(pa.py_buffer(skipped), compression="zstd") as stream:
        return str(stream.read().decode()).splitlines()


def _runs(place: Path) -> tuple[dict[str, str], dict[Key, dict[str, float]], dict[str, str]]:
    """Provenance, values of each run, and the units of metrics."""
    about: dict[str, str] = {}
    runs: dict[Key, dict[str, float]] = {}
    units: dict[str, str] = {}
    for line in _lines(place):
        if line.startswith("#"):
            _note(line, about)
            continue
        if line == HEADER:
            if about.get("schema") != SCHEMA:
                raise RefusedError(f"{place} has another version of the format: run the experiment again with this version")
            continue
        try:
            _, point, variant, policy, replication, seed, metric, unit, value = line.split(",")
            key = (point, variant, policy, int(replication), int(seed))
            runs.setdefault(key, {})[metric] = float(value)
        except ValueError as error:
            raise RefusedError(f"{place}: invalid line {line!r}: remove it, and run the experiment again") from error
        units.setdefault(metric, unit)
    return about, runs, units


def _note(line: str, about: dict[str, str]) -> None:
    """Adds what a comment line says about all values."""
    key, _, value = line.removeprefix("#").strip().partition("=")
    if key in ("profile", "host"):
        value, _, about["hash"] = value.partition(" hash=")
    if key in ("schema", "profile", "host", "experiment", "file"):
        about[key] = value


def _parameters(points: list[str]) -> list[Column]:
    """Columns of the parameters, as integers or floating-point numbers where all values are."""
    rows = [dict(part.partition("=")[::2] for part in point.split(";")) if point != "-" else {} for point in points]
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns: list[Column] = []
    for name in names:
        texts = [row.get(name) for row in rows]
        for kind, convert in ((pa.int64(), int), (pa.float64(), float), (pa.string(), str)):
            try:
                values = [None if text is None else convert(text) for text in texts]
            except ValueError:
                continue
            columns.append((pa.field(name, kind), values))
            break
    return columns


def _titles(place: Path) -> dict[str, str]:
    """Titles of the metrics; empty without results.json, which an interrupted experiment lacks."""
    try:
        results = json.loads((place / "results.json").read_text())
        return {metric["key"]: metric["title"] for metric in results["metrics"]}
    except (OSError, ValueError, KeyError):
        return {}
