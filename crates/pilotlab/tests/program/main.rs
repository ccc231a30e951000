//! The program from outside: exit codes, output, signals.

mod agent;
mod bench;
mod errors;
mod fleet;
mod measure;
mod outputs;
mod process;
mod read;
mod replay;
mod restore;
mod results;
mod run;
mod shard;
mod streams;
mod submit;
mod trace;
