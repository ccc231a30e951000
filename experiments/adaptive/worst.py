#!/usr/bin/env python3
"""Searches the load at which `adaptive` is worst, on the simulated machine of six cores (live-16cpu).

worst.py --program target/release/pilotlab [--rounds 6] [--candidates 8] [--seed 1] > worst.csv

A load is light and burst phases: connections, both rates and both lengths. Each round simulates some under `static`, `interrupt` and `adaptive`: random ones
at first, then half of them near the worst so far of each ratio. Ratios: p99 of `adaptive` over that of `static`, of the worse phase, where it is more than
20 us above (the tolerance's floor); and CPU time over that of `interrupt`. Loads that `static` does not serve to 97 % are left out.
One seed gives the same loads and the same rows."""
import argparse, csv, math, random, subprocess, sys, tempfile
from pathlib import Path

RANGES = {"connections": (1, 96), "light": (500, 300_000), "burst": (5_000, 1_100_000), "light_ms": (20, 1_000), "burst_ms": (1, 500)}
HERE = Path(__file__).resolve().parent
HEAD = f"""include = ["{HERE}/../live/common/live.toml"]
name = "worst"
figure = "None"
title = "Loads of a search"
repeats = 1
duration = "10s"
warm_up = "8s" # after the baseline, which is measured once
[[workload]]
name = "hosts"
connections = 24
threads = "all"
request = {{ kind = "plain", size = "4KiB" }}
depth = 64
spacing = {{ kind = "poisson" }}
[[workload.phase]]
label = "light"
length = "1s"
rate = 1000
[[workload.phase]]
label = "burst"
length = "1s"
rate = 1000
[[parameter]]
name = "load"
"""


def draw(rng, near=None):
    load = {}
    for key, (low, high) in RANGES.items():
        at = rng.random()
        if near:
            at = math.log(near[key] / low) / math.log(high / low) + rng.gauss(0, 0.12)
        load[key] = round(low * (high / low) ** min(max(at, 0), 1))
    load["light"] = min(load["light"], load["burst"])
    return load


def case(number, load):
    phase, period = "workload.hosts.phase", load["light_ms"] + load["burst_ms"]
    keys = {"workload.hosts.connections": load["connections"], f"{phase}.light.rate": load["light"], f"{phase}.burst.rate": load["burst"],
            "duration": f'"{8_000 + math.ceil(2_000 / period) * period}ms"',  # whole periods are measured
            f"{phase}.light.length": f'"{load["light_ms"]}ms"', f"{phase}.burst.length": f'"{load["burst_ms"]}ms"'}
    inner = ", ".join(f'"{key}" = {value}' for key, value in keys.items())
    return f'[[parameter.case]]\nlabel = "{number}"\nset = {{ {inner} }}\n'


def simulate(program, loads):
    with tempfile.TemporaryDirectory(dir=HERE.parents[1] / "target") as folder:  # experiments must be below profiles/calibration
        file = Path(folder, "worst.toml")
        file.write_text(HEAD + "".join(case(number, load) for number, load in enumerate(loads)))
        subprocess.run([program, "run", file, "--out", folder], check=True, stdout=subprocess.DEVNULL)
        rows = list(csv.DictReader(open(Path(folder, "worst", "results.csv"))))
    found = {(int(row["load"]), row["policy"]): row for row in rows}
    return [{policy: found[number, policy] for policy in ("static", "interrupt", "adaptive")} for number in range(len(loads))]


def judge(load, rows):
    """The two ratios; None if `static` does not serve the load."""
    of = lambda policy, column: float(rows[policy][column] or 0)
    offered = (load["light"] * load["light_ms"] + load["burst"] * load["burst_ms"]) / (load["light_ms"] + load["burst_ms"])
    if of("static", "iops") < 0.97 * offered:
        return None
    phases = [(of("adaptive", f"{phase}.latency_p99_us"), of("static", f"{phase}.latency_p99_us")) for phase in ("light", "burst")]
    p99 = max((ours / theirs if ours > theirs + 20 else 1.0 for ours, theirs in phases if theirs > 0), default=1.0)
    return p99, of("adaptive", "cores_awake") / max(of("interrupt", "cores_awake"), 1e-3)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--candidates", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    out = csv.writer(sys.stdout, lineterminator="\n")
    columns = ["iops", "light.latency_p99_us", "burst.latency_p99_us", "cores_awake"]
    names = [f"{policy}_{column}" for policy in ("static", "interrupt", "adaptive") for column in columns]
    out.writerow([*RANGES, "p99_ratio", "cpu_ratio", *names])
    worst = [(0.0, None), (0.0, None)]
    for number in range(args.rounds):
        near = [found for _, found in worst if found] if number else []
        loads = [draw(rng, near[at % len(near)] if near and at < args.candidates // 2 else None) for at in range(args.candidates)]
        for load, rows in zip(loads, simulate(args.program, loads)):
            ratios = judge(load, rows)
            if ratios is None:
                continue
            worst = [max(old, (ratio, load), key=lambda pair: pair[0]) for old, ratio in zip(worst, ratios)]
            values = [rows[policy].get(column, "") for policy in ("static", "interrupt", "adaptive") for column in columns]
            out.writerow([*load.values(), f"{ratios[0]:.3f}", f"{ratios[1]:.3f}", *values])
        print(f"round {number + 1}: worst p99 {worst[0][0]:.2f} of static at {worst[0][1]}, worst CPU {worst[1][0]:.2f} of interrupt at {worst[1][1]}", file=sys.stderr, flush=True)


main()
