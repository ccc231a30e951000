#!/usr/bin/env python3
"""CPU and latency of policies on a live server: rounds in turn, so that policies are compared within the same minutes.

    cargo build --release -p pilotlight && tests/operating/policies.py

The core set (idle, steady 24 k and 240 k, two patterns of bursts) takes less than six minutes on a machine with at least 14 CPUs: the server
has CPUs 0-5, `pilotlight load` 8-13, with 24 connections, 4 KiB random reads from memory, open loop, Poisson. `--scenarios` names others. On
fewer CPUs rates are scaled and rows are marked `not comparable`. A policy may have options: --policies 'static,pacer --tolerance 0.2'.

Results: policies.csv (a row for each round, policy and scenario), machine.json, summary.md, summary.json, policies.svg in --out. Columns:
- cpu_cores is the CPU time of the process per second, of which reactor_cores and other_cores are those of its threads (schedstat). delayed_cores
  is the time that reactors were ready to run without a CPU, steal_cpus that of the hypervisor: both should be 0.
  nonidle_cpus is the non-idle time of the server's CPUs per second (/proc/stat), with interrupts, without steal. Empty with --reactors.
- *_core_s are core-seconds by state in `seconds`, wakes_per_s and moves_per_s counters of the server: from its control socket.
- p50_us, p99_us, p99_9_us are those of all requests; light_* and burst_* those of the phases with the lowest and the highest rate. In
  lone-burst the phases are those of the connection that bursts, and the others those of the other 23.
- iterations and iterations_with_moves: of accuracy-stable and accuracy-burst. Moves count for surges, where the policy tells them apart.
- watts are of watts_source. `modelled` watts are computed from the CPU time of the whole machine, load included, and a profile; not measured.
- awake_p50_us, awake_max_us: time from the first request of a burst until the last core that it needs is awake, median and worst over the
  `bursts` of the run; needed_cores is their median number. until_none_polls_ms: time from the last request until no core polls, empty if one
  polls to the end. In bursts-2s and lone-burst, and in idle, from samples of the threads' states (policies_states.py has the definitions);
  sample_us and sample_p99_us are the times between two samples: no smaller time can be seen.
"""

import argparse, collections, ctypes, itertools, json, os, re, shlex, shutil, signal, socket, subprocess, sys, tempfile, time  # noqa: I001
from pathlib import Path

import policies_report
import policies_states

NQN = "nqn.2024-05.org.example:policies"
CORES, FEWEST_CPUS, CORE_SET_S = 6, 14, 350  # time of the core set: below six minutes with a margin
START_S, END_S = 30, 60  # time-outs: until a server is ready or a load connected; until a load ends after its time (its commands have 30 s)
# rate: requests/s of all connections, None: closed loop; schedule: of `pilotlight load`
Load = collections.namedtuple("Load", "rate schedule jobs depth process options", defaults=[None, 24, 64, "poisson", ""])
WRITES = Load(None, depth=4, options="--rw write --bs 128k")
# run_in: seconds that are not measured; iteration: length of the iterations in which moves are counted; sampled: states of threads
Scenario = collections.namedtuple("Scenario", "about loads run_in seconds cores iteration sampled", defaults=[CORES, None, False])
SHORT, LONG = "5%:800ms,100%:200ms,5%:1s", "5%:2s,100%:1s,5%:8s"
UP_AND_DOWN = ",".join(f"{percent}%:500ms" for percent in (5, 10, 20, 40, 60, 80, 100, 80, 60, 40, 20, 10))
SCENARIOS = {
    "idle": Scenario("2 s after a load", [], 0, 2, sampled=True),
    "steady-2k4": Scenario("2.4 k requests/s", [Load(2_400)], 0.6, 3),
    "steady-24k": Scenario("24 k requests/s", [Load(24_000)], 0.6, 1),
    "steady-240k": Scenario("240 k requests/s", [Load(240_000)], 0.6, 1),
    "full": Scenario("closed loop, depth 32", [Load(None, depth=32)], 0.6, 1),
    "bursts-2s": Scenario("1.8 s at 54 k, 0.2 s at 1.08 M", [Load(1_080_000, SHORT)], 1, 4, sampled=True),
    "bursts-11s": Scenario("10 s at 54 k, 1 s at 1.08 M", [Load(1_080_000, LONG)], 0.6, 11),
    "lone-burst": Scenario(
        "23 connections at 2,250; one 1.8 s at 2,250, 0.2 s at 180 k",
        [Load(23 * 2_250, jobs=23), Load(180_000, SHORT.replace("5%", "1.25%"), jobs=1, depth=128)], 1, 4, sampled=True),
    "ramp": Scenario("54 k to 1.08 M and back in steps of 0.5 s", [Load(1_080_000, UP_AND_DOWN)], 0.6, 6),
    "fig4": Scenario(
        "SANDMAN's Figure 4: 8 cores, 4 paced clients, 10 s at 48 k, 1 s at 960 k", [Load(960_000, LONG, 4, 160, "linear")], 0.6, 11, 8),
    "accuracy-stable": Scenario("moves in 100 times 0.25 s at 240 k", [Load(240_000)], 1.5, 25, iteration=0.25),
    "accuracy-burst": Scenario("moves in 100 times 1.8 s at 54 k, 0.2 s at 1.08 M", [Load(1_080_000, SHORT)], 2, 200, iteration=2),
}
CORE_SET = ["idle", "steady-24k", "steady-240k", "bursts-2s", "bursts-11s"]


