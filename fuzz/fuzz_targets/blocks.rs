#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| cmid_model::blocks::run(data));
