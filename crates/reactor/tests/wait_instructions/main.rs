//! The wait instructions execute: `wait_monitor` runs them, a store alone ends the wait, and the sender makes no system call.
//!
//! A CPU without an instruction raises `SIGILL`, and the handler (`emulator.rs`, on Arm `aarch64.rs`) emulates it. A CPU with it does not
//! trap, and the same tests use the instruction itself.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod emulator;
#[cfg(target_arch = "x86_64")]
mod reactor;
#[cfg(target_arch = "x86_64")]
mod sender;
#[cfg(target_arch = "x86_64")]
mod x86;

use pilotlight_reactor::{Inbox, clock, wait};

const NO_LIMIT: u64 = u64::MAX;

#[test]
fn supported_instructions_wake_and_end_in_time() {
    let Some(how) = wait::available() else {
        println!("skipped: this machine has no instruction that waits for a store");
        return;
    };
    let mut inbox = Inbox::new(1);
    let until = clock::now_ns() + 1_000_000;
    while clock::now_ns() < until {
        inbox.wait_monitor(how, until);
    }
    let sender = inbox.sender();
    let sending = std::thread::spawn(move || sender.send(7).expect("room"));
    while inbox.is_empty() {
        inbox.wait_monitor(how, NO_LIMIT);
    }
    assert_eq!(inbox.take(), Some(7));
    sending.join().expect("sent");
}
