# Functions of cases with TLS: keys in the kernel, and tlshd, which makes the host's handshakes. Sourced by cases, after lib.sh.
PATH=/tls/bin:$PATH
HOST=$(cat /etc/nvme/hostnqn)
for module in tls nvme-keyring gcm ctr aes_generic ghash-generic; do modprobe -q "$module" || true; done

# key HASH: a new key, for SHA-256 (1) or SHA-384 (2).
key() { nvme gen-tls-key --hmac="$1" 2>/dev/null | tail -n 1; }

# insert KEY IDENTITY [SUBSYSTEM]
insert() {
  expect "insert" nvme check-tls-key --keydata="$1" --hostnqn="$HOST" --subsysnqn="${3:-$NQN}" --identity="$2" --insert
}

# remove_keys: as `keyctl unlink`, for every key of the keyring.
remove_keys() {
  for id in $(awk '$8 == "psk" { print $1 }' /proc/keys); do expect "unlink" keyctl unlink "0x$id" %:.nvme; done
}

start_tlshd() {
  printf '[debug]\nloglevel=3\ntls=0\nnl=0\n[authenticate]\nkeyrings=.nvme\n[authenticate.client]\n[authenticate.server]\n' >/tmp/tlshd.conf
  echo "$ADDRESS target" >/etc/hosts
  expect "link the keyring" keyctl link %:.nvme @us
  tlshd -s -c /tmp/tlshd.conf >/tmp/tlshd.log 2>&1 &
  within 10 "tlshd" grep -q 'linked into' /tmp/tlshd.log
}

# on_failure COMMAND: shows logs if the case fails.
on_failure() {
  FAILURE_LOGS=$*
  trap 'code=$?; [ $code -eq 0 ] || { echo "--- the case failed with $code; logs:"; tail -n 40 $FAILURE_LOGS; dmesg | tail -25; }' EXIT
}
