//! Streams in the firmware's format, written by the test and through a pseudo-terminal.

use super::*;
use proptest::prelude::*;

fn packet(sensor: u8, level: u16, marker: bool) -> [u8; 2] {
    [0x80 | sensor << 4 | (level >> 6) as u8, u8::from(marker) << 6 | (level & 0x3f) as u8]
}

fn set(stamp_us: u64, levels: [u16; SENSORS]) -> Vec<u8> {
    let stamp = packet(7, (stamp_us % 1024) as u16, true);
    let levels = levels.into_iter().enumerate().flat_map(|(sensor, level)| packet(sensor as u8, level, false));
    stamp.into_iter().chain(levels).collect()
}

/// What the device keeps of a sensor.
fn sensor(pair_name: &str, reference_v: f32, sensitivity: f32, in_use: bool) -> [u8; CONFIGURATION_BYTES] {
    let mut bytes = [0; CONFIGURATION_BYTES];
    bytes[..7].copy_from_slice(b"MLX-10A");
    bytes[16..16 + pair_name.len()].copy_from_slice(pair_name.as_bytes());
    bytes[32..36].copy_from_slice(&reference_v.to_le_bytes());
    bytes[36..40].copy_from_slice(&sensitivity.to_le_bytes());
    bytes[40] = in_use.into();
    bytes
}

fn sensors() -> [[u8; CONFIGURATION_BYTES]; SENSORS] {
    let unused = sensor("", 0.0, 0.0, false);
    let (amperes, volts) = (sensor("PCIe 3.3V", 0.0, 1.0, true), sensor("PCIe 3.3V", 0.0, 0.5, true));
    [amperes, volts, amperes, volts, unused, unused, unused, unused]
}

fn stream() -> Stream {
    Stream::new(&sensors().map(|bytes| Configuration::decode(&bytes)))
}

/// Microwatts of a pair with these levels, computed apart from the code under test: 1 V/A and 0.5 V/V.
fn microwatts(current: u16, voltage: u16) -> f64 {
    let volts = |level: u16| 3.3 * f64::from(level) / 1023.0;
    volts(current) * volts(voltage) / 0.5 * 1e6
}

#[test]
fn a_constant_power_adds_up() {
    let (mut stream, mut totals) = (stream(), Totals::default());
    // 20,001 sets of 50 us are one second between the first and the last that the next stamp closes.
    for index in 0..20_002_u64 {
        stream.take(&set(index * 50, [310, 465, 0, 0, 0, 0, 0, 0]), &mut totals);
    }
    assert_eq!(totals.device_us, 1_000_000);
    let uj = totals.twice_pj[0] as f64 / 2e6;
    assert!((uj - microwatts(310, 465)).abs() < 2.0, "{uj} uJ in a second");
    assert_eq!(totals.twice_pj[1..], [0; 3]);
}

#[test]
fn a_lost_byte_costs_one_set_and_no_more() {
    let (mut stream, mut totals) = (stream(), Totals::default());
    for index in 0..100_u64 {
        let mut bytes = set(index * 50, [310, 465, 0, 0, 0, 0, 0, 0]);
        if index == 40 {
            bytes.remove(5);
        }
        assert!(!stream.take(&bytes, &mut totals));
    }
    // The set with the gap is left out; the trapezoid over it has the same power, so nothing is missing.
    assert_eq!(totals.device_us, 98 * 50);
}

#[test]
fn lost_samples_are_reported_after_received_ones() {
    let start = Instant::now();
    let at = |ms: u64| start + Duration::from_millis(ms);
    let mut clock = Clock::default();
    assert_eq!(clock.lost(at(0), 0, true), None, "it has not begun");
    assert_eq!(clock.lost(at(50), 20_000, true), None);
    // Half a second of samples waits; then it has been taken.
    assert_eq!(clock.lost(at(1_050), 520_000, false), None);
    assert_eq!(clock.lost(at(1_060), 1_030_000, true), None);
    // A minute on, the crystals differ by a thousandth.
    assert_eq!(clock.lost(at(61_050), 20_000 + 60_950_000, true), None);
    assert_eq!(clock.lost(at(61_150), 20_000 + 60_800_000, true), Some(Duration::from_micros(238_900)));
}

#[test]
fn the_end_of_the_stream_is_seen() {
    let (mut stream, mut totals) = (stream(), Totals::default());
    assert!(!stream.take(&set(0, [0; 8]), &mut totals));
    assert!(!stream.take(&[0xff, 0x3f], &mut totals), "once, it is a level");
    assert!(stream.take(&[0xff, 0x3f], &mut totals));
}

proptest! {
    #[test]
    fn packets_survive_any_cut(levels in prop::collection::vec(any::<[u16; 8]>(), 1..20), cut in 1..40_usize) {
        let bytes: Vec<u8> = levels.iter().enumerate()
            .flat_map(|(index, levels)| set(index as u64 * 50, levels.map(|level| level % 1024))).collect();
        let mut whole = (stream(), Totals::default());
        whole.0.take(&bytes, &mut whole.1);
        let mut cuts = (stream(), Totals::default());
        for part in bytes.chunks(cut) {
            cuts.0.take(part, &mut cuts.1);
        }
        prop_assert_eq!(whole.1.twice_pj, cuts.1.twice_pj);
    }
}

