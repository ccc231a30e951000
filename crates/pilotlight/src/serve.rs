//! `pilotlight serve`: check, start, print how to connect, handle signals and the control socket, drain.

mod admin;
mod banner;
pub(crate) mod budget;
mod descriptors;
mod drives;
mod forced_exit;
mod holder;
pub(crate) mod knobs;
mod mdns;
mod notify;
pub(crate) mod power;
mod preflight;
mod reload;
mod reservations;
mod running;
mod server;
mod signals;
mod state;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::{self, Scope, ScopedJoinHandle};

use anyhow::Context as _;
use pilotlight_nvmf_target::config::ServerConfig;
use tracing::{info, warn};

use crate::admin::listener::Listener;
use crate::admin::socket::{BindError, ControlSocket};
use crate::config::{self, AdminSocket, Loaded, Machine, Operation, Problem, ServeArgs, format_duration};
use crate::console;
use crate::exit::Exit;
use crate::http::Http;
use crate::log;
use crate::metrics;
use crate::page::{Page, Prepared};
use crate::privileges::{self, files};
use crate::seccomp;
use admin::{Admin, Started};
use budget::{Configured, GoalOverrides, Store};
use forced_exit::ForcedExit;
use notify::Watchdog;
use running::Running;
use signals::{SignalAction, SignalActions};

/// Serves until a signal stops the server, or only checks the configuration.
pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<Exit> {
    if args.privileged_helper {
        return privileges::run_helper(args);
    }
    let machine = Machine::this();
    let format = args.log_format.as_deref().map(log::Format::parse);
    if let Some(Ok(format)) = format {
        log::set_format(format); // problems with the rest are logged in this format too
    }
    let loaded = match config::load(args, &machine) {
        Ok(loaded) => loaded,
        Err(refused) => {
            refused.print();
            return Ok(Exit::Refused);
        }
    };
    log::set_format(loaded.operation.log_format);
    loaded.print_warnings();
    let _limit = loaded.operation.user.clone().map(|user| files::as_user(Some(user)));
    if args.check {
        let findings = preflight::find_problems(&loaded.config, &loaded.operation);
        console::eprint(loaded.render(&findings, log::colour()));
        if findings.iter().any(Problem::is_error) {
            return Ok(Exit::Refused);
        }
        console::print(banner::checked(&loaded.config, &loaded.operation, args.json))?;
        return Ok(Exit::Clean);
    }
    serve(args, &loaded, &machine)
}

/// Starts the server and serves until a signal stops it.
fn serve(args: &ServeArgs, loaded: &Loaded, machine: &Machine) -> anyhow::Result<Exit> {
    descriptors::raise(&loaded.config, loaded.operation.reactors.len());
    // before anything is started, so that a signal during the start is not lost
    let mut signals = SignalActions::install().context("cannot handle signals")?;
    let privileged = privileges::start(args, loaded)?;
    let control = control(loaded.operation.admin_socket.as_ref())?;
    let metrics = loaded.operation.metrics.map(metrics_listener).transpose()?;
    let page = loaded.operation.page.as_ref().map(Prepared::new).transpose()?;
    let meter = server::open_meter(&loaded.operation)?;
    privileges::serving(); // while only root could have changed what is noted
    let finish = privileged.surrender(loaded.operation.state_file.as_deref())?;
    seccomp::start(loaded.operation.seccomp)?;
    let (operation, overrides) = with_overrides(&loaded.operation); // a file of the server's user
    server::check_meter(meter.as_ref(), &operation)?;
    let (server, active_policy) = server::start(&loaded.config, &operation, meter)?;
    let admin = Admin::new(server, loaded, Started { operation, overrides, active_policy }, machine, args);
    let admin = Arc::new(admin.context("cannot get a timer for deadlines of the budget")?);
    let shown = metrics.as_ref().map(TcpListener::local_addr).transpose().context("the address of metrics")?;
    let shown_page = page.as_ref().map(|page| page.page.clone());
    let shown = Operation { metrics: shown, page: shown_page, ..loaded.operation.clone() }; // with the port that port 0 became
    let http = metrics.map(|listener| serve_metrics(listener, &admin, &loaded.operation)).transpose()?;
    let page = page.map(|page| serve_page(page, &admin, &loaded.operation)).transpose()?;
    let watchdog = Watchdog::start(&admin, &loaded.operation.reactors.cores).context("cannot start the watchdog")?;
    admin.announce();
    announce(&banner::serving(&loaded.config, &shown, &admin.listening(), args.json));
    notify::ready();
    let forced_exit = run_until_stopped(&mut signals, args, machine, &admin, control.as_ref())?;
    drop(control); // no requests from now on
    drop((http, page, watchdog));
    admin.withdraw();
    let admin = Arc::into_inner(admin).context("metrics or the page are still being read")?;
    let (server, config) = admin.close();
    let exit = stop(server, &config);
    drop(finish); // while the exit is still forced
    drop(forced_exit);
    Ok(exit)
}

