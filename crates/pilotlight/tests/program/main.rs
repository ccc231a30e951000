//! The program as its users meet it: exit codes, what it prints, signals. Hosts are our own, over real sockets.

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
mod signals;
mod streams;
mod top;
mod trace;
