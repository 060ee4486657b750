"""Workers that answer with one set of bundles, and perhaps an engine that computes for them."""

from __future__ import annotations

import asyncio
import logging

from service.processes.place import Place

log = logging.getLogger(__name__)


class Generation:
    """Lets workers join that have loaded the same bundles as the others."""

    def __init__(self, workers: list[Place], engine: Place | None = None) -> None:
        self.workers, self.engine = workers, engine
        self._bundles: str | None = None
        """Which bundles it serves, once that is known."""

    @property
    def places(self) -> list[Place]:
        """All, the engine's first."""
        return [*([self.engine] if self.engine else []), *self.workers]

    @property
    def ready(self) -> list[Place]:
        """Of workers that can answer."""
        return [place for place in self.workers if place.is_ready]

    @property
    def reason(self) -> str | None:
        """Why one of its processes ended or could not start, if one did."""
        return next((place.reason for place in self.places if place.reason), None)

    @property
    def is_loaded(self) -> bool:
        """Whether all workers have loaded."""
        return all(place.loaded for place in self.workers)

    @property
    def is_mixed(self) -> bool:
        """Whether they have loaded different bundles."""
        return len({place.loaded for place in self.workers}) > 1

    @property
    def is_hopeless(self) -> bool:
        """Whether none of its processes can start."""
        return all(place.is_hopeless for place in ([self.engine] if self.engine else self.workers))

    @property
    def outdated(self) -> int:
        """Workers that are missing because the bundles on disk are others."""
        return sum(place.is_outdated for place in self.workers)

    def admit(self) -> None:
        """Decide about workers that have loaded."""
        if self.outdated and not self.ready:
            for place in self.workers:
                place.try_again()
        for place in self.workers:
            if place.loaded and not place.has_joined and not place.is_outdated:
                self._admit(place)

    async def end(self, idle_s: float = 0) -> None:
        """Finish what the workers accepted, and end; see `Place.stop`."""
        for place in self.workers:
            place.stop(idle_s)
        await asyncio.wait([place.run for place in self.workers])
        if self.engine:
            self.engine.stop()
            await self.engine.run

    def _admit(self, place: Place) -> None:
        """Let a worker join, if it answers as the others do; a shared engine sees to that."""
        if self.engine or not any(one.has_joined for one in self.workers):
            self._bundles = place.loaded
        if place.loaded == self._bundles:
            place.join()
        else:
            log.error("%s found other bundles than those that are served: reload", place)
            place.reject()
