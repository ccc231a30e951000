//! The interface of the live page to the server.

use super::Admin;
use super::audit::Author;
use crate::admin::request::Request;
use crate::admin::response::to_line;
use crate::page::StatusSource;
use crate::status::measure::Snapshot;
use crate::status::report::{PageReport, Report};

impl StatusSource for Admin {
    fn snapshot(&self) -> Snapshot {
        self.take_snapshot()
    }

    fn report(&self, before: &Snapshot, now: &Snapshot) -> Report {
        self.report_of(before, now, false)
    }

    fn handle(&self, request: &[u8], peer: &str) -> String {
        match Request::parse(request) {
            Ok(request) => self.carry_out_and_log(request, &Author::Page(peer.to_owned())),
            Err(refusal) => to_line::<()>(Err(refusal)),
        }
    }
}

impl Admin {
    /// Notes where the page is served.
    pub(in crate::serve) fn note_page(&self, page: PageReport) {
        let _ = self.page.set(page);
    }
}
