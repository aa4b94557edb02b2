//! Words of the laboratory: fragmentation, patches, workloads with their parameters, shards, hashes, seeds.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    let _ = text.parse::<mm_sim::fragment::Fragmentation>();
    let _ = text.parse::<fault_scaling::Patch>();
    let _ = text.parse::<fault_scaling::Patches>();
    let _ = text.parse::<workload_streams::Setup>();
    let _ = text.parse::<lab::sweep::Shard>();
    let _ = text.parse::<lab::sweep::Hash>();
    // A range of a million seeds only takes time.
    if text.len() < 24 {
        let _ = lab::sweep::seeds(text);
    }
});
