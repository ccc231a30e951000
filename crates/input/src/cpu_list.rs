//! Lists of CPUs in the kernel's format: `0-3,8`.

/// The most CPUs that Linux supports; a larger number is refused.
const MOST: u32 = 8192;

/// Parses a list, keeping its order.
#[must_use]
pub fn parse(list: &str) -> Option<Vec<u32>> {
    let ranges = list.trim().split(',').map(range).collect::<Option<Vec<_>>>()?;
    Some(ranges.into_iter().flatten().collect())
}

/// Parses a file of the kernel, ascending; parts that are not CPUs, such as `(null)`, are ignored.
#[must_use]
pub fn parse_known(list: &str) -> Vec<u32> {
    let mut cpus: Vec<u32> = list.trim().split(',').filter_map(range).flatten().collect();
    cpus.sort_unstable();
    cpus.dedup();
    cpus
}

fn range(part: &str) -> Option<std::ops::RangeInclusive<u32>> {
    let cpu = |text: &str| text.parse::<u32>().ok().filter(|cpu| *cpu < MOST && !text.starts_with('+'));
    let part = part.trim();
    let (first, last) = part.split_once('-').unwrap_or((part, part));
    let (first, last) = (cpu(first)?, cpu(last)?);
    (first <= last).then_some(first..=last)
}

/// Formats a list.
#[must_use]
pub fn format(cpus: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if cpu == last.wrapping_add(1) => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let text = |(first, last): &(u32, u32)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    ranges.iter().map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_numbers_and_ranges() {
        assert_eq!(parse("0-2,8\n"), Some(vec![0, 1, 2, 8]));
        assert_eq!(parse("4-6, 1"), Some(vec![4, 5, 6, 1]));
        for text in ["", "x", "1-", "-1", "3-1", "0,,1", "0-4000000000", "+1", "1.5", "(null)"] {
            assert_eq!(parse(text), None, "{text}");
            assert_eq!(parse_known(text), if text == "0,,1" { vec![0, 1] } else { vec![] }, "{text}");
        }
        assert_eq!(parse_known("4,0-1,1\n"), [0, 1, 4]);
    }

    #[test]
    fn formatted_lists_are_parsed_back() {
        for text in ["0", "0-3", "0,2,4", "0-1,4-7", "5,1-2"] {
            assert_eq!(parse(text).as_deref().map(format).as_deref(), Some(text));
        }
    }
}
