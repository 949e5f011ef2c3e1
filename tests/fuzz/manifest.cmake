flotilla_fuzzer(manifest manifest_fuzz.cc DEPS download)
