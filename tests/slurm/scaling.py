#!/usr/bin/env python3
"""Runs per hour of an experiment on 1 to 1,000 nodes, simulated from measured costs; writes results/scaling.md.

    tests/slurm/scaling.py > results/scaling.md

A share waits for the scheduler, which starts one after another, then for its inputs on the shared storage, which serves one operation after another;
it computes its runs, writes them, and at the end one process merges all runs. Times and operations per share and run are measured; the rates of
scheduler and storage are assumptions, and named so.
"""

import heapq

CORES = 16  # per node
SHARES = 4  # per core
HOUR = 3600.0
# Measured on 2026-11-27, development build, two cores: `pilotlab run experiments/sandman/fig3.toml --shard K/N`.
START_S = 0.12  # CPU time until the first run, with the launcher
RUN_S = 2.5  # CPU time of a run of the whole figure (264 runs in 11 min)
SMALL_RUN_S = 0.084  # of a run with --smoke, pilot runs included
READS = 29  # opened files of a share
CLOSING = 12  # folders, created files, renames and fsyncs of a share, whatever its number of runs
PER_RUN = 2  # a write and a truncation
BYTES = 100  # of a run
MERGE_S = 0.0006  # of a run, one process
# Assumed.
OPERATIONS_S = 2000  # of the shared storage per second
STARTS_S = 100  # of the scheduler per second
NODES = (1, 3, 10, 30, 100, 300, 1000)


def hour(nodes: int, run_s: float, stores: bool, joins_later: bool) -> tuple[float, str]:
    """Runs per hour of a job that keeps all cores busy for about an hour, and what took longest."""
    cores = nodes * CORES
    runs = max(1, int(HOUR / run_s / SHARES))  # of a share
    free = [0.0] * cores
    heapq.heapify(free)
    scheduler = storage = end = 0.0
    busy = {"the scheduler": 0.0, "the shared storage": 0.0}
    ends: list[tuple[float, int]] = []  # shares that write
    for _ in range(cores * SHARES):
        began = heapq.heappop(free)
        scheduler = max(scheduler, began) + 1 / STARTS_S
        busy["the scheduler"] += 1 / STARTS_S
        ready = scheduler
        if stores:
            while ends and ends[0][0] <= ready:
                at, operations = heapq.heappop(ends)
                storage = max(storage, at) + operations / OPERATIONS_S
            storage = max(storage, ready) + READS / OPERATIONS_S
            ready = storage
        done = ready + START_S + runs * run_s
        if stores:
            heapq.heappush(ends, (done, CLOSING + PER_RUN * runs))
            busy["the shared storage"] += (READS + CLOSING + PER_RUN * runs) / OPERATIONS_S
        heapq.heappush(free, done)
        end = max(end, done)
    while ends:
        at, operations = heapq.heappop(ends)
        storage = max(storage, at) + operations / OPERATIONS_S
        end = max(end, storage)
    total = cores * SHARES * runs
    merge = 0.17 + MERGE_S * total
    busy["the merge"] = 0.0 if joins_later else merge
    end += 0.0 if joins_later else merge
    most = max(busy, key=lambda name: busy[name])
    return total * HOUR / end, most if busy[most] > 0.25 * end else "the cores"


def table(run_s: float) -> None:
    print("| nodes | runs/h with shared storage | limited by | runs/h with Ray | limited by | ideal |")
    print("|---:|---:|---|---:|---|---:|")
    for nodes in NODES:
        stored, why = hour(nodes, run_s, stores=True, joins_later=False)
        sent, other = hour(nodes, run_s, stores=False, joins_later=False)
        ideal = nodes * CORES * HOUR / run_s
        print(f"| {nodes} | {stored:,.0f} | {why} | {sent:,.0f} | {other} | {ideal:,.0f} |")


def main() -> None:
    print("# Experiments on 1 to 1,000 nodes\n")
    print("For researchers: how many runs an hour, and what limits them? `tests/slurm/scaling.py > results/scaling.md` writes this page.\n")
    print(f"Simulated, not run on such machines: nodes of {CORES} cores, {SHARES} shares per core, a job of about an hour. Measured (development build, two")
    print(f"cores, 2026-11-27): start of a share {START_S} s, {READS} files read and {CLOSING} operations to write a share, {PER_RUN} operations and {BYTES} bytes per run, {MERGE_S * 1e3} ms of `merge`")
    print(f"per run. Assumed: a shared storage of {OPERATIONS_S:,} operations/s, a scheduler of {STARTS_S} starts/s.\n")
    print(f"## Runs of {RUN_S} s (Figure 3 of SANDMAN)\n")
    table(RUN_S)
    print(f"\n## Runs of {SMALL_RUN_S} s (the same with `--smoke`)\n")
    table(SMALL_RUN_S)
    print("""
The first limit is the shared storage, at its assumed rate: two operations per run, a write and a truncation. What is done about it: a share has three
files whatever its number of runs, a run appends some 100 bytes and waits for no disk (clients of NFS gather such writes, which this model does not);
with Ray shares travel over the network and no storage is shared. Then the merge limits, which is one process.""")


if __name__ == "__main__":
    main()
