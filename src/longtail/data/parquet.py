"""Read Parquet files."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Any

from longtail.data.guess import SAMPLE_ROWS
from longtail.data.source import Record, Source
from longtail.errors import DataError, MissingExtra
from longtail.files import STDIN, check_expansion

_ROWS_PER_BATCH = 1024
_MAGIC = b"PAR1"


def open_parquet(stream: IO[bytes], path: str | Path) -> Source:
    """Open a Parquet file; only the columns that are needed are read, in small batches.

    :param stream: The file, decompressed.
    :param path: Its name, for messages.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingExtra("pyarrow", "parquet", "Reading Parquet") from error
    # Needs random access, which a stream does not have: the file itself is read, unless it is compressed or a pipe.
    content: bytes | str | Path = path if _is_parquet(path) else stream.read()
    n_bytes = len(content) if isinstance(content, bytes) else Path(path).stat().st_size
    try:
        columns = pq.ParquetFile(_open(content)).schema
        # A text that occurs often is stored once: as a dictionary, it is also in memory once.
        kinds = {columns.column(i).path: columns.column(i).physical_type for i in range(len(columns))}
        strings = [name for name, kind in kinds.items() if kind == "BYTE_ARRAY" and "." not in name]  # not inside of lists
        file = pq.ParquetFile(_open(content), read_dictionary=strings)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _explain(error, path) from error

    def select(columns: Sequence[str], rows_per_batch: int = _ROWS_PER_BATCH) -> Iterator[Record]:
        used = [name for name in file.schema_arrow.names if _is_used(name, columns)]
        number = n_expanded = 0
        try:
            _check_size(file.metadata, used, n_bytes, path)
            for batch in file.iter_batches(rows_per_batch, columns=used):
                cells = [_to_list(column) for column in batch.columns]
                n_expanded += sum(len(cell) for column in cells for cell in column if isinstance(cell, str))
                check_expansion(n_expanded, n_bytes, path)
                for row in zip(*cells, strict=True):
                    number += 1
                    yield Record(dict(zip(batch.schema.names, row, strict=True)), number)
        except UnicodeDecodeError as error:
            hint = "Write the column as UTF-8"
            raise DataError(f"a text is not UTF-8 ({error.reason})", where=f"{path}: row {number + 1}", hint=hint) from error
        except (pa.ArrowException, OSError) as error:
            raise _explain(error, path) from error

    sample = islice(select(file.schema_arrow.names, SAMPLE_ROWS), SAMPLE_ROWS)
    return Source("parquet", path, sample, names=file.schema_arrow.names, select=select, unit="row")


def _is_parquet(path: str | Path) -> bool:
    """Whether a path is a file that is Parquet as it is, not compressed again."""
    if str(path) == STDIN or not Path(path).is_file():
        return False
    with Path(path).open("rb") as stream:
        return stream.read(len(_MAGIC)) == _MAGIC


def _open(content: bytes | str | Path) -> Any:
    return io.BytesIO(content) if isinstance(content, bytes) else str(content)


def _check_size(metadata: Any, columns: Sequence[str], n_bytes: int, path: str | Path) -> None:
    """Check what the file says about the size of its columns, before they are decompressed."""
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    chunks = [group.column(i) for group in groups for i in range(group.num_columns)]
    used = [chunk for chunk in chunks if chunk.path_in_schema.partition(".")[0] in columns]
    check_expansion(sum(max(chunk.total_uncompressed_size, chunk.num_values) for chunk in used), n_bytes, path)


def _to_list(column: Any) -> list[Any]:
    """Convert a column to Python objects. Equal strings are one object."""
    if not hasattr(column, "dictionary"):
        return list(column.to_pylist())
    used = column.indices.unique().drop_null()  # the dictionary is that of many batches
    texts = dict(zip(used.to_pylist(), column.dictionary.take(used).to_pylist(), strict=True))
    return [texts.get(at) for at in column.indices.to_pylist()]


def _is_used(name: str, columns: Sequence[str]) -> bool:
    return any(column == name or column.startswith(f"{name}.") for column in columns)


def _explain(error: Exception, path: str | Path) -> DataError:
    hint = "Download or create the file again"
    return DataError(f"not a Parquet file, or damaged ({error})", where=str(path), hint=hint)
