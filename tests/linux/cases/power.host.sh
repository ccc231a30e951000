# The target has power states. The program also runs in the guest, to set and restore them.
. "$HARNESS/program.sh"
guest_program pilotlab

peer_arguments() {
  printf '%s\n' --listen "127.0.0.1:$PORT" --nqn "$NQN" --namespace "$(peer_namespace)" --block-size "$BLOCK_SIZE" --power-states
}

