//! The exchange through the public interface: both sides against each other, and each side against a peer that misbehaves.

mod concatenation;
mod exchange;
mod sequence;
mod support;
