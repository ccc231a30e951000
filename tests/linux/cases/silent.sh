# The host stops responding (its whole machine is paused). The target disconnects it in time; when it resumes it reconnects.
connect --reconnect-delay=1 --ctrl-loss-tmo=60 --keep-alive-tmo=3
# The guest resumes with a closed connection.
DMESG_ALLOW='failed nvme_keep_alive|starting error recovery|Reconnecting in|Failed reconnect attempt|failed to connect socket|Successfully reconnected|receive failed|failed to send request|timeout|hrtimer|clocksource|stall'
random_file /tmp/a 64
expect "write" dd if=/tmp/a of=/dev/nvme0n1 bs=64k oflag=direct conv=fsync
host freeze
step "the target dropped its last connection after $REPLY"
within 25 "reconnect" is_live
expect "read" dd if=/dev/nvme0n1 of=/tmp/b bs=64k count=1 iflag=direct
cmp /tmp/a /tmp/b || fail "other bytes came back"
disconnect
