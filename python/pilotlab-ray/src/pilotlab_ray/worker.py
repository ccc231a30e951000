"""Computes a share on a node. Ray sends this module to the nodes by value, so it uses the standard library only.

The program is stored once per node, by the hash of its content, in a folder that belongs to the user. Results are computed in a temporary
folder and returned as bytes, so that nodes need no shared storage.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypedDict

MANIFEST = "shard.json"
# Executes a program that is killed with its worker (PR_SET_PDEATHSIG is 1). `preexec_fn` could not: a worker has threads.
LAUNCHER = """
import ctypes, os, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, 9)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the worker has ended")
try:
    os.execv(sys.argv[2], sys.argv[2:])
except OSError as error:
    why = f"cannot execute {sys.argv[2]} on this node ({os.uname().machine}): {error.strerror}"
    print(why, "build the program for the architecture and the C library of the nodes", sep="\\n", file=sys.stderr)
    if isinstance(error, PermissionError):
        print("if the folder is mounted with noexec, set TMPDIR of Ray on this node to another folder", file=sys.stderr)
    sys.exit(126)
"""
# Number of lines of standard error that are returned.
LINES = 20
# Programs and remains of killed shares are removed after this time without use.
KEPT_S = 30 * 24 * 3600


class Work(TypedDict):
    """What all shares have in common."""

    program: str  # SHA-256
    file: str  # the experiment, relative to the folder of the inputs
    path: str  # the experiment on the machine that merges
    arguments: list[str]  # of `pilotlab run`
    shares: int


class Outcome(TypedDict):
    """What a share returns."""

    code: int  # exit code of the program
    stderr: str  # its last lines
    files: dict[str, bytes]  # results by relative path
    host: str
    node: str  # the node's identifier of Ray
    seconds: float


def compute_task(work: Work, share: int, program: list[Any], inputs: Mapping[str, bytes]) -> Outcome:
    """Computes a share as a task of Ray. The reference of the program is in a list, so that only the first task of a node copies it."""
    import ray

    return compute(work, share, lambda: ray.get(program[0]), inputs)


def compute(work: Work, share: int, program: Callable[[], bytes], inputs: Mapping[str, bytes]) -> Outcome:
    """Computes a share. An exit code is returned; a program that was ended by a signal raises `ChildProcessError`."""
    begun = time.monotonic()
    cache = private_folder()
    prune(cache)
    executable = stored(cache, f"program-{work['program']}", program)
    with tempfile.TemporaryDirectory(prefix="share-", dir=cache) as folder:
        home, out = Path(folder) / "inputs", Path(folder) / "out"
        write_files(home, inputs)
        code, stderr = execute(command(work, share, executable, home, out), home)
        files = collect(out, str(home / work["file"]), work["path"]) if code == 0 else {}
    seconds = round(time.monotonic() - begun, 3)
    return {"code": code, "stderr": stderr, "files": files, "host": socket.gethostname(), "node": node(), "seconds": seconds}


def node() -> str:
    """This node's identifier of Ray; empty without Ray."""
    ray = sys.modules.get("ray")
    return str(ray.get_runtime_context().get_node_id()) if ray is not None and ray.is_initialized() else ""


def command(work: Work, share: int, executable: Path, home: Path, out: Path) -> list[str]:
    own = ["--shard", f"{share}/{work['shares']}", "--workers", "1", "--out", str(out)]
    return [str(executable), "run", str(home / work["file"]), *work["arguments"], *own]


def execute(words: list[str], home: Path) -> tuple[int, str]:
    """Exit code and the last lines of standard error."""
    launcher = [sys.executable, "-I", "-S", "-c", LAUNCHER, str(os.getpid())]
    with subprocess.Popen(
        [*launcher, *words], cwd=home, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        try:
            _, stderr = process.communicate()
        except BaseException:
            process.kill()
            raise
    lines = stderr.decode(errors="replace").splitlines()[-LINES:]
    if process.returncode < 0:
        raise ChildProcessError("\n".join([f"the program was ended by {ending(-process.returncode)}", *lines]))
    return process.returncode, "\n".join(lines)


def ending(number: int) -> str:
    """A signal as text."""
    known = {one.value: one.name for one in signal.Signals}
    perhaps = " (perhaps out of memory)" if number == signal.SIGKILL else ""
    return known.get(number, f"signal {number}") + perhaps


def collect(out: Path, path: str, path_of_merge: str) -> dict[str, bytes]:
    """The results in a folder. Manifests get the path of the experiment on the machine that merges."""
    files = {}
    for file in sorted(out.rglob("*")):
        if file.is_file() and not file.name.startswith("."):
            content = file.read_bytes()
            files[file.relative_to(out).as_posix()] = moved(content, path, path_of_merge) if file.name == MANIFEST else content
    return files


def moved(manifest: bytes, path: str, path_of_merge: str) -> bytes:
    """A manifest with another path of the experiment, which is the first of the arguments."""
    value = json.loads(manifest)
    if os.path.realpath(value["command"][0]) != os.path.realpath(path):
        raise ValueError(f"{MANIFEST} has the experiment {value['command'][0]}, not {path}: use programs of one version")
    value["command"][0] = path_of_merge
    return (json.dumps(value, indent=2) + "\n").encode()


def private_folder() -> Path:
    """The folder for programs, which only this user can write."""
    folder = Path(tempfile.gettempdir()).resolve() / f"pilotlab-ray-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise PermissionError(f"{folder} belongs to another user or can be used by others: remove it on {socket.gethostname()}")
    return folder


def stored(cache: Path, name: str, program: Callable[[], bytes]) -> Path:
    """The path of a program, which is written if it is missing. Processes that write at the same time wait for each other."""
    path = cache / name
    with locked(cache / ".lock"):
        if not path.exists():
            partial = cache / f"partial-{os.getpid()}"
            partial.write_bytes(program())
            partial.chmod(0o700)
            partial.rename(path)
        os.utime(path)
    return path


@contextlib.contextmanager
def locked(path: Path, busy: Callable[[], Exception] | None = None) -> Iterator[None]:
    """Holds the lock of a file. If another process holds it, waits, or raises `busy`."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (fcntl.LOCK_NB if busy else 0))
        except BlockingIOError:
            if busy is None:
                raise
            raise busy() from None
        yield


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Writes files by relative path. Paths that lead out of the folder are refused."""
    for name, content in files.items():
        path = folder / name
        if os.path.isabs(name) or ".." in Path(name).parts:
            raise ValueError(f"{name} is not in the folder: use programs of one version")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def prune(cache: Path) -> None:
    """Removes what was not used for a long time."""
    oldest = time.time() - KEPT_S
    with locked(cache / ".lock"):
        for entry in cache.iterdir():
            with contextlib.suppress(FileNotFoundError):  # another share has ended
                if entry.name.startswith(".") or entry.stat().st_mtime > oldest:
                    continue
                if entry.is_dir():
                    shutil.rmtree(entry, ignore_errors=True)
                else:
                    entry.unlink()
