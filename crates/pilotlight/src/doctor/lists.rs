//! Lists and masks of CPUs in the kernel's format.

use crate::config::format_cores;
pub(super) use pilotlight_input::cpu_list::parse_known as parse;

/// The CPUs in a mask such as `ff` or `00000001,00000000`, ascending.
pub(super) fn parse_mask(mask: &str) -> Vec<u32> {
    let digits: Vec<u32> = mask.chars().filter(|c| *c != ',').filter_map(|c| c.to_digit(16)).collect();
    let cpus =
        digits.iter().rev().zip(0_u32..).flat_map(|(&digit, place)| {
            (0..4).filter(move |bit| digit & (1 << bit) != 0).map(move |bit| place * 4 + bit)
        });
    cpus.collect()
}

/// A mask in the kernel's format: `5`, or `1,00000000`.
pub(super) fn format_mask(cpus: &[u32]) -> String {
    let mut words = vec![0_u32; cpus.iter().max().map_or(1, |&most| most as usize / 32 + 1)];
    cpus.iter().for_each(|&cpu| words[cpu as usize / 32] |= 1 << (cpu % 32));
    let mut words = words.iter().rev();
    let first = words.next().map_or(String::new(), |word| format!("{word:x}"));
    words.fold(first, |text, word| format!("{text},{word:08x}"))
}

/// The list, or `none`.
pub(super) fn format(cpus: &[u32]) -> String {
    if cpus.is_empty() { "none".to_owned() } else { format_cores(cpus) }
}

/// `cpus` without `others`.
pub(super) fn without(cpus: &[u32], others: &[u32]) -> Vec<u32> {
    cpus.iter().copied().filter(|cpu| !others.contains(cpu)).collect()
}

/// The union, ascending.
pub(super) fn union(lists: &[&[u32]]) -> Vec<u32> {
    let mut all: Vec<u32> = lists.concat();
    all.sort_unstable();
    all.dedup();
    all
}

/// The intersection.
pub(super) fn intersection(cpus: &[u32], others: &[u32]) -> Vec<u32> {
    cpus.iter().copied().filter(|cpu| others.contains(cpu)).collect()
}

/// `one core`, `2 cores`.
pub(super) fn count(number: usize, one: &str, many: &str) -> String {
    if number == 1 { format!("one {one}") } else { format!("{number} {many}") }
}

/// `CPU 3`, `CPUs 0-3`.
pub(super) fn cpus(cpus: &[u32]) -> String {
    format!("{} {}", if cpus.len() == 1 { "CPU" } else { "CPUs" }, format(cpus))
}

/// `core 3`, `cores 0-3`.
pub(super) fn cores(cores: &[u32]) -> String {
    format!("{} {}", if cores.len() == 1 { "core" } else { "cores" }, format(cores))
}

/// Numbers with shell brace expansion: `7 {10..13}`.
pub(super) fn shell(numbers: &[u32]) -> String {
    let text = format_cores(numbers);
    let part =
        |part: &str| part.split_once('-').map_or(part.to_owned(), |(first, last)| format!("{{{first}..{last}}}"));
    text.split(',').map(part).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_words_and_for_shells() {
        assert_eq!([cores(&[1]), cores(&[1, 2]), cpus(&[])], ["core 1", "cores 1-2", "CPUs none"]);
        assert_eq!(shell(&[7, 10, 11, 12]), "7 {10..12}");
    }

    #[test]
    fn masks() {
        assert_eq!(parse_mask("5"), [0, 2]);
        assert_eq!(parse_mask("00000001,80000000"), [31, 32]);
        assert_eq!(parse_mask("00000000"), Vec::<u32>::new());
    }

    #[test]
    fn masks_come_back() {
        for cpus in [vec![0], vec![0, 2, 5], vec![31, 32], vec![64], (0..40).collect()] {
            assert_eq!(parse_mask(&format_mask(&cpus)), cpus);
        }
        assert_eq!(format_mask(&[32]), "1,00000000");
    }
}
