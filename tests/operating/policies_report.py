#!/usr/bin/env python3
"""Results of policies.py: the CSV, and summary and picture from it.

tests/operating/policies_report.py FOLDER      makes summary.md, summary.json and policies.svg again from policies.csv and machine.json
"""

import csv, hashlib, html, json, math, os, platform, re, shlex, statistics, subprocess, sys, time  # noqa: I001
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COLOURS = ["#4c78a8", "#e45756", "#54a24b", "#b279a2", "#f58518", "#72b7b2", "#9d755d", "#5b5b5b"]


def machine(options, program, layout, scenarios):
    """What a reader has to know of the machine and the program."""

    def output(*words):
        done = subprocess.run(words, check=False, capture_output=True, text=True, cwd=ROOT)
        return done.stdout.strip() if done.returncode == 0 else None

    def read(path):
        return Path(path).read_text().strip() if Path(path).exists() else None

    cpu, cpufreq = read("/proc/cpuinfo"), "/sys/devices/system/cpu/cpu0/cpufreq"
    model = re.search(r"model name\s*: (.*)", cpu)
    ours = Path(program).is_relative_to(ROOT / "target")  # then it is taken for a build of what is checked out
    return {
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "command": shlex.join(sys.argv),
        "program": program, "version": output(program, "--version"), "sha256": hashlib.sha256(Path(program).read_bytes()).hexdigest(),
        "commit": options.commit or (output("git", "rev-parse", "HEAD") if ours else None),
        "changed_files": len((output("git", "status", "--porcelain", "-uno") or "").splitlines()) if ours and not options.commit else None,
        "cpu": model[1] if model else platform.machine(), "cpus": layout.allowed, "virtual": "hypervisor" in cpu, "kernel": platform.release(),
        "cpuidle_driver": read("/sys/devices/system/cpu/cpuidle/current_driver"), "cpufreq_driver": read(f"{cpufreq}/scaling_driver"),
        "cpufreq_governor": read(f"{cpufreq}/scaling_governor"), "load_average": os.getloadavg(),
        "server_cpus": layout.server(), "load_cpus": layout.load(), "sampler_cpus": layout.sampler(), "reactors": layout.reactors, "rates_times": layout.scale,
        "time_scale": options.time_scale, "comparable": layout.comparable and options.time_scale == 1, "scenarios": scenarios,
    }  # fmt: skip


def p99(row):
    """The p99 that a policy is judged by: that of the bursts where the load has phases."""
    return float(row.get("burst_p99_us") or row.get("p99_us") or 0) or None


def spread(values):
    values = [value for value in values if value is not None]
    return {"median": statistics.median(values), "min": min(values), "max": max(values)} if values else None


def summarize(facts, rows):
    policies, scenarios = (list(dict.fromkeys(row[key] for row in rows)) for key in ("policy", "scenario"))
    by = {(row["policy"], row["scenario"], int(row["round"])): row for row in rows}
    cells = {policy: {} for policy in policies}
    for policy in policies:
        for scenario in scenarios:
            of = {number: row for (of, name, number), row in by.items() if (of, name) == (policy, scenario)}
            if not of:
                continue
            cell = {"rounds": len(of), "cpu_cores": spread(float(row["cpu_cores"]) for row in of.values()), "p99_us": spread(map(p99, of.values()))}
            pairs = [(row, by.get(("interrupt", scenario, number)), by.get(("static", scenario, number))) for number, row in of.items()]
            cpu = [float(row["cpu_cores"]) / float(other["cpu_cores"]) for row, other, _ in pairs if other and float(other["cpu_cores"]) > 0.02]
            tail = [p99(row) / p99(other) for row, _, other in pairs if other and p99(row) and p99(other)]
            cells[policy][scenario] = cell | {"cpu_over_interrupt": spread(cpu), "p99_over_static": spread(tail)}
            cells[policy][scenario] |= times(of.values())
            if any(row.get("iterations") for row in of.values()):
                cells[policy][scenario]["with_moves_percent"] = spread(
                    100 * int(row["iterations_with_moves"]) / int(row["iterations"]) for row in of.values() if row.get("iterations"))
    return {"machine": facts, "scenarios": scenarios, "policies": cells}


