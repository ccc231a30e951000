"""The command line: `python -m pilotlab_ray`, `pilotlab-ray`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from .driver import MAX_SHARES, Job
from .errors import PilotlabError, RefusedError

ABOUT = """\
Compute a simulated experiment on a Ray cluster: each task runs one share (pilotlab run --shard) on one CPU, then the shares are merged.
Results have the bytes of one pilotlab run. The program and the experiment are sent to the nodes, which need only Ray, on the Python version
of this command. Shares that are lost with a worker or node are retried. The same command continues an interrupted one."""

EXAMPLES = """\
examples:
  python -m pilotlab_ray papers/sandman/fig3.toml --out fig3                            on this machine
  python -m pilotlab_ray papers/sandman/fig3.toml --out fig3 --address auto             on the cluster of this node
  python -m pilotlab_ray papers/sandman/fig3.toml --out fig3 --address ray://head:10001 --shares 500
  python -m pilotlab_ray papers/sandman/fig4.toml --out z3 -- --set policy.sandman.settings.z=3 --repeats 10

exit codes:
  0  complete; results are in DIR/results
  1  a share failed or was lost, or the shares cannot be merged; finished shares are kept
  2  the command line, the experiment or the folder was refused; nothing was run
  130  interrupted; finished shares are kept"""


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = argparse.ArgumentParser(
        prog="python -m pilotlab_ray",
        usage="python -m pilotlab_ray FILE --out DIR [OPTIONS] [-- OPTIONS OF pilotlab run]",
        description=ABOUT,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument("file", metavar="FILE", help="the experiment")
    options.add_argument("--out", metavar="DIR", required=True, help="folder for shares and results; an earlier run in it is continued")
    options.add_argument("--program", metavar="PATH", help="pilotlab, as built for the nodes [default: the one in PATH]")
    options.add_argument(
        "--shares", metavar="COUNT", type=int, help=f"tasks, at most one per run and {MAX_SHARES} [default: four per CPU of the cluster]"
    )
    options.add_argument(
        "--address", metavar="ADDRESS", help="the cluster, such as auto or ray://HOST:10001 [default: RAY_ADDRESS, or this machine]"
    )
    options.add_argument("--retries", metavar="COUNT", type=int, default=3, help="how often a lost share is retried [default: 3]")
    options.add_argument(
        "--progress", action=argparse.BooleanOptionalAction, help="progress on standard error [default: if it is a terminal]"
    )
    return options


def main(words: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit code."""
    words = list(sys.argv[1:] if words is None else words)
    at = words.index("--") if "--" in words else len(words)
    options, arguments = parser().parse_args(words[:at]), words[at + 1 :]
    try:
        job = Job(options.file, options.out, arguments, options.program, options.shares, options.retries)
        from .cluster import connected  # Ray takes a second to import

        table, summary = job.run(lambda: connected(options.address), options.progress)
    except PilotlabError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, RefusedError) else 1
    except KeyboardInterrupt:
        print(f"interrupted; finished shares are in {options.out}: the same command continues", file=sys.stderr)
        return 130
    print(summary, end="")
    print(f"{table.num_rows} runs are in {Path(options.out) / 'results'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
