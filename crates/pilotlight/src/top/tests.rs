//! Screens, as text.

use std::time::Duration;

use expect_test::expect;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::history::History;
use super::keys::{Field, Message, Mode, Ui};
use super::view::{Connection, Screen, draw};
use crate::status::render::tests::report;
use crate::status::report::{IoThreadReport, ReactorReport, Report};

/// A screen as lines without trailing spaces, and its scroll position.
fn screen(report: Option<&Report>, ui: &Ui, connection: &Connection, (width, height): (u16, u16)) -> (String, usize) {
    let mut history = History::default();
    for step in 0..40 {
        if let Some(report) = report {
            let mut sample = report.clone();
            sample.io.iops *= f64::from(step) / 40.0;
            history.note(&sample);
        }
    }
    let area = Rect::new(0, 0, width, height);
    let mut buffer = Buffer::empty(area);
    let age = (*connection == Connection::Up && report.is_none()).then_some(Duration::from_secs(7));
    let scroll = draw(&Screen { report, history: &history, connection, age, ui }, area, &mut buffer);
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned() + "\n";
    ((0..height).map(line).collect(), scroll)
}

/// A server with this number of cores and I/O threads.
fn large(cores: u16) -> Report {
    let mut report = report();
    report.server.test_mode = false;
    let core = |id: u16| ReactorReport {
        id,
        core: Some(id.into()),
        main: id == 0,
        busy_percent: f64::from(id),
        ..report.reactors[1].clone()
    };
    let thread = |id: u16| IoThreadReport { id, home: id, ..report.io_threads[0].clone() };
    (report.reactors, report.io_threads) = ((0..cores).map(core).collect(), (0..cores).map(thread).collect());
    report
}

