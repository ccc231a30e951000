"""Runs a figure of SANDMAN on a Ray cluster of three nodes on this machine, and compares bytes with one run.

While shares are computed, a node and the program of another share are killed.

python tests/ray/cluster.py PROGRAM FOLDER    started by run.sh
"""

import contextlib
import filecmp
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import ray
from ray.cluster_utils import Cluster

import pilotlab_ray

NODES = 3
SHARES = 9
# About 20 s of CPU time.
EXPERIMENT = "papers/sandman/fig3.toml"
ARGUMENTS = ["--smoke", "--set", 'parameter.rate.values=[[10_000, "6s"], [640_000, "2.5s"]]', "--repeats", "6"]
SHORT = ["--smoke", "--at", "rate=10000"]
RAY_PORTS = 20_000
COMMAND = [sys.executable, "-m", "pilotlab_ray", EXPERIMENT]
MEMORY = {"object_store_memory": 300 * 1024 * 1024}


def fail(reason):
    sys.exit(f"FAILED: {reason}")


def wait_for(seconds, what, condition):
    """The first result of a condition that is not false."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > end:
            fail(f"timed out: {what}")
        time.sleep(0.01)  # between two looks at the condition
    return found


def started(start):
    """A node, or a cluster with one. Ray gives a node 30 s to start, which a busy machine can exceed."""
    for _ in range(5):
        try:
            return start()
        except Exception as error:
            print(f"Ray did not start, repeated: {error}", file=sys.stderr)
    return fail("Ray does not start")


def processes():
    """Command line and parent of each process."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
            status = (folder / "status").read_text()
            if words and "\nState:\tZ" not in status:
                found[int(folder.name)] = (words, int(status.split("\nPPid:\t")[1].split()[0]))
    return found


def option(words, name):
    return words[words.index(name) + 1] if name in words else None


def share_with_results(raylets):
    """Process, share and raylet of a program on a node that has stored a run and not finished."""
    running = processes()
    for pid, (words, _) in running.items():
        share = option(words, "--shard")
        if share is None or not words[0].startswith(os.environ["TMPDIR"]):
            continue
        above = pid
        while above in running and above not in raylets:
            above = running[above][1]
        values = Path(option(words, "--out")) / "fig3/values.csv"
        with contextlib.suppress(OSError):
            if above in raylets and ",saturated," in values.read_text():
                return pid, share, above
    return None


def compute(command, cluster, workers, out):
    """Runs the command, kills a node and a program, and returns the share that was lost, with the identifier of its node."""
    raylets = {node.all_processes["raylet"][0].process.pid: node for node in workers}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        pid, share, raylet = unfinished(process, raylets, out)
        os.kill(raylet, signal.SIGKILL)
        wait_for(60, f"the program of share {share} has not ended with its node", lambda: pid not in processes())
        node = raylets.pop(raylet)
        cluster.remove_node(node, allow_graceful=False)
        os.kill(unfinished(process, raylets, out)[0], signal.SIGKILL)
        if process.wait(600) != 0:
            fail(f"exit code {process.returncode}")
    return share, node.node_id


def unfinished(process, raylets, out):
    """Process, number and raylet of a share that has stored a run and is not finished."""
    found = wait_for(300, "no share has stored a run", lambda: share_with_results(raylets) or process.poll() is not None)
    if found is True:
        fail(f"the command ended before a kill, with exit code {process.returncode}")
    pid, share, raylet = found
    number = int(share.split("/")[0])
    if (out / f"shard-{number}").exists():
        fail(f"share {share} had finished before it was killed")
    return pid, number, raylet


def free_port():
    """A port outside of those of Ray's workers (10002 to 19999)."""
    while True:
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
        if port > RAY_PORTS:
            return port


def same(one, other):
    """Whether two folders have files of the same names and bytes, without locks."""
    names = [sorted(path.name for path in folder.iterdir() if not path.name.startswith(".")) for folder in (one, other)]
    _, different, failed = filecmp.cmpfiles(one, other, names[0], shallow=False)
    return names[0] == names[1] and "values.csv.zst" in names[0] and not different and not failed


def main(program, folder):
    whole, out = folder / "whole", folder / "out"
    subprocess.run([program, "run", EXPERIMENT, *ARGUMENTS, "--out", whole], check=True, stdout=subprocess.DEVNULL)
    cluster = started(lambda: Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **MEMORY}))
    try:
        workers = [started(lambda: cluster.add_node(num_cpus=1, **MEMORY)) for _ in range(NODES)]
        cluster.wait_for_nodes()
        own = ["--out", str(out), "--program", program, "--shares", str(SHARES), "--address", cluster.address, "--progress"]
        share, node = compute([*COMMAND, *own, "--", *ARGUMENTS], cluster, workers, out)
    finally:
        cluster.shutdown()
    log = [json.loads(line) for line in (out / "shares.jsonl").read_text().splitlines()]
    [again] = [line["node"] for line in log if line["share"] == share]
    if again == node or len(log) != SHARES:
        fail(f"share {share} was not computed again on another node: {log}")
    if not same(whole / "fig3", out / "results/fig3"):
        fail("the merged results differ from those of one run")
    print(f"share {share} of {SHARES} was lost with one of {NODES} nodes and computed on another; the program of another was killed")
    print("the merged results have the bytes of one run")
    notebook(program, folder)
    client(program, folder)


def notebook(program, folder):
    """The same call without a cluster, as in a notebook; a repeated call computes nothing."""
    call = {"out": folder / "notebook", "program": program, "arguments": SHORT}
    table = started(lambda: pilotlab_ray.run(EXPERIMENT, **call))
    if ray.is_initialized() or table.num_rows != 16 or set(table.column("rate").to_pylist()) != {10_000}:
        fail(f"the table is wrong, or Ray still runs: {table.schema}")
    log = (folder / "notebook/shares.jsonl").read_text()
    if not started(lambda: pilotlab_ray.run(EXPERIMENT, **call)).equals(table) or (folder / "notebook/shares.jsonl").read_text() != log:
        fail("a repeated call computed shares again")
    print("a local run returned the table of its runs; a repeated call computed nothing")


def client(program, folder):
    """The same from a machine outside of the cluster."""
    port = free_port()
    arguments = {"num_cpus": 1, "ray_client_server_port": port, **MEMORY}
    cluster = started(lambda: Cluster(initialize_head=True, head_node_args=arguments))
    try:
        cluster.wait_for_nodes()
        own = ["--out", str(folder / "client"), "--program", program, "--address", f"ray://127.0.0.1:{port}"]
        # Ray forks its server of a client from a process with threads, which sometimes does not start.
        for _ in range(3):
            ended = subprocess.run([*COMMAND, *own, "--", *SHORT], capture_output=True, text=True, check=False)
            if "Starting Ray client server failed" not in ended.stderr:
                break
    finally:
        cluster.shutdown()
    if ended.returncode != 0:
        fail(f"{own}: exit code {ended.returncode}: {ended.stderr}")
    if not same(folder / "client/results/fig3", folder / "notebook/results/fig3"):
        fail("results computed through a client of Ray differ from those of a local run")
    print("a client of Ray (ray://) returned the same bytes as a local run")


main(sys.argv[1], Path(sys.argv[2]))
