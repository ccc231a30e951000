# The guest comes up and its initiator is there.
test -c /dev/nvme-fabrics
nvme version
ip addr show eth0
lsmod
