"""Dead letters that are sent again, once the function that failed is put right."""

from click.testing import CliRunner

from broker.cli import leveret
from clients import cli
from tests.etl.scene import PipelineScene

assert cli  # it adds the commands

RULES = """
def early(row):
    return {"id": row["id"], "share": 100 // row["parts"]}


def later(row):
    return {"id": row["id"], "share": 100 // row["parts"] if row["parts"] else 0}
"""


def test_what_failed_and_is_replayed_ends_in_exact_totals(etl: PipelineScene) -> None:
    name = f"shares_{etl.directory.name}"
    (etl.directory / f"{name}.py").write_text(RULES)
    source, target = etl.declare(), etl.target()
    rows = [{"id": n, "parts": n % 4} for n in range(40)]
    etl.fill(source, rows, key="id")

    def run(function: str) -> None:
        step = {"name": "shares", "kind": "python", "input": "orders"}
        step |= {"function": f"{name}:{function}", "schema": "id bigint, share bigint"}
        sinks = [{"kind": "stream", "input": "shares", "topic": target}]
        orders = {"topic": source, "schema": "id bigint, parts bigint"}
        etl.run(etl.pipeline({"orders": orders}, sinks, [step]))

    run("early")
    assert len(etl.rows(target)) == 30
    places = ["--store", f"sqlite:///{etl.directory / 'etl.db'}", "--amqp-url", etl.url]
    replay = ["etl", "dlq", "replay", "--error-type", "ZeroDivisionError", *places]
    for expected in (10, 0):
        result = CliRunner().invoke(leveret, replay)
        assert result.output == f"replayed {expected}, left 0\n"
    run("later")
    shares = {row["id"]: row["share"] for row in etl.rows(target)}
    assert shares == {row["id"]: 100 // row["parts"] if row["parts"] else 0 for row in rows}
    assert len(etl.rows(target)) == 40
