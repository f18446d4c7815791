"""Dead letters that are sent again, once the function that failed is put right."""

from spark.etl import letters_table
from spark.etl.letters_table import Selection
from spark.etl.replaying import Replayer
from spark.etl.store import Store
from tests.etl.scene import PipelineScene

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
    with Store.open(f"sqlite:///{etl.directory / 'etl.db'}") as store:
        with store.engine.connect() as connection:
            ids = letters_table.ids(connection, Selection(error_type="ZeroDivisionError"))
        assert len(ids) == 10
        assert len(Replayer(etl.url, store).replay(ids).replayed) == 10
    run("later")
    shares = {row["id"]: row["share"] for row in etl.rows(target)}
    assert shares == {row["id"]: 100 // row["parts"] if row["parts"] else 0 for row in rows}
    assert len(etl.rows(target)) == 40
