"""Deployable programs: each parses and checks its flags, then builds one Beam pipeline.

`beam-dp NAME` runs a program, also in a checkout. The wheel installs this folder as
`beam_dp.pipelines`, so the modules of this folder import each other relatively.

A command line that is refused should not wait for Beam. So a program plans its job without Beam,
whose modules it imports in functions, the first of them within ``importing``.
"""
