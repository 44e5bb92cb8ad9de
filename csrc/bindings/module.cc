// SPDX-License-Identifier: Apache-2.0
#include "bindings/bindings.h"

PYBIND11_MODULE(_C, module) {
  module.doc() = "The C++ core of ooospec.";
  ooospec::bind_call(module);
  ooospec::bind_index(module);
  ooospec::bind_ring(module);
  ooospec::bind_tree(module);
  ooospec::bind_draft(module);
  ooospec::bind_wave(module);
}
