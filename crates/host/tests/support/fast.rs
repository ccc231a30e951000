//! An I/O queue that completes reads with minimal work: the loop of the bare peer with command identifiers. It measures the
//! maximum rate of a host.

use std::io::IoSlice;
use std::net::TcpStream;

use pilotlight_nvme::pdu::{C2HData, Digests, Flags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};
use zerocopy::IntoBytes;

const BATCH: usize = 32;
const CAPSULE: usize = 72;
const HEADER: usize = 24;

/// OutstandingR2ts reads of 4 KiB until the host leaves.
pub(crate) fn serve(stream: &TcpStream) {
    stream.set_nonblocking(true).expect("nonblocking");
    let payload = [9u8; 4096];
    let mut input = vec![0u8; 64 * 1024];
    let mut headers = [[0u8; HEADER]; BATCH];
    let none = Digests::default();
    let template = C2HData::new(0, 0, 4096, HEADER as u8, Flags::LAST_PDU | Flags::SUCCESS, none);
    headers.iter_mut().for_each(|h| h.copy_from_slice(template.as_bytes()));
    // input[start..end] are whole and partial capsules; `sent` bytes of the batch's PDUs are sent
    let (mut start, mut end, mut sent) = (0, 0, 0);
    loop {
        match rustix::net::recv(stream, &mut input[end..], RecvFlags::DONTWAIT) {
            Ok((0, _)) | Err(Errno::CONNRESET) => return,
            Ok((n, _)) => end += n,
            Err(Errno::AGAIN) => {}
            Err(e) => panic!("{e}"),
        }
        let n = ((end - start) / CAPSULE).min(BATCH);
        if n == 0 {
            input.copy_within(start..end, 0);
            (start, end) = (0, end - start);
            continue;
        }
        for (i, h) in headers.iter_mut().enumerate().take(n) {
            let cid = start + i * CAPSULE + 10;
            h[8..10].copy_from_slice(&input[cid..cid + 2]);
        }
        let mut slices = [IoSlice::new(&[]); 2 * BATCH];
        for (i, pair) in slices.chunks_exact_mut(2).enumerate().take(n) {
            pair[0] = IoSlice::new(&headers[i]);
            pair[1] = IoSlice::new(&payload);
        }
        let mut rest = &mut slices[..2 * n];
        IoSlice::advance_slices(&mut rest, sent);
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match rustix::net::sendmsg(stream, rest, &mut SendAncillaryBuffer::default(), flags) {
            Ok(more) => {
                let whole = (sent + more) / (HEADER + 4096);
                sent = (sent + more) % (HEADER + 4096);
                start += whole * CAPSULE;
            }
            Err(Errno::AGAIN) => {}
            Err(_) => return,
        }
        if start == end || input.len() - end < 16 * 1024 {
            input.copy_within(start..end, 0);
            (start, end) = (0, end - start);
        }
    }
}
