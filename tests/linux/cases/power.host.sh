# The target shows power states. The program itself goes into the guest too, to set them and put them back.
. "$HARNESS/program.sh"
guest_program pilotlab

peer_arguments() {
  printf '%s\n' --listen "127.0.0.1:$PORT" --nqn "$NQN" --namespace "$(peer_namespace)" --block-size "$BLOCK_SIZE" --power-states
}

TIMEOUT_S=240 # it starts many programs, each slow in an emulated machine
