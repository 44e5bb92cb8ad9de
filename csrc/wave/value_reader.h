// SPDX-License-Identifier: Apache-2.0
//
// Where the answer to a slot's question ends.
#pragma once

#include <string>
#include <string_view>

namespace ooospec {

// Follows an answer as it is written. It ends with a complete JSON value or with its line.
class ValueReader {
 public:
  // Reads on; returns ended(). Nothing is read after the end.
  bool feed(std::string_view bytes);

  // What was read so far, without spaces around it and what follows its end.
  std::string_view answer() const;
  bool ended() const { return ended_; }

 private:
  void step(char byte);

  std::string read_;
  int depth_ = 0;  // of open brackets, those in strings aside
  bool in_string_ = false;
  bool escaped_ = false;  // the next byte stands for itself
  bool ended_ = false;
};

}  // namespace ooospec
