//! Logins and sessions. The time and the random source are handed in.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use subtle::ConstantTimeEq as _;

use super::token::Token;

/// Sessions at once; the one that was not used for longest makes room.
const MAX_SESSIONS: usize = 64;
/// A session expires after this time without use.
const UNUSED: Duration = Duration::from_secs(12 * 3600);
/// Failed logins of one source in [`WINDOW`] that are answered and logged as such; then it is told to wait until the first of them is over.
/// This bounds the log, not guesses: the right token opens a session at any time, so that nobody's wrong ones lock its owner out.
/// Guessing is hopeless without a bound: if the page compared a million tokens a second, finding one of 2^96
/// (`token.rs` has the least) would take 10^15 years on average.
const FAILURES: usize = 10;
/// Failed logins that are remembered, of all sources; one more takes the place of the oldest.
const MAX_FAILURES: usize = 1024;
/// Time over which failures count.
const WINDOW: Duration = Duration::from_secs(60);

/// All sessions.
pub(super) struct Sessions {
    token: Token,
    open: Vec<Session>,
    /// Time and source of failed logins; the oldest first.
    failures: VecDeque<(Instant, Arc<str>)>,
}

struct Session {
    id: String,
    used: Instant,
}

/// Why there is no session.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LoginRefusal {
    /// Another token.
    Wrong,
    /// Too many failures; logins are refused for this time.
    TooMany(Duration),
    /// There are no random numbers.
    NoRandom,
}

impl Sessions {
    pub(super) fn new(token: Token) -> Self {
        Self { token, open: Vec::new(), failures: VecDeque::new() }
    }

    /// Opens a session and returns its id. A failure counts against its `source` only.
    pub(super) fn login(
        &mut self,
        offered: &str,
        source: &Arc<str>,
        now: Instant,
        random: impl FnOnce() -> io::Result<String>,
    ) -> Result<String, LoginRefusal> {
        if !self.token.is(offered) {
            if let Some(time) = self.refused_for(source, now) {
                return Err(LoginRefusal::TooMany(time));
            }
            if self.failures.len() >= MAX_FAILURES {
                self.failures.pop_front();
            }
            self.failures.push_back((now, Arc::clone(source)));
            return Err(LoginRefusal::Wrong);
        }
        let id = random().map_err(|_| LoginRefusal::NoRandom)?;
        self.forget(now);
        if self.open.len() >= MAX_SESSIONS {
            let oldest = self.open.iter().enumerate().min_by_key(|(_, session)| session.used).map(|(at, _)| at);
            oldest.map(|at| self.open.swap_remove(at));
        }
        self.open.push(Session { id: id.clone(), used: now });
        Ok(id)
    }

    /// How long wrong tokens from there are not counted any more, if so.
    fn refused_for(&mut self, source: &Arc<str>, now: Instant) -> Option<Duration> {
        let age = |(failed, _): &(Instant, Arc<str>)| now.saturating_duration_since(*failed);
        while self.failures.front().is_some_and(|failure| age(failure) >= WINDOW) {
            self.failures.pop_front();
        }
        let mut of_source = self.failures.iter().filter(|(_, of)| of == source);
        let first = of_source.next()?;
        (of_source.count() + 1 >= FAILURES).then(|| WINDOW.saturating_sub(age(first)))
    }

    /// Whether there is such a session; it has been used then.
    pub(super) fn is_open(&mut self, id: &str, now: Instant) -> bool {
        self.forget(now);
        let found = self.open.iter_mut().find(|session| is(&session.id, id));
        found.map(|session| session.used = now).is_some()
    }

    pub(super) fn end(&mut self, id: &str) {
        self.open.retain(|session| !is(&session.id, id));
    }

    fn forget(&mut self, now: Instant) {
        self.open.retain(|session| now.saturating_duration_since(session.used) < UNUSED);
    }
}