/// How a server is started: with the budget in force and with manual settings.
fn with_overrides(read: &Operation) -> (Operation, GoalOverrides) {
    let (configured, now_s) = (Configured::from_operation(read), budget::now_s());
    let overrides = Store::at(read.state_file.clone()).load(&configured, now_s);
    let goals = configured.goals(&overrides, now_s);
    let priorities = configured.priorities(&overrides);
    (Operation { goals, priorities, domain: overrides.domain.or(read.domain), ..read.clone() }, overrides)
}

/// The address of metrics, taken before the server starts.
fn metrics_listener(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind(address);
    listener.with_context(|| format!("cannot serve metrics on {address}: choose another address (--metrics), or none"))
}

/// Serves metrics until the result is dropped.
fn serve_metrics(listener: TcpListener, admin: &Arc<Admin>, operation: &Operation) -> anyhow::Result<Http> {
    let address = listener.local_addr().context("the address of metrics")?;
    let source = Arc::clone(admin);
    let http = metrics::http::start(listener, Arc::new(move || source.facts()), &operation.reactors.cores);
    let http = http.context("cannot start a thread for metrics")?;
    info!("metrics: http://{address}/metrics");
    Ok(http)
}

/// Serves the live page until the result is dropped.
fn serve_page(page: Prepared, admin: &Arc<Admin>, operation: &Operation) -> anyhow::Result<Page> {
    let report = page.report();
    info!("page: {}, token in {}", report.address, report.token_file);
    admin.note_page(report);
    let admin: Arc<Admin> = Arc::clone(admin);
    page.serve(admin, &operation.reactors.cores)
}