#[test]
fn a_level_is_volts_from_a_reference_by_a_sensitivity() {
    // A current sensor with 1.65 V at 0 A and 0.1 V/A: 2.65 V are 10 A, 0.65 V are -10 A.
    let sensor = Configuration::decode(&sensor("x", 1.65, 0.1, true));
    for (volts, amperes) in [(2.65, 10.0), (1.65, 0.0), (0.65, -10.0)] {
        let level = (volts / 3.3 * 1023.0_f64).round() as u16;
        assert!((sensor.value(level) - amperes).abs() < 0.02, "{volts} V: {} A", sensor.value(level));
    }
}

/// Plays the device on the other end of a pseudo-terminal: sets of 1 ms apart, in time with the host's clock, of which only each `kept`-th
/// gets through.
fn device(mut port: File, levels: [u16; SENSORS], for_ms: u64, kept: u64) {
    let mut letter = [0];
    let mut streaming: Option<Instant> = None;
    let mut sent = 0;
    loop {
        if let Some(started) = streaming {
            while sent < for_ms.min(started.elapsed().as_millis() as u64) {
                if sent % kept == 0 && port.write_all(&set(sent * 1_000, levels)).is_err() {
                    return;
                }
                sent += 1;
            }
            thread::sleep(Duration::from_millis(2));
            if sent < for_ms {
                continue;
            }
            let _ = port.write_all(&[0xff, 0x3f, 0xff, 0x3f]);
            // The line stays open until the host has read all and closes it.
            while matches!(port.read(&mut letter), Ok(1)) {}
            return;
        }
        match port.read(&mut letter) {
            Ok(1) => {}
            _ => return,
        }
        match &letter {
            b"R" => {
                for sensor in sensors() {
                    port.write_all(&sensor).unwrap();
                    port.read_exact(&mut letter).unwrap();
                }
                port.write_all(b"D").unwrap();
            }
            b"S" => streaming = Some(Instant::now()),
            _ => {}
        }
    }
}

/// A pseudo-terminal: the device's end, and a folder in which the host's end is `ttyACM0`.
fn terminal() -> (File, tempfile::TempDir) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("dev")).unwrap();
    std::os::unix::fs::symlink(name, folder.path().join("dev/ttyACM0")).unwrap();
    (File::from(master), folder)
}

#[test]
fn a_serial_device_is_read_and_its_end_reported() {
    let (master, folder) = terminal();
    let player = thread::spawn(move || device(master, [310, 465, 620, 465, 0, 0, 0, 0], 300, 1));
    let options = Options { device: Some("ttyACM0".into()), part: Some(Part::Drive("nvme0".into())) };
    let mut sensor = PowerSensor3::open(&Roots::below(folder.path()), &options).unwrap();
    let names: Vec<&str> = sensor.domains().iter().map(|domain| domain.name.as_str()).collect();
    assert_eq!(names, ["total", "PCIe 3.3V#0", "PCIe 3.3V#1"]);
    let mut last = Vec::new();
    let ended = loop {
        let mut readings = Vec::new();
        match sensor.read(&mut readings) {
            Ok(()) => last = readings,
            Err(error) => break error.to_string(),
        }
        thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(ended, "the device has ended the stream");
    let (total, first, second) = (last[0].value, last[1].value, last[2].value);
    assert_eq!(total, first + second);
    // 1 A at 3 V is 3 W; 0.298 s of it, of which the last reading may lack some.
    let whole = microwatts(310, 465) * 0.298;
    assert!(first > 0 && first as f64 <= whole + 2.0, "{first} of {whole}");
    assert!((second - 2 * first).abs() <= 2, "twice the current: {first}, {second}");
    drop(sensor);
    player.join().unwrap();
}

#[test]
fn lost_samples_are_an_error_not_missing_energy() {
    let (master, folder) = terminal();
    // Its end is not waited for: it can block on output that is not read.
    thread::spawn(move || device(master, [310, 465, 0, 0, 0, 0, 0, 0], 20_000, 2));
    let options = Options { device: Some("ttyACM0".into()), part: None };
    let mut sensor = PowerSensor3::open(&Roots::below(folder.path()), &options).unwrap();
    let started = Instant::now();
    let why = loop {
        match sensor.read(&mut Vec::new()) {
            Ok(()) => assert!(started.elapsed() < Duration::from_secs(10), "half of the samples are missing"),
            Err(error) => break error.to_string(),
        }
        thread::sleep(Duration::from_millis(5));
    };
    assert!(why.contains("samples were lost"), "{why}");
}

#[test]
fn another_device_is_refused() {
    let (mut master, folder) = terminal();
    let silent = thread::spawn(move || while matches!(master.read(&mut [0]), Ok(1)) {});
    let options = Options { device: Some("ttyACM0".into()), part: None };
    let missing = PowerSensor3::open(&Roots::below(folder.path()), &options).unwrap_err();
    assert_eq!(missing.why, Why::Broken);
    assert!(missing.to_string().contains("timed out"), "{missing}");
    drop(folder);
    silent.join().unwrap();
    let unnamed = PowerSensor3::open(&Roots::below("/nowhere"), &Options::default()).unwrap_err();
    assert_eq!(unnamed.why, Why::NotConfigured);
}
