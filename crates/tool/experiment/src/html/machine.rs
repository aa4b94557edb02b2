//! Describes the machine before the first run.

use host::{Choice, FreeContiguity, Hypervisor, Snapshot, TlbKind};

use report::format::{self, UNKNOWN, known};
use report::markup::{Element, el};
use report::tables::{count, flag, pairs, table};

/// Formats the section.
pub fn section(machine: &Snapshot) -> Element {
    let tables = el("div").class("tables");
    let tables = tables.add(hardware(machine)).add(memory(machine)).add(thp(machine));
    let tables = tables.add(sizes(machine)).add(khugepaged(machine)).add(pools(machine));
    let tables = tables.add(contiguity(machine)).add(tlb(machine));
    let section = el("section").add(el("h2").text("The machine before the first run"));
    section.add(tables).add(unknown(machine))
}

fn hardware(machine: &Snapshot) -> Element {
    let cpu = machine.cpu.as_ref();
    let mhz = |value: Option<u32>| known(value, |mhz| format!("{mhz} MHz"));
    let guest = match cpu.map(|cpu| &cpu.hypervisor) {
        Some(Hypervisor::Absent) => "no".to_string(),
        Some(Hypervisor::Present(Some(name))) => format!("yes, {name}"),
        Some(Hypervisor::Present(None)) => "yes".to_string(),
        Some(Hypervisor::Unknown) | None => UNKNOWN.to_string(),
    };
    let rows = vec![
        ("kernel", known(machine.kernel.clone(), |kernel| kernel)),
        ("processor", known(cpu.and_then(|cpu| cpu.model.clone()), |model| model)),
        ("vendor", known(cpu.and_then(|cpu| cpu.vendor.clone()), |vendor| vendor)),
        ("CPUs online", known(cpu.and_then(|cpu| cpu.online), |n| n.to_string())),
        ("nominal speed", mhz(cpu.and_then(|cpu| cpu.nominal_mhz))),
        ("speed reported", mhz(cpu.and_then(|cpu| cpu.reported_mhz))),
        ("virtual machine", guest),
        ("base page", machine.page_size.to_string()),
        ("boot", known(machine.boot_id.clone(), |id| id)),
    ];
    pairs("Kernel and processor", rows)
}

fn memory(machine: &Snapshot) -> Element {
    let memory = machine.memory.clone().unwrap_or_default();
    let size = |value: Option<units::ByteSize>| known(value, |size| size.to_string());
    let rows = vec![
        ("total", size(memory.total)),
        ("free", size(memory.free)),
        ("available", size(memory.available)),
        ("anonymous", size(memory.anon)),
        ("anonymous on superpages", size(memory.anon_huge)),
        ("shared", size(memory.shmem)),
        ("shared on superpages", size(memory.shmem_huge)),
        ("page cache", size(memory.cached)),
        ("page cache on superpages", size(memory.file_huge)),
        ("in hugetlb pools", size(memory.hugetlb)),
        ("page tables", size(memory.page_tables)),
        ("swap", size(memory.swap_total)),
    ];
    pairs("Memory", rows)
}

fn choice(value: Option<&Choice>) -> String {
    known(value, |choice| {
        let others = choice.allowed.iter().filter(|word| **word != choice.selected);
        let others: Vec<&str> = others.map(String::as_str).collect();
        match others.is_empty() {
            true => choice.selected.clone(),
            false => format!("{} (not {})", choice.selected, others.join(", ")),
        }
    })
}

fn thp(machine: &Snapshot) -> Element {
    let Some(thp) = &machine.thp else {
        return pairs("Transparent superpages", vec![("state", UNKNOWN.to_string())]);
    };
    let rows = vec![
        ("enabled", choice(thp.enabled.as_ref())),
        ("defrag", choice(thp.defrag.as_ref())),
        ("shmem_enabled", choice(thp.shmem_enabled.as_ref())),
        ("use_zero_page", flag(thp.use_zero_page)),
        ("shrink_underused", flag(thp.shrink_underused)),
        ("hpage_pmd_size", known(thp.pmd_size, |size| size.to_string())),
    ];
    pairs("Transparent superpages", rows)
}

