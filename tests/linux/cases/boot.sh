# The guest boots and has an initiator.
test -c /dev/nvme-fabrics
nvme version
ip addr show eth0
lsmod
