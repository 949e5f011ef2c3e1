flotilla_fuzzer(grammar grammar_fuzz.cc DEPS grammar json)