def times(rows):
    """Times from samples of the threads' states, of policies_states.py."""
    bursts = [(float(row["awake_p50_us"]), float(row["awake_max_us"])) for row in rows if row.get("awake_p50_us")]
    ended = [float(row["until_none_polls_ms"]) if row["until_none_polls_ms"] else None for row in rows if row.get("sample_us") and not row.get("bursts")]
    found = {"awake_us": {"median": statistics.median(median for median, _ in bursts), "max": max(worst for _, worst in bursts)}} if bursts else {}
    return found | ({"until_none_polls_ms": spread(ended), "polls_on": ended.count(None)} if ended else {})


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def ranged(values, unit=""):
    if not values:
        return "-"
    same = values["min"] == values["max"]
    return number(values["median"]) + unit + ("" if same else f" ({number(values['min'])} to {number(values['max'])})")


def timed(cell):
    """Text of the times of a cell."""
    if "awake_us" in cell:
        return f"{number(cell['awake_us']['median'])} us, worst {number(cell['awake_us']['max'])}"
    if "polls_on" not in cell:
        return "-"
    on = f"polls on in {cell['polls_on']} of {cell['rounds']}" if cell["polls_on"] else None
    ended = ranged(cell["until_none_polls_ms"], " ms") if cell["until_none_polls_ms"] else None
    return ", ".join(filter(None, (ended, on)))


def table(summary, cell):
    lines = ["| policy | " + " | ".join(summary["scenarios"]) + " |", "|---" * (len(summary["scenarios"]) + 1) + "|"]
    for policy, cells in summary["policies"].items():
        texts = [cell(cells[scenario]) if scenario in cells else "-" for scenario in summary["scenarios"]]
        lines.append(f"| `{policy}` | " + " | ".join(texts) + " |")
    return lines


def markdown(summary):
    facts = summary["machine"]
    layout = f"{facts['reactors']} unpinned reactors" if facts["reactors"] else f"server on CPUs {facts['server_cpus']}, load on {facts['load_cpus']}"
    lines = [f"# Policies live, {facts['date'][:10]}", ""]
    if not facts["comparable"]:
        lines += [f"**Not comparable**: {len(facts['cpus'])} CPUs, rates times {facts['rates_times']:.3g}, measured times times {facts['time_scale']:g}.", ""]
    lines += [f"{facts['version']}, commit {facts['commit'] or 'unknown'}" + (f" and {facts['changed_files']} changed files" if facts["changed_files"] else "")]
    lines += [f"({facts['command']}). {facts['cpu']}, {len(facts['cpus'])} CPUs{', virtual' if facts['virtual'] else ''}, Linux {facts['kernel']},"]
    lines += [f"cpuidle {facts['cpuidle_driver'] or 'none'}, cpufreq {facts['cpufreq_driver'] or 'none'}; {layout}."]
    lines += ["", *(f"- `{name}`: {facts['scenarios'][name]}" for name in summary["scenarios"] if name in facts["scenarios"])]
    lines += ["", "Median over the rounds (range). CPU time of the process in cores; p99 in us, of the bursts where there are phases.", ""]
    lines += table(summary, lambda of: ranged(of["cpu_cores"], " cores") + (f"<br>p99 {ranged(of['p99_us'])}" if of["p99_us"] else ""))
    if {"interrupt", "static"} & {*summary["policies"]}:
        lines += ["", "Ratios within each round, median (range): CPU relative to `interrupt`, p99 relative to `static`.", ""]
        lines += table(summary, lambda of: f"{ranged(of['cpu_over_interrupt'])}<br>p99 {ranged(of['p99_over_static'])}")
    if any({"awake_us", "polls_on"} & {*of} for cells in summary["policies"].values() for of in cells.values()):
        lines += ["", "Time from the first request of a burst until the last core that it needs is awake: median, and worst of all bursts. In `idle` that"]
        lines += ["from the last request until no core polls.", ""]
        lines += table(summary, timed)
    if any("with_moves_percent" in of for cells in summary["policies"].values() for of in cells.values()):
        lines += ["", "Iterations with a move, percent.", ""]
        lines += table(summary, lambda of: ranged(of.get("with_moves_percent")))
    return "\n".join(lines) + "\n"


