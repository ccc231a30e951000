[[ $PEER == pilotlight ]] || die "hosts: only against pilotlight"

host_stop() { peer_stop; }
host_start() { peer_start; }
