//! The processor's identification.

use super::facts::{Architecture, Cpu};
use super::tree::Tree;

/// This processor by CPUID, without features that a hypervisor hides.
#[cfg(target_arch = "x86_64")]
pub(super) fn this(_tree: &Tree) -> Cpu {
    let cpuid = raw_cpuid::CpuId::new();
    let brand = cpuid.get_processor_brand_string();
    let extended = cpuid.get_extended_processor_and_feature_identifiers();
    let under = cpuid.get_feature_info().is_some_and(|features| features.has_hypervisor());
    let hypervisor = cpuid.get_hypervisor_info().filter(|_| under);
    let reported = hypervisor.as_ref().and_then(|info| info.tsc_frequency()).map(u64::from);
    let counted = || cpuid.get_tsc_info()?.tsc_frequency().map(|hz| hz / 1000);
    Cpu {
        architecture: architecture(),
        vendor: cpuid.get_vendor_info().map_or_else(String::new, |vendor| vendor.as_str().to_owned()),
        model: brand.map_or_else(|| "x86-64".to_owned(), |brand| brand.as_str().trim().to_owned()),
        hypervisor: under.then(|| hypervisor_name(hypervisor.map(|info| info.identify()).as_ref())),
        waitpkg: cpuid.get_extended_feature_info().is_some_and(|features| features.has_waitpkg()),
        monitorx: extended.is_some_and(|features| features.has_monitorx_mwaitx()),
        wfxt: false,
        tsc_khz: reported.or_else(counted).filter(|khz| *khz > 0),
    }
}

fn architecture() -> Architecture {
    match std::env::consts::ARCH {
        "x86_64" => Architecture::X86,
        "aarch64" => Architecture::Arm,
        _ => Architecture::Other,
    }
}

#[cfg(target_arch = "x86_64")]
fn hypervisor_name(found: Option<&raw_cpuid::Hypervisor>) -> String {
    use raw_cpuid::Hypervisor;
    let name = match found {
        Some(Hypervisor::KVM) => "KVM",
        Some(Hypervisor::VMware) => "VMware",
        Some(Hypervisor::HyperV) => "Hyper-V",
        Some(Hypervisor::Xen) => "Xen",
        Some(Hypervisor::QEMU) => "QEMU without KVM",
        Some(Hypervisor::Bhyve) => "bhyve",
        Some(Hypervisor::QNX) => "QNX",
        Some(Hypervisor::ACRN) => "ACRN",
        Some(Hypervisor::Unknown(..)) | None => "an unknown hypervisor",
    };
    name.to_owned()
}

/// This processor by /proc/cpuinfo.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn this(tree: &Tree) -> Cpu {
    let cpuinfo = tree.text("/proc/cpuinfo").unwrap_or_default();
    Cpu {
        architecture: architecture(),
        vendor: String::new(),
        model: std::env::consts::ARCH.to_owned(),
        hypervisor: tree.non_empty_text("/sys/hypervisor/type"),
        waitpkg: false,
        monitorx: false,
        wfxt: architecture() == Architecture::Arm && has_feature(&cpuinfo, "wfxt"),
        tsc_khz: None,
    }
}

/// Whether the `Features` of /proc/cpuinfo contain a word.
#[cfg(any(test, not(target_arch = "x86_64")))]
fn has_feature(cpuinfo: &str, name: &str) -> bool {
    let mut lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    lines.any(|(key, value)| key.trim() == "Features" && value.split_whitespace().any(|word| word == name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_processor_answers() {
        let cpu = this(&Tree::live());
        assert!(!cpu.model.is_empty(), "{cpu:?}");
        assert!(!(cpu.waitpkg && cpu.monitorx && cpu.wfxt), "no processor has all three: {cpu:?}");
    }

    #[test]
    fn features_are_whole_words() {
        let cpuinfo = "processor\t: 0\nFeatures\t: fp asimd wfxt\n";
        assert!(has_feature(cpuinfo, "wfxt"));
        assert!(!has_feature(cpuinfo, "wf") && !has_feature("model: wfxt", "wfxt"));
    }
}
