"""A small repository, a program that imitates `pilotlab`, and a cluster in this process."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from pilotlab_ray import worker

# Shares write one run each. The experiment can have the lines "# fail K" and "# kill K" for share K.
PROGRAM = r"""
import json, os, pathlib, signal, sys
what, *words = sys.argv[1:]
if what == "run":
    text = pathlib.Path(words[0]).read_text()
    if "--dry-run" in words:
        print(json.dumps({"experiment": "e", "runs": 6, "sampled_replays": 0, "cpu_s": 1.0}))
        sys.exit(0)
    share, out = (words[words.index(option) + 1] for option in ("--shard", "--out"))
    number = share.split("/")[0]
    if f"# fail {number}\n" in text:
        print("\n".join(f"line {at}" for at in range(50)), file=sys.stderr)
        sys.exit(3)
    if f"# kill {number}\n" in text:
        os.kill(os.getpid(), signal.SIGKILL)
    folder = pathlib.Path(out) / "e"
    folder.mkdir(parents=True)
    command = [words[0], *words[1:words.index("--shard")]]
    (folder / "shard.json").write_text(json.dumps({"shard": share, "command": command}))
    (folder / ".values.csv.lock").write_text("")
    (folder / "values.csv").write_text(
        f"e,rate={number};mix=a,default,static,0,1,iops,IOPS,{number}.5\ne,rate={number};mix=a,default,static,0,1,saturated,1,0\n")
else:
    *folders, _, out = words
    commands = [json.loads((pathlib.Path(folder) / "e/shard.json").read_text())["command"] for folder in folders]
    assert all(command == commands[0] for command in commands) and os.path.exists(commands[0][0]), commands
    place = pathlib.Path(out) / "e"
    place.mkdir(parents=True, exist_ok=True)
    head = "# schema=2\n# profile=p hash=00ff\n# experiment=e\nexperiment,point,variant,policy,replication,seed,metric,unit,value\n"
    values = [(pathlib.Path(folder) / "e/values.csv").read_text() for folder in folders]
    (place / "values.csv").write_text(head + "".join(values))
    print("summary")
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for programs, of each test its own."""
    folder = tmp_path / "cache"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A repository with the experiment `experiments/x/e.toml`."""
    files = {
        "profiles/calibration/server.toml": "",
        "profiles/server.toml": "a = 1",
        "profiles/ssd/drive.toml": "b = 2",
        "profiles/README.md": "not read",
        "papers/claims.toml": "",
        "experiments/other.toml": "not read",
        "experiments/x/common.toml": "include = ['../deep.toml']\nname = 'common'",
        "experiments/deep.toml": "title = 'deep'",
        "experiments/x/e.toml": "include = ['common.toml']\nname = 'e'\n[[policy]]\nname = 'static'\n",
    }
    for name, text in files.items():
        path = tmp_path / "home" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "home"


@pytest.fixture
def experiment(home: Path) -> Path:
    """An experiment of six runs."""
    return home / "experiments/x/e.toml"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program that imitates `pilotlab`."""
    path = tmp_path / "pilotlab"
    path.write_text(f"#!{sys.executable}\n{PROGRAM}")
    path.chmod(0o755)
    return path


class InProcess:
    """Computes shares one after the other."""

    def __init__(self) -> None:
        self.computed: list[int] = []

    def cpus(self) -> int:
        return 1

    def compute(
        self, work: worker.Work, shares: list[int], program: bytes, inputs: Mapping[str, bytes], retries: int
    ) -> Generator[tuple[int, worker.Outcome]]:
        for share in shares:
            self.computed.append(share)
            yield share, worker.compute(work, share, lambda: program, inputs)

    @contextmanager
    def connect(self) -> Iterator[InProcess]:
        yield self


@pytest.fixture
def cluster() -> InProcess:
    """A cluster with one CPU."""
    return InProcess()
