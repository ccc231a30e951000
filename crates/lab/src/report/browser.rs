//! Renders the page in a browser: plots are complete and readable, nothing overflows at widths of 390 and 1,280 pixels,
//! columns about energy are visible at 1,280, and nothing is fetched from the network. Skipped with a message without chromium.
//!
//! A frame contains the page and a script beside it measures the rendered elements. `PILOTLIGHT_KEEP_REPORT=FOLDER` keeps the page and
//! screenshots.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::tests::{long_names, rich};
use super::*;

/// Measurements of the rendered page.
#[derive(Debug, Deserialize)]
struct Rendered {
    /// Names, widths and heights of plots, in pixels.
    plots: Vec<(String, f64, f64)>,
    /// Smallest text size in a plot, in pixels.
    min_text: f64,
    /// Texts that overflow their plot or overlap another text.
    misplaced: Vec<String>,
    /// Width of the page's content, in pixels.
    wide: f64,
    /// Headings of columns about energy, and where each ends, in pixels from the left.
    energy: Vec<(String, f64)>,
    /// Fetched resources.
    fetched: Vec<String>,
}

/// Measures the page in the frame and stores the result in an element of the document.
const MEASURE: &str = r#"
function measure() {
  const page = document.getElementById('page'), inner = page.contentDocument;
  const plots = [...inner.querySelectorAll('svg[role=img]')];
  const box = (element) => element.getBoundingClientRect();
  const misplaced = [];
  let least = 1e9;
  for (const plot of plots) {
    const frame = box(plot), scale = frame.width / plot.viewBox.baseVal.width, name = plot.getAttribute('aria-label');
    const upright = [];
    for (const text of plot.querySelectorAll('text')) {
      least = Math.min(least, 13 * scale);
      const at = box(text);
      const out = at.left < frame.left - 1 || at.right > frame.right + 1 || at.top < frame.top - 1 || at.bottom > frame.bottom + 1;
      if (out) misplaced.push(name + ': ' + text.textContent + ' overflows');
      if (!text.getAttribute('transform') && at.width > 0) upright.push([text.textContent, at]);
    }
    upright.forEach(([text, a], i) => upright.slice(i + 1).forEach(([other, b]) => {
      const over = Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4;
      if (over) misplaced.push(name + ': ' + text + ' overlaps ' + other);
    }));
  }
  const fetched = page.contentWindow.performance.getEntriesByType('resource').map((entry) => entry.name);
  const energy = [...inner.querySelectorAll('th')].filter((th) => /power|energy/i.test(th.textContent));
  const rendered = {plots: plots.map((plot) => [plot.getAttribute('aria-label'), box(plot).width, box(plot).height]),
    energy: energy.map((th) => [th.textContent, box(th).right]),
    min_text: least, misplaced: misplaced, wide: inner.documentElement.scrollWidth, fetched: fetched};
  document.getElementById('seen').textContent = JSON.stringify(rendered);
}
"#;

fn chromium() -> Option<PathBuf> {
    ["chromium", "chromium-browser", "google-chrome"].iter().find_map(|name| pilotlight_workloads::program::find(name))
}

/// A document with the page in a frame of this width in pixels.
fn framed(folder: &Path, wide: u32) -> PathBuf {
    let html = format!(
        "<!doctype html><meta charset=utf-8><body style='margin:0'><script>{MEASURE}</script>\
         <iframe id=page src=report.html width={wide} height=20000 style='border:0' onload='measure()'></iframe><pre id=seen></pre>"
    );
    let path = folder.join(format!("at-{wide}.html"));
    std::fs::write(&path, html).unwrap();
    path
}

/// Runs the browser on a file; returns its output, or `None` after a timeout.
fn browse(browser: &Path, folder: &Path, options: &[String], page: &Path) -> Option<String> {
    let output = folder.join("dom.txt");
    let mut child = Command::new(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--allow-file-access-from-files",
        ])
        .args(["--disable-background-networking", "--disable-component-update", "--no-first-run", "--hide-scrollbars"])
        .arg(format!("--user-data-dir={}", folder.join("profile").display()))
        .args(options)
        .arg(format!("file://{}", page.display()))
        .stdout(std::fs::File::create(&output).unwrap())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let began = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if began.elapsed() > Duration::from_secs(90) {
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    std::fs::read_to_string(output).ok()
}

fn render(browser: &Path, folder: &Path, wide: u32) -> Option<Rendered> {
    let page = framed(folder, wide);
    let dom = browse(browser, folder, &["--window-size=1400,900".into(), "--dump-dom".into()], &page)?;
    let (_, rest) = dom.split_once("<pre id=\"seen\">")?;
    let text = rest.split_once("</pre>")?.0.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    Some(serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}")))
}

#[test]
fn every_plot_is_readable_on_wide_and_narrow_screens() {
    let folder = tempfile::tempdir().unwrap();
    let kept = std::env::var_os("PILOTLIGHT_KEEP_REPORT").map(PathBuf::from);
    let folder = kept.as_deref().unwrap_or(folder.path());
    check(&report(&rich(folder)), folder, kept.is_some());
}

#[test]
fn long_names_do_not_overflow() {
    let folder = tempfile::tempdir().unwrap();
    check(&report(&long_names()), folder.path(), false);
}

fn check(page: &Report, folder: &Path, keeps: bool) {
    let Some(browser) = chromium() else {
        println!("skipped: chromium is not installed (apt install chromium)");
        return;
    };
    std::fs::write(folder.join("report.html"), page.html()).unwrap();
    let blocks = || page.sections.iter().flat_map(|section| &section.blocks);
    let titles: Vec<&str> =
        blocks().filter_map(|block| if let Block::Chart(chart) = block { Some(chart.title()) } else { None }).collect();
    for wide in [1280_u32, 390] {
        let Some(rendered) = render(&browser, folder, wide) else {
            println!("skipped: the browser did not end within 90 s");
            return;
        };
        let names: Vec<&str> = rendered.plots.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!(names, titles, "at {wide} px");
        assert!(
            rendered.plots.iter().all(|(_, wide, high)| *wide >= 300.0 && *high >= 80.0),
            "at {wide} px: {:?}",
            rendered.plots
        );
        assert!(rendered.min_text >= 9.0, "at {wide} px: text of {} px", rendered.min_text);
        assert!(rendered.wide <= f64::from(wide), "at {wide} px: content of {} px", rendered.wide);
        assert_eq!(rendered.misplaced, Vec::<String>::new(), "at {wide} px");
        if wide >= 1280 {
            let is_visible = |(_, end): &(String, f64)| *end > 0.0 && *end <= f64::from(wide);
            let energy = &rendered.energy;
            assert!(!energy.is_empty() && energy.iter().all(is_visible), "at {wide} px: {energy:?}");
        }
        assert_eq!(rendered.fetched, Vec::<String>::new(), "at {wide} px");
        if keeps {
            let size = format!("--window-size={},9000", wide.max(500));
            let picture = format!("--screenshot={}", folder.join(format!("at-{wide}.png")).display());
            browse(&browser, folder, &[size, picture], &folder.join(format!("at-{wide}.html")));
        }
    }
}