fn sizes(machine: &Snapshot) -> Element {
    let sizes = machine.thp.iter().flat_map(|thp| &thp.sizes);
    let word = |choice: Option<&Choice>| choice.map_or("–".to_string(), |c| c.selected.clone());
    let rows: Vec<Vec<String>> = sizes
        .map(|(size, settings)| {
            let stat = |name: &str| count(settings.stats.get(name).copied());
            vec![
                size.to_string(),
                word(settings.enabled.as_ref()),
                word(settings.shmem_enabled.as_ref()),
                if settings.enabled.is_some() { stat("anon_fault_alloc") } else { "–".into() },
                if settings.enabled.is_some() { stat("anon_fault_fallback") } else { "–".into() },
            ]
        })
        .collect();
    if rows.is_empty() {
        return pairs("Sizes (mTHP)", vec![("sizes", UNKNOWN.to_string())]);
    }
    let head = ["size", "enabled", "for shmem", "faults so far", "fallbacks so far"];
    table(
        "Sizes (mTHP); – where there is no such file",
        true,
        head.map(String::from).to_vec(),
        rows,
    )
}

fn khugepaged(machine: &Snapshot) -> Element {
    let daemon = machine.thp.as_ref().map(|thp| thp.khugepaged.clone()).unwrap_or_default();
    let ms = |value: Option<u64>| known(value, |ms| format::seconds(ms as f64 / 1e3));
    let rows = vec![
        ("defrag", flag(daemon.defrag)),
        ("pages_to_scan", count(daemon.pages_to_scan)),
        ("scan_sleep_millisecs", ms(daemon.scan_sleep_ms)),
        ("alloc_sleep_millisecs", ms(daemon.alloc_sleep_ms)),
        ("max_ptes_none", count(daemon.max_ptes_none)),
        ("max_ptes_swap", count(daemon.max_ptes_swap)),
        ("max_ptes_shared", count(daemon.max_ptes_shared)),
        ("pages_collapsed", count(daemon.pages_collapsed)),
        ("full_scans", count(daemon.full_scans)),
    ];
    pairs("khugepaged", rows)
}

fn pools(machine: &Snapshot) -> Element {
    let rows: Vec<Vec<String>> = machine
        .hugetlb
        .sizes
        .iter()
        .map(|(size, pool)| {
            let pages =
                [pool.total, pool.free, pool.reserved, pool.surplus, pool.overcommit].map(count);
            [vec![size.to_string()], pages.to_vec()].concat()
        })
        .collect();
    if rows.is_empty() {
        return pairs("hugetlb pools", vec![("pools", "none found".to_string())]);
    }
    let head = ["page", "total", "free", "reserved", "surplus", "overcommit"];
    table("hugetlb pools, in pages", true, head.map(String::from).to_vec(), rows)
}

/// Formats the free contiguous memory, for every superpage size of the machine.
fn contiguity(machine: &Snapshot) -> Element {
    let sizes = machine.thp.iter().flat_map(|thp| thp.sizes.keys().copied().chain(thp.pmd_size));
    let sizes: std::collections::BTreeSet<_> =
        sizes.chain(machine.hugetlb.sizes.keys().copied()).collect();
    let Some(zones) = machine.free.as_ref().filter(|_| !sizes.is_empty()) else {
        return pairs("Free contiguous memory", vec![("free blocks", UNKNOWN.to_string())]);
    };
    let rows = sizes.into_iter().map(|size| {
        let free = FreeContiguity::from_zones(zones, machine.page_size, size);
        let usable = known(free.in_superpages, |bytes| bytes.to_string());
        vec![size.to_string(), usable, count(free.superpages), known(free.ratio(), format::percent)]
    });
    let head = ["blocks of at least", "free", "pages", "share of free"];
    let head = head.map(String::from).to_vec();
    table("Free contiguous memory, without compaction", true, head, rows.collect())
}

fn tlb(machine: &Snapshot) -> Element {
    let rows: Vec<Vec<String>> = machine
        .tlb
        .iter()
        .map(|array| {
            let kind = match array.kind {
                TlbKind::Data => "data",
                TlbKind::Instruction => "instructions",
                TlbKind::Unified => "both",
                TlbKind::Stores => "stores",
            };
            let sizes: Vec<String> = array.page_sizes.iter().map(|size| size.to_string()).collect();
            let entries = format::count(f64::from(array.entries));
            vec![format!("L{} {kind}", array.level), sizes.join(", "), entries]
        })
        .collect();
    if rows.is_empty() {
        return pairs("TLB", vec![("arrays", UNKNOWN.to_string())]);
    }
    let head = ["array", "pages", "entries"].map(String::from).to_vec();
    table("TLB, as reported by the processor", true, head, rows)
}

fn unknown(machine: &Snapshot) -> Element {
    let rows: Vec<(String, String)> =
        machine.unknown.iter().map(|one| (one.what.clone(), one.why.clone())).collect();
    if rows.is_empty() {
        return el("p").class("small").text("Everything could be read.");
    }
    pairs("What could not be read, and why", rows)
}
