#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| cmid_model::messages::run(data));
