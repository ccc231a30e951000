//! Converts a packet capture of NVMe/TCP into golden vectors: `pcap2hex CAPTURE PORT DIRECTORY`.
//!
//! For each connection to PORT, in the order of their SYNs, two files: `N-host.hex` and `N-target.hex`, the bytes of one direction, PDU by
//! PDU, as described in `crates/nvme/tests/golden/README.md`. It parses Ethernet, IPv4, TCP and only the PDU's type and length of NVMe/TCP:
//! it shares no code with the crate that the vectors test.

use std::collections::BTreeMap;
use std::env;
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// One direction of a connection: the sequence number of its first byte, and segments by their offset from that.
struct Flow {
    first: u32,
    segments: BTreeMap<u32, Vec<u8>>,
}

impl Flow {
    fn stream(&self) -> Vec<u8> {
        let mut stream = Vec::new();
        for (&at, bytes) in &self.segments {
            let at = at as usize;
            assert!(at <= stream.len(), "a segment is missing at {}", stream.len());
            if at + bytes.len() > stream.len() {
                stream.extend_from_slice(&bytes[stream.len() - at..]);
            }
        }
        stream
    }
}

struct Segment<'a> {
    ports: (u16, u16),
    sequence: u32,
    syn: bool,
    payload: &'a [u8],
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// The TCP segment in an Ethernet frame, if there is one.
fn segment(frame: &[u8]) -> Option<Segment<'_>> {
    if frame.len() < 34 || be16(frame, 12) != 0x0800 || frame[14 + 9] != 6 {
        return None;
    }
    let packet = &frame[14..14 + usize::from(be16(frame, 16))];
    let tcp = &packet[usize::from(packet[0] & 15) * 4..];
    let sequence = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
    Some(Segment {
        ports: (be16(tcp, 0), be16(tcp, 2)),
        sequence,
        syn: tcp[13] & 2 != 0,
        payload: &tcp[usize::from(tcp[12] >> 4) * 4..],
    })
}

fn le32(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]) as usize
}

/// The frames of a capture in the classic format, little endian, Ethernet, as QEMU writes it.
fn frames(capture: &[u8]) -> Vec<&[u8]> {
    assert!(le32(capture, 0) == 0xa1b2_c3d4 && le32(capture, 20) == 1, "not a capture as QEMU writes it");
    let mut at = 24;
    let mut frames = Vec::new();
    while at + 16 <= capture.len() {
        let (kept, whole) = (le32(capture, at + 8), le32(capture, at + 12));
        assert_eq!(kept, whole, "the capture cut frames short: CAPTURE=full");
        frames.push(&capture[at + 16..at + 16 + kept]);
        at += 16 + kept;
    }
    frames
}

/// Connections in order: host's and target's streams.
fn connections(capture: &[u8], port: u16) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut order: Vec<u16> = Vec::new();
    let mut flows: BTreeMap<(u16, u16), Flow> = BTreeMap::new();
    for segment in frames(capture).into_iter().filter_map(segment) {
        if segment.ports.0 != port && segment.ports.1 != port {
            continue;
        }
        if segment.syn {
            if segment.ports.1 == port && !order.contains(&segment.ports.0) {
                order.push(segment.ports.0);
            }
            let first = segment.sequence.wrapping_add(1);
            flows.entry(segment.ports).or_insert(Flow { first, segments: BTreeMap::new() });
        } else if let Some(flow) = flows.get_mut(&segment.ports).filter(|_| !segment.payload.is_empty()) {
            flow.segments.entry(segment.sequence.wrapping_sub(flow.first)).or_insert_with(|| segment.payload.to_vec());
        }
    }
    order.iter().map(|&host| (flows[&(host, port)].stream(), flows[&(port, host)].stream())).collect()
}

fn pdu_name(pdu_type: u8) -> &'static str {
    match pdu_type {
        0 => "ICReq",
        1 => "ICResp",
        2 => "H2CTermReq",
        3 => "C2HTermReq",
        4 => "CapsuleCmd",
        5 => "CapsuleResp",
        6 => "H2CData",
        7 => "C2HData",
        9 => "R2T",
        _ => panic!("no PDU has type {pdu_type:#x}: the stream is out of step"),
    }
}

/// One line for at most 16 bytes, or for a run of equal bytes; returns the number of bytes.
fn line(text: &mut String, offset: usize, bytes: &[u8]) -> usize {
    let run = bytes.iter().take_while(|&&byte| byte == bytes[0]).count();
    if run >= 16 {
        writeln!(text, "{offset:04x}: {:02x}*{run}", bytes[0]).expect("a string");
        return run;
    }
    let mut taken = bytes.len().min(16);
    if let Some(start) = (1..taken).find(|&at| bytes.len() >= at + 16 && bytes[at..at + 16].iter().all(|&b| b == bytes[at])) {
        taken = start;
    }
    let row: Vec<String> = bytes[..taken].iter().map(|byte| format!("{byte:02x}")).collect();
    writeln!(text, "{offset:04x}: {}", row.join(" ")).expect("a string");
    taken
}

/// The stream, annotated. A last PDU that is incomplete (the connection was closed) is omitted.
fn annotate(stream: &[u8]) -> String {
    let (mut text, mut at, mut number) = (String::new(), 0, 0);
    while at + 8 <= stream.len() {
        let length = le32(stream, at + 4);
        let Some(pdu) = stream.get(at..at + length) else { break };
        writeln!(text, "# {number}: {}, {length} bytes", pdu_name(pdu[0])).expect("a string");
        let mut inside = 0;
        while inside < length {
            inside += line(&mut text, at + inside, &pdu[inside..]);
        }
        at += length;
        number += 1;
    }
    text
}

fn main() {
    let arguments: Vec<String> = env::args().collect();
    let [_, capture, port, directory] = arguments.as_slice() else { panic!("usage: pcap2hex CAPTURE PORT DIRECTORY") };
    let capture = fs::read(capture).expect("the capture");
    for (number, (host, target)) in connections(&capture, port.parse().expect("a port")).iter().enumerate() {
        for (side, stream) in [("host", host), ("target", target)] {
            let file = Path::new(directory).join(format!("{number}-{side}.hex"));
            fs::write(&file, annotate(stream)).expect("a writable directory");
            println!("{}: {} bytes", file.display(), stream.len());
        }
    }
}
