//! The effect of keys: a state machine without terminal and server.

use pilotlight_policy::POLICIES;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::admin::request::{GoalsRequest, Request};
use crate::policies::PolicyChoice;

/// Lines that Page Up and Page Down scroll.
const PAGE: usize = 10;
/// Longest input.
const MAX_INPUT: usize = 64;

/// The mode.
#[derive(Debug, Default)]
pub(super) struct Ui {
    pub(super) mode: Mode,
    /// Lines of the body that are above the screen.
    pub(super) scroll: usize,
    /// The result of the last request; until the next key.
    pub(super) message: Option<Message>,
}

/// Key bindings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Mode {
    #[default]
    Watch,
    Help,
    /// A list of policies, and the one that is selected.
    Policies(usize),
    /// A line of text.
    Input(Field, String),
}

/// The field of an input line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Budget,
    Tolerance,
}

/// Text for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) text: String,
    pub(super) is_refusal: bool,
}

/// The effect of a key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Effect {
    None,
    Quit,
    Send(Request),
}

impl Ui {
    /// A key was pressed.
    pub(super) fn press(&mut self, key: KeyEvent) -> Effect {
        if key.kind == KeyEventKind::Release {
            return Effect::None;
        }
        self.message = None;
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            // in raw mode the terminal sends no signal
            return if key.code == KeyCode::Char('c') { Effect::Quit } else { Effect::None };
        }
        match self.mode.clone() {
            Mode::Watch => self.watch(key.code),
            Mode::Help => {
                self.mode = Mode::Watch;
                Effect::None
            }
            Mode::Policies(selected) => self.choose(key.code, selected),
            Mode::Input(field, text) => self.edit(key.code, field, text),
        }
    }

    /// The server has answered.
    pub(super) fn answered(&mut self, answer: anyhow::Result<String>) {
        let is_refusal = answer.is_err();
        if !is_refusal && matches!(self.mode, Mode::Input(..)) {
            self.mode = Mode::Watch; // a refused input can be corrected
        }
        let text = answer.unwrap_or_else(|refusal| refusal.to_string()).trim_end().to_owned();
        self.message = Some(Message { text, is_refusal });
    }

    fn watch(&mut self, code: KeyCode) -> Effect {
        let text = String::new();
        match code {
            KeyCode::Char('q') | KeyCode::Esc => return Effect::Quit,
            KeyCode::Char('?' | 'h') => self.mode = Mode::Help,
            KeyCode::Char('p') => self.mode = Mode::Policies(0),
            KeyCode::Char('b') => self.mode = Mode::Input(Field::Budget, text),
            KeyCode::Char('t') => self.mode = Mode::Input(Field::Tolerance, text),
            KeyCode::Up | KeyCode::Char('k') => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.scroll = self.scroll.saturating_add(1),
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(PAGE),
            KeyCode::PageDown | KeyCode::Char(' ') => self.scroll = self.scroll.saturating_add(PAGE),
            KeyCode::Home => self.scroll = 0,
            KeyCode::End => self.scroll = usize::MAX,
            _ => {}
        }
        Effect::None
    }

    fn choose(&mut self, code: KeyCode, selected: usize) -> Effect {
        let last = POLICIES.len() - 1;
        self.mode = match code {
            KeyCode::Up | KeyCode::Char('k') => Mode::Policies(selected.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => Mode::Policies((selected + 1).min(last)),
            KeyCode::Home => Mode::Policies(0),
            KeyCode::End => Mode::Policies(last),
            KeyCode::Enter => {
                self.mode = Mode::Watch;
                let choice = PolicyChoice { name: POLICIES[selected].name.to_owned(), parameters: Vec::new() };
                return Effect::Send(Request::SetPolicy(choice));
            }
            KeyCode::Esc | KeyCode::Char('q') => Mode::Watch,
            _ => Mode::Policies(selected),
        };
        Effect::None
    }

    fn edit(&mut self, code: KeyCode, field: Field, mut text: String) -> Effect {
        match code {
            KeyCode::Esc => {
                self.mode = Mode::Watch;
                return Effect::None;
            }
            KeyCode::Enter if text.trim().is_empty() => {
                self.mode = Mode::Watch;
                return Effect::None;
            }
            KeyCode::Enter => return Effect::Send(Request::SetGoals(field.request(text.trim()))),
            KeyCode::Backspace => drop(text.pop()),
            KeyCode::Char(character) if text.chars().count() < MAX_INPUT => text.push(character),
            _ => {}
        }
        self.mode = Mode::Input(field, text);
        Effect::None
    }
}

