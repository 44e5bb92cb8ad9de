# SPDX-License-Identifier: Apache-2.0
"""Triton kernels, one op a file; import them as `ooospec.triton_kernels`."""

import os


def _mend_interpreter():
    """Lets loops take bounds from tensors, and products of rows not depend on where they stand.

    Triton 3.6's interpreter reads bounds in a way that NumPy 2.4 refuses, and multiplies with BLAS.
    """
    import numpy as np
    from triton.runtime import interpreter

    patch_tensor = interpreter._patch_lang_tensor

    def patch_tensor_and_index(tensor, scope):
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    def create_dot(self, a, b, d, input_precision, max_num_imprecise_acc):
        product = np.einsum("...mk,...kn->...mn", a.data, b.data, dtype=d.data.dtype)
        return interpreter.TensorHandle(product + d.data, d.dtype.scalar)

    interpreter._patch_lang_tensor = patch_tensor_and_index
    interpreter.InterpreterBuilder.create_dot = create_dot


try:
    import triton  # noqa: F401
except ImportError:
    pass  # there is nothing to interpret or compile
else:
    if os.environ.get("TRITON_INTERPRET") == "1":
        _mend_interpreter()
    else:
        from ooospec.triton_kernels.cache import ensure_writable

        ensure_writable()
