#!/usr/bin/env python3
"""CPU time of the metrics thread per scrape of a server with 1,000 namespaces, 10,000 connections and 64 I/O threads, from schedstat.

    cargo build --release -p pilotlight && tests/operating/scrape.py [PROGRAM]

The connections have sent ICReq but no Connect, for which the server waits a minute; until then they are counted and listed.
"""

import os, resource, socket, statistics, struct, subprocess, sys, tempfile, time, urllib.request

NAMESPACES, CONNECTIONS, THREADS, SCRAPES = 1000, 10_000, 64, 20
program = sys.argv[1] if len(sys.argv) > 1 else "target/release/pilotlight"
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

with tempfile.TemporaryDirectory() as folder:
    with open(f"{folder}/a.toml", "w") as file:
        file.write(f'[server]\nlisten = "127.0.0.1:44210"\ncores = "0"\nio_threads = {THREADS}\nsensor = "modelled"\nenergy_shares = "unassigned"\n')
        file.write('[policy]\nname = "sandman"\n[admin]\nsocket = "a.sock"\n[metrics]\nlisten = "44211"\n')
        file.write('[[subsystem]]\nnqn = "nqn.2024-05.com.example:a"\n')
        for nsid in range(1, NAMESPACES + 1):
            file.write(f'[[subsystem.namespace]]\nnsid = {nsid}\nbackend = "null:1GiB"\n')
    server = subprocess.Popen([program, "serve", "--config", f"{folder}/a.toml"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while subprocess.call([program, "status", "--ready", "--socket", f"{folder}/a.sock"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
            time.sleep(0.1)
        icreq = struct.pack("<BBBBIHBBI112x", 0, 0, 128, 0, 128, 0, 0, 0, 0)
        sockets = []
        for _ in range(CONNECTIONS):
            connection = socket.create_connection(("127.0.0.1", 44210))
            connection.sendall(icreq)
            sockets.append(connection)
        tasks = f"/proc/{server.pid}/task"
        thread = next(task for task in os.listdir(tasks) if open(f"{tasks}/{task}/comm").read().strip() == "metrics")
        cpu_ns = lambda: int(open(f"{tasks}/{thread}/schedstat").read().split()[0])
        times = []
        for _ in range(SCRAPES):
            before = cpu_ns()
            text = urllib.request.urlopen("http://127.0.0.1:44211/metrics").read().decode()
            times.append((cpu_ns() - before) / 1e6)
        connections = next(line for line in text.splitlines() if line.startswith("pilotlight_connections "))
        print(f"{connections}; {text.count(chr(10))} lines, {len(text) / 1e6:.2f} MB; median {statistics.median(times):.1f} ms of CPU, most {max(times):.1f} ms")
    finally:
        server.kill()
