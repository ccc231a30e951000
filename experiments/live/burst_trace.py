#!/usr/bin/env python3
"""Draws docs/burst.svg: the begin of a simulated burst of bursts.toml, under three policies, from the events of the simulator.

    experiments/live/burst_trace.py                       builds the example `events` of pilotlight-lab, runs it for each policy, draws
    experiments/live/burst_trace.py --events PROGRAM      with a built one
    experiments/live/burst_trace.py --steps               prints the times of docs/burst.md: the whole burst under sandman, and the sleep after it

It is the first burst after the warm-up, of the first repeat. A core works from the poll of a request to its answer, which memory gives in the
same poll step; gaps of less than 4 us are not drawn. Otherwise it polls empty queues or waits in the kernel. From a wake command until an I/O
thread arrives it wakes up and then polls nothing: the events do not tell these apart. A command is drawn at the time of the policy's decision,
on the row of the core that it concerns. Requests are in progress, and have latency, from the time that they were due. All panels have the same
scales.
"""

import argparse, bisect, collections, html, struct, subprocess, tomllib  # noqa: I001
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "experiments/live/bursts.toml"
POLICIES = {"adaptive": "adaptive", "sandman": "sandman", "interrupt": "interrupt"}
BEFORE_NS, AFTER_NS, MARGIN_NS = 500_000, 3_000_000, 13_000_000
AFTER_END_NS = 60_000_000  # of --steps: the last worker sleeps before
ISSUED, ARRIVED, POLLED, ANSWERED, RECEIVED, CORE, LEFT_CORE, HOME, CALLED, COMMANDED = 1, 2, 3, 6, 7, 8, 10, 11, 12, 13  # crates/sim/src/trace.rs
RECORD = struct.Struct("<QHQQ")
COMMANDS = {1: "move", 2: "sleep", 3: "wake"}  # command_code in crates/sim/src/engine/director/commands.rs
WORKS, EMPTY, WOKEN, WAITS = "#e07b39", "#f6d7a7", "#c9aee0", "#b7c9dd"
MARKS = {  # commands: element at x, y
    "wake": '<circle cx="{0}" cy="{1}" r="5" fill="none" stroke="#7b4ea3" stroke-width="1.5"/>',
    "move": '<circle cx="{0}" cy="{1}" r="2.5" fill="#111"/>',
    "sleep": '<rect x="{0}" y="{1}" width="5" height="5" fill="#1f5fa8"/>',
}
WIDTH, LEFT, PLOT, ROW, STRIP = 800, 92, 690, 11, 44


def nanoseconds(text):
    return int(text.removesuffix("ms")) * 10**6 if text.endswith("ms") else int(text.removesuffix("s")) * 10**9


def burst_ns():
    """Begin of the first burst after the warm-up, and its length."""
    keys = tomllib.loads(FILE.read_text())
    phases = [(phase["label"], nanoseconds(phase["length"])) for phase in keys["workload"][0]["phase"]]
    at = 0
    while True:
        for label, length in phases:
            if label == "burst" and at >= nanoseconds(keys["warm_up"]):
                return at, length
            at += length


def events(program, policy, begin, *settings, until=MARGIN_NS):
    """Records from BEFORE_NS before the begin to `until` after it, by kind, with times relative to it; states of cores also before."""
    times = [begin - BEFORE_NS, begin + until]
    command = [*program, FILE.relative_to(ROOT), policy, *times, f"duration={times[1] // 1_000_000 + 1}ms", *settings]
    output = subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE, cwd=ROOT).stdout
    by_kind = collections.defaultdict(list)
    for at, kind, a, b in RECORD.iter_unpack(output):
        by_kind[kind].append((at - begin, a, b))
    return by_kind


def last_core_ns(by_kind):
    """When the last of the cores that work has polled its first request of the burst."""
    first = {}
    for at, _, core in by_kind[POLLED]:
        if at >= 0:
            first.setdefault(core, at)
    return max(first.values())


