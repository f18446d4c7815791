"""What a sink learns from Spark's own files about the batch that it writes."""

from pathlib import Path

from spark.etl.checkpoints import batch_offsets

HEAD = 'v1\n{"batchWatermarkMs":0}\n'


def test_the_end_of_a_batch_is_read_with_and_without_the_uid_of_a_stream(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    sources = '{"orders":{"0":7,"1":9,"uid":"6f1c"}}\n-\n{"users":{"0":3}}\n'
    (tmp_path / "offsets" / "4").write_text(HEAD + sources)
    assert batch_offsets(tmp_path, 4) == {"orders": {0: 7, 1: 9}, "users": {0: 3}}
