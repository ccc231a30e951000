#!/bin/bash
# The operator's use of the package, in the guest: install, start, connect, scrape, set a budget, reload, upgrade under load, stop, purge.
# Prints each step; the last line has the status.
set -euo pipefail
cd /root/test
export LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive SYSTEMD_COLORS=0 SYSTEMD_URLIFY=0

step() { printf '[%4s s] %s\n' "$(cut -d. -f1 /proc/uptime)" "$*"; }
fail() { echo "FAILED: $*"; exit 1; }

# within SECONDS WHAT COMMAND...: waits until the command succeeds.
within() {
  local end=$((SECONDS + $1)) what=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    ((SECONDS < end)) || fail "no $what within the time"
    sleep 0.2
  done
}

shown() { systemctl show -p "$2" --value "$1"; }
is() { [[ $2 == "$3" ]] || fail "$1 is '$2', not '$3'"; }

# Files and users of the machine. Excluded, as dpkg or the system writes it: /var/lib/dpkg, /var/log, /var/cache, /var/lib/systemd (random
# seed, timers), backups of passwd and group (/etc/*-), the machine ID, and other files of /run.
files() {
  find /etc /usr /var -xdev \( -path /var/lib/dpkg -o -path /var/log -o -path /var/cache -o -path /var/lib/systemd -o -path /var/tmp \
    -o -path '/etc/*-' -o -path /etc/machine-id -o -path /etc/.updated -o -path /var/.updated \) -prune -o -print
  find /run -name '*pilotlight*'
  sed 's/^/user /' /etc/passwd
  sed 's/^/group /' /etc/group
}
snapshot() { files | sort >"$1"; }

ended() {
  local code=$?
  trap - EXIT
  if [[ $code != 0 ]]; then
    echo '--- units, journal, kernel:'
    systemctl --no-pager --full status pilotlight.service pilotlight-devices.service || true
    journalctl --no-pager -b -o short-monotonic | grep -v 'kernel:' | tail -40
    dmesg | grep -v systemd | tail -15
  fi
  echo "PACKAGE-TEST-STATUS $code"
  sync
  systemctl poweroff --force --force
}
trap ended EXIT

nvme_device() { # of the subsystem with this name
  local dir disk
  for dir in /sys/class/nvme-subsystem/*; do
    [[ $(cat "$dir/subsysnqn" 2>/dev/null) == "$1" ]] || continue
    for disk in "$dir"/nvme*n1; do [[ -b /dev/${disk##*/} ]] && echo "/dev/${disk##*/}" && return; done
  done
  return 1
}
connect() {
  nvme connect -t tcp -a 127.0.0.1 -s 4420 -n "$1" >/dev/null
  within 100 "block device of $1" nvme_device "$1"
  DEVICE=$(nvme_device "$1")
}
write_and_verify() { # DEVICE BLOCK
  head -c 262144 /dev/urandom >/tmp/written
  dd if=/tmp/written of="$1" bs=64k seek="$2" oflag=direct conv=fsync status=none
  dd if="$1" of=/tmp/read bs=64k skip="$2" count=4 iflag=direct status=none
  cmp /tmp/written /tmp/read || fail "$1 gives back other bytes than were written"
}
scrape() {
  exec 5<>/dev/tcp/127.0.0.1/9808
  printf 'GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n' >&5
  cat <&5 | tr -d '\r'
  exec 5>&-
}
metric() { scrape | sed -n "s/^$1 //p"; }
score() { # UNIT LIMIT in tenths
  systemd-analyze security --no-pager --threshold="$2" "$1" >/tmp/security || fail "$1: exposure above $2 tenths: $(tail -1 /tmp/security)"
  tail -1 /tmp/security | tr -cd '\40-\176\n'
}

