"""Log lines: text for people, or one JSON object a line for collectors."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any


class JsonFormatter(logging.Formatter):
    """time, level, logger, message, and the traceback where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def configure(level: str, style: str) -> None:
    """Set up the root logger; libraries speak up from warnings on."""
    handler = logging.StreamHandler()
    text = logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    handler.setFormatter(JsonFormatter() if style == "json" else text)
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("wattkeeper").setLevel(level.upper())
    if level == "debug":
        logging.getLogger("kopf").setLevel(logging.DEBUG)