def merged(spans, gap=0):
    """Joins spans with at most this gap.

    >>> merged([(0, 2), (2, 3), (5, 6)]), merged([(0, 2), (2, 3), (5, 6)], 2)
    ([(0, 3), (5, 6)], [(0, 6)])
    """
    joined = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1] + gap:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return joined


def in_state(changes, wanted, begin, end):
    """Spans in one of the wanted states.

    >>> in_state([(0, 0), (10, 1), (15, 0)], {0}, 5, 20)
    [(5, 10), (15, 20)]
    """
    spans = [(max(at, begin), min(until, end)) for (at, state), (until, _) in zip(changes, [*changes[1:], (end, 0)]) if state in wanted]
    return merged([span for span in spans if span[0] < span[1]])


def quantile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def first_work(records):
    """Time at which the last of the cores that work at the end of the picture has its first request after the begin."""
    late = {core for at, _, core in records[POLLED] if AFTER_NS - 500_000 <= at < AFTER_NS}
    firsts = {}
    for at, _, core in sorted(records[POLLED]):
        if at >= 0:
            firsts.setdefault(core, at)
    return len(late), max((firsts[core] for core in late), default=0)


def core_of(what, argument):
    return argument & 0xFFFFFFFF if COMMANDS[what] == "move" else argument >> 32


def x(at):
    return LEFT + PLOT * (at + BEFORE_NS) / (BEFORE_NS + AFTER_NS)


def text(at_x, at_y, words, extra=""):
    return f'<text x="{at_x:.0f}" y="{at_y:.0f}"{" " + extra if extra else ""}>{html.escape(words)}</text>'


def bars(spans, y, colour):
    """Spans of a row as one path."""
    if not spans:
        return ""
    steps = "".join(f"M{x(begin):.1f} {y}h{max(0.3, x(end) - x(begin)):.1f}" for begin, end in spans)
    return f'<path d="{steps}" stroke="{colour}" stroke-width="{ROW - 2}"/>'


