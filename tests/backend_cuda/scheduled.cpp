// The runner of scheduled graphs, whose kernels this executable runs by other means than the
// interpreter.
#include "loop/run_scheduled.cpp"  // NOLINT(bugprone-suspicious-include): shared source of two test executables