class Layout:
    """Which CPUs server and load have, and the factor of the rates."""

    def __init__(self, reactors):
        self.allowed = sorted(os.sched_getaffinity(0))
        count = len(self.allowed)
        self.reactors = reactors or (1 if count == 1 else None)
        self.comparable = count >= FEWEST_CPUS and not reactors
        self.at_most = CORES if self.comparable else max(1, min(CORES, count // 2 - (count >= 8)))
        self.scale = 1 if self.comparable else count / 2 / CORES / 4 if self.reactors else self.at_most / CORES
        if not self.comparable:
            where = f"{self.reactors} unpinned reactors" if self.reactors else f"{self.at_most} of {CORES} cores"
            say(f"{count} CPUs, {FEWEST_CPUS} needed: {where}, rates times {self.scale:.3g}; results are not comparable")

    def server(self, cores=CORES):
        return self.allowed if self.reactors else self.allowed[: cores if self.comparable else self.at_most]

    def load(self, cores=CORES):
        if self.reactors:
            return self.allowed
        return self.allowed[max(8, cores) : FEWEST_CPUS] if self.comparable else self.allowed[self.at_most : 2 * self.at_most]

    def spare(self, cores):
        used = {*self.server(cores), *self.load(cores)}
        return [cpu for cpu in self.allowed if cpu not in used]

    def rest(self, cores):
        """For this program and the threads of the server that are not reactors."""
        return self.spare(cores)[:-1] or self.spare(cores) or self.load(cores)

    def sampler(self, cores=CORES):
        return self.spare(cores)[-1:] or self.load(cores)


children = []


def start(command, cpus, **options):
    def prepare():
        os.sched_setaffinity(0, cpus)
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: it ends even if this program is killed

    child = subprocess.Popen([str(word) for word in command], text=True, start_new_session=True, preexec_fn=prepare, **options)  # noqa: PLW1509
    children.append(child)
    return child


def stop(child, patience_s=20):
    if child.poll() is None:
        child.send_signal(signal.SIGINT)
        try:
            child.wait(patience_s)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
    children.remove(child)


class Server:
    def __init__(self, bench, policy, cores):
        self.bench, self.cores, self.at = bench, cores, bench.layout
        self.log = bench.folder / "log"
        self.path = str(bench.folder / "socket")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.target = f"127.0.0.1:{free.getsockname()[1]}"
        cpus = self.at.server(cores)
        where = ["--reactors", self.at.reactors] if self.at.reactors else ["--cores", ",".join(map(str, cpus))]
        command = [bench.program, "serve", "--listen", self.target, "--nqn", NQN, "--namespace", "mem:1GiB", *where]
        command += ["--admin-socket", self.path, "--sensor", bench.options.sensor, "--policy", *shlex.split(policy)]
        with open(self.log, "w") as log:
            self.process = start(command, {*cpus, *self.at.rest(cores)}, stdout=subprocess.DEVNULL, stderr=log)
        late = time.monotonic() + START_S
        while subprocess.call([bench.program, "status", "--ready", "--socket", self.path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
            if self.process.poll() is not None:
                self.fail(f"the server ended with {self.process.returncode}", shlex.join(map(str, command)) + " shows the error")
            if time.monotonic() > late:
                self.fail(f"the server is not ready after {START_S} s", shlex.join(map(str, command)) + " repeats it")
            time.sleep(0.02)
        self.control = socket.socket(socket.AF_UNIX)
        self.control.settimeout(30)
        self.control.connect(self.path)
        self.answers = self.control.makefile()

    def fail(self, what, help):
        tail = self.log.read_text().splitlines()[-15:]
        sys.exit("\n".join([f"error: {what}; the end of its log:", *("  " + line for line in tail), f"  = {help}"]))

    def status(self):
        self.control.sendall(b'{"version":1,"command":"status"}\n')  # docs/operate/watch.md, control protocol
        line = self.answers.readline()
        if not line:
            self.fail("the server ended during a measurement", "run it again; if it repeats, report it with this log")
        return json.loads(line)["ok"]

    def counters(self):
        """Sums of the server's counters, with the time of the server at which they hold."""
        status, sums, model = self.status(), collections.Counter(), ""
        for metric in status["metrics"]:
            name, labels, value = metric["name"], metric["labels"], metric["value"]
            if name == "pilotlight_core_seconds_total":
                sums[labels["state"].replace("-", "_") + "_core_s"] += value
            elif name == "pilotlight_wake_ups_total":
                sums["wakes"] += value
            elif name == "pilotlight_thread_moves_total":
                sums["moves"] += value
            elif name == "pilotlight_energy_joules_total" and labels["zone"].startswith(("CPU packages", "package")):
                sums["joules"] += value
                model = " ".join(filter(None, (labels["sensor"], labels.get("model"))))
        readings = (status["power"] or {}).get("readings") or [{}]
        now_s = status["server"]["uptime_ns"] / 1e9
        return {"now_s": now_s, "power_s": now_s - (readings[0].get("age_ns") or 0) / 1e9, "model": model, "sums": sums}

    def surge_moves(self):
        status = self.status()
        view = {entry["name"]: entry["value"] for entry in status["policy"]["view"]}
        return int(view.get("moves for surges") or status["commands"]["moves"]["since_start"])

    def cpu(self):
        """Seconds: CPU time of the reactors' threads, of the others, reactors without a CPU; time of the server's CPUs: not idle, stolen."""
        reactors = others = delayed = 0
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            try:
                ran, waited, _ = (int(field) / 1e9 for field in (task / "schedstat").read_text().split())
                name = (task / "comm").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has ended
            if name.startswith("reactor-"):
                reactors, delayed = reactors + ran, delayed + waited
            else:
                others += ran
        wanted = {f"cpu{cpu}" for cpu in self.at.server(self.cores)}
        lines = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
        fields = [[int(field) for field in line[1:9]] for line in lines if line[0] in wanted]
        tick_s = 1 / os.sysconf("SC_CLK_TCK")
        busy = sum(user + nice + system + irq + soft for user, nice, system, _, _, irq, soft, _ in fields)
        return [reactors, others, delayed, busy * tick_s, sum(field[7] for field in fields) * tick_s]

    def start_load(self, load, seconds, run_in, cpus):
        command = [self.bench.program, "load", "--target", self.target, "--nqn", NQN, "--numjobs", load.jobs, "--iodepth", load.depth, "--json",
                   "--runtime", f"{seconds:.3f}s", "--ramp_time", f"{run_in}s", *load.options.split()]  # fmt: skip
        command += ["--threads", 1] if self.at.reactors else ["--cpu", ",".join(map(str, cpus[: load.jobs]))]
        command += [] if self.at.comparable else ["--yield"]
        command += ["--rate_iops", max(1, round(load.rate * self.at.scale / load.jobs)), "--rate_process", load.process] if load.rate else []
        command += ["--schedule", load.schedule] if load.schedule else []
        return start(command, cpus, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def result(self, client):
        """Waits for the end of a load, which is due."""
        try:
            out, errors = client.communicate(timeout=END_S)
        except subprocess.TimeoutExpired:
            threads = " ".join(sorted({task.read_text().split(") ")[1][0] for task in Path(f"/proc/{client.pid}/task").glob("*/stat")}))
            self.fail(f"the load did not end within {END_S} s after its time (states of its threads: {threads})", self.repeat(client))
        stop(client)
        if client.returncode:
            self.fail(f"the load failed with {client.returncode}: {errors.strip()}", shlex.join(client.args) + " repeats it")
        return json.loads(out)

    def repeat(self, client):
        return f"run this program again; if the load hangs again, report it with this log and {shlex.join(client.args)}"

    def write_once(self):
        """Fills the namespace as far as it gets in 0.6 s; also the load before `idle`. Returns the time of the last completion."""
        result = self.result(self.start_load(WRITES, 0.6, 0, self.at.load(self.cores)))
        began_ns = result.get("began_monotonic_ns")  # programs before December 2026 do not have it
        return began_ns and began_ns + result["elapsed_ns"]  # it has no ramp

    def start_sampler(self):
        command = [sys.executable, policies_states.__file__, self.process.pid, self.bench.folder / "states"]
        return start(command, self.at.sampler(self.cores), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def samples(self, sampler):
        stop(sampler)
        file = self.bench.folder / "states"
        samples = policies_states.read(file)
        file.unlink(missing_ok=True)
        return samples

    def measure(self, scenario):
        seconds, cpus = self.bench.seconds(scenario), self.at.load(self.cores)
        split = [cpus[:-1] or cpus, cpus[-1:]] if len(scenario.loads) > 1 else [cpus]
        sampler = self.start_sampler() if scenario.sampled else None
        ended_ns = None if scenario.loads else self.write_once()
        began = time.monotonic()
        clients = [self.start_load(load, seconds + 0.1, scenario.run_in, of) for load, of in zip(scenario.loads, split)]
        while self.status()["io"]["connections"] < sum(load.jobs for load in scenario.loads):
            if any(client.poll() is not None for client in clients):
                break  # result() says why
            if time.monotonic() > began + START_S:
                self.fail(f"the load has not connected after {START_S} s", self.repeat(clients[-1]))
            time.sleep(0.02)
        time.sleep(max(0, began + scenario.run_in - time.monotonic()))
        counters, cpu, opened = self.counters(), self.cpu(), time.monotonic()
        moved = self.wait(opened, seconds, scenario)
        after, window = self.cpu(), time.monotonic() - opened
        if any(client.poll() is not None for client in clients):
            say("warning: the load ended within the measured time: the machine is disturbed")
        later = self.counters()
        row = self.row(window, [now - before for now, before in zip(after, cpu)], counters, later)
        results = [self.result(client) for client in clients]
        row |= (latencies(results) if results else {}) | moved
        if not sampler:
            return row
        samples = self.samples(sampler)
        if not results:
            return row | policies_states.idle_columns(samples, ended_ns)
        began_ns = results[-1].get("began_monotonic_ns")
        return row | policies_states.burst_columns(samples, scenario.loads[-1].schedule, began_ns, round(opened * 1e9))

    def wait(self, opened, seconds, scenario):
        if not scenario.iteration:
            return time.sleep(seconds) or {}
        counts = [self.surge_moves()]
        for end in range(1, round(seconds / scenario.iteration) + 1):
            time.sleep(max(0, opened + end * scenario.iteration - time.monotonic()))
            counts.append(self.surge_moves())
        return {"iterations": len(counts) - 1, "iterations_with_moves": sum(now > before for before, now in itertools.pairwise(counts))}

    def row(self, window, cpu, before, after):
        reactors, others, delayed, nonidle, steal = (value / window for value in cpu)
        elapsed = after["now_s"] - before["now_s"]
        change = {name: value - before["sums"][name] for name, value in after["sums"].items()}
        row = {"seconds": window, "cpu_cores": reactors + others, "reactor_cores": reactors, "other_cores": others, "delayed_cores": delayed}
        row |= {"nonidle_cpus": nonidle, "steal_cpus": steal}
        if self.at.reactors:  # the load runs on the same CPUs
            row["nonidle_cpus"] = row["steal_cpus"] = ""
        row["awake_cores"] = (change["busy_core_s"] + change["empty_polls_core_s"]) / elapsed
        row |= {"wakes_per_s": change["wakes"] / elapsed, "moves_per_s": change["moves"] / elapsed}
        row |= {name: value for name, value in change.items() if name.endswith("_core_s")}
        power_s = after["power_s"] - before["power_s"]
        return row | ({"watts": change["joules"] / power_s, "watts_source": after["model"]} if "joules" in change and power_s > 0.3 else {})


def latencies(results):
    def of(prefix, latency):
        return {f"{prefix}{name}_us": latency[f"{name}_ns"] / 1e3 for name in ("p50", "p99", "p99_9")}

    row = {"iops": sum(result["total"]["rate_iops"] for result in results)} | of("", results[0]["total"]["latency"])
    loops = [result["open_loop"] for result in results if result.get("open_loop")]
    if loops:
        row |= {"unstarted": sum(loop["unstarted"] for loop in loops), "start_delay_p99_us": max(loop["start_delay_p99_ns"] for loop in loops) / 1e3}
    phases = results[-1].get("phases") or []
    for prefix, sign in (("light_", 1), ("burst_", -1)) if phases else ():
        row |= of(prefix, min(phases, key=lambda phase: (sign * phase["rate_iops"], -phase["ios"]))["latency"])  # of equal rates the longest
    return row


class Bench:
    def __init__(self, options):
        self.options, self.program, self.layout, self.rows = options, str(Path(options.program).resolve()), Layout(options.reactors), []
        self.facts = policies_report.machine(options, self.program, self.layout, {name: SCENARIOS[name].about for name in options.scenarios})
        self.folder = Path(tempfile.mkdtemp(prefix="policies-"))

    def seconds(self, scenario):
        """Measured time: whole periods of the schedule and whole iterations."""
        times = re.findall(r":(\d+)(m?)s", scenario.loads[-1].schedule or "") if scenario.loads else []
        period = scenario.iteration or sum(int(time) / (1000 if milli else 1) for time, milli in times) or 0.2
        return period * max(1, round(scenario.seconds * self.options.time_scale / period))

    def cost_s(self, name):
        return SCENARIOS[name].run_in + self.seconds(SCENARIOS[name]) + 0.3

    def plan(self):
        """(round, policy, scenarios in order). In the core set bursts-11s is left out of some rounds to keep the limit of its time."""
        policies, rounds = self.options.policies, self.options.rounds
        for every in range(1, rounds + 1):
            plan = []
            for number in range(rounds):
                turn = number % len(policies)
                names = [name for name in self.options.scenarios if name != "bursts-11s" or number % every == 0]
                plan += [(number, policy, names) for policy in policies[turn:] + policies[:turn]]
            if not self.options.is_core_set or self.cost_of(plan) < CORE_SET_S:
                break
        return plan

    def cost_of(self, plan):
        return sum(1.2 * len({SCENARIOS[name].cores for name in names}) + sum(map(self.cost_s, names)) for _, _, names in plan)

    def run(self):
        plan = self.plan()
        total, done, began = self.cost_of(plan), 0, time.monotonic()
        say(f"{self.options.rounds} rounds, {len(self.options.policies)} policies: about {total / 60:.1f} min")
        for number, policy, names in plan:
            for cores in sorted({SCENARIOS[name].cores for name in names}):
                os.sched_setaffinity(0, self.layout.rest(cores))
                server = Server(self, policy, cores)
                done += 1.2
                now = [name for name in names if SCENARIOS[name].cores == cores]
                if SCENARIOS[now[0]].loads:  # idle writes by itself
                    server.write_once()
                for name in now:
                    row = {"round": number + 1, "policy": policy, "scenario": name, "comparable": "" if self.layout.comparable else "not comparable"}
                    row |= server.measure(SCENARIOS[name])
                    self.rows.append(row)
                    done += self.cost_s(name)
                    left = max(0, total - done) * (time.monotonic() - began) / done
                    p99 = f", p99 {policies_report.p99(row):.0f} us" if "p99_us" in row else ""
                    say(f"round {number + 1} {policy:20} {name:16} {row['cpu_cores']:5.2f} cores{p99}; {left:.0f} s left")
                server.control.close()
                stop(server.process)
                policies_report.write(self.options.out, self.facts, self.rows)


def say(text):
    print(text, file=sys.stderr, flush=True)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--program", default=policies_report.ROOT / "target/release/pilotlight", help="a release build of pilotlight")
    add("--rounds", type=int, default=5)
    add("--policies", help="separated by commas [default: static,interrupt,sandman, and adaptive where it exists]")
    add("--scenarios", help=f"separated by commas, of {', '.join(SCENARIOS)} [default: {','.join(CORE_SET)}]")
    add("--out", type=Path, help="folder of the results [default: results/live/DATE]")
    add("--reactors", type=int, help="unpinned reactors that share all CPUs with the load: to try this program out")
    add("--time-scale", type=float, default=1, help="factor of the measured times: to try this program out")
    add("--sensor", default="modelled", help="of `pilotlight serve`")
    add("--commit", help="of the program, if it is not of this repository's target folder")
    add("--json", action="store_true", help="print the summary as JSON instead of a table")
    options = parser.parse_args()
    if not os.access(options.program, os.X_OK):
        parser.error(f"{options.program} is missing: cargo build --release -p pilotlight, or --program")
    refusal = subprocess.run([options.program, "serve", "--policy", "unknown"], check=False, capture_output=True, text=True).stderr  # lists the policies
    listed = re.search(r"policies: (.*)", refusal)
    known = listed[1].split(", ") if listed else parser.error(f"the program does not list its policies: {refusal}")
    defaults = [name for name in ("static", "interrupt", "sandman", "adaptive") if name in known]
    options.policies = [word.strip() for word in options.policies.split(",")] if options.policies else defaults
    options.is_core_set = not options.scenarios
    options.scenarios = [word.strip() for word in options.scenarios.split(",")] if options.scenarios else CORE_SET
    for words, names, what in ((options.policies, known, "policies"), (options.scenarios, SCENARIOS, "scenarios")):
        unknown = [word for word in words if not word or word.split()[0] not in names]
        if unknown:
            parser.error(f"there is no {unknown[0]!r}; {what}: {', '.join(names)}")
    options.out = options.out or policies_report.ROOT / "results/live" / time.strftime("%Y-%m-%d-%H%M")
    return options


def main():
    options = parse()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    bench = Bench(options)
    try:
        bench.run()
    except KeyboardInterrupt:
        sys.exit("interrupted: the measurements so far are in the results" if bench.rows else "interrupted")
    finally:
        for child in reversed(children[:]):
            stop(child, 3)
        shutil.rmtree(bench.folder, ignore_errors=True)
        if bench.rows:
            policies_report.write(options.out, bench.facts, bench.rows)
            say(f"results: {options.out}")
    print((options.out / ("summary.json" if options.json else "summary.md")).read_text(), end="")


if __name__ == "__main__":
    main()
