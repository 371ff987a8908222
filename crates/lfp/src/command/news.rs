//! Tells a user at a terminal which holder `lfp` waits for: at once, and again every minute.

use std::time::{Duration, Instant};

use super::output::Output;
use super::report::in_the_way;
use super::row::Row;
use ttylock::Request;

/// How often it is told.
const PERIOD: Duration = Duration::from_secs(60);

/// What is told while we wait.
#[derive(Debug)]
pub(super) struct News<'a> {
    request: &'a Request,
    output: &'a Output,
    /// When it is told next. Never, where nobody reads it.
    due: Option<Instant>,
}

impl<'a> News<'a> {
    /// Names the holder in the way. Looks for it only if somebody is going to read it.
    pub(super) fn begin(
        request: &'a Request,
        rows: impl FnOnce() -> Vec<Row>,
        output: &'a Output,
    ) -> Self {
        let mut news = Self::none(request, output);
        if output.has_people() {
            news.tell(&rows());
        }
        news
    }

    /// Tells nothing, ever.
    pub(super) fn none(request: &'a Request, output: &'a Output) -> Self {
        Self { request, output, due: None }
    }

    /// The time until there is something to do; `None`: never.
    pub(super) fn left(&self) -> Option<Duration> {
        self.due.map(|due| due.saturating_duration_since(Instant::now()))
    }

    /// Names the holder there is by now, if the time has come.
    pub(super) fn tell_if_due(&mut self) {
        if self.due.is_some_and(|due| due <= Instant::now()) {
            self.tell(&in_the_way(&self.request.device));
        }
    }

    fn tell(&mut self, rows: &[Row]) {
        self.due = Instant::now().checked_add(PERIOD);
        let holders: Vec<String> =
            rows.iter().filter(|row| row.holder.scheme.is_lock()).map(Row::sentence).collect();
        if !holders.is_empty() {
            let device = self.request.device.as_str();
            let text = format!("/dev/{device}: waiting\n  {}", holders.join("\n  "));
            self.output.remark(&text);
        }
    }
}
