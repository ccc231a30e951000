//! Drives in a run: commands of background work and jobs, power states, and autonomous activity.

use super::Simulation;
use super::background::{self, BackgroundIo};
use super::caps;
use super::request::Submission;
use super::scheduled::{Io, Scheduled};
use super::shared::DriveOrder;
use crate::scenario::Scenario;
use crate::ssd::{Ssd, SsdModel};
use crate::trace::RecordKind;

impl Simulation<'_> {
    /// Submits a command of an I/O thread, through caps.
    #[inline(never)] // outside the hot path
    pub(super) fn offer(&mut self, submission: &Submission) {
        if submission.job >= background::FIRST {
            return self.submit_any(submission);
        }
        let job = self.shared.job(submission.job);
        let host = job.connection as usize;
        let drive = self.shared.plans[host].drive(job, submission.part);
        let owner = caps::CommandOwner { host, namespace: drive.into() };
        if let Some(admitted) = self.shared.caps.enter(*submission, owner) {
            self.submit_any(&admitted.submission);
        }
    }

    /// Submits the next command that caps admit.
    pub(super) fn advance_caps(&mut self) {
        let Some(caps::Admitted { submission, waited_ns }) = self.shared.caps.advance() else { return };
        self.collector.waited(submission.at_ns, waited_ns);
        if let Some(sensors) = &mut self.director.sensors {
            sensors.waited(submission.job, waited_ns);
        }
        self.submit_any(&submission);
    }

    /// Whether all pending drive commands are of requests, without pending drive settings and interrupts.
    pub(super) fn submits_requests_only(&self) -> bool {
        self.shared.background.is_empty() && self.shared.drive_orders.is_empty() && !self.shared.interrupts.is_active()
    }

    /// Submits any command, after earlier settings of its drive.
    #[inline(never)] // outside the hot path
    pub(super) fn submit_any(&mut self, submission: &Submission) {
        if !self.shared.drive_orders.is_empty() {
            self.order_drives(submission.at_ns);
        }
        if submission.job >= background::FIRST {
            return self.submit_background(submission);
        }
        self.submit::<true>(submission);
    }

    /// Records drives' autonomous activity until the end of a stretch or of a sensor window.
    pub(super) fn advance_drives(&mut self, end_ns: u64) {
        if !self.collector.needs_drive_spans() {
            return;
        }
        self.order_drives(end_ns);
        for index in 0..self.drives.len() {
            self.drives[index].advance(end_ns);
            self.spans(index, end_ns - 1);
        }
    }

    /// Applies drive settings commanded before `now_ns`.
    pub(super) fn order_drives(&mut self, now_ns: u64) {
        let due = self.shared.drive_orders.partition_point(|&(at_ns, ..)| at_ns < now_ns);
        for (at_ns, drive, order) in self.shared.drive_orders.drain(..due) {
            let drive = &mut self.drives[usize::from(drive)];
            drive.advance(at_ns);
            match order {
                DriveOrder::PowerState(state) => drive.set_state(state),
                DriveOrder::WakeLimitNs(limit_ns) => drive.set_wake_limit(limit_ns),
            }
        }
    }

    /// Records a drive's autonomous activity in the current stretch.
    fn spans(&mut self, index: usize, at_ns: u64) {
        let moving_uw = self.drives[index].moving_uw();
        for span in self.drives[index].spans() {
            self.collector.span(index, &span, moving_uw);
            if let Some(sensors) = &mut self.director.sensors {
                sensors.span(index, &span, moving_uw);
            }
            let code = index as u64 | span.activity.code() << 32;
            self.shared.recorder.note(at_ns, RecordKind::Drive, code, span.to_ns - span.from_ns);
        }
    }

    /// Submits background I/O to its drive.
    #[inline(never)] // outside the hot path
    pub(super) fn submit_background(&mut self, submission: &Submission) {
        let at_ns = submission.at_ns;
        let BackgroundIo { class, drive, thread, request } = self.shared.background.io(submission.job, at_ns);
        let done_ns = self.drives[usize::from(drive)].submit(&request);
        let (what, bytes) = (u64::from(class) << 32 | u64::from(drive), u64::from(request.bytes));
        self.shared.recorder.note(at_ns, RecordKind::Background, what, bytes | u64::from(submission.write) << 32);
        self.shared.recorder.note(done_ns, RecordKind::BackgroundDone, what, bytes);
        self.collector.moved(at_ns, drive.into(), request.bytes, submission.write);
        self.collector.did_background(done_ns, class, bytes);
        if let Some(sensors) = &mut self.director.sensors {
            sensors.moved(at_ns, drive, request.bytes, submission.write);
            sensors.did_background(done_ns, class, bytes);
        }
        self.shared.complete_beside(done_ns, thread, u64::MAX - u64::from(drive), submission.job);
    }

    /// Submits a request of a job to its drive.
    pub(super) fn submit_io(&mut self, scheduled: &mut Scheduled, io: &Io) {
        let (drive, request) = scheduled.command(io);
        let (name, done_ns) = (scheduled.name(io), self.drives[drive].submit(&request));
        self.shared.recorder.note(io.at_ns, RecordKind::Submitted, name, drive as u64);
        self.shared.recorder.note(done_ns, RecordKind::Completed, name, drive as u64);
        self.collector.moved(io.at_ns, drive, request.bytes, io.write());
        self.spans(drive, io.at_ns);
        scheduled.completed(io, done_ns);
    }
}

/// A drive in the scenario's power state.
pub(super) fn drive(model: &SsdModel, scenario: &Scenario) -> Ssd {
    let mut drive = Ssd::new(model);
    if let Some(scheduled) = &scenario.scheduled {
        drive.set_state(scheduled.drive_state);
        drive.set_autonomous(scheduled.drive_autonomous);
    }
    drive
}
