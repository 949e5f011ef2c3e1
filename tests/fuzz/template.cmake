flotilla_fuzzer(template template_fuzz.cc DEPS chat json)
