//! `pilotlight page`: where a running server's page is, and the token that opens it.

use std::path::Path;

use anyhow::Context as _;
use clap::Args;
use serde_json::json;

use super::token::read_of_server;
use crate::admin::client::{self, Client, SocketArgs};
use crate::admin::request::Request;
use crate::console;
use crate::exit::Exit;
use crate::status::report::{PageReport, Report};

const ABOUT: &str = "\
Print the address of the live page of a running server, and its token. A server has a page if it was started with \
--page or `listen` in [page].";

const EXAMPLES: &str = "\
Examples:
  pilotlight page
  pilotlight page --socket /run/pilotlight/disks.sock
  pilotlight page --json

From another machine, with a page on 127.0.0.1:9809 or on unix:/run/pilotlight/page.sock:
  ssh -L 9809:127.0.0.1:9809 SERVER
  ssh -L 9809:/run/pilotlight/page.sock SERVER
and then open http://127.0.0.1:9809/ there.

Exit codes:
  0  printed
  1  no server answers, it has no page, or its token cannot be read by this user
  2  the server refused";

/// Options of `pilotlight page`.
#[derive(Args, Clone, Debug)]
#[command(long_about = ABOUT, after_long_help = EXAMPLES, after_help = "Run with --help for examples and exit codes.")]
pub(crate) struct PageArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    socket: SocketArgs,
}

/// Prints address and token.
pub(crate) fn run(args: &PageArgs) -> anyhow::Result<Exit> {
    let report = match Client::connect(&args.socket)?.request::<Report>(&Request::Status {}) {
        Ok(report) => report,
        Err(error) => return client::failed(error),
    };
    let page = report.page.context("this server has no page: start it with --page 9809, or `listen` in [page]")?;
    let token = read_of_server(Path::new(&page.token_file))
        .context("only the user that runs the server, and root, can read the token")?;
    let PageReport { address, token_file } = &page;
    console::print(if args.json {
        json!({ "address": address, "token": token, "token_file": token_file }).to_string() + "\n"
    } else {
        format!("page   {address}\ntoken  {token}\n")
    })?;
    Ok(Exit::Clean)
}
