//! I/O threads of the highest class on cores of their own (PASS, section 5.4).
//!
//! **Rule.** Of the cores with I/O threads, the highest class gets a share equal to its share of I/O threads, at least one, and at least one
//! is left to the lower classes. If no core is shared, or there is one core, nothing moves. I/O threads without hosts may be anywhere.

use pilotlight_plant::CoreId;

/// A core, and its numbers of I/O threads of lower classes and of the highest class.
struct Shared {
    core: CoreId,
    threads: [usize; 2],
}

/// Target home of each I/O thread, by class and current home.
pub(super) fn separated(classes: &[Option<u8>], places: &[CoreId]) -> Vec<CoreId> {
    let mut places = places.to_vec();
    let top = classes.iter().flatten().max();
    let side = |at: usize| classes.get(at)?.as_ref().map(|class| usize::from(Some(class) == top));
    let mut cores = count(&places, side);
    if cores.len() < 2 || cores.iter().all(|core| core.threads.contains(&0)) {
        return places;
    }
    let [lower, highest] = [0, 1].map(|side| cores.iter().map(|core| core.threads[side]).sum::<usize>());
    let (many, all) = (cores.len(), lower + highest);
    let own = ((many * highest + all / 2) / all).clamp(1, many - 1);
    cores.sort_by_key(|core| (core.threads[0] as i64 - core.threads[1] as i64, core.core));
    let others = cores.split_off(own);
    let mut sides = [others, cores];
    for (at, place) in places.iter_mut().enumerate() {
        let Some(side) = side(at) else { continue };
        if sides[side].iter().any(|core| core.core == *place) {
            continue;
        }
        if let Some(least) = sides[side].iter_mut().min_by_key(|core| (core.threads[side], core.core)) {
            least.threads[side] += 1;
            *place = least.core;
        }
    }
    places
}

/// The cores with I/O threads that have hosts.
fn count(places: &[CoreId], side: impl Fn(usize) -> Option<usize>) -> Vec<Shared> {
    let mut cores: Vec<Shared> = Vec::new();
    for (at, &place) in places.iter().enumerate() {
        let Some(side) = side(at) else { continue };
        let known = cores.iter().position(|core| core.core == place).unwrap_or_else(|| {
            cores.push(Shared { core: place, threads: [0; 2] });
            cores.len() - 1
        });
        cores[known].threads[side] += 1;
    }
    cores
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cores(numbers: &[u16]) -> Vec<CoreId> {
        numbers.iter().copied().map(CoreId).collect()
    }

    #[test]
    fn each_class_keeps_the_cores_on_which_it_has_most() {
        let classes = [Some(5), Some(5), Some(0), Some(0), Some(0), None];
        let places = cores(&[0, 1, 1, 1, 2, 0]);
        assert_eq!(separated(&classes, &places), cores(&[0, 0, 1, 1, 2, 0]));
        assert_eq!(separated(&[Some(5), Some(0)], &cores(&[3, 3])), cores(&[3, 3]), "there is one core");
        assert_eq!(separated(&[None, None], &cores(&[3, 4])), cores(&[3, 4]), "nothing is known");
    }

    proptest! {
        /// On several cores no core has both; no unused core gets an I/O thread; a second run changes nothing.
        #[test]
        fn no_core_is_shared(threads in prop::collection::vec((prop::option::weighted(0.9, 0..3_u8), 0..6_u16), 1..20)) {
            let (classes, places): (Vec<_>, Vec<_>) = threads.into_iter().map(|(class, core)| (class, CoreId(core))).unzip();
            let after = separated(&classes, &places);
            let top = classes.iter().flatten().max().copied();
            let known = |places: &[CoreId], highest: bool| -> Vec<CoreId> {
                let of = classes.iter().zip(places).filter(|(class, _)| class.is_some() && (**class == top) == highest);
                of.map(|(_, &core)| core).collect()
            };
            let (own, others) = (known(&after, true), known(&after, false));
            let mut before: Vec<_> = [known(&places, true), known(&places, false)].concat();
            before.sort_unstable();
            before.dedup();
            prop_assert!(before.len() < 2 || own.iter().all(|core| !others.contains(core)), "{:?}", after);
            prop_assert!(after.iter().all(|core| places.contains(core)));
            prop_assert_eq!(separated(&classes, &after), after);
        }
    }
}
