# SPDX-License-Identifier: Apache-2.0
"""Triton kernels, one op a file; import them as `ooospec.triton_kernels`."""

import os

if os.environ.get("TRITON_INTERPRET") == "1":
    # Triton 3.6's interpreter reads a loop's bounds in a way that NumPy 2.4 refuses, and its dot is
    # one of BLAS, whose bits depend on where a row stands. The GPU's do not; let it be like that.
    import numpy as np
    from triton.runtime import interpreter

    _patch_lang_tensor = interpreter._patch_lang_tensor

    def _patch_lang_tensor_and_index(tensor, scope):
        _patch_lang_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    def _create_dot(self, a, b, d, input_precision, max_num_imprecise_acc):
        product = np.einsum("...mk,...kn->...mn", a.data, b.data, dtype=d.data.dtype)
        return interpreter.TensorHandle(product + d.data, d.dtype.scalar)

    interpreter._patch_lang_tensor = _patch_lang_tensor_and_index
    interpreter.InterpreterBuilder.create_dot = _create_dot
