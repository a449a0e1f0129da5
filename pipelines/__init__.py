"""Deployable programs: each parses and checks its flags, then builds one Beam pipeline.

`beam-dp NAME` runs them, in a checkout, too; the wheel installs this folder as `beam_dp.pipelines`,
so modules here import each other relatively.

Importing Beam for the first time logs a warning about optional Google libraries and, in doing so,
installs a handler on the root logger. Neither is any business of somebody who runs one of these
programs, so the first import happens here, quietly.
"""

import logging
import warnings


def _import_beam_quietly() -> None:
    root = logging.getLogger()
    handlers, disabled = root.handlers[:], logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import apache_beam  # noqa: F401
    finally:
        logging.disable(disabled)
        root.handlers[:] = handlers


_import_beam_quietly()
