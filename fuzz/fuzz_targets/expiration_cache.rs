#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| k8s_informer_fuzz::expiration_cache::run(input));
