"""The steps of an attempt that are the same wherever the handler runs: on the loop, in a thread, in another process.

A config is checked, a value becomes an output, an error becomes a failure. What passed `storable` can always be stored:
an output is JSON within its limit, a failure's text is short and valid, and neither has a secret in it. Which errors
are worth another attempt:

    Retry                                                       yes, after `after` seconds if it says so
    Fatal                                                       no
    TimeoutError, ConnectionError, failed name lookup           yes
    ValueError (and JSONDecodeError), TypeError, KeyError,
    AttributeError                                              no: the same input will fail again
    NameError, IndexError, AssertionError, ImportError,
    ZeroDivisionError, NotImplementedError                      no: the code has to change first
    CancelledError that nobody but the handler asked for        yes
    SystemExit and other non-Exceptions                         no
    any other Exception, OSError too                            yes: we cannot know, and attempts are bounded
    a group of errors                                           no if one of them says no
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Callable
from typing import Any

import msgspec
from pydantic import ValidationError

from headrace.errors import BadValue, Fatal, Retry
from headrace.model import payload
from headrace.model.messages import Failure, Outcome
from headrace.redaction import Redactor
from headrace.worker.registry import Context, Handler

MAX_MESSAGE = 2000

# In this order: some libraries' errors are several of these at once, as requests' JSONDecodeError is an OSError too.
RETRYABLE = (Retry, TimeoutError, ConnectionError, socket.gaierror, asyncio.CancelledError)
FINAL = (
    *(Fatal, ValueError, TypeError, KeyError, AttributeError, msgspec.DecodeError),
    *(NameError, IndexError, AssertionError, ImportError, ZeroDivisionError, NotImplementedError),
)

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


def checked_config(handler: Handler, config: bytes | msgspec.Raw) -> Any:
    """The config as the handler wants it; raises BadValue.

    Checked as JSON, not as Python values: so a strict model still takes a date or an enum from its text.
    """
    try:
        if handler.config_model is None:
            return _decode_object(config)
        return handler.config_model.model_validate_json(bytes(config))
    except ValidationError as error:
        told = (
            f"{'.'.join(map(str, each['loc'])) or 'config'}: {each['msg']}"
            for each in error.errors(include_url=False, include_context=False, include_input=False)
        )
        raise BadValue("; ".join(told)) from error
    except Exception as error:  # a model's own validator may raise anything
        raise BadValue(f"{type(error).__name__}: {error}") from error


def arguments(handler: Handler, config: Any, context: Callable[[], Context]) -> tuple[Any, ...]:
    return (config, context()) if handler.takes_context else (config,)


async def called(handler: Handler, given: tuple[Any, ...], max_output_bytes: int) -> Outcome:
    """Call an async handler. A cancellation and Ctrl-C go through; SystemExit ends the node, not the worker."""
    try:
        value = await handler.function(*given)
    except (asyncio.CancelledError, KeyboardInterrupt):
        raise
    except BaseException as error:
        return raised(error)
    return succeeded(value, max_output_bytes)


def called_sync(handler: Handler, given: tuple[Any, ...], max_output_bytes: int) -> Outcome:
    """Call a sync handler, in a thread or a process that is there for it: nothing that it raises goes through."""
    try:
        value = handler.function(*given)
    except BaseException as error:
        return raised(error)
    return succeeded(value, max_output_bytes)


def succeeded(value: object, max_output_bytes: int) -> Outcome:
    """The outcome of a handler that returned: its value as JSON text, unless it cannot be that."""
    try:
        return Outcome(output=payload.encode(payload.as_output(value), max_bytes=max_output_bytes))
    except Exception as error:
        return failed("bad_output", readable(error), type=type(error).__name__)


def failed(code: str, message: str, *, type: str = "", retryable: bool = False) -> Outcome:  # noqa: A002
    return Outcome(failure=Failure(code=code, message=message, type=type, retryable=retryable))


def raised(error: BaseException) -> Outcome:
    """The outcome of a handler that raised."""
    decisive = _decisive(error)
    return Outcome(
        failure=Failure(
            code=decisive.code if isinstance(decisive, Retry | Fatal) else "error",
            message=readable(error),
            type=type(error).__name__,
            retryable=_is_retryable(decisive),
            after_seconds=getattr(decisive, "after", None) if isinstance(decisive, Retry) else None,
        )
    )


def _is_retryable(error: BaseException) -> bool:
    if isinstance(error, RETRYABLE):
        return True
    return isinstance(error, Exception) and not isinstance(error, FINAL)


def _decisive(error: BaseException) -> BaseException:
    """Of a group, as a TaskGroup raises it, the first final error, else the first one; iterative, groups nest."""
    leaves: list[BaseException] = []
    waiting = [error]
    while waiting:
        each = waiting.pop()
        if isinstance(each, BaseExceptionGroup):
            waiting.extend(reversed(each.exceptions))
        else:
            leaves.append(each)
    return next((leaf for leaf in leaves if not _is_retryable(leaf)), leaves[0])


def readable(error: BaseException) -> str:
    try:
        return str(error) or type(error).__name__
    except Exception:
        return f"{type(error).__name__} (its text cannot be made)"


def storable(outcome: Outcome, redactor: Redactor, max_output_bytes: int) -> Outcome:
    """The outcome as it may leave the worker. Secrets go before texts are shortened: half of one would not be found."""
    output, failure = outcome.output, outcome.failure
    if failure is not None:
        message, kind = _short(redactor.text(failure.message)), _short(redactor.text(failure.type))
        return Outcome(failure=msgspec.structs.replace(failure, message=message, type=kind))
    if output is None or (redacted := redactor.json(output)) is output:
        return outcome
    if len(redacted) > len(output) and len(redacted.encode()) > max_output_bytes:  # a mark is longer than four digits
        return failed("bad_output", "without its secrets the output is larger than allowed", type="BadValue")
    return Outcome(output=redacted)


def _short(text: str) -> str:
    """Not longer than a message may be, and without what JSON or a database would refuse."""
    if len(text) > MAX_MESSAGE:
        text = text[: MAX_MESSAGE - 1] + "…"
    return _UNSTORABLE.sub("\ufffd", text)
