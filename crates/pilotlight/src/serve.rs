//! `pilotlight serve`: check, start, say how to connect, obey signals, drain.

mod banner;
mod descriptors;
mod reload;
mod server;
mod signals;

use std::io::Write as _;

use anyhow::Context as _;
use pilotlight_target::DrainError;
use pilotlight_target::config::ServerConfig;
use tracing::{info, warn};

use crate::cli::ServeArgs;
use crate::config::{self, Machine, format_duration};
use crate::exit::Exit;
use crate::log;
use server::Running;
use signals::{Order, Orders};

/// Serves until a signal says stop, or only checks the configuration.
pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<Exit> {
    let machine = Machine::this();
    let loaded = match config::load(args, &machine) {
        Ok(loaded) => loaded,
        Err(refused) => {
            eprint!("{}", refused.render(log::colour()));
            return Ok(Exit::Refused);
        }
    };
    eprint!("{}", loaded.warnings(log::colour()));
    if args.check {
        print(&banner::checked(&loaded.config, &loaded.operation, args.json));
        return Ok(Exit::Clean);
    }
    descriptors::raise(&loaded.config, loaded.operation.reactors.len());
    // before anything is started, so that a signal during the start is not lost
    let mut orders = Orders::install().context("cannot handle signals")?;
    let server = server::start(&loaded.config, &loaded.operation)?;
    print(&banner::serving(&loaded.config, &loaded.operation, &server.local_addrs(), args.json));
    let running = obey(&mut orders, args, &machine, loaded.config, server.as_ref());
    Ok(stop(server, &running))
}

/// Reloads as often as asked, until asked to stop. Returns the configuration that holds at the end.
fn obey(
    orders: &mut Orders,
    args: &ServeArgs,
    machine: &Machine,
    mut config: ServerConfig,
    server: &dyn Running,
) -> ServerConfig {
    while orders.next() == Order::Reload {
        match config::load(args, machine) {
            Ok(loaded) => {
                eprint!("{}", loaded.warnings(log::colour()));
                reload::apply(&mut config, &loaded.config, server);
            }
            Err(refused) => {
                eprint!("{}", refused.render(log::colour()));
                warn!("the configuration is refused; what was running goes on unchanged");
            }
        }
    }
    config
}

/// Drains and flushes.
fn stop(server: Box<dyn Running>, config: &ServerConfig) -> Exit {
    let within = config.limits.drain_timeout;
    info!("stopping: requests in flight have {} to finish; a second signal leaves at once", format_duration(within));
    match server.stop(within) {
        Ok(()) => {
            info!("stopped; everything is finished and flushed");
            Exit::Clean
        }
        Err(error @ DrainError::Timeout(_)) => {
            warn!("stopped: {error}");
            Exit::Undrained
        }
        Err(error @ DrainError::Flush { .. }) => {
            warn!("stopped, but what was not flushed before may be lost: {error}");
            Exit::Unflushed
        }
    }
}

/// Prints to standard output; that nobody reads it is no reason to stop serving.
fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
