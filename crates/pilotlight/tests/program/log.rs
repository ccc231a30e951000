//! The log: what repeats is told at a bounded rate, with the count of what was left out.

use std::net::TcpStream;

use crate::process::Server;

/// Lines that one cause may fill in a window of the log.
const LINES: usize = 10;

#[test]
fn a_warning_that_repeats_fills_ten_lines_and_is_counted() {
    const REFUSED: usize = 200;
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("server.toml");
    let text = "[server]\nlisten = \"127.0.0.1:0\"\n[admin]\nsocket = \"control.sock\"\n[limits]\nmax_connections = 1\n\
                [[subsystem]]\nnqn = \"nqn.2024-05.com.example:disks\"\n\
                [[subsystem.namespace]]\nnsid = 1\nbackend = \"mem:1MiB\"\n";
    std::fs::write(&config, text).unwrap();
    let server = Server::start(&["--config", config.to_str().unwrap()]);
    let _first = server.connect();
    for _ in 0..REFUSED {
        // it is closed at once; the next one comes when this one has been looked at
        let refused = TcpStream::connect(server.address()).unwrap();
        let _ = std::io::copy(&mut &refused, &mut std::io::sink());
    }
    let (mut lines, mut left_out) = (0, 0);
    while lines + left_out < REFUSED {
        let line = server.expect_log("too many connections");
        let count =
            line.split_once(" more lines").and_then(|(before, _)| before.rsplit_once('(')?.1.parse::<usize>().ok());
        match count {
            Some(count) => left_out += count,
            None => lines += 1,
        }
    }
    assert_eq!(lines + left_out, REFUSED);
    // a machine so busy that this took longer than a window of ten seconds has more than one of them
    assert!(lines <= 10 * LINES, "{lines} lines");
}
