//! Reading and writing allocate nothing in the steady state.

mod common;

use std::io::{IoSlice, IoSliceMut};

use common::sessions;
use pilotlight_counting_alloc::{CountingAlloc, thread_bytes, thread_calls};
use pilotlight_tls::{Hash, SessionError};

#[global_allocator]
static ALLOC: CountingAlloc = CountingAlloc;

#[test]
fn transfers_allocate_nothing() {
    let before = thread_bytes();
    let ((a, mut client), (b, mut server)) = sessions(Hash::Sha256);
    let data = vec![7; 300_000];
    let mut buffers = [vec![0; 100_000], vec![0; 100_000]];
    let mut blocked = 0;
    let mut round = || {
        let small = [IoSlice::new(&data[..24]), IoSlice::new(&data[..4096]), IoSlice::new(&data[..16])];
        for slices in [&small[..], &[IoSlice::new(&data)]] {
            while client.write_vectored(&a, slices) != Err(SessionError::WouldBlock) {}
            blocked += 1;
            let [first, second] = &mut buffers;
            let mut parts = [IoSliceMut::new(first), IoSliceMut::new(second)];
            while server.read_vectored(&b, &mut parts).is_ok() {}
            client.flush(&a).expect("the socket has room");
            while server.read_vectored(&b, &mut parts).is_ok() {}
        }
    };
    round();
    let calls = thread_calls();
    for _ in 0..20 {
        round();
    }
    assert_eq!(thread_calls() - calls, 0);
    assert_eq!(blocked, 42);
    let bytes = thread_bytes() - before - 500_000; // without the data
    assert!(bytes < 2 * 300_000, "two sessions and their configurations take {bytes} bytes");
    println!("a session after its first transfer: about {} KiB", bytes / 2 / 1024);
}
