"""A plugin: what Beam works out anew for every small pipeline is remembered while tests run.

Half of the processor time of a pipeline of a few records goes into two questions whose answers do
not change: which states and timers a class of DoFn declares, and what a command line says to a
class of options. Tests run hundreds of such pipelines. Programs that tests start as processes of
their own know nothing of this, nor do the workers of engines.
"""

from __future__ import annotations

import argparse
import copy
import sys
import types
from typing import Any


def pytest_collection_finish() -> None:
    """Remembers from here on, if any of the tests found has imported Beam."""
    if "apache_beam" in sys.modules:
        from apache_beam.options.pipeline_options import PipelineOptions
        from apache_beam.transforms import userstate

        userstate.get_dofn_specs = remembered_specs(userstate.get_dofn_specs)
        PipelineOptions.__init__ = remembered_options(PipelineOptions.__init__)


def remembered_specs(find: Any) -> Any:
    """Returns Beam's ``get_dofn_specs``, which asks each class of DoFn once."""
    known: dict[type, tuple[set[Any], set[Any]]] = {}

    def get_dofn_specs(dofn: Any) -> tuple[set[Any], set[Any]]:
        # Such an object has methods that its class does not.
        if any(isinstance(value, types.MethodType) for value in vars(dofn).values()):
            return find(dofn)  # type: ignore[no-any-return]
        if type(dofn) not in known:
            known[type(dofn)] = find(dofn)
        states, timers = known[type(dofn)]
        return {*states}, {*timers}

    return get_dofn_specs


def remembered_options(parse: Any) -> Any:
    """Returns ``PipelineOptions.__init__``, which parses a command line once for each class."""
    known: dict[Any, tuple[dict[str, Any], dict[str, Any]]] = {}

    def copied(values: dict[str, Any]) -> dict[str, Any]:
        return {name: copy.copy(value) for name, value in values.items()}

    def init(self: Any, flags: Any = None, **given: Any) -> None:
        key = (type(self), tuple(sys.argv[1:] if flags is None else flags))
        if key not in known:
            parse(self, flags)
            known[key] = copied(vars(self._visible_options)), copied(self._all_options)
        visible, options = known[key]
        self._flags = flags
        self._visible_options = argparse.Namespace(**copied(visible))
        self._all_options = {**copied(options), **given}

    return init
