"""The ``wattkeeper-predictor`` command.

Exit codes: 0 done; 1 an unforeseen fault (with its traceback); 2 wrong usage or invalid input; 3 the
recipe can't speak about the input; 4 the trained artifacts can't be used. Results go to standard
output, progress and complaints to standard error.
"""

from __future__ import annotations

import sys

import typer

from wattkeeper_predictor.errors import ArtifactError, OutOfPredictorRange, PredictorError

from . import ask, catalogue, evaluate, train

INVALID_INPUT, OUT_OF_RANGE, BAD_ARTIFACT = 2, 3, 4

app = typer.Typer(
    name="wattkeeper-predictor",
    help="Predict the power and latency of an LLM on a GPU, from public metadata.",
    epilog="Exit codes: 0 done, 2 wrong usage or input, 3 out of the recipe's range, 4 bad artifacts.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command("predict")(ask.predict)
app.command("explain")(ask.explain)
app.command("train")(train.train)
app.command("evaluate")(evaluate.evaluate)
app.command("import")(train.import_runs)
app.command("model-card")(train.model_card)
app.add_typer(catalogue.app, name="catalogue")


def main() -> None:
    """Run the command; a foreseen error is one line and an exit code, never a traceback."""
    try:
        app()
    except PredictorError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(exit_code(error))
    except OSError as error:
        if error.filename is None:
            raise
        print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
        sys.exit(INVALID_INPUT)


def exit_code(error: PredictorError) -> int:
    """The exit code that tells this kind of error."""
    if isinstance(error, OutOfPredictorRange):
        return OUT_OF_RANGE
    return BAD_ARTIFACT if isinstance(error, ArtifactError) else INVALID_INPUT