# ask_page METHOD PATH BODY: the page's response, with its head.
ask_page() {
  local at=${ADDRESS#http://}
  at=${at%/}
  exec 6<>"/dev/tcp/${at%:*}/${at##*:}"
  printf '%s %s HTTP/1.1\r\nHost: %s\r\nOrigin: http://%s\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s' \
    "$1" "$2" "$at" "$at" "${#3}" "$3" >&6
  cat <&6 | tr -d '\r'
  exec 6>&-
}
drop_in() { mkdir -p "/etc/systemd/system/$1.d"; cat >"/etc/systemd/system/$1.d/test.conf"; systemctl daemon-reload; }
no_drop_in() { rm -r "/etc/systemd/system/$1.d"; systemctl daemon-reload; }
as_watcher() { setpriv --reuid=watcher --regid=watcher --init-groups pilotlight "$@" --socket /run/pilotlight/pilotlight.sock; }

modprobe nvme-tcp
groupadd --system monitoring
useradd --system --no-create-home --user-group --groups monitoring watcher
snapshot /tmp/before
step "install"
dpkg -i pilotlight.deb | grep -v Reading
for unit in pilotlight.service pilotlight-devices.service pilotlight-fleet.service; do
  is "$unit after the installation" "$(systemctl is-active "$unit" || true)" inactive
  is "$unit after the installation" "$(systemctl is-enabled "$unit" || true)" disabled
done
score pilotlight-fleet.service 20
getent passwd pilotlight >/dev/null || fail 'no user for pilotlight-devices.service'
[[ ! -s /proc/net/tcp ]] || ! grep -q ':1144 ' /proc/net/tcp || fail 'something listens on port 4420'
pilotlight --version
pilotlab --version
for page in pilotlight-serve pilotlab-run; do compgen -G "/usr/share/man/man1/$page.1*" >/dev/null || fail "$page has no man page"; done

step "start: systemctl returns when hosts can connect"
sed -i 's/^# \[metrics\]/[page]\nlisten = "9809"\n\n[metrics]/; s/^# listen = "9808"/listen = "9808"/; s/^\[server\]/&\nsensor = "modelled"/' /etc/pilotlight/pilotlight.toml
systemctl start pilotlight.service
NQN=nqn.2024-05.org.example:pilotlight
connect "$NQN" # at once: Type=notify
PID=$(shown pilotlight.service MainPID)
is "the unit's user" "$(shown pilotlight.service User)" pilotlight-files
for user in root pilotlight; do
  [[ $(stat -c %u "/proc/$PID") != "$(id -u "$user")" ]] || fail "it runs as $user, which has other rights"
done

step "write and read $DEVICE"
write_and_verify "$DEVICE" 0

step "scrape"
scrape >/tmp/scrape
grep -q '^HTTP/1.1 200' /tmp/scrape || fail "no metrics: $(head -3 /tmp/scrape)"
grep -E '^pilotlight_(build_info|.*connections|budget)' /tmp/scrape | head -8

step "page: root gets the token of a server that is another user, and logs in with it"
pilotlight page --json >/tmp/page
field() { sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p" /tmp/page; }
ADDRESS=$(field address)
ask_page POST /login "{\"token\":\"$(field token)\"}" >/tmp/login
grep -q '^HTTP/1.1 200' /tmp/login && grep -qi '^set-cookie: pilotlight-' /tmp/login || fail "no login: $(head -20 /tmp/login)"

step "a budget"
pilotlight set budget 300W --no-wait
pilotlight status | grep -E '^(budget|power|policy)'
scrape | grep -q '^pilotlight_budget_watts.* 300$' || fail "metrics do not have the budget: $(scrape | grep budget)"

step "reload"
systemctl reload pilotlight.service
is 'the main process after the reload' "$(shown pilotlight.service MainPID)" "$PID"
within 100 'success of the reload in the metrics' eval 'scrape | grep -q "^pilotlight_.*reload.*success.* 1$"'

step "upgrade, while a host reads and writes"
write_on() { local block=16; while [[ ! -e /tmp/enough ]]; do write_and_verify "$DEVICE" $block; echo "$((block += 4))" >/tmp/written.blocks; [[ $block -lt 4000 ]] || block=16; done; }
write_on &
WRITER=$!
within 100 'I/O' test -s /tmp/written.blocks
dpkg -i later.deb | grep -v Reading
before=$(cat /tmp/written.blocks)
within 100 'I/O after the upgrade' eval "[[ \$(cat /tmp/written.blocks) != $before ]]"
touch /tmp/enough
wait $WRITER || fail 'I/O failed during the upgrade'
is 'the main process after the upgrade' "$(shown pilotlight.service MainPID)" "$PID"
is 'the version' "$(dpkg-query -W -f '${Version}' pilotlight | grep -c later)" 1
grep -q '^sensor = "modelled"' /etc/pilotlight/pilotlight.toml || fail 'the upgrade has overwritten the configuration'

step "watchdog"
is 'the time of the watchdog' "$(shown pilotlight.service WatchdogUSec)" 30s
before=$(shown pilotlight.service WatchdogTimestampMonotonic)
within 100 'keep-alive of the watchdog' eval "[[ \$(shown pilotlight.service WatchdogTimestampMonotonic) != $before ]]"
is 'the number of restarts' "$(shown pilotlight.service NRestarts)" 0
score pilotlight.service 15

step "stop"
nvme disconnect -n "$NQN"
systemctl stop pilotlight.service
is 'the result' "$(shown pilotlight.service Result) $(shown pilotlight.service ExecMainStatus)" 'success 0'
[[ -e /var/lib/pilotlight/disk.img ]] || fail 'the file of the namespace is not in the state directory'

step "read_group: a member reads, and changes nothing"
sed 's/GROUP$/monitoring/' /usr/share/doc/pilotlight/read-group.conf | drop_in pilotlight.service
sed -i 's/^\[admin\]/&\nread_group = "monitoring"/' /etc/pilotlight/pilotlight.toml
systemctl start pilotlight.service
is 'the group of the socket' "$(stat -c '%G %a' /run/pilotlight/pilotlight.sock)" 'monitoring 660'
as_watcher status >/dev/null || fail 'a member of the group cannot read the status'
if as_watcher set policy static >/tmp/refused 2>&1; then fail 'a member of the group can change the policy'; fi
head -2 /tmp/refused
score pilotlight.service 17
systemctl stop pilotlight.service
sed -i '/^read_group/d' /etc/pilotlight/pilotlight.toml
no_drop_in pilotlight.service

step "a configuration that the service may save"
install -m 644 /etc/pilotlight/pilotlight.toml /var/lib/pilotlight/pilotlight.toml
drop_in pilotlight.service <<'CONF'
[Service]
ExecStart=
ExecStart=/usr/bin/pilotlight serve --config /var/lib/pilotlight/pilotlight.toml
CONF
systemctl start pilotlight.service
pilotlight set policy static
pilotlight config save
systemctl restart pilotlight.service
pilotlight status | grep -E '^policy +static' || fail "the saved policy is not there after a restart: $(pilotlight status | grep policy)"
systemctl stop pilotlight.service
no_drop_in pilotlight.service

step "a credential of systemd: only the host with the secret connects"
HOST=nqn.2024-05.org.example:host
secrets() { (umask 077; echo "$HOST dhchap_key DHHC-1:00:$1" >"/etc/pilotlight/$2"); }
secrets AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQHMnzFi: secrets
secrets AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgJvwX3v: other
drop_in pilotlight.service <<'CONF'
[Service]
LoadCredential=secrets:/etc/pilotlight/secrets
CONF
cp /etc/pilotlight/pilotlight.toml /tmp/pilotlight.toml
printf '\n[security]\nsecrets_file = "credential:secrets"\n' >>/etc/pilotlight/pilotlight.toml
systemctl start pilotlight.service
load() { pilotlight load --yield --rw randread --number_ios 10 --nqn "$NQN" --hostnqn "$HOST" "$@" >/tmp/load 2>&1; }
load --secrets-file /etc/pilotlight/secrets || fail "no authentication with the credential: $(cat /tmp/load)"
! load --secrets-file /etc/pilotlight/other || fail 'authentication with another secret'
! load || fail 'a host with a secret is served without authentication'
grep -q 'requires authentication' /tmp/load || fail "the reason is missing: $(cat /tmp/load)"
score pilotlight.service 15
systemctl stop pilotlight.service
cp /tmp/pilotlight.toml /etc/pilotlight/pilotlight.toml
rm /etc/pilotlight/secrets /etc/pilotlight/other
no_drop_in pilotlight.service

step "power.conf: a CPU quota for a budget"
mkdir -p /etc/systemd/system/pilotlight.service.d
cp /usr/share/doc/pilotlight/power.conf /etc/systemd/system/pilotlight.service.d/
sed -i 's/^sensor = .*/&\ncores = "0,1"/' /etc/pilotlight/pilotlight.toml
systemctl daemon-reload
systemctl start pilotlight.service
logged() { journalctl -u pilotlight.service -b -o cat | grep -E "$1"; }
kill -KILL "$(shown pilotlight.service MainPID)"
within 100 'server that systemd has started again' eval '[[ $(shown pilotlight.service NRestarts) == 1 ]] && pilotlight status'
logged '(nothing to restore|nothing had been changed)' || fail 'pilotlight restore was not run after the server was killed'
pilotlight set policy cpu-bandwidth domain=cpu
pilotlight set budget 5W for 10s --no-wait # so low that the quota is set to its minimum
workers() { ls -d /sys/fs/cgroup/system.slice/pilotlight.service/pilotlight-workers-*; }
within 100 'quota of the worker core' eval '[[ $(cat "$(workers)/cpu.max") != max* ]]'
pilotlight status | grep -E '^(budget|policy) '
score pilotlight.service 23
step "kill -9 under the quota: systemd starts it again"
kill -KILL "$(shown pilotlight.service MainPID)"
within 100 'server that systemd has started again' eval '[[ $(shown pilotlight.service NRestarts) == 2 ]] && pilotlight status'
logged 'left behind by a process that was killed' || fail 'settings of the killed server were not restored'
step "stop"
systemctl stop pilotlight.service
is 'the result' "$(shown pilotlight.service Result) $(shown pilotlight.service ExecMainStatus)" 'success 0'
! workers 2>/dev/null || fail 'the group of the worker cores is still there'
rm -r /etc/systemd/system/pilotlight.service.d
systemctl daemon-reload

step "devices"
disk=/dev/vdb
echo 'SUBSYSTEM=="block", ENV{ID_SERIAL}=="PACKAGETEST", GROUP="pilotlight", MODE="0660"' >>/etc/udev/rules.d/60-pilotlight.rules
udevadm control --reload
udevadm trigger --settle "$disk"
is "the group of $disk" "$(stat -c %G "$disk")" pilotlight
sed -i 's|/dev/disk/by-id/nvme-NAME|/dev/disk/by-id/virtio-PACKAGETEST|' /etc/pilotlight/devices.toml
systemctl start pilotlight-devices.service
connect "$NQN-devices"
write_and_verify "$DEVICE" 8
dd if=$disk of=/tmp/read bs=64k skip=8 count=4 iflag=direct status=none
cmp /tmp/written /tmp/read || fail "$disk does not hold what a host has written"
is 'the user' "$(stat -c %U "/proc/$(shown pilotlight-devices.service MainPID)")" pilotlight
score pilotlight-devices.service 20
nvme disconnect -n "$NQN-devices"

step "remove, while an enabled server runs, and another unit cannot be stopped"
systemctl --quiet enable pilotlight-devices.service
links() { find /etc/systemd/system -name 'pilotlight*'; }
[[ -n $(links) ]] || fail 'the unit is not enabled'
mkdir -p /run/systemd/system/pilotlight.service.d
printf '[Unit]\nRefuseManualStop=yes\n' >/run/systemd/system/pilotlight.service.d/test.conf
systemctl daemon-reload
! systemctl stop pilotlight.service 2>/dev/null || fail 'the unit can be stopped'
dpkg --remove pilotlight | grep -v Reading
is 'the result' "$(shown pilotlight-devices.service ActiveState)" inactive
is 'links of the units after the removal' "$(links)" ''
[[ -e /etc/pilotlight/pilotlight.toml && -e /var/lib/pilotlight/disk.img ]] || fail 'the removal has taken configuration or data'
rm -r /run/systemd/system/pilotlight.service.d
systemctl daemon-reload

step "purge"
dpkg --purge pilotlight | grep -v Reading
snapshot /tmp/after
diff /tmp/before /tmp/after || fail 'the purge has left something behind'
step "passed"
