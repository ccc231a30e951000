# The guest of one of the servers of the case `failover`: it serves the disk, with all paths closed at first, and executes what the cluster
# manager sends: commands of pilotlight, `stop` and `continue` for the server, or `errors`, which counts failed requests to the disk.
DMESG_ALLOW='.'
cat >/tmp/server.toml <<END
[server]
listen = ["$GUEST_ADDRESS:$PORT"]
advertise = "10.0.2.2:$PORT"

[[subsystem]]
nqn = "$NQN"
controller_ids = "$CONTROLLERS"

[[subsystem.namespace]]
nsid = 1
backend = "file:/dev/vda"

[[path]]
address = "$GUEST_ADDRESS:$PORT"
state = "inaccessible"
END
/host/pilotlight serve --config /tmp/server.toml >/tmp/serve.log 2>&1 &
server=$!
answers() { /host/pilotlight status; }
within 60 "an answer of the server" answers || { cat /tmp/serve.log; exit 1; }
step "the server is ready"
while read -r line; do
  case $line in
    stop) kill -STOP $server; echo ok >/dev/ttyS1 ;;
    continue) kill -CONT $server; echo ok >/dev/ttyS1 ;;
    errors) echo "disk errors: $(dmesg | grep -c 'error, dev vda')"; echo ok >/dev/ttyS1 ;;
    *)
      # shellcheck disable=SC2086 # words of the command
      if /host/pilotlight $line >/tmp/answer 2>&1; then echo ok; else echo "err $(tr '\n' ' ' </tmp/answer)"; fi >/dev/ttyS1
      ;;
  esac
done </dev/ttyS1
