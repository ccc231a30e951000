# The target shows power states. The program itself goes into the guest too, to set them and put them back.
. "$HARNESS/program.sh"

peer_arguments() {
  printf '%s\n' --listen "127.0.0.1:$PORT" --nqn "$NQN" --namespace "$(peer_namespace)" --block-size "$BLOCK_SIZE" --power-states
}
