// exp and log by fixed sequences of IEEE additions, multiplications and divisions: the same bits on
// every machine, unlike those of the C library. Relative error below 1e-15.
#pragma once

namespace flotilla::sampling {

// For x <= 0; 0 below -700.
double exact_exp(double x);
// For finite x >= 1.
double exact_log(double x);

}  // namespace flotilla::sampling
