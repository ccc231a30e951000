//! The program as its users meet it: exit codes, what it prints, signals. Hosts are our own, over real sockets.

mod admin;
mod background;
mod budget;
mod check;
mod demo;
mod durability;
mod errors;
mod failures;
mod host_load;
mod log;
mod machine;
mod metrics;
mod notify;
mod page;
mod policies;
mod priorities;
mod process;
mod signals;
mod streams;
mod trace;
