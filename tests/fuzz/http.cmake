flotilla_fuzzer(http http_fuzz.cc DEPS net base)
