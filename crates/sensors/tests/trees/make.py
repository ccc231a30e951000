"""Writes the trees of machines beside this file; see README.md. Run it in this folder."""
import os, shutil

def write(tree, files):
    shutil.rmtree(tree, ignore_errors=True)
    for path, text in files.items():
        path = os.path.join(tree, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text + "\n")

def zone(folder, name, energy_uj, range_uj):
    root = f"sys/class/powercap/{folder}"
    return {f"{root}/name": name, f"{root}/energy_uj": str(energy_uj), f"{root}/max_energy_range_uj": str(range_uj)}

def cpus(count, mhz, states, packages=1):
    files = {}
    for cpu in range(count):
        root = f"sys/devices/system/cpu/cpu{cpu}"
        files[f"{root}/topology/physical_package_id"] = str(cpu * packages // count)
        files[f"{root}/cpufreq/scaling_cur_freq"] = str(mhz * 1000 + cpu)
        for number, state in enumerate(states):
            files[f"{root}/cpuidle/state{number}/name"] = state
            files[f"{root}/cpuidle/state{number}/time"] = str(1000000 * (cpu + 1) * (number + 1))
            files[f"{root}/cpuidle/state{number}/usage"] = str(100 * (cpu + 1) * (number + 1))
    return files

def proc(count, disks):
    stat = ["cpu  0 0 0 0 0 0 0 0 0 0"]
    stat += [f"cpu{cpu} {1000 + cpu} 10 500 {8000 - cpu} 40 5 15 0 0 0" for cpu in range(count)]
    stat += ["intr 123456 0 0", "ctxt 987654", "btime 1700000000", "processes 4321"]
    heads = "           " + "".join(f"CPU{cpu}       " for cpu in range(count))
    line = lambda id, base, rest: f"{id:>4}: " + " ".join(f"{base + cpu:>9}" for cpu in range(count)) + f"   {rest}"
    interrupts = [heads, line("130", 1000, "IR-PCI-MSIX-0000:01:00.0    1-edge      nvme0q1"), line("LOC", 50000, "Local timer interrupts"),
                  " ERR:          0"]
    return {"proc/stat": "\n".join(stat), "proc/loadavg": "0.52 0.58 0.59 1/597 12345", "proc/interrupts": "\n".join(interrupts),
            "proc/diskstats": "\n".join(disks)}

NVME = " 259       0 nvme0n1 1000 10 80000 500 2000 20 160000 900 3 700 1400 5 0 4000 1 6 12"
PART = " 259       1 nvme0n1p1 900 10 70000 400 1900 20 150000 800 0 600 1200 5 0 4000 1 0 0"
LOOP = "   7       0 loop0 5 0 40 1 0 0 0 0 0 1 1 0 0 0 0 0 0"

RANGE = 262143328850
client = {}
client |= zone("intel-rapl:0", "package-0", 41236549872, RANGE)
client |= zone("intel-rapl:0:0", "core", 21236549872, RANGE)
client |= zone("intel-rapl:0:1", "uncore", 1236549872, RANGE)
client |= zone("intel-rapl:0:2", "dram", 6236549872, RANGE)
client |= zone("intel-rapl:1", "psys", 91236549872, RANGE)
# The same package once more, through the other driver: not to be counted twice.
client |= zone("intel-rapl-mmio:0", "package-0", 41236549999, RANGE)
client |= cpus(4, 3200, ["POLL", "C1E", "C6", "C10"]) | proc(4, [NVME, PART, LOOP])
client["sys/block/nvme0n1/size"] = "1953525168"
battery = "sys/class/power_supply"
client |= {f"{battery}/AC/type": "Mains", f"{battery}/AC/online": "0"}
client |= {f"{battery}/BAT0/type": "Battery", f"{battery}/BAT0/status": "Discharging", f"{battery}/BAT0/current_now": "1250000",
           f"{battery}/BAT0/voltage_now": "11400000"}
client |= {f"{battery}/hidpp_battery_0/type": "Battery", f"{battery}/hidpp_battery_0/scope": "Device",
           f"{battery}/hidpp_battery_0/status": "Discharging"}
write("intel-client", client)

server = {}
for package in range(2):
    server |= zone(f"intel-rapl:{package}", f"package-{package}", 100000000000 + package, RANGE)
    server |= zone(f"intel-rapl:{package}:0", "dram", 20000000000 + package, 65712999613)
server |= cpus(4, 2100, ["POLL", "C1", "C1E", "C6"], packages=2) | proc(4, [NVME, PART, LOOP])
server["sys/block/nvme0n1/size"] = "1953525168"
server["proc/cpuinfo"] = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6"
chip = "sys/class/hwmon/hwmon0"
server |= {f"{chip}/name": "power_meter", f"{chip}/power1_average": "214000000", f"{chip}/power1_average_interval": "1000"}
chip = "sys/class/hwmon/hwmon1"
server |= {f"{chip}/name": "ina3221", f"{chip}/in1_input": "3312", f"{chip}/in1_label": "NVME_3V3", f"{chip}/in1_enable": "1",
           f"{chip}/curr1_input": "1250"}
# A channel that is switched off; shunt voltages and the sum of currents, which are no rails.
server |= {f"{chip}/in2_input": "12010", f"{chip}/in2_label": "FAN_12V", f"{chip}/in2_enable": "0", f"{chip}/curr2_input": "70"}
server |= {f"{chip}/in4_input": "12", f"{chip}/curr4_input": "1250", f"{chip}/in7_input": "12", f"{chip}/in7_label": "sum of shunt voltages"}
# Two more chips of one kind.
for number in (10, 9):
    chip = f"sys/class/hwmon/hwmon{number}"
    server |= {f"{chip}/name": "ina219", f"{chip}/power1_input": f"{number}000000", f"{chip}/power1_average": "1"}
server |= {"sys/class/hwmon/hwmon2/name": "coretemp", "sys/class/hwmon/hwmon2/temp1_input": "45000"}
server["dev/nvme0"] = "no character device"
write("intel-server-2p", server)

amd = {}
amd |= zone("intel-rapl:0", "package-0", 65532000000, 65532610987)
amd |= zone("intel-rapl:0:0", "core", 1532610987, 65532610987)
amd |= cpus(4, 3400, ["POLL", "C1", "C2"]) | proc(4, [NVME])
amd["sys/block/nvme0n1/size"] = "1953525168"
amd["proc/cpuinfo"] = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25"
chip = "sys/class/hwmon/hwmon0"
amd |= {f"{chip}/name": "amd_energy", f"{chip}/energy1_label": "Ecore000", f"{chip}/energy1_input": "1000000",
        f"{chip}/energy2_label": "Esocket0", f"{chip}/energy2_input": "65532000000"}
write("amd", amd)
