//! Rests of an I/O thread under hybrid polling.

use super::*;

#[test]
fn under_hybrid_polling_each_request_has_its_own_rest() {
    let mut io = IoThread::new(0);
    (io.polled, io.in_progress) = (5, 2);
    io.set_how(CompletionMode::Hybrid { idle_ns: 10, rest_ns: 50 });
    let mut after_poll = |now_ns, polled, in_progress| {
        (io.polled, io.in_progress) = (polled, in_progress);
        io.note_arrivals(now_ns);
        io.rest_ns(now_ns)
    };
    assert_eq!(after_poll(100, 5, 2), Some(50), "requests that were there before count from now");
    assert_eq!(after_poll(140, 6, 3), Some(10));
    assert_eq!(after_poll(160, 6, 3), Some(0), "the oldest is polled for");
    assert_eq!(after_poll(170, 6, 1), Some(20), "the one of 140 is not polled until 190");
    assert_eq!(after_poll(200, 6, 0), Some(10));
}
