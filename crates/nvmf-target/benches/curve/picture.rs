//! CPU per I/O over mean latency: at each load `pacer` from one tolerance to the next, the mix of polling and interrupts, and the other policies.

use plotters::prelude::*;

use super::frontier::Measured;
use super::{CONTENDERS, Point};

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<LogCoord<f64>, LogCoord<f64>>>;

/// Of the other policies, by contender; `pacer` is black.
const COLOURS: [RGBColor; 6] =
    [RED, BLUE, RGBColor(120, 120, 120), RGBColor(150, 110, 0), RGBColor(120, 0, 140), RGBColor(0, 130, 60)];

fn at(point: &Point) -> (f64, f64) {
    (point.mean_us, point.cpu_us_per_io())
}

pub(crate) fn svg(all: &[Measured]) -> String {
    let mut text = String::new();
    draw(&SVGBackend::with_string(&mut text, (860, 620)).into_drawing_area(), all);
    text
}

fn draw(root: &Area<'_>, all: &[Measured]) {
    let loads = || all.iter().filter(|measured| measured.load.rate > 0.0);
    let points = || loads().flat_map(|measured| (0..CONTENDERS.len()).filter_map(|one| measured.median(one)));
    let range = |of: fn(&Point) -> f64| {
        let low = points().map(|point| of(&point)).fold(f64::INFINITY, f64::min);
        let high = points().map(|point| of(&point)).fold(1.0, f64::max);
        (low / 1.5)..(high * 2.0)
    };
    root.fill(&WHITE).expect("drawn");
    let mut chart = ChartBuilder::on(root)
        .caption("CPU per I/O over mean latency; a line for each load", ("sans-serif", 20))
        .margin(14)
        .x_label_area_size(46)
        .y_label_area_size(74)
        .build_cartesian_2d(range(|p| p.mean_us).log_scale(), range(Point::cpu_us_per_io).log_scale())
        .expect("drawn");
    chart.configure_mesh().x_desc("mean latency, us").y_desc("scheduled CPU per I/O, us").draw().expect("drawn");
    loads().for_each(|measured| draw_load(&mut chart, measured));
    for (one, colour) in COLOURS.into_iter().enumerate() {
        let dots: Vec<_> = loads().filter_map(|measured| measured.median(one)).collect();
        if dots.is_empty() {
            continue;
        }
        let series = chart.draw_series(dots.iter().map(|point| Circle::new(at(point), 4, colour.filled())));
        let series = series.expect("drawn");
        series.label(CONTENDERS[one].label).legend(move |(x, y)| Circle::new((x + 9, y), 4, colour.filled()));
    }
    chart
        .configure_series_labels()
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .position(SeriesLabelPosition::UpperRight)
        .draw()
        .expect("drawn");
    root.present().expect("drawn");
}

fn draw_load(chart: &mut Chart<'_, '_>, measured: &Measured) {
    let pacers = (0..CONTENDERS.len()).filter(|&one| CONTENDERS[one].tolerance_ppm.is_some());
    let line: Vec<Point> = pacers.filter_map(|one| measured.median(one)).collect();
    if let (Some(polls), Some(sleeps)) = (measured.median(0), measured.median(1)) {
        let between = |from: f64, to: f64, share: f64| from + (to - from) * share;
        let mix = (0..=40).map(|nth| {
            let share = f64::from(nth) / 40.0;
            let cpu = between(polls.cpu_us_per_io(), sleeps.cpu_us_per_io(), share);
            (between(polls.mean_us, sleeps.mean_us, share), cpu)
        });
        chart.draw_series(DashedLineSeries::new(mix, 5, 4, BLACK.mix(0.4).into())).expect("drawn");
    }
    chart.draw_series(LineSeries::new(line.iter().map(at), BLACK.stroke_width(2))).expect("drawn");
    chart.draw_series(line.iter().map(|point| Circle::new(at(point), 2, BLACK.filled()))).expect("drawn");
    if let Some(first) = line.first() {
        let (x, y) = at(first);
        let name = format!("{} IOPS", measured.load.label());
        chart.draw_series([Text::new(name, (x, y * 1.35), ("sans-serif", 13))]).expect("drawn");
    }
}
