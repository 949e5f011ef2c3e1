flotilla_fuzzer(tokenizer tokenizer_fuzz.cc DEPS base json tokenizer)
