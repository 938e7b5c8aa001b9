"""The HTTP connection: clients that are slow to send a request, or stop reading the answer, are cut off."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

_MIN_READ = 1 << 16  # bytes that a client must read meanwhile, so that it is slow, but not gone


def make_protocol(patience: float) -> type[H11Protocol]:
    """Return a class of connections.

    :param patience: Seconds that a client may take for the headers of a request, or for each 64 KB of an answer. The time
        for the body is limited where it is read.
    """

    class ImpatientProtocol(H11Protocol):
        """uvicorn's own connection has no such limits."""

        _timer: asyncio.TimerHandle | None = None
        _blocked: asyncio.TimerHandle | None = None
        _n_unread = 0  # bytes of the answer that wait for the client

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._wait_for_request()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.cycle is None or self.cycle.response_complete:
                self._wait_for_request()
            elif self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def connection_lost(self, exc: Exception | None) -> None:
            for timer in (self._timer, self._blocked):
                if timer is not None:
                    timer.cancel()
            super().connection_lost(exc)

        def pause_writing(self) -> None:
            self._watch_reader()
            super().pause_writing()

        def resume_writing(self) -> None:
            if self._blocked is not None:
                self._blocked.cancel()
            super().resume_writing()

        def _watch_reader(self) -> None:
            self._n_unread = self.transport.get_write_buffer_size()
            self._blocked = self.loop.call_later(patience, self._check_reader)

        def _check_reader(self) -> None:
            if self._n_unread - self.transport.get_write_buffer_size() < _MIN_READ:
                self.transport.abort()
            else:
                self._watch_reader()

        def _wait_for_request(self) -> None:
            if self._timer is None:
                self._timer = self.loop.call_later(patience, self.transport.abort)

    return ImpatientProtocol
