//! A fixed number of fine ticks and nothing else, to be counted under valgrind.
//!
//! ```text
//! cargo build --release -p pilotlight-policy --example ticks
//! valgrind --tool=callgrind --toggle-collect='*Load*tick*' target/release/examples/ticks THREADS ACTIVE TICKS
//! ```

mod load;

use load::Load;

fn main() {
    let arguments: Vec<u64> = std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let [threads, active, ticks] = arguments[..] else {
        eprintln!("usage: ticks THREADS ACTIVE TICKS");
        std::process::exit(2);
    };
    let mut load = Load::new(threads as u16, active as u16, &[]);
    let commands: usize = (0..ticks).map(|_| load.tick()).sum();
    println!("{ticks} ticks of {threads} threads, {active} of them active: {commands} commands");
}
