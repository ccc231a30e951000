//! Runs a fixed number of fine ticks, for counting instructions with valgrind.
//!
//! ```text
//! cargo build --release -p pilotlight-policy --example ticks
//! valgrind --tool=callgrind --toggle-collect='*Load*tick*' target/release/examples/ticks THREADS ACTIVE TICKS GUARDS
//! ```

mod load;

use load::Load;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| arguments.get(at).and_then(|argument| argument.parse::<u32>().ok());
    let (Some(threads), Some(active), Some(ticks), Some(guards)) = (number(0), number(1), number(2), arguments.get(3))
    else {
        eprintln!("usage: ticks THREADS ACTIVE TICKS printed|recommended");
        std::process::exit(2);
    };
    let mut load = Load::new(threads as u16, active as u16, &[("guards", guards)]);
    let commands: usize = (0..ticks).map(|_| load.tick()).sum();
    println!("{ticks} ticks of {threads} threads, {active} of them active: {commands} commands");
}
