# SPDX-License-Identifier: Apache-2.0
"""Tiny models, trained from scratch: a target that writes calls, and a sidecar for it.

python -m ooospec.tiny train target --out target --synth 100000
python -m ooospec.tiny train sidecar --out sidecar --synth 100000
"""
