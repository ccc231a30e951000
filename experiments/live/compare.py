#!/usr/bin/env python3
"""Simulated against measured: compare.py RESULTS POLICIES_CSV [--markdown] > results/live/simulated.csv, or the table of simulated.md

RESULTS: the folder of `pilotlab run experiments/live/NAME.toml --out RESULTS`. A ratio is simulated over measured, against the range of run 1
(run 2, on a disturbed machine, for the test 10 s + 1 s): 1 within the range, else over its nearer end."""
import csv, sys

RESULTS, MEASURED = sys.argv[1:3]
MARKDOWN = "--markdown" in sys.argv
SCENARIOS = {"idle": "idle 2 s, right after a load of 1 s", "steady-2k": "steady 2.4 k", "steady-24k": "steady 24 k", "steady-240k": "steady 240 k",
             "bursts": "bursts 1.8 s + 0.2 s", "bursts-long": "bursts 10 s + 1 s", "lone-burst": None}
METRICS = [("cores", "cores_awake", "server_cpu_cores", 1.2), ("p99_us", "latency_p99_us", "p99_us", 1.5),
           ("light p99_us", "light.latency_p99_us", "light_p99_us", 1.5), ("burst p99_us", "burst.latency_p99_us", "burst_p99_us", 1.5)]
measured = [row for row in csv.DictReader(open(MEASURED)) if row["target"] == "Pilotlight" and row["cores"] == "6"]


def write(row):
    if not MARKDOWN:
        csv.writer(sys.stdout, lineterminator="\n").writerow(row)
        return
    *names, low, high, ratio, within = row
    print("|", " | ".join([*names, f"{low} to {high}" if low != "" else "-", ratio or "-", within or "unverified"]), "|")


if MARKDOWN:
    print("| scenario | policy | metric | simulated | measured | ratio | within |\n|---|---|---|---|---|---|---|")
else:
    write(["scenario", "policy", "metric", "simulated", "measured_low", "measured_high", "ratio", "within"])
for name, scenario in SCENARIOS.items():
    for row in csv.DictReader(open(f"{RESULTS}/live-{name}/results.csv")):
        policy = row["policy"].replace("-0dfda948", "")
        is_measured = row["policy"] != "sandman"
        run = "2" if name == "bursts-long" else "1"
        for metric, column, field, bound in METRICS:
            if not row.get(column) or (metric == "p99_us" and name in ("bursts", "bursts-long", "lone-burst")):
                continue
            value = float(row[column])
            found = [float(m[field]) for m in measured
                     if is_measured and (m["policy"], m["scenario"], m["run"]) == (policy, scenario, run) and m[field]]
            if not found:
                write([name, row["policy"], metric, f"{value:.3f}", "", "", "", ""])
                continue
            low, high = min(found), max(found)
            nearest = min(max(value, low), high)
            ratio = value / nearest if nearest > 0 else (1.0 if value < 0.01 else float("inf"))
            within = "yes" if 1 / bound <= ratio <= bound else "no"
            write([name, row["policy"], metric, f"{value:.3f}", low, high, f"{ratio:.2f}", within])