def picture(summary):
    """CPU over p99: a line for each policy, a point for each scenario that has latencies."""
    named = [name for name in summary["scenarios"] if any(cells.get(name, {}).get("p99_us") for cells in summary["policies"].values())]
    lines = {policy: [(index, cells[name]) for index, name in enumerate(named) if name in cells and cells[name]["p99_us"]]
             for policy, cells in summary["policies"].items()}  # fmt: skip
    points = [cell for line in lines.values() for _, cell in line]
    if not points:
        return None
    low, high = (round_to(math.log10(limit(cell["p99_us"]["median"] for cell in points)))
                 for limit, round_to in ((min, math.floor), (max, math.ceil)))  # fmt: skip
    high = max(high, low + 1)
    most = max(1, math.ceil(max(cell["cpu_cores"]["median"] for cell in points) - 0.1))
    left, top, width, height = 60, 30, 560, 360

    def x(us):
        return left + width * (math.log10(us) - low) / (high - low)

    def y(cores):
        return top + height * (1 - cores / most)

    def text(at_x, at_y, words, extra=""):
        return f'<text x="{at_x:.1f}" y="{at_y:.1f}" {extra}>{html.escape(words)}</text>'

    facts = summary["machine"]
    title = "CPU over p99, medians" + ("" if facts["comparable"] else " (not comparable: too few CPUs or shortened)")
    svg = ['<svg xmlns="http://www.w3.org/2000/svg" width="860" height="440" font-family="sans-serif" font-size="12">',
           '<rect width="860" height="440" fill="white"/>', text(left, 18, title, 'font-weight="bold"')]  # fmt: skip
    for exponent in range(low, high + 1):
        at = x(10**exponent)
        svg += [f'<path d="M{at:.1f} {top}V{top + height}" stroke="#ddd"/>', text(at, top + height + 16, f"{10**exponent:,}", 'text-anchor="middle"')]
    for cores in range(most + 1):
        svg += [f'<path d="M{left} {y(cores):.1f}H{left + width}" stroke="#ddd"/>', text(left - 8, y(cores) + 4, str(cores), 'text-anchor="end"')]
    svg.append(text(left + width / 2, top + height + 36, "p99 (us)", 'text-anchor="middle"'))
    svg.append(text(0, 0, "CPU time (cores)", f'text-anchor="middle" transform="translate(24 {top + height / 2}) rotate(-90)"'))
    for order, (policy, line) in enumerate(lines.items()):
        colour = COLOURS[order % len(COLOURS)]
        places = [(index, x(cell["p99_us"]["median"]), y(cell["cpu_cores"]["median"])) for index, cell in line]
        svg.append(f'<polyline fill="none" stroke="{colour}" points="{" ".join(f"{a:.1f},{b:.1f}" for _, a, b in places)}"/>')
        for index, a, b in places:
            svg.append(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="8" fill="{colour}"/>')
            svg.append(text(a, b + 4, str(index + 1), 'text-anchor="middle" fill="white" font-size="10"'))
        svg += [f'<rect x="640" y="{40 + 20 * order}" width="12" height="12" fill="{colour}"/>', text(658, 50 + 20 * order, policy)]
    svg += [text(640, 70 + 20 * (len(lines) + index), f"{index + 1}  {name}") for index, name in enumerate(named)]
    return "\n".join([*svg, "</svg>"]) + "\n"


def write(folder, facts, rows):
    folder.mkdir(parents=True, exist_ok=True)
    columns = list(dict.fromkeys(key for row in rows for key in row))
    with open(folder / "policies.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: round(value, 4) if isinstance(value, float) else value for key, value in row.items()} for row in rows)
    (folder / "machine.json").write_text(json.dumps(facts, indent=2) + "\n")
    report(folder)


def report(folder):
    with open(folder / "policies.csv") as file:
        summary = summarize(json.loads((folder / "machine.json").read_text()), list(csv.DictReader(file)))
    (folder / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    (folder / "summary.md").write_text(markdown(summary))
    drawn = picture(summary)
    if drawn:
        (folder / "policies.svg").write_text(drawn)


if __name__ == "__main__":
    report(Path(sys.argv[1]))
