//! The program as its users meet it: exit codes, what it prints, signals. Hosts are our own, over real sockets.

mod admin;
mod bench;
mod check;
mod demo;
mod durability;
mod errors;
mod failures;
mod host_load;
mod log;
mod outputs;
mod policies;
mod process;
mod read;
mod replay;
mod restore;
mod results;
mod signals;
mod streams;
mod trace;