/// The control socket. If the default path cannot be used, the server starts without one.
fn control(wanted: Option<&AdminSocket>) -> anyhow::Result<Option<Listener>> {
    let Some(wanted) = wanted else { return Ok(None) };
    match ControlSocket::bind(&wanted.path, wanted.read_group.as_ref()) {
        Ok(socket) => Listener::new(socket).map(Some).context("cannot serve the control socket"),
        Err(error @ BindError::System { .. }) if !wanted.is_explicit => {
            warn!("{error}; `status`, `set` and `namespace` will not reach this server");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Handles signals and requests over the control socket until a signal stops the server. From then on the program exits when the stop
/// takes too long, as a reload or a request may be in a call that does not return.
fn run_until_stopped(
    signals: &mut SignalActions,
    args: &ServeArgs,
    machine: &Machine,
    admin: &Arc<Admin>,
    control: Option<&Listener>,
) -> anyhow::Result<ForcedExit> {
    thread::scope(|scope| {
        let answering = control.map(|control| {
            let answer = || {
                if let Err(error) = control.run(admin.as_ref()) {
                    warn!("the control socket has failed: {error}");
                }
            };
            thread::Builder::new().name("control".to_owned()).spawn_scoped(scope, answer)
        });
        let answering = answering.transpose().context("cannot start a thread for the control socket")?;
        let watching = thread::Builder::new().name("budget".to_owned()).spawn_scoped(scope, || admin.watch_budget());
        let watching = watching.context("cannot start a thread that watches the power budget")?;
        let limiting = thread::Builder::new().name("limit".to_owned()).spawn_scoped(scope, || admin.watch_limit());
        let limiting = limiting.context("cannot start a thread for deadlines of the budget")?;
        let dividing = admin.watch_energy();
        let reloading = handle_signals(scope, || signals.next(), || reload(args, machine, admin));
        let reloading = reloading.context("cannot start a thread that reads the configuration again")?;
        notify::stopping(admin.drain_timeout() + forced_exit::GRACE + forced_exit::RESTORE);
        let forced_exit = ForcedExit::arm(admin.drain_timeout() + forced_exit::GRACE, forced_exit::leave);
        if let (Some(control), Some(answering)) = (control, answering) {
            control.stop();
            let _ = answering.join(); // a panic has been logged
        }
        admin.stop_watching();
        let _ = reloading.join();
        let _ = watching.join();
        let _ = limiting.join();
        drop(dividing);
        forced_exit.context("cannot start a thread for the end of the server")
    })
}

/// Reloads at each SIGHUP, on a thread of its own, until a signal stops the server; returns that thread. A SIGHUP
/// during a reload causes one more.
fn handle_signals<'scope>(
    scope: &'scope Scope<'scope, '_>,
    mut next: impl FnMut() -> SignalAction,
    reload: impl Fn() + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, ()>> {
    let (ask, asked) = sync_channel::<()>(1);
    let body = move || asked.iter().for_each(|()| reload());
    let reloading = thread::Builder::new().name("reload".to_owned()).spawn_scoped(scope, body)?;
    while next() == SignalAction::Reload {
        let _ = ask.try_send(()); // where one waits already, that one will do
    }
    Ok(reloading)
}

/// Reads the configuration again and applies it.
fn reload(args: &ServeArgs, machine: &Machine, admin: &Admin) {
    notify::reloading();
    match config::load(args, machine) {
        Ok(loaded) => {
            log::set_format(loaded.operation.log_format);
            loaded.print_warnings();
            admin.reload(&loaded);
            admin.announce();
            admin.note_reload(true);
        }
        Err(refused) => {
            refused.print();
            admin.note_reload(false);
            warn!("the configuration is refused; the running one is unchanged");
        }
    }
    notify::ready();
}

/// Drains and flushes.
fn stop(server: Box<dyn Running>, config: &ServerConfig) -> Exit {
    let within = config.limits.drain_timeout;
    info!(
        "stopping: requests in flight and the flush have {} to finish; a second signal ends the server at once",
        format_duration(within)
    );
    match server.stop(within) {
        Ok(()) => {
            info!("stopped; everything is finished and flushed");
            Exit::Clean
        }
        Err(error) if error.flush_failed() => {
            warn!("stopped, but data that was not flushed may be lost: {error}");
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
        warn!("the summary could not be printed: {error:#}");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_stop_is_obeyed_during_a_reload() {
        let (stopped, stop) = channel();
        let mut signals = [SignalAction::Reload, SignalAction::Stop].into_iter();
        thread::scope(|scope| {
            let reload = move || stop.recv_timeout(Duration::from_secs(60)).expect("the stop is obeyed first");
            let reloading = handle_signals(scope, || signals.next().unwrap(), reload).unwrap();
            stopped.send(()).unwrap();
            reloading.join().unwrap();
        });
    }

    #[test]
    fn changes_before_the_last_command_are_read() {
        let (reloaded, reloads) = channel();
        let mut signals = [SignalAction::Reload; 100].into_iter().chain([SignalAction::Stop]);
        thread::scope(|scope| {
            let reload = move || reloaded.send(()).unwrap();
            handle_signals(scope, || signals.next().unwrap(), reload).unwrap().join().unwrap();
        });
        assert!((1..=100).contains(&reloads.iter().count()));
    }
}
