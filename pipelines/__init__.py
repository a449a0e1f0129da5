"""Deployable programs: each parses and checks its flags, then builds one Beam pipeline.

`beam-dp NAME` runs them, also in a checkout. The wheel installs this folder as `beam_dp.pipelines`,
so modules here import each other relatively.

The first import of Beam logs a warning about optional Google libraries, which installs a handler on
the root logger. Users of these programs need neither, so Beam is imported here without them.
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
