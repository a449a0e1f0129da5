"""Deployable programs: each parses and checks its flags, then builds one Beam pipeline.

`beam-dp NAME` runs a program, also in a checkout. The wheel installs this folder as
`beam_dp.pipelines`, so the modules of this folder import each other relatively.

The first import of Beam logs a warning about optional Google libraries, and so installs a handler
on the root logger. This module imports Beam without the warning and the handler.
"""

import logging
import warnings

_root = logging.getLogger()
_handlers, _disabled = _root.handlers[:], logging.root.manager.disable
logging.disable(logging.WARNING)
try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import apache_beam  # noqa: F401
finally:
    logging.disable(_disabled)
    _root.handlers[:] = _handlers
