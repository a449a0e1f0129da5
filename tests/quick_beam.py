"""A plugin: what Beam works out anew for every small pipeline is remembered while tests run.

Most of the processor time of a pipeline of a few records goes into questions whose answers do not
change: which states and timers a class of DoFn declares, what a command line says to a class of
options, which arguments a function has, and whether its source both yields and returns. Tests run
hundreds of such pipelines. Programs that tests start as processes of their own know nothing of
this, nor do the workers of engines.
"""

import argparse
import copy
import sys
import types
import weakref
from typing import Any


def pytest_collection_finish() -> None:
    """Remembers from here on, if any of the tests found has imported Beam."""
    if "apache_beam" in sys.modules:
        from apache_beam.options.pipeline_options import PipelineOptions
        from apache_beam.transforms import core, userstate
        from apache_beam.typehints import decorators

        userstate.get_dofn_specs = remembered_specs(userstate.get_dofn_specs)
        PipelineOptions.__init__ = remembered_options(PipelineOptions.__init__)
        signature = of_functions(decorators.get_signature)
        core.get_signature = decorators.get_signature = signature
        core._check_fn_use_yield_and_return = of_functions(core._check_fn_use_yield_and_return)


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


def of_functions(ask: Any) -> Any:
    """Returns a question about functions, which asks each of them, bound or not, once."""
    known: dict[bool, weakref.WeakKeyDictionary[Any, Any]] = {
        is_bound: weakref.WeakKeyDictionary() for is_bound in (False, True)
    }

    def asked(function: Any) -> Any:
        is_bound = isinstance(function, types.MethodType)
        asked_for = function.__func__ if is_bound else function
        if not isinstance(asked_for, types.FunctionType):
            return ask(function)
        if asked_for not in known[is_bound]:
            known[is_bound][asked_for] = ask(function)
        return known[is_bound][asked_for]

    return asked


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
