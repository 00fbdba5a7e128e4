// The four kinds of failure, all under heddle::Error.
#pragma once

#include <stdexcept>
#include <string>

namespace heddle {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
// The user built or fed something invalid. One sentence: op, argument, expected against given.
class GraphError : public Error {
 public:
  using Error::Error;
};
// Valid, but nothing here can run it; the text holds every candidate's reason.
class UnsupportedError : public Error {
 public:
  using Error::Error;
};
// The device, driver or a library failed: call, code, step. Also out-of-memory and time-outs.
class DeviceError : public Error {
 public:
  using Error::Error;
};
// Heddle is wrong: please report.
class InternalError : public Error {
 public:
  using Error::Error;
};

}  // namespace heddle
