//! The findings: sections of marked rows; for each missing item the reason, the cost and the remedy.

use serde_json::{Value, json};

/// Rating of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mark {
    /// Present.
    Ok,
    /// Present at an avoidable cost.
    Limited,
    /// Missing.
    Missing,
}

impl Mark {
    /// Its name in the table and in JSON.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Limited => "limited",
            Self::Missing => "missing",
        }
    }
}

/// A line of a section's table.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) mark: Mark,
    /// The item.
    pub(super) item: String,
    /// The value with its unit.
    pub(super) found: String,
    /// The same for programs; keys end in their unit.
    pub(super) value: Value,
}

/// Something that is missing or could be better.
#[derive(Clone, Debug)]
pub(super) struct Lack {
    /// The item of its row.
    pub(super) what: String,
    /// The reason.
    pub(super) why: String,
    /// The cost for a server.
    pub(super) costs: String,
    /// Remedies; each a sentence or a command.
    pub(super) remedy: Vec<String>,
}

/// A part of the report.
#[derive(Clone, Debug)]
pub(super) struct Section {
    /// The key in JSON.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) rows: Vec<Row>,
    pub(super) lacks: Vec<Lack>,
}

impl Section {
    pub(super) fn new(name: &'static str, title: &'static str) -> Self {
        Self { name, title, rows: Vec::new(), lacks: Vec::new() }
    }

    /// Adds an item that is in order, or neutral.
    pub(super) fn ok(&mut self, item: impl Into<String>, found: impl Into<String>, value: Value) {
        self.row(Mark::Ok, item.into(), found.into(), value);
    }

    /// Adds an item with an avoidable cost.
    pub(super) fn limited(
        &mut self,
        item: impl Into<String>,
        found: impl Into<String>,
        value: Value,
        reason: Reason<'_>,
    ) {
        let item = item.into();
        self.lacks.push(reason.lack(&item));
        self.row(Mark::Limited, item, found.into(), value);
    }

    /// Adds a missing item.
    pub(super) fn missing(
        &mut self,
        item: impl Into<String>,
        found: impl Into<String>,
        value: Value,
        reason: Reason<'_>,
    ) {
        let item = item.into();
        self.lacks.push(reason.lack(&item));
        self.row(Mark::Missing, item, found.into(), value);
    }

    fn row(&mut self, mark: Mark, item: String, found: String, value: Value) {
        self.rows.push(Row { mark, item, found, value });
    }
}

/// Reason, cost and remedies of a missing item.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reason<'a> {
    pub(super) why: &'a str,
    pub(super) costs: &'a str,
    pub(super) remedy: &'a [&'a str],
}

impl Reason<'_> {
    fn lack(self, what: &str) -> Lack {
        Lack {
            what: what.to_owned(),
            why: self.why.to_owned(),
            costs: self.costs.to_owned(),
            remedy: self.remedy.iter().map(ToString::to_string).collect(),
        }
    }
}

/// The whole report.
#[derive(Clone, Debug)]
pub(super) struct Report {
    /// The machine, on one line.
    pub(super) machine: String,
    /// The checked cores, on one line.
    pub(super) cores: String,
    /// The same for programs.
    pub(super) value: Value,
    pub(super) sections: Vec<Section>,
}

impl Report {
    /// Number of rows with this mark.
    pub(super) fn count(&self, mark: Mark) -> usize {
        self.sections.iter().flat_map(|section| &section.rows).filter(|row| row.mark == mark).count()
    }

    /// The report for programs.
    pub(super) fn json(&self) -> Value {
        json!({
            "machine": self.value,
            "sections": self.sections.iter().map(section_json).collect::<Vec<_>>(),
            "summary": {
                "ok": self.count(Mark::Ok),
                "limited": self.count(Mark::Limited),
                "missing": self.count(Mark::Missing),
            },
        })
    }
}

fn section_json(section: &Section) -> Value {
    let row = |row: &Row| json!({ "item": row.item, "mark": row.mark.name(), "found": row.found, "value": row.value });
    let lack = |lack: &Lack| json!({ "what": lack.what, "why": lack.why, "costs": lack.costs, "remedy": lack.remedy });
    json!({
        "name": section.name,
        "title": section.title,
        "rows": section.rows.iter().map(row).collect::<Vec<_>>(),
        "missing": section.lacks.iter().map(lack).collect::<Vec<_>>(),
    })
}
