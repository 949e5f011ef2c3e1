// What the memory of this machine gives to a loop that only reads: the yardstick of decoding.
#pragma once

namespace flotilla::backend {

// Bytes per second over all threads (0: one per usable core): the median of `rounds` passes over
// 256 MiB.
double measure_read_bandwidth(int num_threads, int rounds = 7);

}  // namespace flotilla::backend
