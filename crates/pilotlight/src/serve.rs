//! `pilotlight serve`: check, start, say how to connect, obey signals and the control socket, drain.

mod banner;
mod descriptors;
mod frequencies;
mod overdue;
mod preflight;
mod reload;
mod server;
mod signals;
mod station;

use std::thread;

use anyhow::Context as _;
use pilotlight_target::config::ServerConfig;
use tracing::{info, warn};

use crate::admin::listener::Listener;
use crate::admin::socket::{BindError, ControlSocket};
use crate::cli::ServeArgs;
use crate::config::{self, AdminSocket, Machine, Problem, format_duration};
use crate::console;
use crate::exit::Exit;
use crate::log;
use overdue::Overdue;
use server::Running;
use signals::{Order, Orders};
use station::Station;

/// Serves until a signal says stop, or only checks the configuration.
pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<Exit> {
    let machine = Machine::this();
    let loaded = match config::load(args, &machine) {
        Ok(loaded) => loaded,
        Err(refused) => {
            console::tell(refused.render(log::colour()));
            return Ok(Exit::Refused);
        }
    };
    console::tell(loaded.warnings(log::colour()));
    if args.check {
        let findings = preflight::look(&loaded.config, &loaded.operation);
        console::tell(loaded.render(&findings, log::colour()));
        if findings.iter().any(Problem::is_error) {
            return Ok(Exit::Refused);
        }
        console::print(banner::checked(&loaded.config, &loaded.operation, args.json))?;
        return Ok(Exit::Clean);
    }
    descriptors::raise(&loaded.config, loaded.operation.reactors.len());
    // before anything is started, so that a signal during the start is not lost
    let mut orders = Orders::install().context("cannot handle signals")?;
    let control = control(loaded.operation.admin_socket.as_ref())?;
    let server = server::start(&loaded.config, &loaded.operation)?;
    let station = Station::new(server, &loaded, &machine);
    announce(&banner::serving(&loaded.config, &loaded.operation, station.listening(), args.json));
    let overdue = obey(&mut orders, args, &machine, &station, control.as_ref())?;
    drop(control); // a server that leaves takes no orders
    let (server, config) = station.close();
    let exit = stop(server, &config);
    drop(overdue);
    Ok(exit)
}

/// The control socket. Where the system has no place for one that was not asked for the server goes without.
fn control(wanted: Option<&AdminSocket>) -> anyhow::Result<Option<Listener>> {
    let Some(wanted) = wanted else { return Ok(None) };
    match ControlSocket::bind(&wanted.path) {
        Ok(socket) => Listener::new(socket).map(Some).context("cannot serve the control socket"),
        Err(error @ BindError::System { .. }) if !wanted.asked => {
            warn!("{error}; `status`, `set` and `namespace` will not reach this server");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Takes orders, by signals and over the control socket, until asked to stop. From then on the program leaves when it is
/// overdue, as an order over the control socket may be in a call that does not return.
fn obey(
    orders: &mut Orders,
    args: &ServeArgs,
    machine: &Machine,
    station: &Station,
    control: Option<&Listener>,
) -> anyhow::Result<Overdue> {
    thread::scope(|scope| {
        let answering = control.map(|control| {
            let answer = || {
                if let Err(error) = control.run(station) {
                    warn!("the control socket is served no longer: {error}");
                }
            };
            thread::Builder::new().name("control".to_owned()).spawn_scoped(scope, answer)
        });
        let answering = answering.transpose().context("cannot start a thread for the control socket")?;
        obey_signals(orders, args, machine, station);
        let overdue = Overdue::arm(station.drain_timeout() + overdue::GRACE, overdue::leave);
        if let (Some(control), Some(answering)) = (control, answering) {
            control.stop();
            let _ = answering.join(); // where it panicked, that has been said
        }
        overdue.context("cannot start a thread for the end of the server")
    })
}

/// Reloads as often as asked, until asked to stop.
fn obey_signals(orders: &mut Orders, args: &ServeArgs, machine: &Machine, station: &Station) {
    while orders.next() == Order::Reload {
        match config::load(args, machine) {
            Ok(loaded) => {
                console::tell(loaded.warnings(log::colour()));
                station.reload(&loaded);
            }
            Err(refused) => {
                console::tell(refused.render(log::colour()));
                warn!("the configuration is refused; what was running goes on unchanged");
            }
        }
    }
}

/// Drains and flushes.
fn stop(server: Box<dyn Running>, config: &ServerConfig) -> Exit {
    let within = config.limits.drain_timeout;
    info!(
        "stopping: requests in flight and the flush have {} to finish; a second signal leaves at once",
        format_duration(within)
    );
    match server.stop(within) {
        Ok(()) => {
            info!("stopped; everything is finished and flushed");
            Exit::Clean
        }
        Err(error) if error.flush_failed() => {
            warn!("stopped, but what was not flushed before may be lost: {error}");
            Exit::Unflushed
        }
        Err(error) => {
            let within = format_duration(within);
            warn!(
                "stopped with work unfinished after {within}: {error}. Look for errors of the medium (dmesg), or raise --drain-timeout"
            );
            Exit::Undrained
        }
    }
}

/// Prints what is served; that it cannot be printed is no reason to stop serving.
fn announce(text: &str) {
    if let Err(error) = console::print(text) {
        warn!("what is served could not be printed: {error:#}");
    }
}
