//! The program as a process: exit codes, output, signals. Hosts are those of this workspace, over real sockets.

mod admin;
mod background;
mod budget;
mod check;
mod demo;
mod discovery;
mod durability;
mod errors;
mod failures;
mod health;
mod host_load;
mod hosts;
mod log;
mod machine;
mod metrics;
mod notify;
mod page;
mod policies;
mod priorities;
mod process;
mod save;
mod security;
mod signals;
mod streams;
mod top;
mod trace;
