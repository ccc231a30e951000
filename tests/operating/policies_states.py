#!/usr/bin/env python3
"""When the cores of a server poll, seen from outside: samples of the states of its reactors' threads, for policies.py.

tests/operating/policies_states.py PID FILE      samples until SIGINT, then writes FILE
python3 -m doctest tests/operating/policies_states.py

A sample is a time (CLOCK_MONOTONIC, in nanoseconds, read after the states) and a mask of the reactors whose thread is in state R (field 3 of
/proc/PID/task/TID/stat), about every 150 us. R is running or ready to run: polling, working, and a sleep in a wait instruction (monitor-wait),
which the kernel cannot see. A core that waits in the kernel is in S.

- A burst lasts from the begin to the end of a phase with the highest rate, by the start that `pilotlight load` reports.
- A core is needed by a burst if its thread is in R in more than half of the samples of the burst's second half.
- The burst's time is that from its begin to the first sample in R of each needed core, the maximum over these cores. It is up to one sampling
  interval too long: that is the value of a core that polls all the time.
- The time until none polls is that from the last completion of the load to the last sample in which a reactor is in R before QUIET_NS of
  samples without one. It is unknown, None, if that does not happen. A gap of more than GAP_NS between two samples says nothing. The load's
  connections are closed in this time, which takes a few milliseconds under `interrupt` too.
With --reactors reactors yield and sleep briefly instead of polling, so neither time means much.
"""

import array, ctypes, gc, os, re, signal, statistics, sys, time  # noqa: I001
from bisect import bisect_left
from pathlib import Path

INTERVAL_NS, QUIET_NS, GAP_NS = 150_000, 5_000_000, 1_000_000


def phases(schedule):
    """(rate, nanoseconds) of each phase of a schedule of `pilotlight load`.

    >>> phases("1.25%:800ms,100%:1s")
    [(1.25, 800000000), (100.0, 1000000000)]
    """
    return [(float(rate), int(length) * (10**6 if milli else 10**9)) for rate, length, milli in re.findall(r"([\d.]+)%:(\d+)(m?)s", schedule)]


def bursts(schedule, began_ns, from_ns, to_ns):
    """(begin, end) of the bursts that are wholly between two times.

    >>> bursts("5%:800ms,100%:200ms,5%:1s", 50, 10**9, 5 * 10**9 + 100)
    [(2800000050, 3000000050), (4800000050, 5000000050)]
    >>> bursts("5%:800ms,100%:200ms,5%:1s", 0, 900_000_000, 2_900_000_000)
    []
    """
    cycle = phases(schedule)
    highest = max(rate for rate, _ in cycle)
    found, at = [], began_ns
    while at < to_ns:
        for rate, length in cycle:
            if rate == highest and at >= from_ns and at + length <= to_ns:
                found.append((at, at + length))
            at += length
    return found


