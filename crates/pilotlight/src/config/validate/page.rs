//! The live page: its address, accepted host names, and the token file.

use std::path::PathBuf;
use std::time::Duration;

use super::Checker;
use super::network::port_or_address;
use crate::admin::NONE;
use crate::config::keys;
use crate::config::operation::{AdminSocket, Page, PageAddress, TokenFile};
use crate::config::problem::{Origin, Problem, Text};

/// Time between two samples.
const TICK: Duration = Duration::from_secs(1);
/// Prefix of a Unix socket.
const UNIX: &str = "unix:";
/// The extension of the token file that the server writes next to the control socket.
const TOKEN: &str = "page-token";

impl Checker<'_> {
    /// The page, if one is to be served.
    pub(super) fn page(
        &mut self,
        written: &keys::Page,
        tick_ms: Option<u64>,
        control: Option<&AdminSocket>,
    ) -> Option<Page> {
        let listen = written.listen.as_ref().filter(|listen| listen.value != NONE);
        let Some(listen) = listen else {
            self.page_without_address(written);
            return None;
        };
        let address = self.page_address(listen);
        let hosts = written.hosts.iter().filter_map(|host| self.page_host(host)).collect();
        let token = self.token_file(written.token_file.as_ref(), &listen.at, control);
        Some(Page { listen: address?, hosts, token: token?, tick: tick_ms.map_or(TICK, Duration::from_millis) })
    }

    fn page_without_address(&mut self, written: &keys::Page) {
        let of_token = written.token_file.as_ref();
        if let Some(text) = of_token.or(written.hosts.first()) {
            let problem = Problem::warning(&text.at, "has no effect: no page is served");
            self.problem(problem.help("set its address with `listen` in [page], or --page"));
        }
    }

    /// A warning if it is not loopback.
    fn page_address(&mut self, written: &Text) -> Option<PageAddress> {
        if let Some(path) = written.value.strip_prefix(UNIX) {
            let path = self.base.join(path);
            self.socket_path(&path, &written.at);
            return Some(PageAddress::Unix(path));
        }
        let Some(address) = port_or_address(&written.value) else {
            let what = format!("`{}` is not an address for the page", written.value);
            let help = "write a port of 127.0.0.1, such as 9809, an IP address and a port, or unix:PATH";
            self.problem(Problem::error(&written.at, what).help(help));
            return None;
        };
        if !address.ip().is_loopback() {
            let what = format!("the page on {address} is not encrypted: its token can be read on the network");
            let help = "listen on 127.0.0.1 and use ssh -L, or let a proxy with TLS pass requests on";
            self.problem(Problem::warning(&written.at, what).help(help));
        }
        Some(PageAddress::Tcp(address))
    }

    fn page_host(&mut self, written: &Text) -> Option<String> {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
        if !written.value.is_empty() && written.value.chars().all(is_name) {
            return Some(written.value.to_ascii_lowercase());
        }
        let what = format!("`{}` is not a name of a machine", written.value);
        self.problem(
            Problem::error(&written.at, what).help("write a name without a port, such as storage1.example.com"),
        );
        None
    }

    fn token_file(
        &mut self,
        written: Option<&Text>,
        listen: &Origin,
        control: Option<&AdminSocket>,
    ) -> Option<TokenFile> {
        if let Some(text) = written {
            return Some(TokenFile::Configured(self.base.join(&text.value)));
        }
        let beside: Option<PathBuf> = control.map(|socket| socket.path.with_extension(TOKEN));
        if beside.is_none() {
            let what = "the page needs a token, and without a control socket there is no place for its file".to_owned();
            self.problem(
                Problem::error(listen, what).help("name a file with `token_file` in [page], or --page-token-file"),
            );
        }
        beside.map(TokenFile::Generated)
    }
}
