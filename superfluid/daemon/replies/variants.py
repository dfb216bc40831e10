"""The served model with its chat template told something: whether to think, what day it is."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import trio

from superfluid.daemon.served import ServedModel
from superfluid.model.template import TemplateError
from superfluid.protocol.refusals import BadSettings

MOST = 16
"""Variants that are remembered: to learn a template anew takes a while."""


class Variants:
    def __init__(self, model: ServedModel) -> None:
        self._model = model
        self._known: OrderedDict[str, ServedModel] = OrderedDict()

    async def told(self, settings: Mapping[str, Any]) -> ServedModel:
        """The model with those of `settings`, JSON values, that its template knows. Raises BadSettings."""
        dialect = self._model.dialect
        if dialect is None or not (known := {name: settings[name] for name in settings.keys() & dialect.settings}):
            return self._model
        key = json.dumps(known, sort_keys=True)
        if key not in self._known:
            try:
                told = await trio.to_thread.run_sync(dialect.telling, known)
            except TemplateError as error:
                raise BadSettings(str(error)) from None
            self._known[key] = replace(self._model, dialect=told)
        self._known.move_to_end(key)
        found = self._known[key]
        while len(self._known) > MOST:
            self._known.popitem(last=False)
        return found
