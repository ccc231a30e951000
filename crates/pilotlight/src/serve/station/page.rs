//! What the live page sees of a running server, and how it changes one.

use super::Station;
use super::audit::Author;
use crate::admin::answer::to_line;
use crate::admin::request::Request;
use crate::page::{PageReport, Watched};
use crate::status::measure::Look;
use crate::status::report::Report;

impl Watched for Station {
    fn look(&self) -> Look {
        self.look_now()
    }

    fn report(&self, before: &Look, now: &Look) -> Report {
        self.report_of(before, now, false)
    }

    fn answer(&self, request: &[u8], peer: &str) -> String {
        match Request::parse(request) {
            Ok(request) => self.carry_out_and_log(request, &Author::Page(peer.to_owned())),
            Err(refusal) => to_line::<()>(Err(refusal)),
        }
    }
}

impl Station {
    /// Notes where the page is served.
    pub(in crate::serve) fn note_page(&self, page: PageReport) {
        let _ = self.page.set(page);
    }
}
