//! Preconditioning: erases and fills a device, so that it behaves as a drive in use (thesis, section 5). Only on the device that the
//! command line names; a resumed run repeats it.

use std::fs::OpenOptions;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::Path;

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};

use super::{Event, RunError, Runner};
use pilotlight_workloads::{Missing, Problem, Step, Target};

const BLOCK: usize = 1 << 20;

impl Runner<'_> {
    pub(super) fn precondition(&mut self) -> Result<(), RunError> {
        let Some(spec) = self.loaded.experiment.precondition else { return Ok(()) };
        let Target::Device(device) = self.place.clone() else { return Ok(()) };
        if spec.format || spec.fill > 0 {
            self.settling.disturb();
        }
        if spec.format {
            self.format(&device)?;
        }
        for time in 1..=spec.fill {
            (self.watch)(Event::Step(format!("filling {}, pass {time} of {}", device.display(), spec.fill)));
            self.fill(&device, u64::from(time))?;
        }
        Ok(())
    }

    fn format(&mut self, device: &Path) -> Result<(), RunError> {
        if super::find("nvme").is_none() {
            let (why, help) = ("not found in PATH", "needed by precondition.format: `apt install nvme-cli`");
            return Err(Missing { tool: "nvme".into(), why: why.into(), help: help.into() }.into());
        }
        self.step(&erasing(device)).map(drop)
    }

    /// Writes the whole device with incompressible data that differs between blocks.
    fn fill(&self, device: &Path, time: u64) -> Result<(), RunError> {
        let failed = |error: std::io::Error| Problem { at: "precondition.fill".into(), why: error.to_string() };
        let mut file = OpenOptions::new().write(true).open(device).map_err(failed)?;
        let length = file.seek(SeekFrom::End(0)).map_err(failed)?;
        file.rewind().map_err(failed)?;
        let mut block = noise(self.plan.seed ^ time);
        let mut written = 0;
        while written < length {
            if let Some(signal) = self.stop.signal() {
                return Err(RunError::Stopped(signal));
            }
            block[..8].copy_from_slice(&written.to_le_bytes());
            let part = BLOCK.min((length - written) as usize);
            file.write_all(&block[..part]).map_err(failed)?;
            written += part as u64;
        }
        Ok(file.sync_all().map_err(failed)?)
    }
}

pub(super) fn erasing(device: &Path) -> Step {
    let argv = ["nvme".into(), "format".into(), "-s".into(), "1".into(), device.into(), "-f".into()];
    Step { argv: argv.to_vec(), why: format!("erasing {}", device.display()), ..Step::default() }
}

/// A block of random bytes.
fn noise(seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK];
    SplitMix64::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_fills_a_block_with_uniform_bytes() {
        let block = noise(1);
        assert_eq!(block.len(), BLOCK);
        let mut seen = [0_usize; 256];
        block.iter().for_each(|byte| seen[usize::from(*byte)] += 1);
        assert!(seen.iter().all(|count| (3_500..4_700).contains(count)));
        assert_ne!(noise(2), block);
    }
}
