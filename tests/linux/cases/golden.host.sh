BACKING=file
CPUS=1
SIZE_MIB=16
host_resize() { peer_resize "$1"; }
peer_arguments() { peer_arguments_shrinking; }
