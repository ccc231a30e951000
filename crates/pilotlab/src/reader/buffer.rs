//! The buffer of a read.

/// Alignment of the buffer for direct I/O: a page.
const ALIGNMENT: usize = 4096;

/// A page-aligned buffer.
#[derive(Default)]
pub(crate) struct Buffer {
    memory: Vec<u8>,
    begins: usize,
    len: usize,
}

impl Buffer {
    pub(crate) fn new(len: usize) -> Self {
        let memory = vec![0; len + ALIGNMENT];
        let begins = memory.as_ptr().align_offset(ALIGNMENT);
        Self { memory, begins, len }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.memory[self.begins..self.begins + self.len]
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.memory[self.begins..self.begins + self.len]
    }

    /// Leaks the memory, because the kernel may still write to it.
    pub(crate) fn leak(self) {
        self.memory.leak();
    }
}
