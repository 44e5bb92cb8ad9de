// SPDX-License-Identifier: Apache-2.0
//
// One function a folder of the core; the only headers that include pybind11 are those of this
// folder.
#pragma once

#include <pybind11/pybind11.h>

namespace ooospec {

void bind_call(pybind11::module_& module);
void bind_index(pybind11::module_& module);
void bind_ring(pybind11::module_& module);
void bind_tree(pybind11::module_& module);
void bind_draft(pybind11::module_& module);
void bind_wave(pybind11::module_& module);

}  // namespace ooospec
