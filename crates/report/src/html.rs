//! Reports: one self-contained HTML file without network access or scripts. Light and dark mode follow the reader's system; wide
//! tables scroll, so that the page fits a narrow screen.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::chart::Chart;
use crate::table::{Kind, Table};

/// A report.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Its title.
    pub title: String,
    /// Lines under the title: the sources of the report.
    pub notes: Vec<String>,
    /// Its sections.
    pub sections: Vec<Section>,
}

/// A section.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Section {
    /// Its title; may be empty.
    pub title: String,
    /// Its content, in order. Consecutive charts are side by side if they fit.
    pub blocks: Vec<Block>,
}

/// A part of a section.
#[derive(Clone, Debug, PartialEq)]
pub enum Block {
    /// A paragraph.
    Text(String),
    /// A chart.
    Chart(Chart),
    /// A table.
    Table(Table),
}

const STYLE: &str = include_str!("style.css");
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

impl Report {
    /// Its charts, in order.
    pub fn charts(&self) -> impl Iterator<Item = &Chart> {
        self.sections.iter().flat_map(|section| &section.blocks).filter_map(|block| match block {
            Block::Chart(chart) => Some(chart),
            _ => None,
        })
    }

    /// The whole page.
    #[must_use]
    pub fn html(&self) -> String {
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta http-equiv="Content-Security-Policy" content=(POLICY);
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (self.title) }
                    style { (PreEscaped(STYLE)) }
                }
                body {
                    main {
                        h1 { (self.title) }
                        @for note in &self.notes { p.note { (note) } }
                        (self.contents())
                        @for (at, part) in (1..).zip(&self.sections) { (section(at, part)) }
                    }
                }
            }
        };
        page.into_string() + "\n"
    }

    /// Links to the sections, of a page with several.
    fn contents(&self) -> Markup {
        let titled = || (1..).zip(&self.sections).filter(|(_, section)| !section.title.is_empty());
        html! {
            @if titled().nth(1).is_some() {
                nav { @for (at, section) in titled() { a href=(format!("#section-{at}")) { (section.title) } } }
            }
        }
    }
}

fn section(at: usize, section: &Section) -> Markup {
    html! {
        section id=(format!("section-{at}")) {
            @if !section.title.is_empty() { h2 { (section.title) } }
            @for run in section.blocks.chunk_by(|a, b| is_chart(a) && is_chart(b)) {
                @if is_chart(&run[0]) {
                    div.charts { @for part in run { (block(part)) } }
                } @else {
                    @for part in run { (block(part)) }
                }
            }
        }
    }
}

fn is_chart(block: &Block) -> bool {
    matches!(block, Block::Chart(_))
}

fn block(block: &Block) -> Markup {
    match block {
        Block::Text(text) => html! { p { (text) } },
        Block::Chart(chart) => chart.html(),
        Block::Table(table) => html_table(table),
    }
}

