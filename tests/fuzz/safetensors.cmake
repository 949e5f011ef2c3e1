flotilla_fuzzer(safetensors safetensors_fuzz.cc DEPS checkpoint)
