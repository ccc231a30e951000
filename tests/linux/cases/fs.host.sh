BACKING=file
host_allocated() { peer_allocated_kib; }
