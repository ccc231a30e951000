//! The rule of long rounds ([`Rounds`]), as in `crates/reactor/src/reactor/poll.rs`: a worker reports to the main core, which calls the policy.

use pilotlight_plant::{CoreId, LongRound};

use super::Core;
use crate::engine::shared::{Message, MessageKind, Shared, scaled};

impl Core {
    /// After a poll step with work; whether the policy is to be called at once.
    #[inline(never)] // no policy of the papers arms the rule
    pub(super) fn report_long_round(&mut self, shared: &mut Shared<'_>) -> bool {
        if self.ring.len() < 2 {
            return false;
        }
        let Some(round_ns) = self.rounds.long_ns(self.now_ns, shared.round_ns) else { return false };
        let long = LongRound { core: CoreId(self.id), round_ns };
        if self.is_main {
            shared.long_round = Some(long);
            return true;
        }
        self.now_ns += scaled(shared.machine.sleep.software_waker_ns as u32, self.factor); // the main core may wait in the kernel
        shared.messages.push((shared.main, Message { at_ns: self.now_ns, kind: MessageKind::LongRound(long) }));
        false
    }
}
