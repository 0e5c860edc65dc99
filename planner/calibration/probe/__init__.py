"""Measures the machine it runs on: bandwidth, matrix rates, decode and prefill steps, board power.

The probe needs torch (the extra ``[gpu]``) and nothing else beyond the standard library, so that a buyer can
run it on a vendor's demonstration machine with ``python -m planner.calibration.probe --out measured.csv``. NVIDIA
and AMD parts are both reached through torch's ``cuda`` namespace; ``--device cpu`` runs the same code at toy size.

``torch`` is imported inside functions only: importing this package costs nothing and never fails.
"""