fn html_table(table: &Table) -> Markup {
    let class = |kind: Kind| (kind != Kind::Text).then_some("n");
    let kinds = || table.columns.iter().map(|column| column.kind);
    html! {
        div.scroll tabindex="0" {
            table {
                @if !table.title.is_empty() { caption { (table.title) } }
                thead { tr { @for column in &table.columns { th class=[class(column.kind)] { (column.heading()) } } } }
                tbody {
                    @for row in &table.rows {
                        tr { @for (cell, kind) in row.iter().zip(kinds()) { td class=[class(kind)] { (cell.show()) } } }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::{Axis, Bar, Bars, Heat, Line, Lines, Ordered, Place, Scale, Stack, Trace};
    use crate::table::{Cell, Column};

    fn report() -> Report {
        let place = |x: f64, y: f64| Place { x, y: Some(y), band: Some((y - 1.0, y + 1.0)) };
        let broken = Place { x: 40.0, y: None, band: None };
        let lines = Lines {
            title: "power over rate".into(),
            x: Axis { label: "rate (IOPS)".into(), scale: Scale::Log2, from_zero: false },
            y: Axis { label: "power (W)".into(), ..Axis::default() },
            lines: vec![Line { name: "a<b".into(), places: vec![place(10.0, 5.0), place(20.0, 6.0), broken] }],
        };
        let bars = Bars {
            title: "bars".into(),
            y: Axis::default(),
            series: vec!["static".into()],
            groups: vec![("g".into(), vec![Some(Bar { value: 3.0, band: Some((2.0, 4.0)) })])],
        };
        let heat = Heat {
            title: "heat".into(),
            columns: vec!["c".into()],
            rows: vec![("r".into(), vec![Some(2.0)])],
            ..Heat::default()
        };
        let bar = |value: f64| Some(Bar { value, band: Some((value - 1.0, value + 1.0)) });
        let ordered = Ordered {
            title: "over sizes".into(),
            names: ["4k", "64k", "1m"].map(Into::into).to_vec(),
            lines: vec![("o".into(), vec![bar(3.0), None, bar(4.0)])],
            ..Ordered::default()
        };
        let stack = Stack {
            title: "shares".into(),
            parts: vec!["SSD".into(), "CPU".into()],
            rows: vec![("a case <1>".into(), vec![Some(5.0), Some(45.0)])],
            ..Stack::default()
        };
        let trace = Trace {
            title: "over time".into(),
            lines: vec![Line { name: "w".into(), places: vec![place(0.0, 1.0), place(2.0, 3.0)] }],
            marks: vec![(1.0, "measure".into()), (9.0, "later".into())],
            ..Trace::default()
        };
        let table = Table {
            title: "t".into(),
            columns: vec![Column::number("power", "W")],
            rows: vec![vec![Cell::Number(716.0)]],
        };
        let charts = [Chart::Lines(lines), Chart::Bars(bars), Chart::Heat(heat)].into_iter();
        let more = [Chart::Ordered(ordered), Chart::Stack(stack), Chart::Trace(trace)];
        let charts = charts.chain(more).map(Block::Chart);
        let blocks = [Block::Text("one & two".into())].into_iter().chain(charts).chain([Block::Table(table)]).collect();
        Report {
            title: "A <report>".into(),
            notes: vec!["hash=1".into()],
            sections: vec![Section { title: "s".into(), blocks }],
        }
    }

    #[test]
    fn a_report_holds_every_chart_and_needs_no_network() {
        let html = report().html();
        for title in ["power over rate", "bars", "heat", "over sizes", "shares", "over time"] {
            assert!(html.contains(&format!("aria-label=\"{title}\"")), "{title}");
        }
        assert_eq!(html.matches("<svg viewBox").count(), 6, "legends have a class");
        assert!(html.contains(">measure<") && !html.contains(">later<"), "marks outside are left out");
        for outside in ["http:", "https:", "src=", "@import", "url(", "<script"] {
            assert!(!html.contains(outside), "{outside}");
        }
        assert!(html.contains("716.0") && html.contains("power (W)"));
    }

    #[test]
    fn a_page_with_several_sections_links_to_them() {
        let mut report = report();
        assert!(!report.html().contains("<nav"));
        report.sections.push(Section::default());
        report.sections.push(Section { title: "a<b".into(), blocks: Vec::new() });
        let html = report.html();
        assert!(html.contains("<nav><a href=\"#section-1\">s</a><a href=\"#section-3\">a&lt;b</a></nav>"), "{html}");
        assert!(html.contains("<section id=\"section-3\"><h2>a&lt;b</h2>"), "{html}");
    }

    #[test]
    fn bars_begin_at_zero_also_with_negative_intervals() {
        let bar = |value: f64, low: f64| Some(Bar { value, band: Some((low, value + 1.0)) });
        let groups = vec![("g".to_owned(), vec![bar(10.0, -10.0), bar(-10.0, -11.0)])];
        let html =
            Chart::Bars(Bars { series: vec!["a".into(), "b".into()], groups, ..Bars::default() }).html().into_string();
        let of = |part: &str| -> Vec<f64> {
            let rects = html.split("<rect ").skip(1).take(2);
            rects.map(|rect| rect.split_once(part).unwrap().1.split('"').next().unwrap().parse().unwrap()).collect()
        };
        let (tops, heights) = (of("y=\""), of("height=\""));
        assert!((heights[0] - heights[1]).abs() < 0.2, "as high as deep: {heights:?}");
        assert!((tops[0] + heights[0] - tops[1]).abs() < 0.2, "both meet at zero: {tops:?} {heights:?}");
    }

    #[test]
    fn a_single_series_without_a_name_has_no_legend() {
        let bars = |name: &str| {
            let groups = vec![("g".to_owned(), vec![Some(Bar { value: 1.0, band: None })])];
            Chart::Bars(Bars { series: vec![name.into()], groups, ..Bars::default() }).html().into_string()
        };
        assert!(bars("a").contains("class=\"legend\"") && bars("a").contains("a, g: "));
        assert!(!bars("").contains("class=\"legend\"") && !bars("").contains(", g: "));
    }

    #[test]
    fn text_is_never_markup() {
        let html = report().html();
        assert!(html.contains("A &lt;report&gt;") && html.contains("a&lt;b") && html.contains("one &amp; two"));
        assert!(!html.contains("A <report>") && !html.contains("a<b"));
    }

    #[test]
    fn every_element_is_closed() {
        let html = report().html();
        for element in ["svg", "figure", "title", "table", "section", "div", "ul", "li", "text", "main"] {
            let opened = html.matches(&format!("<{element}>")).count() + html.matches(&format!("<{element} ")).count();
            assert_eq!(opened, html.matches(&format!("</{element}>")).count(), "{element}");
        }
    }

    #[test]
    fn a_broken_line_is_two() {
        let mut report = report();
        let Block::Chart(Chart::Lines(lines)) = &mut report.sections[0].blocks[1] else { panic!("not lines") };
        lines.lines[0].places.push(Place { x: 80.0, y: Some(7.0), band: None });
        assert_eq!(
            report.html().matches("<path class=\"l c0").count(),
            2 + 1 + 3 + 2,
            "two stretches, and a key in each legend of lines; the others' lines"
        );
    }
}
