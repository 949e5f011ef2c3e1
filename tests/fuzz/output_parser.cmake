flotilla_fuzzer(output_parser output_parser_fuzz.cc DEPS chat json)