def awake(times, states, begin, end):
    """(nanoseconds until all needed cores are awake, mask of these cores); None without a needed core.

    Core 0 polls all the time, core 1 wakes up at 40, core 2 is in R once, core 3 twice in the second half but in not more than half of it:

    >>> times = range(5, 105, 10)  # of a burst from 20 to 100
    >>> states = [0b0001, 0b0001, 0b0001, 0b0101, 0b0011, 0b0011, 0b0011, 0b1011, 0b1011, 0b0011]
    >>> awake(times, states, 20, 100)
    (25, 3)
    >>> awake(times, [0] * 10, 20, 100), awake(times, states, 200, 300)
    (None, None)
    """
    second_half = states[bisect_left(times, (begin + end) // 2) : bisect_left(times, end)]
    first, last, missing = bisect_left(times, begin), bisect_left(times, end), 0
    for core in range(max(second_half, default=0).bit_length()):
        if 2 * sum(state >> core & 1 for state in second_half) > len(second_half):
            missing |= 1 << core
    needed = missing
    for at in range(first, last):
        missing &= ~states[at]
        if needed and not missing:
            return times[at] - begin, needed
    return None


def until_none_polls(times, states, end, quiet=QUIET_NS, gap=GAP_NS):
    """Nanoseconds from `end` to the last sample in R before the first quiet time.

    >>> until_none_polls(range(0, 100, 10), [1, 1, 1, 2, 0, 2, 0, 0, 0, 0], 15, quiet=30, gap=10)
    35
    >>> until_none_polls(range(0, 100, 10), [1, 0, 0, 0, 0, 0, 0, 0, 0, 0], 15, quiet=30, gap=10)
    0
    >>> until_none_polls(range(0, 100, 10), [1] * 9 + [0], 15, quiet=30, gap=10)  # it polls on
    >>> until_none_polls([10, 20, 90, 100], [1, 0, 0, 0], 15, quiet=30, gap=10)  # no samples for too long
    """
    last_polled, quiet_since, before = end, None, None
    for at in range(bisect_left(times, end), len(times)):
        now = times[at]
        if states[at]:
            last_polled, quiet_since = now, None
        elif quiet_since is None or now - before > gap:
            quiet_since = now
        elif now - quiet_since >= quiet:
            return last_polled - end
        before = now
    return None


def intervals_us(times):
    """Median and 99th percentile of the time between two samples.

    >>> intervals_us([0, 100_000, 250_000, 450_000])
    (150.0, 200.0)
    """
    gaps = sorted((after - before) / 1e3 for before, after in zip(times, times[1:]))
    return (statistics.median(gaps), gaps[len(gaps) * 99 // 100]) if gaps else None


def burst_columns(samples, schedule, began_ns, opened_ns):
    """Columns of policies.csv for the bursts after `opened_ns` of a load that began at `began_ns`.

    >>> times = range(0, 3 * 10**9, 10**6)
    >>> samples = times, [3 if 2_801_500_000 < now else 1 for now in times]
    >>> burst_columns(samples, "5%:800ms,100%:100ms,5%:1100ms", 100, 10**9)
    {'sample_us': 1000.0, 'sample_p99_us': 1000.0, 'bursts': 1, 'needed_cores': 2, 'awake_p50_us': 1999.9, 'awake_max_us': 1999.9}
    >>> burst_columns(samples, "5%:800ms,100%:100ms,5%:1100ms", None, 10**9)  # its begin is unknown
    {'sample_us': 1000.0, 'sample_p99_us': 1000.0, 'bursts': 0}
    """
    times, states = samples
    if len(times) < 2:
        return {}
    row = dict(zip(("sample_us", "sample_p99_us"), intervals_us(times)))
    spans = bursts(schedule, began_ns, max(opened_ns, times[0]), times[-1]) if began_ns else []
    found = [burst for burst in (awake(times, states, *span) for span in spans) if burst]
    if not found:
        return row | {"bursts": 0}
    took_us = [took_ns / 1e3 for took_ns, _ in found]
    needed = statistics.median_high(needed.bit_count() for _, needed in found)
    return row | {"bursts": len(found), "needed_cores": needed, "awake_p50_us": statistics.median(took_us), "awake_max_us": max(took_us)}


def idle_columns(samples, ended_ns):
    """Columns of policies.csv for the time after a load that ended at `ended_ns`; none if its end is unknown.

    >>> times = range(0, 3 * 10**9, 10**6)
    >>> idle_columns((times, [1 if now < 2 * 10**9 else 0 for now in times]), 1_990_000_000)
    {'sample_us': 1000.0, 'sample_p99_us': 1000.0, 'until_none_polls_ms': 9.0}
    >>> idle_columns((times, [0] * len(times)), 0)["until_none_polls_ms"], idle_columns((times, [1] * len(times)), 10**9)["until_none_polls_ms"]
    (0.0, '')
    """
    times, states = samples
    if len(times) < 2 or ended_ns is None:
        return {}
    took_ns = until_none_polls(times, states, ended_ns)
    row = dict(zip(("sample_us", "sample_p99_us"), intervals_us(times)))
    return row | {"until_none_polls_ms": "" if took_ns is None else took_ns / 1e6}


def read(path):
    """Times and states of a file of samples; nothing if there is none."""
    samples = array.array("Q", Path(path).read_bytes() if Path(path).exists() else b"")
    return samples[::2], samples[1::2]


def reactors(pid):
    """Folders of the threads of the reactors in order."""
    named = ((task, (task / "comm").read_text().strip()) for task in Path(f"/proc/{pid}/task").iterdir())
    return [task for _, task in sorted((int(name.split("-")[1]), task) for task, name in named if re.fullmatch(r"reactor-\d+", name))]


def sample(pid, path):
    ended = []
    signal.signal(signal.SIGINT, lambda *_: ended.append(True))
    files = [os.open(task / "stat", os.O_RDONLY) for task in reactors(pid)]
    ctypes.CDLL(None).prctl(29, 1)  # PR_SET_TIMERSLACK: 1 ns instead of 50 us
    gc.disable()
    samples, due = array.array("Q"), time.monotonic_ns()
    while not ended:
        state = 0
        for bit, file in enumerate(files):
            text = os.pread(file, 64, 0)
            if text[text.index(b") ") + 2] == 82:  # R
                state |= 1 << bit
        now = time.monotonic_ns()
        samples.append(now)
        samples.append(state)
        due = max(due + INTERVAL_NS, now)
        time.sleep((due - now) / 1e9)
    Path(path).write_bytes(samples.tobytes())


if __name__ == "__main__":
    sample(int(sys.argv[1]), sys.argv[2])
