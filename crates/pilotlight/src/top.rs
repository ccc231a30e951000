//! `pilotlight top`: the status of a running server, live in a terminal, with keys that change policy, budget and tolerance.
//!
//! `feed` requests the status on a separate thread; `keys` and `view` are pure: a key changes [`keys::Ui`], and a screen is drawn from the
//! last report, the [`history::History`] and the `Ui`. This file is the loop between them and the terminal.

mod body;
mod feed;
mod head;
mod history;
mod keys;
#[cfg(test)]
mod picture;
mod popup;
#[cfg(test)]
mod tests;
mod view;

use std::io::{self, IsTerminal as _};
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::admin::client::{Client, SocketArgs};
use crate::exit::Exit;
use feed::{Feed, Update};
use history::History;
use keys::{Effect, Ui};
use view::{Connection, Screen};

/// Interval of checks for keys and updates.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// A report that is older than this is shown with its age.
const OLD: Duration = Duration::from_secs(4);

const EXAMPLES: &str = "\
Examples:
  pilotlight top
  pilotlight top --interval 5                       figures over five seconds each
  pilotlight top --socket /run/pilotlight/disks.sock

Keys: p policy, b budget, t tolerance, arrows and Page Up/Down scroll, ? help, q quit.

Exit codes:
  0  ended by a key, a signal, or its terminal
  1  no server answers at the start, or there is no terminal";

/// Options of `pilotlight top`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES, after_help = "Run with --help for keys, examples and exit codes.")]
pub(crate) struct TopArgs {
    /// Interval of status requests, rates and percentages
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = crate::status::seconds)]
    interval: Duration,

    #[command(flatten)]
    socket: SocketArgs,
}

/// Shows the server until a key or a signal ends it.
pub(crate) fn run(args: &TopArgs) -> anyhow::Result<Exit> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        anyhow::bail!(
            "`pilotlight top` needs a terminal: use `pilotlight status`, or for programs `pilotlight status --json`, with --watch \
             again and again"
        );
    }
    let client = Client::connect(&args.socket)?;
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // first, so that it looks at the flag before it is set: a second signal ends the program wherever it is
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&ended))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&ended)))
            .context("cannot handle signals")?;
    }
    let feed = Feed::start(args.socket.clone(), client, args.interval).context("cannot start a thread")?;
    // its panic hook restores the terminal before it prints the message
    let mut terminal = ratatui::try_init().context("cannot set up the terminal")?;
    let shown = show(&mut terminal, &feed, &ended, args.interval);
    if !terminal_is_there(Duration::ZERO)? {
        let _ = ManuallyDrop::new(terminal); // its drop writes to the terminal and to standard error, and panics where it cannot
        return Ok(Exit::Clean); // whatever the error of drawing
    }
    ratatui::restore();
    shown.map(|()| Exit::Clean)
}

/// The loop: handles updates of the server and keys, and draws changes.
fn show(terminal: &mut DefaultTerminal, feed: &Feed, ended: &AtomicBool, interval: Duration) -> anyhow::Result<()> {
    let (mut ui, mut history) = (Ui::default(), History::default());
    let (mut report, mut connection, mut seen) = (None, Connection::Connecting, Instant::now());
    let mut changed = true;
    while !ended.load(Relaxed) {
        loop {
            match feed.updates.try_recv() {
                Ok(Update::Report(new)) => {
                    history.note(&new);
                    (report, connection, seen) = (Some(new), Connection::Up, Instant::now());
                }
                Ok(Update::Lost(why)) => connection = Connection::Lost(why),
                Ok(Update::Answer(answer)) => ui.answered(answer),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => anyhow::bail!("the thread that queries the server has ended"),
            }
            changed = true;
        }
        let age = Some(seen.elapsed()).filter(|age| *age > OLD + interval);
        if changed || age.is_some() {
            let screen = Screen { report: report.as_deref(), history: &history, connection: &connection, age, ui: &ui };
            let mut scroll = 0;
            terminal.draw(|frame| scroll = view::draw(&screen, frame.area(), frame.buffer_mut()))?;
            ui.scroll = scroll; // never beyond the last line
        }
        changed = false;
        if !terminal_is_there(CHECK_INTERVAL)? {
            break;
        }
        while event::poll(Duration::ZERO)? {
            changed = true;
            if let Event::Key(key) = event::read()? {
                match ui.press(key) {
                    Effect::None => {}
                    Effect::Quit => return Ok(()),
                    Effect::Send(request) => feed.request(request),
                }
            }
        }
    }
    Ok(())
}

/// Waits up to `wait`, less than a second, for a key; `false` if the terminal has vanished. crossterm must not wait for one itself: it takes the end of the input for
/// input, and looks for a key in it for ever.
fn terminal_is_there(wait: Duration) -> io::Result<bool> {
    let wait = Timespec { tv_sec: 0, tv_nsec: i64::from(wait.subsec_nanos()) };
    let input = io::stdin();
    let mut fds = [PollFd::new(&input, PollFlags::IN)];
    match rustix::event::poll(&mut fds, Some(&wait)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(!fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL))
}
