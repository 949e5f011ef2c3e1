flotilla_fuzzer(link_frame link_frame_fuzz.cc DEPS protocol)
