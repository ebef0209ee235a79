#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| replog::world::run_bytes(data));