impl Field {
    /// The request of an input line, as of `pilotlight set budget` and `set tolerance`.
    fn request(self, text: &str) -> GoalsRequest {
        match self {
            Self::Tolerance => GoalsRequest { tolerance: Some(text.to_owned()), ..GoalsRequest::default() },
            Self::Budget => {
                let (power, duration) = match text.split_once(" for ") {
                    Some((power, time)) => (power.trim(), Some(time.trim().to_owned())),
                    None => (text, None),
                };
                GoalsRequest { budget: Some(power.to_owned()), duration, ..GoalsRequest::default() }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(ui: &mut Ui, code: KeyCode) -> Effect {
        ui.press(KeyEvent::new(code, KeyModifiers::NONE))
    }

    fn write(ui: &mut Ui, text: &str) {
        text.chars().for_each(|character| assert_eq!(press(ui, KeyCode::Char(character)), Effect::None));
    }

    #[test]
    fn a_refused_budget_can_be_edited_and_sent() {
        let mut ui = Ui::default();
        write(&mut ui, "b300X");
        let request = |budget: &str, time: Option<&str>| {
            let (budget, duration) = (Some(budget.to_owned()), time.map(str::to_owned));
            Effect::Send(Request::SetGoals(GoalsRequest { budget, duration, ..GoalsRequest::default() }))
        };
        assert_eq!(press(&mut ui, KeyCode::Enter), request("300X", None));
        ui.answered(Err(anyhow::anyhow!("budget: `300X` is not a power\n  = write 300W")));
        assert!(ui.message.as_ref().is_some_and(|message| message.is_refusal));
        assert_eq!(ui.mode, Mode::Input(Field::Budget, "300X".to_owned()));
        press(&mut ui, KeyCode::Backspace);
        assert_eq!(ui.message, None, "it has been read");
        write(&mut ui, "W for 2h");
        assert_eq!(press(&mut ui, KeyCode::Enter), request("300W", Some("2h")));
        ui.answered(Ok("budget 300W\n".to_owned()));
        assert_eq!(ui.mode, Mode::Watch);
        assert_eq!(ui.message, Some(Message { text: "budget 300W".to_owned(), is_refusal: false }));
    }

    #[test]
    fn letters_are_text_in_an_input_line_until_escape() {
        let mut ui = Ui::default();
        write(&mut ui, "tq?b");
        assert_eq!(ui.mode, Mode::Input(Field::Tolerance, "q?b".to_owned()));
        assert_eq!(press(&mut ui, KeyCode::Esc), Effect::None);
        assert_eq!(ui.mode, Mode::Watch);
        write(&mut ui, "b");
        assert_eq!(press(&mut ui, KeyCode::Enter), Effect::None, "an empty line sends nothing");
        write(&mut ui, &format!("t{}", "x".repeat(1000)));
        assert_eq!(ui.mode, Mode::Input(Field::Tolerance, "x".repeat(MAX_INPUT)));
        assert_eq!(ui.press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Effect::Quit);
    }

    #[test]
    fn a_policy_is_chosen_from_the_list() {
        let mut ui = Ui::default();
        write(&mut ui, "pjjk");
        assert_eq!(ui.mode, Mode::Policies(1));
        let choice = PolicyChoice { name: POLICIES[1].name.to_owned(), parameters: Vec::new() };
        assert_eq!(press(&mut ui, KeyCode::Enter), Effect::Send(Request::SetPolicy(choice)));
        write(&mut ui, &format!("p{}", "j".repeat(100)));
        assert_eq!(ui.mode, Mode::Policies(POLICIES.len() - 1));
        write(&mut ui, "q");
        assert_eq!(ui.mode, Mode::Watch);
    }

    #[test]
    fn keys_scroll_and_quit() {
        let mut ui = Ui::default();
        write(&mut ui, "jj");
        press(&mut ui, KeyCode::PageDown);
        press(&mut ui, KeyCode::Up);
        assert_eq!(ui.scroll, PAGE + 1);
        press(&mut ui, KeyCode::End);
        press(&mut ui, KeyCode::Down);
        press(&mut ui, KeyCode::Home);
        assert_eq!(ui.scroll, 0);
        write(&mut ui, "?");
        assert_eq!(ui.mode, Mode::Help);
        write(&mut ui, "q");
        assert_eq!(ui.mode, Mode::Watch, "any key leaves the help");
        assert_eq!(press(&mut ui, KeyCode::Char('q')), Effect::Quit);
    }
}
