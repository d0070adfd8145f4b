// How much of files is in the process's memory.
#ifndef INLAY_TESTS_SUPPORT_FILE_PAGES_H_
#define INLAY_TESTS_SUPPORT_FILE_PAGES_H_

#include <cstdint>
#include <fstream>
#include <string>

namespace inlay::testing {

// 0 where the system does not say.
inline int64_t FileKilobytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  int64_t kilobytes = 0;
  while (status >> word) {
    if (word == "RssFile:" && status >> kilobytes) break;
  }
  return kilobytes;
}

}  // namespace inlay::testing

#endif  // INLAY_TESTS_SUPPORT_FILE_PAGES_H_
