// SPDX-License-Identifier: Apache-2.0
#include "wave/value_reader.h"

namespace ooospec {
namespace {

constexpr std::string_view kSpace = " \t\n\r\v\f";

bool is_literal(std::string_view text) {
  return text == "null" || text == "true" || text == "false";
}

}  // namespace

bool ValueReader::feed(std::string_view bytes) {
  for (const char byte : bytes) {
    if (ended_) break;
    if (byte == ' ' && read_.empty()) continue;
    step(byte);
  }
  ended_ = ended_ || is_literal(read_);
  return ended_;
}

std::string_view ValueReader::answer() const {
  const std::size_t first = read_.find_first_not_of(kSpace);
  if (first == std::string::npos) return {};
  const std::size_t last = read_.find_last_not_of(kSpace);
  return std::string_view(read_).substr(first, last + 1 - first);
}

void ValueReader::step(char byte) {
  if (byte == '\n' && (in_string_ || depth_ == 0)) {
    ended_ = true;  // a string has one line: this one will not be valid
    return;
  }
  read_.push_back(byte);
  if (in_string_) {
    const bool closes = byte == '"' && !escaped_;
    escaped_ = byte == '\\' && !escaped_;
    if (closes) {
      in_string_ = false;
      ended_ = depth_ == 0;
    }
    return;
  }
  const bool starts = depth_ > 0 || read_.size() == 1;
  if (byte == '"' && starts) {
    in_string_ = true;
  } else if ((byte == '{' || byte == '[') && starts) {
    ++depth_;
  } else if ((byte == '}' || byte == ']') && depth_ > 0) {
    --depth_;
    ended_ = depth_ == 0;
  }
}

}  // namespace ooospec
