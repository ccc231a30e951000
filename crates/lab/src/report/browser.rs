//! The page in a real browser: every plot is there and large enough to be read, nothing sticks out at 390 or at 1,280 pixels, and nothing
//! is asked of the network. Skipped, with the reason printed, where there is no chromium.
//!
//! The page has no script of its own. Here a frame of the width in question holds it, and a script beside the frame measures what the
//! browser made of it. With `PILOTLIGHT_KEEP_REPORT=FOLDER` page and pictures are left there to be looked at.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::tests::{long_names, rich};
use super::*;

/// What the browser says about the page.
#[derive(Debug, Deserialize)]
struct Seen {
    /// Plots by name, with their width and height in pixels.
    plots: Vec<(String, f64, f64)>,
    /// The smallest text in a plot, in pixels.
    least_text: f64,
    /// Texts that stick out of their plot, or touch another text of it.
    astray: Vec<String>,
    /// How wide the page's content is, in pixels.
    wide: f64,
    /// What was fetched beside the page.
    fetched: Vec<String>,
}

/// Measures the page in the frame and leaves what it found in the frame's place.
const MEASURE: &str = r#"
function measure() {
  const page = document.getElementById('page'), inner = page.contentDocument;
  const plots = [...inner.querySelectorAll('svg[role=img]')];
  const box = (element) => element.getBoundingClientRect();
  const astray = [];
  let least = 1e9;
  for (const plot of plots) {
    const frame = box(plot), scale = frame.width / plot.viewBox.baseVal.width, name = plot.getAttribute('aria-label');
    const upright = [];
    for (const text of plot.querySelectorAll('text')) {
      least = Math.min(least, 13 * scale);
      const at = box(text);
      const out = at.left < frame.left - 1 || at.right > frame.right + 1 || at.top < frame.top - 1 || at.bottom > frame.bottom + 1;
      if (out) astray.push(name + ': ' + text.textContent + ' sticks out');
      if (!text.getAttribute('transform') && at.width > 0) upright.push([text.textContent, at]);
    }
    upright.forEach(([said, a], i) => upright.slice(i + 1).forEach(([other, b]) => {
      const over = Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4;
      if (over) astray.push(name + ': ' + said + ' lies on ' + other);
    }));
  }
  const fetched = page.contentWindow.performance.getEntriesByType('resource').map((entry) => entry.name);
  const seen = {plots: plots.map((plot) => [plot.getAttribute('aria-label'), box(plot).width, box(plot).height]),
    least_text: least, astray: astray, wide: inner.documentElement.scrollWidth, fetched: fetched};
  document.getElementById('seen').textContent = JSON.stringify(seen);
}
"#;

fn chromium() -> Option<PathBuf> {
    ["chromium", "chromium-browser", "google-chrome"].iter().find_map(|name| crate::run::find(name))
}

/// A frame of so many pixels with the page in it.
fn framed(folder: &Path, wide: u32) -> PathBuf {
    let html = format!(
        "<!doctype html><meta charset=utf-8><body style='margin:0'><script>{MEASURE}</script>\
         <iframe id=page src=report.html width={wide} height=20000 style='border:0' onload='measure()'></iframe><pre id=seen></pre>"
    );
    let path = folder.join(format!("at-{wide}.html"));
    std::fs::write(&path, html).unwrap();
    path
}

/// Runs the browser on a file; what it printed, or `None` if it did not end in time.
fn browse(browser: &Path, folder: &Path, options: &[String], page: &Path) -> Option<String> {
    let said = folder.join("dom.txt");
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
        .stdout(std::fs::File::create(&said).unwrap())
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
    std::fs::read_to_string(said).ok()
}

fn seen(browser: &Path, folder: &Path, wide: u32) -> Option<Seen> {
    let page = framed(folder, wide);
    let dom = browse(browser, folder, &["--window-size=1400,900".into(), "--dump-dom".into()], &page)?;
    let (_, rest) = dom.split_once("<pre id=\"seen\">")?;
    let text = rest.split_once("</pre>")?.0.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    Some(serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}")))
}

#[test]
fn every_plot_is_there_and_can_be_read_wide_and_narrow() {
    let folder = tempfile::tempdir().unwrap();
    let kept = std::env::var_os("PILOTLIGHT_KEEP_REPORT").map(PathBuf::from);
    let folder = kept.as_deref().unwrap_or(folder.path());
    look_at(&report(&rich(folder)), folder, kept.is_some());
}

#[test]
fn long_names_neither_stick_out_nor_make_the_page_wider() {
    let folder = tempfile::tempdir().unwrap();
    look_at(&report(&long_names()), folder.path(), false);
}

fn look_at(page: &Report, folder: &Path, keeps: bool) {
    let Some(browser) = chromium() else {
        println!("skipped: there is no chromium here (apt install chromium)");
        return;
    };
    std::fs::write(folder.join("report.html"), page.html()).unwrap();
    let blocks = || page.sections.iter().flat_map(|section| &section.blocks);
    let titles: Vec<&str> =
        blocks().filter_map(|block| if let Block::Chart(chart) = block { Some(chart.title()) } else { None }).collect();
    for wide in [1280_u32, 390] {
        let Some(seen) = seen(&browser, folder, wide) else {
            println!("skipped: the browser did not end within 90 s; is the machine busy?");
            return;
        };
        let names: Vec<&str> = seen.plots.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!(names, titles, "at {wide} px");
        assert!(
            seen.plots.iter().all(|(_, wide, high)| *wide >= 300.0 && *high >= 80.0),
            "at {wide} px: {:?}",
            seen.plots
        );
        assert!(seen.least_text >= 9.0, "at {wide} px: text of {} px", seen.least_text);
        assert!(seen.wide <= f64::from(wide), "at {wide} px: content of {} px", seen.wide);
        assert_eq!(seen.astray, Vec::<String>::new(), "at {wide} px");
        assert_eq!(seen.fetched, Vec::<String>::new(), "at {wide} px");
        if keeps {
            let size = format!("--window-size={},9000", wide.max(500));
            let picture = format!("--screenshot={}", folder.join(format!("at-{wide}.png")).display());
            browse(&browser, folder, &[size, picture], &folder.join(format!("at-{wide}.html")));
        }
    }
}