def rows(records, top, cores):
    """The cores: states, commands and arrivals of I/O threads."""
    begun = {request: (at, core) for at, request, core in records[POLLED]}
    worked = collections.defaultdict(list)
    for at, request, core in records[ANSWERED]:
        if begun.get(request, (AFTER_NS, core))[0] < AFTER_NS:
            worked[core].append((begun[request][0], min(at, AFTER_NS)))
    arrivals = [(at, core) for at, _, core in records[HOME] if at < AFTER_NS]
    commands = sorted({(at, core_of(what, argument), COMMANDS[what]) for at, what, argument in records[COMMANDED] if what in COMMANDS})
    commands = [command for command in commands if command[0] < AFTER_NS]
    for core in range(cores):
        y = top + core * ROW + ROW // 2
        changes = [(-(10**12), 0), *sorted((at, state % 16) for at, which, state in records[CORE] if which == core)]  # awake at the start
        woken = [(at, min([home for home, to in arrivals if to == core and home > at], default=AFTER_NS))
                 for at, which, name in commands if which == core and name == "wake"]  # fmt: skip
        yield text(LEFT - 6, y + 4, f"core {core}", 'text-anchor="end"')
        yield bars([(-BEFORE_NS, AFTER_NS)], y, WAITS)
        yield bars(in_state(changes, {0, 3}, -BEFORE_NS, AFTER_NS), y, EMPTY)
        yield bars(merged(woken), y, WOKEN)
        yield bars(merged(worked[core], 4_000), y, WORKS)
    for at, core, name in commands:
        yield MARKS[name].format(round(x(at)), top + core * ROW + ROW // 2)
    for at, core in sorted(arrivals):
        yield f'<path d="M{x(at) - 3:.0f} {top + core * ROW + ROW // 2 + 4}h6l-3-8z"/>'


def curves(records):
    """Requests in progress every 50 us, and p99 in us of the requests due in each 100 us: (time, value)."""
    due = sorted(at - latency for at, _, latency in records[RECEIVED])
    done = sorted(at for at, _, _ in records[RECEIVED])
    by_due = collections.defaultdict(list)
    for at, _, latency in records[RECEIVED]:
        by_due[(at - latency) // 100_000 * 100_000 + 50_000].append(latency / 1e3)
    in_progress = [(at, bisect.bisect(due, at) - bisect.bisect(done, at)) for at in range(-BEFORE_NS, AFTER_NS + 1, 50_000)]
    return in_progress, [(at, quantile(latencies, 0.99)) for at, latencies in sorted(by_due.items()) if -BEFORE_NS <= at < AFTER_NS]


def strip(values, scale, top, label, unit):
    """A line over time."""
    points = " ".join(f"{x(at):.0f},{top + STRIP - 6 - (STRIP - 10) * value / scale:.1f}" for at, value in values)
    yield text(LEFT - 6, top + 18, label, 'text-anchor="end"')
    yield text(LEFT - 6, top + 31, f"max {max(value for _, value in values):,.0f}{unit}", 'text-anchor="end" fill="#666"')
    yield f'<path d="M{LEFT} {top + STRIP - 6}h{PLOT}" stroke="#bbb"/>'
    yield f'<polyline points="{points}" fill="none" stroke="#33691e" stroke-width="1.3"/>'


def panel(name, records, scales, top, cores):
    """Title, cores, requests in progress and latency of a policy; returns the elements and the next top."""
    count, last_ns = first_work(records)
    first_ms = quantile([latency for at, _, latency in records[RECEIVED] if 0 <= at - latency < 1_000_000], 0.99) / 1e3
    title = f"{name}: {count} cores work, the last from {last_ns / 1e3:,.0f} us on; p99 of the first ms {first_ms:,.0f} us"
    parts = [text(LEFT, top + 12, title, 'font-weight="bold"')]
    top += 18
    parts += rows(records, top, cores)
    top += cores * ROW + 2
    for values, scale, label, unit in zip(curves(records), scales, ("in progress", "p99"), ("", " us")):
        parts += strip(values, scale, top, label, unit)
        top += STRIP
    return parts, top


def legend(top, names):
    at = float(LEFT)
    for colour, words in ((WORKS, "works"), (EMPTY, "empty polls"), (WOKEN, "woken, no I/O thread yet"), (WAITS, "waits in the kernel")):
        yield f'<rect x="{at:.0f}" y="{top}" width="12" height="9" fill="{colour}"/>' + text(at + 16, top + 9, words)
        at += 26 + 5.8 * len(words)
    for name in names:
        yield MARKS[name].format(round(at) + 4, top + 5) + text(at + 13, top + 9, name)
        at += 24 + 7 * len(name)
    yield f'<path d="M{at:.0f} {top + 9}h6l-3-8z"/>' + text(at + 12, top + 9, "I/O thread arrives")


def draw(traces, cores):
    title = "Simulated (profile live-16cpu): begin of a burst, 54 k to 1.08 M requests/s"
    used = {COMMANDS.get(what) for records in traces.values() for at, what, _ in records[COMMANDED] if at < AFTER_NS}
    parts, top = [text(LEFT, 15, title, 'font-weight="bold"'), *legend(22, [name for name in MARKS if name in used])], 36
    scales = [max(value for line in lines for _, value in line) for lines in zip(*map(curves, traces.values()))]
    first = top + 4
    for policy, records in traces.items():
        more, top = panel(POLICIES[policy], records, scales, top + 6, cores)
        parts += more
    grid = []
    for at in range(-BEFORE_NS, AFTER_NS + 1, 500_000):
        grid.append(f'<path d="M{x(at):.0f} {first}V{top}" stroke="{"#c00" if at == 0 else "#e4e4e4"}"/>')
        parts.append(text(x(at), top + 13, f"{at / 1e6:g}", 'text-anchor="middle"'))
    parts.append(text(LEFT + PLOT / 2, top + 27, "ms since the begin of the burst", 'text-anchor="middle"'))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top + 34}" width="{WIDTH}" font-family="sans-serif" font-size="11">'
    parts = [head, f'<rect width="{WIDTH}" height="{top + 34}" fill="#fff"/>', *grid, *filter(None, parts), "</svg>"]
    return "\n".join(parts) + "\n"


def steps(records, end):
    """The steps of a burst that ends at `end`: (time, text)."""
    first = {kind: {} for kind in (ARRIVED, POLLED, ANSWERED, RECEIVED)}
    for kind, times in first.items():
        for at, request, _ in records[kind]:
            times.setdefault(request, at)
    request = min((at, request) for at, request, _ in records[ISSUED] if at >= 0)[1]
    for kind, name in ((ARRIVED, "arrives"), (POLLED, "is polled"), (ANSWERED, "is answered"), (RECEIVED, "is complete at the host")):
        yield first[kind][request], f"the first request {name}"
    commands = [(at, COMMANDS[what], what, argument) for at, what, argument in records[COMMANDED] if at >= 0 and what in COMMANDS]
    begun = min(at for at, *_ in commands)
    for at, what, requests in records[CALLED]:
        if 0 <= at <= begun and what == 1:
            yield at, f"tick, {requests} requests since the last"
    for at, name, what, argument in commands:
        thread = f"I/O thread {argument >> 32} to " if name == "move" else ""
        yield at, f"command: {name} {thread}core {core_of(what, argument)}"
    for kind, name in ((LEFT_CORE, "leaves"), (HOME, "is on")):
        for at, thread, core in records[kind]:
            if at >= 0:
                yield at, f"I/O thread {thread} {name} core {core}"
    work = {}
    for at, _, core in records[POLLED]:
        if at >= 0:
            work.setdefault(core, at)
    for core, at in work.items():
        yield at, f"core {core} polls its first request"
    due = sorted(at - latency for at, _, latency in records[RECEIVED])
    done = sorted(at for at, _, _ in records[RECEIVED])
    count, at = max((bisect.bisect(due, at) - bisect.bisect(done, at), at) for at in range(0, AFTER_NS, 1_000))
    yield at, f"most requests in progress: {count}"
    slow = [at for at, _, latency in records[RECEIVED] if at < AFTER_NS and latency >= 200_000]
    yield max(slow), "the last request of the begin with a latency above 200 us is complete"
    yield end, "the burst ends"
    latency = quantile([latency for at, _, latency in records[RECEIVED] if 0 <= at - latency < end], 0.99)
    yield end, f"p99 of its requests was {latency / 1e3:.0f} us"
    asleep = {}
    for at, core, state in records[CORE]:
        if at >= end and state % 16 in (1, 2):
            asleep.setdefault(core, at)
    for core, at in asleep.items():
        if core:
            yield at, f"core {core} sleeps"
    last = max(at for core, at in asleep.items() if core)
    yield min(at for at, core, state in records[CORE] if core == 0 and at >= last and state % 16 in (1, 2)), "core 0 waits in the kernel"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=Path, help="a built example `events` of pilotlight-lab")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/burst.svg")
    parser.add_argument("--seeds", type=int, help="only print when the last core works under adaptive and sandman, for seeds from 1 on")
    parser.add_argument("--steps", action="store_true", help="only print the times of a burst under sandman")
    options = parser.parse_args()
    build = ["cargo", "run", "--release", "--quiet", "--locked", "--package", "pilotlight-lab", "--example", "events", "--"]
    program = [options.events.resolve()] if options.events else build
    begin, length = burst_ns()
    if options.steps:
        for at, text in sorted(steps(events(program, "sandman", begin, until=length + AFTER_END_NS), length)):
            print(f"{at / 1e3:12,.1f} us  {text}")
        return
    if options.seeds:
        for policy in ["adaptive", "sandman"]:
            last = sorted(last_core_ns(events(program, policy, begin, f"seed={seed}")) for seed in range(1, options.seeds + 1))
            print(f"{policy}: the last core works after (ms):", *(f"{ns / 1e6:.2f}" for ns in last))
        return
    traces = {policy: events(program, policy, begin) for policy in POLICIES}
    cores = tomllib.loads((ROOT / "experiments/live/common/live.toml").read_text())["topology"]["cores"]
    options.out.write_text(draw(traces, cores))


if __name__ == "__main__":
    main()