#[test]
fn a_small_terminal() {
    expect![[r#"
        pilotlight 0.1.0, up 3 min 12 s, on 127.0.0.1:4420
        test mode, reactors without cores of their own: measurements are not valid
        policy     sandman (window=64)
        load       12.3 k IOPS, 33.6 MB/s read, 16.8 MB/s written, 12 connections
        latency    p50 12.1 us, p99 24.2 us; from the socket p50 14.0 us, p99 30.0 us
        power      CPU packages 57.2 W, system unknown (modelled, sandman-epyc-9454p)
        budget     300W of the CPU packages: held, headroom 242.8 W; CPU quota of the w…
        tolerance  20%; policy sandman does not use it
        IOPS                              ▁▁▁▁▁▂▂▂▂▂▃▃▃▃▃▄▄▄▄▄▅▅▅▅▅▆▆▆▆▆▇▇▇▇█ max 12.0 k
        watts                        ████████████████████████████████████████ max 57.2 W
        █ busy   ▒ empty-polls   . software-wait
        core     state         busy% poll%  slp% time                    req/s threads
          2 main awake          12.1  87.9   0.0 ███▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒  12.3 k 0-2,5
          3      software-wait   0.0   0.1  99.9 .....................  12.3 k

        I/O thread reactor connections  req/s busy% poll%  slp%     p50     p99  moves
        0                0           4 12.3 k  12.0   8.0  80.0 12.1 us 24.2 us      9






        q quit  p policy  b budget  t tolerance  ? help
    "#]]
    .assert_eq(&screen(Some(&report()), &Ui::default(), &Connection::Up, (80, 24)).0);
}

#[test]
fn a_large_terminal_has_the_history_of_each_core() {
    expect![[r#"
        pilotlight 0.1.0, up 3 min 12 s, on 127.0.0.1:4420
        policy     sandman (window=64)
        load       12.3 k IOPS, 33.6 MB/s read, 16.8 MB/s written, 12 connections
        latency    p50 12.1 us, p99 24.2 us; from the socket p50 14.0 us, p99 30.0 us
        power      CPU packages 57.2 W, system unknown (modelled, sandman-epyc-9454p)
        budget     300W of the CPU packages: held, headroom 242.8 W; CPU quota of the worker cores 23.0 % of 100 %
        tolerance  20%; policy sandman does not use it
        IOPS                                                                      ▁▁▁▁▁▂▂▂▂▂▃▃▃▃▃▄▄▄▄▄▅▅▅▅▅▆▆▆▆▆▇▇▇▇█ max 12.0 k
        watts                                                                ████████████████████████████████████████ max 57.2 W
        █ busy   ▒ empty-polls   . software-wait
        core     state         busy% poll%  slp% time                              req/s threads  awake, over time
          0 main software-wait   0.0   0.1  99.9 ...............................  12.3 k
          1      software-wait   1.0   0.1  99.9 ...............................  12.3 k          ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁
          2      software-wait   2.0   0.1  99.9 █..............................  12.3 k          ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁
          3      software-wait   3.0   0.1  99.9 █..............................  12.3 k          ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁
          4      software-wait   4.0   0.1  99.9 █..............................  12.3 k          ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁
          5      software-wait   5.0   0.1  99.9 ██.............................  12.3 k          ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁
          6      software-wait   6.0   0.1  99.9 ██.............................  12.3 k          ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁
          7      software-wait   7.0   0.1  99.9 ██.............................  12.3 k          ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁
          8      software-wait   8.0   0.1  99.9 ██▒............................  12.3 k          ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁
          9      software-wait   9.0   0.1  99.9 ███............................  12.3 k          ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁
         10      software-wait  10.0   0.1  99.9 ███............................  12.3 k          ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁
         11      software-wait  11.0   0.1  99.9 ███............................  12.3 k          ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁
         12      software-wait  12.0   0.1  99.9 ████...........................  12.3 k          ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁
         13      software-wait  13.0   0.1  99.9 ████...........................  12.3 k          ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁
         14      software-wait  14.0   0.1  99.9 ████...........................  12.3 k          ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁
         15      software-wait  15.0   0.1  99.9 █████..........................  12.3 k          ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁
         16      software-wait  16.0   0.1  99.9 █████..........................  12.3 k          ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁
         17      software-wait  17.0   0.1  99.9 █████..........................  12.3 k          ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁
         18      software-wait  18.0   0.1  99.9 ██████.........................  12.3 k          ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁
         19      software-wait  19.0   0.1  99.9 ██████.........................  12.3 k          ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁
         20      software-wait  20.0   0.1  99.9 ██████.........................  12.3 k          ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁
         21      software-wait  21.0   0.1  99.9 ███████........................  12.3 k          ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁
         22      software-wait  22.0   0.1  99.9 ███████........................  12.3 k          ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁
         23      software-wait  23.0   0.1  99.9 ███████........................  12.3 k          ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁

        I/O thread reactor connections  req/s busy% poll%  slp%     p50     p99  moves
        0                0           4 12.3 k  12.0   8.0  80.0 12.1 us 24.2 us      9
        1                1           4 12.3 k  12.0   8.0  80.0 12.1 us 24.2 us      9
        q quit  p policy  b budget  t tolerance  ? help                                                         1-28 of 50 lines
    "#]].assert_eq(&screen(Some(&large(24)), &Ui::default(), &Connection::Up, (120, 40)).0);
}

#[test]
fn a_lost_server_and_a_refusal_are_displayed() {
    let text = "budget: `x` is not a power\n  = write a number with a unit such as 300W or 1.5kW".to_owned();
    let message = Some(Message { text, is_refusal: true });
    let ui = Ui { mode: Mode::Input(Field::Budget, "x".to_owned()), message, ..Ui::default() };
    let connection = Connection::Lost("the server of /run/pilotlight/pilotlight.sock has ended".to_owned());
    expect![[r#"
        NO CONNECTION: the server of /run/pilotlight/pilotlight.sock has ended.
        Reconnecting; the data below is old.
        pilotlight 0.1.0, up 3 min 12 s, on 127.0.0.1:4420
        test mode, reactors without cores of their own: measurements are not valid
        policy     sandman (window=64)
        load       12.3 k IOPS, 33.6 MB/s read, 16.8 MB/s written, 12 connections
        latency    p50 12.1 us, p99 24.2 us; from the socket p50 14.0 us, p99 30.0 us
        power      CPU packages 57.2 W, system unknown (modelled, sandman-epyc-9454p)
        budget     300W of the CPU packages: held, headroom 242.8 W; CPU quota of the w…
        tolerance  20%; policy sandman does not use it
        IOPS                              ▁▁▁▁▁▂▂▂▂▂▃▃▃▃▃▄▄▄▄▄▅▅▅▅▅▆▆▆▆▆▇▇▇▇█ max 12.0 k
        watts                        ████████████████████████████████████████ max 57.2 W
        core     state         busy% poll%  slp% time                    req/s threads
          2 main awake          12.1  87.9   0.0 ███▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒  12.3 k 0-2,5
          3      software-wait   0.0   0.1  99.9 .....................  12.3 k

        I/O thread reactor connections  req/s busy% poll%  slp%     p50     p99  moves
        0                0           4 12.3 k  12.0   8.0  80.0 12.1 us 24.2 us      9



        budget: `x` is not a power
          = write a number with a unit such as 300W or 1.5kW
        budget: x_   (300W, 300W for 2h, off, default; Enter sets, Esc cancels)
    "#]]
    .assert_eq(&screen(Some(&report()), &ui, &connection, (80, 24)).0);
}

#[test]
fn the_list_of_policies() {
    let ui = Ui { mode: Mode::Policies(2), ..Ui::default() };
    expect![[r#"
        pilotlight 0.1.0, up 3 min 12 s, on 127.0.0.1:4420
        ┌ Policy: Enter sets, Esc cancels, * is active ────────────────────────────────┐
        │   static        every core polls, I/O threads stay where they are (SPDK)     │
        │   interrupt     every I/O thread waits in the kernel (Linux)                 │
        │   governor      every core polls, at a frequency that follows its load (SPD… │
        │   dynamic       busy I/O threads fill few cores, the others sleep in the ke… │
        │   hybrid-poll   every core polls, and pauses half a request's service time … │
        │ * sandman       few cores poll, the others sleep until a burst arrives (SAN… │
        │   adaptive      the fewest cores within a latency tolerance, waiting in the… │
        │   pass          another policy under a power budget that is divided between… │
        │   thunderbolt   as dynamic, under a power budget enforced by a randomized q… │
        │   rapl-only     as static, under a power budget enforced by the power limit… │
        │   cpu-bandwidth as static, under a power budget enforced by a quota of CPU … │
        │   cpu-jailing   as static, under a power budget enforced by the number of p… │
        │   ssd-bandwidth as static, under a power budget enforced by bandwidth caps … │
        │   pacer         few cores at a low frequency while load is steady, within a… │
        │   pg            as pacer, with the number of cores alone (PACER's power gat… │
        │   dvfs          as pacer, with the frequency alone (PACER's DVFS)            │
        │   ondemand      every core polls, at a frequency in proportion to its load … │
        │   native        every core polls at its highest frequency (PACER's baseline… │
        │   ssd-apst      as native, and drives may enter all their idle states (PACE… │
        └──────────────────────────────────────────────────────────────────────────────┘

        q quit  p policy  b budget  t tolerance  ? help
    "#]]
    .assert_eq(&screen(Some(&report()), &ui, &Connection::Up, (80, 24)).0);
}

#[test]
fn scrolling_ends_with_the_last_line() {
    let report = large(64);
    let ui = |scroll| Ui { scroll, ..Ui::default() };
    let (text, scroll) = screen(Some(&report), &ui(usize::MAX), &Connection::Up, (80, 24));
    assert!(text.contains("\n63 "), "{text}");
    assert_eq!(screen(Some(&report), &ui(scroll), &Connection::Up, (80, 24)).0, text, "it stays there");
    let (text, scroll) = screen(Some(&report), &ui(3), &Connection::Up, (80, 24));
    assert!(scroll == 3 && text.contains("\n  3 ") && !text.contains("\n  2 "), "{text}");
    assert!(text.contains("4-15 of 130 lines"), "{text}");
}

#[test]
fn an_answer_that_does_not_come_is_said() {
    let (text, _) = screen(None, &Ui::default(), &Connection::Up, (80, 24));
    assert!(text.contains("NO ANSWER for 7 s"), "{text}");
}

/// Bars, popups and messages fit at every size.
#[test]
fn any_size_can_be_drawn() {
    let text = "a refusal that is longer than a line ".repeat(9);
    let modes = [Mode::Watch, Mode::Help, Mode::Policies(3), Mode::Input(Field::Tolerance, "20%".to_owned())];
    let reports = [None, Some(report()), Some(large(40))];
    let connections = [Connection::Connecting, Connection::Up, Connection::Lost(text.clone())];
    let sizes = [0, 1, 2, 3, 5, 13, 21, 79, 200];
    for (width, height) in sizes.iter().flat_map(|&width| sizes.map(|height| (width, height))) {
        for mode in &modes {
            let message = Some(Message { text: text.clone(), is_refusal: true });
            let ui = Ui { mode: mode.clone(), scroll: 7, message };
            for (report, connection) in
                reports.iter().flat_map(|report| connections.iter().map(move |connection| (report, connection)))
            {
                screen(report.as_ref(), &ui, connection, (width, height));
            }
        }
    }
}