fn is(id: &str, offered: &str) -> bool {
    id.as_bytes().ct_eq(offered.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";

    fn sessions() -> (Sessions, Instant) {
        (Sessions::new(Token::from_text(TOKEN)), Instant::now())
    }

    fn here() -> Arc<str> {
        "192.0.2.1".into()
    }

    fn numbered(number: usize) -> impl FnOnce() -> io::Result<String> {
        move || Ok(format!("session {number}"))
    }

    #[test]
    fn a_session_needs_the_token_and_its_identifier() {
        let (mut sessions, now) = sessions();
        assert_eq!(sessions.login("wrong", &here(), now, numbered(0)), Err(LoginRefusal::Wrong));
        let id = sessions.login(TOKEN, &here(), now, numbered(1)).unwrap();
        assert!(sessions.is_open(&id, now) && !sessions.is_open("session 0", now) && !sessions.is_open("", now));
        sessions.end("session 0");
        assert!(sessions.is_open(&id, now));
        sessions.end(&id);
        assert!(!sessions.is_open(&id, now));
        let none = || Err(io::Error::other("none"));
        assert_eq!(sessions.login(TOKEN, &here(), now, none), Err(LoginRefusal::NoRandom));
    }

    #[test]
    fn wrong_tokens_after_ten_in_a_minute_are_only_told_to_wait_and_the_right_one_is_taken() {
        let (mut sessions, start) = sessions();
        let at = |s| start + Duration::from_secs(s);
        for second in 0..10 {
            assert_eq!(sessions.login("wrong", &here(), at(second), numbered(0)), Err(LoginRefusal::Wrong));
        }
        let refused = Err(LoginRefusal::TooMany(Duration::from_secs(50)));
        assert_eq!(sessions.login("wrong", &here(), at(10), numbered(0)), refused);
        assert_eq!(sessions.login(TOKEN, &here(), at(10), numbered(1)), Ok("session 1".to_owned()));
        assert_eq!(sessions.login("wrong", &here(), at(10), numbered(0)), refused);
        assert_eq!(sessions.login("wrong", &here(), at(60), numbered(0)), Err(LoginRefusal::Wrong));
        assert!(matches!(sessions.login("wrong", &here(), at(60), numbered(0)), Err(LoginRefusal::TooMany(_))));
        assert!(sessions.is_open("session 1", at(60)), "sessions are not touched by it");
    }

    #[test]
    fn wrong_tokens_are_counted_per_source_and_in_bounded_memory() {
        let (mut sessions, start) = sessions();
        let source = |number: usize| -> Arc<str> { number.to_string().into() };
        for number in 0..MAX_FAILURES {
            let refused = sessions.login("wrong", &source(number / FAILURES), start, numbered(0));
            assert_eq!(refused, Err(LoginRefusal::Wrong));
        }
        assert_eq!(sessions.login("wrong", &source(0), start, numbered(0)), Err(LoginRefusal::TooMany(WINDOW)));
        assert!(sessions.login(TOKEN, &source(0), start, numbered(1)).is_ok());
        assert_eq!(sessions.login("wrong", &here(), start, numbered(0)), Err(LoginRefusal::Wrong));
        assert_eq!(sessions.failures.len(), MAX_FAILURES);
        let counted = sessions.login("wrong", &source(0), start, numbered(0));
        assert_eq!(counted, Err(LoginRefusal::Wrong), "its oldest failure has made room");
    }

    #[test]
    fn unused_sessions_expire_and_their_number_is_limited() {
        let (mut sessions, start) = sessions();
        let id = sessions.login(TOKEN, &here(), start, numbered(0)).unwrap();
        let nearly = UNUSED - Duration::from_secs(1);
        assert!(sessions.is_open(&id, start + nearly) && sessions.is_open(&id, start + nearly + nearly));
        let later = start + nearly + nearly + UNUSED;
        assert!(!sessions.is_open(&id, later));
        for number in 0..=MAX_SESSIONS {
            sessions.login(TOKEN, &here(), later + Duration::from_millis(number as u64), numbered(number)).unwrap();
        }
        let now = later + Duration::from_secs(1);
        assert!(!sessions.is_open("session 0", now) && sessions.is_open("session 1", now));
        assert_eq!(sessions.open.len(), MAX_SESSIONS);
    }
}
