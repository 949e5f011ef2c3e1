flotilla_fuzzer(chat_request chat_request_fuzz.cc DEPS api json)
