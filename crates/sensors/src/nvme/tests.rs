//! A drive that responds with bytes in the specified layout.

use super::*;

/// Answers as a drive with five power states would, of which two are not operational.
struct Fake {
    smart: [u8; 512],
    measurement: Option<[u8; 64]>,
    state: u32,
}

impl Drive for Fake {
    fn log_page(&mut self, id: u8, data: &mut [u8]) -> io::Result<()> {
        match (id, &self.measurement) {
            (0x02, _) => data.copy_from_slice(&self.smart),
            (0x25, Some(page)) => data.copy_from_slice(page),
            _ => return Err(io::Error::other("the drive answered with NVMe status 0x4109")),
        }
        Ok(())
    }

    fn feature(&mut self, id: u8, _: &mut [u8]) -> io::Result<u32> {
        assert_eq!(id, 0x02);
        Ok(self.state)
    }

    fn set_feature(&mut self, _: u8, _: u32, _: &[u8]) -> io::Result<()> {
        panic!("a sensor sets nothing")
    }

    fn identify(&mut self) -> io::Result<Box<[u8; 4096]>> {
        let mut data = Box::new([0; 4096]);
        data[263] = 4;
        // Hundredths of watts, and ten-thousandths where Max Power Scale is set.
        for (state, (value, flags)) in [(849_u16, 0), (448, 0), (318, 0), (400, 3), (50, 3)].into_iter().enumerate() {
            let at = 2048 + 32 * state;
            data[at..at + 2].copy_from_slice(&value.to_le_bytes());
            data[at + 3] = flags;
        }
        Ok(data)
    }
}

fn drive() -> Fake {
    let mut smart = [0; 512];
    smart[1..3].copy_from_slice(&313_u16.to_le_bytes());
    smart[32..48].copy_from_slice(&1_000_000_u128.to_le_bytes());
    smart[48..64].copy_from_slice(&2_500_u128.to_le_bytes());
    Fake { smart, measurement: None, state: 0 }
}

fn read(nvme: &mut Nvme) -> Vec<(String, i64)> {
    let mut readings = Vec::new();
    nvme.read(&mut readings).unwrap();
    readings.iter().map(|reading| (nvme.domains()[reading.domain].column(), reading.value)).collect()
}

fn pairs(all: &[(&str, i64)]) -> Vec<(String, i64)> {
    all.iter().map(|&(name, value)| (name.to_owned(), value)).collect()
}

#[test]
fn without_power_measurement_all_other_values_are_read() {
    let mut nvme = Nvme::with_drive(Box::new(drive()), &Options::default()).unwrap();
    let expected = [
        ("temperature_mdegc", 40_000),
        ("read_bytes", 512_000_000_000),
        ("written_bytes", 1_280_000_000),
        ("power-state_count", 0),
        ("power-state-limit_uw", 8_490_000),
    ];
    assert_eq!(read(&mut nvme), pairs(&expected));
    assert!(nvme.domains().iter().all(|domain| domain.kind != crate::Kind::Power));
}

#[test]
fn a_missing_temperature_is_not_absolute_zero() {
    let mut drive = drive();
    drive.smart[1..3].fill(0);
    let mut nvme = Nvme::with_drive(Box::new(drive), &Options::default()).unwrap();
    assert_eq!(read(&mut nvme)[0].0, "read_bytes");
}

#[test]
fn power_state_and_its_limit_follow_the_drive() {
    let mut nvme = Nvme::with_drive(Box::new(Fake { state: 4 | 1 << 5, ..drive() }), &Options::default()).unwrap();
    let read = read(&mut nvme);
    assert_eq!(read[3..], pairs(&[("power-state_count", 4), ("power-state-limit_uw", 5_000)]));
}

#[test]
fn a_drive_of_nvme_2_3_measures_itself() {
    let mut drive = drive();
    drive.smart[232..240].copy_from_slice(&1_234_u64.to_le_bytes());
    // 5.25 W in steps of 10 mW, of type 1 (bits 25:20, ignored).
    drive.smart[240..244].copy_from_slice(&(525_u32 | 2 << 16 | 1 << 20).to_le_bytes());
    let mut page = [0; 64];
    page[2] = 1;
    page[4..8].copy_from_slice(&64_u32.to_le_bytes());
    page[8..12].copy_from_slice(&77_u32.to_le_bytes());
    page[36..40].copy_from_slice(&(49_999_u32 | 1 << 16).to_le_bytes());
    page[40..44].copy_from_slice(&(801_u32 | 2 << 16).to_le_bytes());
    drive.measurement = Some(page);
    let options = Options { measurement_log: true, ..Options::default() };
    let mut nvme = Nvme::with_drive(Box::new(drive), &options).unwrap();
    let read = read(&mut nvme);
    let expected = [
        ("lifetime_wh", 1_234),
        ("interval-power_uw", 5_250_000),
        ("measured-mean_uw", 4_999_900),
        ("measured-max_uw", 8_010_000),
        ("measured_count", 77),
    ];
    assert_eq!(read[5..], pairs(&expected));
    // A mean since somebody started the measurement is no power of a run.
    let powers: Vec<&str> =
        nvme.domains().iter().filter(|domain| domain.kind == crate::Kind::Power).map(|d| &*d.name).collect();
    assert_eq!(powers, ["interval-power"]);
}

#[test]
fn a_log_without_measurement_is_reported_and_not_zero_watts() {
    let options = Options { measurement_log: true, ..Options::default() };
    let absent = Nvme::with_drive(Box::new(drive()), &options).err().unwrap();
    assert!(absent.to_string().contains("0x4109"), "{absent}");
    let mut page = [0; 64];
    page[4..8].copy_from_slice(&64_u32.to_le_bytes());
    let idle = Nvme::with_drive(Box::new(Fake { measurement: Some(page), ..drive() }), &options).err().unwrap();
    assert!(idle.to_string().contains("is not measuring"), "{idle}");
    page[0] = 9;
    let newer = Nvme::with_drive(Box::new(Fake { measurement: Some(page), ..drive() }), &options).err().unwrap();
    assert!(newer.to_string().contains("version 9"), "{newer}");
}
