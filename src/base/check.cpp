#include "base/check.h"

#include <cstring>

namespace heddle::base {

void check_failed(const char* file, int line, const char* condition, const std::string& detail) {
  const char* slash = std::strrchr(file, '/');
  throw InternalError(cat("internal error at ", slash != nullptr ? slash + 1 : file, ":", line,
                          ": ", condition, detail.empty() ? "" : ": ", detail, " (please report)"));
}

}  // namespace heddle::base
