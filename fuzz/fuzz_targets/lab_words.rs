//! Words of the laboratory: fragmentation, patches, workloads with their parameters, shards, hashes.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    let _ = text.parse::<lab::fragment::Fragmentation>();
    let _ = text.parse::<lab::faults::Patch>();
    let _ = text.parse::<lab::faults::Patches>();
    let _ = text.parse::<lab::workloads::Setup>();
    let _ = text.parse::<lab::sweep::Shard>();
    let _ = text.parse::<lab::sweep::Hash>();
});
