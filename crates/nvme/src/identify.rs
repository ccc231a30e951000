//! Identify data structures (Base 5.17, NVM 4.1).
