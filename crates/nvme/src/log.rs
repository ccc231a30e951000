//! Log pages (Base 5.16).
