"""Read Parquet files."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from longtail.data.guess import SAMPLE_ROWS
from longtail.data.source import Record, Source
from longtail.errors import DataError, MissingExtra


def open_parquet(stream: IO[bytes], path: str | Path) -> Source:
    """Open a Parquet file; only the columns that are needed are read.

    :param stream: The file, decompressed.
    :param path: Its name, for messages.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingExtra("pyarrow", "parquet", "Reading Parquet") from error
    try:
        file = pq.ParquetFile(io.BytesIO(stream.read()))  # needs random access, which a stream does not have
        first = next(file.iter_batches(SAMPLE_ROWS), None)
    except (pa.ArrowException, OSError) as error:
        raise _explain(error, path) from error

    def select(columns: Sequence[str]) -> Iterator[Record]:
        number = 0
        try:
            for batch in file.iter_batches(columns=[name for name in file.schema_arrow.names if _is_used(name, columns)]):
                for values in batch.to_pylist():
                    number += 1
                    yield Record(values, number)
        except (pa.ArrowException, OSError) as error:
            raise _explain(error, path) from error

    sample: list[dict[str, Any]] = first.to_pylist() if first is not None else []
    records = (Record(values, number) for number, values in enumerate(sample, 1))
    return Source("parquet", path, records, names=file.schema_arrow.names, select=select, unit="row")


def _is_used(name: str, columns: Sequence[str]) -> bool:
    return any(column == name or column.startswith(f"{name}.") for column in columns)


def _explain(error: Exception, path: str | Path) -> DataError:
    hint = "Download or create the file again"
    return DataError(f"not a Parquet file, or damaged ({error})", where=str(path), hint=hint)
