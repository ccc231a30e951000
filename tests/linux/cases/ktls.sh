# Sessions of crates/tls in the kernel (crates/tls/tests/kernel.rs): data, close_notify, KeyUpdate, forged records.
run() { /host/kernel_tests --test-threads=1 --nocapture; }

step "without the module, sessions are in user space"
echo /bin/false >/proc/sys/kernel/modprobe # else the kernel loads it
expect "tests" run
grep -q 'SKIPPED: no kernel TLS (TCP_ULP: .*modules `tls`' /tmp/expect.out || { cat /tmp/expect.out; fail "the missing module is not named"; }

step "with the module"
for module in tls gcm aes_generic ghash-generic ctr; do modprobe -q "$module" || true; done
export PILOTLIGHT_REQUIRE_KTLS=1
run
