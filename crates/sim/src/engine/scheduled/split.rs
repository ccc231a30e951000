//! Requests that the kernel splits into several commands.
//!
//! *Problem.* A drive accepts no command above its size limit (MDTS, `max_sectors_kb`). A larger request is split, and each command is submitted,
//! completed and signalled by an interrupt separately; as they come together, they end together (assumed, from Figure 5.4a of the thesis). *Algorithm.* A
//! request names its next command ([`Split::next`]); the submitter continues with it after the current one. [`Tally`] counts the remaining commands
//! of each request, and the waiter is woken after the last. *Properties* (tests below; the auditor): the commands of a request cover its bytes
//! without overlap, and it completes once, not before the last of its commands. A request within the limit is in no tally.

/// The commands of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Split {
    bytes: u32,
    /// Maximum bytes of a command; 0 for no limit.
    most_bytes: u32,
}

impl Split {
    pub(crate) fn new(bytes: u32, most_bytes: u32) -> Self {
        Self { bytes, most_bytes }
    }

    /// Number of commands.
    pub(crate) fn commands(self) -> u32 {
        if self.most_bytes == 0 { 1 } else { self.bytes.div_ceil(self.most_bytes).max(1) }
    }

    /// Offset of a command in the request, and its bytes.
    pub(crate) fn part(self, command: u32) -> (u64, u32) {
        if self.most_bytes == 0 {
            return (0, self.bytes);
        }
        let offset = u64::from(command) * u64::from(self.most_bytes);
        let left = u64::from(self.bytes).saturating_sub(offset);
        (offset, left.min(u64::from(self.most_bytes)) as u32)
    }

    /// The command after this one.
    pub(crate) fn next(self, command: u32) -> Option<u32> {
        (command + 1 < self.commands()).then_some(command + 1)
    }
}

/// Remaining commands of each split request of a job. Its size is the maximum number of requests that were in progress at a time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    open: Vec<Open>,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    number: u64,
    left: u32,
    latest_ns: u64,
}

impl Tally {
    /// Records a completed command of request `number`; returns the request's completion time if it was the last.
    pub(crate) fn done(&mut self, number: u64, commands: u32, at_ns: u64) -> Option<u64> {
        if commands <= 1 {
            return Some(at_ns);
        }
        let place = self.open.iter().position(|open| open.number == number).unwrap_or_else(|| {
            self.open.push(Open { number, left: commands, latest_ns: 0 });
            self.open.len() - 1
        });
        let open = &mut self.open[place];
        open.left -= 1;
        open.latest_ns = open.latest_ns.max(at_ns);
        (open.left == 0).then(|| self.open.swap_remove(place).latest_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_request_within_the_limit_is_one_command() {
        for most_bytes in [0, 4_096, 4_097] {
            let split = Split::new(4_096, most_bytes);
            assert_eq!((split.commands(), split.part(0), split.next(0)), (1, (0, 4_096), None));
        }
        assert_eq!(Split::new(4_097, 4_096).commands(), 2);
        assert_eq!(Tally::default().done(3, 1, 70), Some(70));
    }

    proptest! {
        #[test]
        fn commands_have_the_bytes_of_their_request(bytes in 1_u32..5_000_000, most_bytes in 512_u32..1_000_000) {
            let split = Split::new(bytes, most_bytes);
            let (mut command, mut end) = (Some(0), 0);
            while let Some(this) = command {
                let (offset, length) = split.part(this);
                prop_assert!(offset == end && (1..=most_bytes).contains(&length));
                (command, end) = (split.next(this), offset + u64::from(length));
            }
            prop_assert_eq!(end, u64::from(bytes));
        }

        /// Commands of several requests in any order: each request completes once, at the latest of its commands.
        #[test]
        fn a_request_is_done_with_its_last_command(
            times in prop::collection::vec((0_u64..4, 1_u64..1_000), 1..40),
        ) {
            let mut tally = Tally::default();
            let commands = |number| times.iter().filter(|(of, _)| *of == number).count() as u32;
            for (at, &(number, at_ns)) in times.iter().enumerate() {
                let all = || times.iter().enumerate().filter(|(_, (of, _))| *of == number);
                let latest_ns = all().map(|(_, &(_, at_ns))| at_ns).max();
                let is_last = all().all(|(other, _)| other <= at);
                prop_assert_eq!(tally.done(number, commands(number), at_ns), latest_ns.filter(|_| is_last));
            }
            prop_assert!(tally.open.is_empty());
        }
    }
}
