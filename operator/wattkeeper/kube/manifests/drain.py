"""How a pod ends without cutting an answer short.

vLLM aborts what is in flight when SIGTERM arrives (vllm#24885), and proxies go on sending for a moment
after a pod was told to end. So a preStop hook holds SIGTERM back: first until every proxy has learned that
the pod left its Service, then until the engine itself says that nothing runs and nothing waits.

The hook runs in the engine's container, so it is a POSIX shell script with curl or python3 (vLLM's images
have both). It ends early when the engine is gone, and when the gauges are frozen: they claim requests
while no counter moves (vllm#22545). What it can't know isn't taken for idle: without an answer, or without
those metrics, it waits. The pod's grace period ends it in any case.
"""

from __future__ import annotations

from wattkeeper.kube.manifests.engines import RequestMetrics

#: Consecutive scrapes without a request before the engine counts as idle: one between two requests of a
#: kept-alive connection would otherwise pass for the end.
_IDLE_SCRAPES = 2
#: Failed connections in a row before the engine counts as gone. A busy engine answers late (timeouts
#: don't count), but its socket is open.
_GONE_SCRAPES = 5
#: Scrapes (a second apart) without a token before gauges that claim requests count as frozen: longer than
#: the longest prefill of one prompt.
_FROZEN_SCRAPES = 120
#: Longest wait for one scrape.
_SCRAPE_SECONDS = 5

# Exit statuses are curl's: 7 for a refused connection (no engine), anything else for an engine that doesn't
# answer as hoped, which may still be busy.
_FETCH_WITH_PYTHON = """\
import sys, urllib.error, urllib.request
try:
    page = urllib.request.urlopen(sys.argv[1], timeout=float(sys.argv[2])).read()
except urllib.error.URLError as error:
    sys.exit(7 if isinstance(error.reason, ConnectionRefusedError) else 28)
except Exception:
    sys.exit(28)
sys.stdout.write(page.decode())"""

_SCRIPT = """\
fetch() {{
  if command -v curl >/dev/null 2>&1; then
    curl -fsS -m {scrape_seconds} "$1" 2>/dev/null
  else
    python3 -c '{python}' "$1" {scrape_seconds}
  fi
}}
sleep {propagation_seconds}
idle=0 gone=0 still=0 before=
while :; do
  requests=unknown progress=
  if page=$(fetch http://127.0.0.1:{port}{path}); then
    gone=0
    while read -r line; do
      value=${{line##* }}
      case $line in
        {in_flight})
          case $value in
            0|0.0) [ "$requests" = some ] || requests=none ;;
            *) requests=some ;;
          esac ;;
        {progress}) progress="$progress $value" ;;
      esac
    done <<END
$page
END
  elif [ $? = 7 ]; then
    gone=$((gone + 1))
    [ "$gone" -ge {gone_scrapes} ] && exit 0
  else
    gone=0
  fi
  if [ "$requests" = none ]; then idle=$((idle + 1)); else idle=0; fi
  if [ "$requests" = some ] && [ "$progress" = "$before" ]; then still=$((still + 1)); else still=0; fi
  [ "$idle" -ge {idle_scrapes} ] && exit 0
  [ "$still" -ge {frozen_scrapes} ] && exit 0
  before=$progress
  sleep 1
done
"""


def drain_script(metrics: RequestMetrics, port: int, propagation_seconds: int) -> str:
    """The preStop hook's script. Returns 0 once the pod may be told to end."""
    return _SCRIPT.format(
        python=_FETCH_WITH_PYTHON,
        path=metrics.path,
        port=port,
        in_flight=_pattern(metrics.in_flight),
        progress=_pattern(metrics.progress),
        propagation_seconds=propagation_seconds,
        scrape_seconds=_SCRAPE_SECONDS,
        idle_scrapes=_IDLE_SCRAPES,
        frozen_scrapes=_FROZEN_SCRAPES,
        gone_scrapes=_GONE_SCRAPES,
    )


def _pattern(metric_names: tuple[str, ...]) -> str:
    """A shell pattern for samples of exactly these metrics, with labels or without."""
    return "|".join(f'"{name} "*|"{name}{{"*' for name in metric_names)
