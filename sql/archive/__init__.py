"""The archive: closed days as Parquet files, which are read without the database."""
